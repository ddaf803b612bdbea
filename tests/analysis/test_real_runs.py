"""Runs of the real thing: our figures against iperf3's own, and a replay that is identical."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from analysis import Run, jain
from analysis.__main__ import main
from analysis.metrics import goodput_mbit
from analysis.series import RunSeries

pytestmark = pytest.mark.system

WITHIN = 0.01
BLOCK = 128 << 10
"""What iperf3 reads at once, in bytes, and counts when it is whole (iperf3(1), -l)."""


def dumbbell(out: Path, *options: str) -> Run:
    """Run the dumbbell and return its record."""
    command = [sys.executable, "-m", "experiments.dumbbell", "--out", str(out), "--warmup", "1s"]
    subprocess.run([*command, *options], check=True, capture_output=True, text=True, timeout=300)
    return Run.open(out)


def iperf3_bytes(run: Run, flow_id: str) -> tuple[float, float, int]:
    """Return the seconds and the bytes that iperf3's server reports between its seconds 1 and 29."""
    report = json.loads((run.raw / f"{flow_id}-iperf3-server.json").read_text())
    parts = [part["sum"] for part in report["intervals"]]
    inside = [part for part in parts if part["start"] > 0.99 and part["end"] < 29.01]
    return inside[0]["start"], inside[-1]["end"], sum(part["bytes"] for part in inside)


def test_iperf3_agrees(tmp_path: Path) -> None:
    """Goodputs and Jain's index within 1 %, or a block, of what iperf3's servers wrote about the same 28 seconds.

    iperf3's clock starts with the data connection, whose first sample tells when that was.
    """
    run = dumbbell(tmp_path / "run", "--generator", "iperf3", "--duration", "30s", "--sample", "10ms")
    ours, theirs = [], []
    for flow in RunSeries(run).flows:
        start_s, end_s, received = iperf3_bytes(run, flow.flow_id)
        t_s, counter = flow.known("bytes_received")
        theirs.append(received * 8e-6 / (end_s - start_s))
        goodput = goodput_mbit(t_s, counter, t_s[0] + start_s, t_s[0] + end_s)
        assert goodput is not None
        ours.append(goodput)
    print("ours", ours, "iperf3's", theirs)
    assert ours == pytest.approx(theirs, rel=WITHIN, abs=BLOCK * 8e-6 / 28)
    assert jain(ours) == pytest.approx(jain(theirs), rel=WITHIN)


def test_replay_is_identical(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same scenario and seed on the virtual clock: the same record; the digest is printed."""
    run = dumbbell(tmp_path / "run", "--kernel", "lab", "--duration", "10s", "--flows", "cubic:1,bbr:1")
    assert main(["replay", str(run.path)]) == 0
    assert f"identical {run.digest()}" in capsys.readouterr().out
    assert (tmp_path / "run-replay" / "run.json").exists()
