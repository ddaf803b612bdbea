"""The module and the BPF program do the same: their callbacks side by side, in user space.

``test_bpf.py`` compares the BPF compiler's arithmetic in the kernel; ``test_stock_kernel.py`` both on one real kernel.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kernel.ndm_harness import CORE

TWINS = Path(__file__).with_name("twins")
STEPS = 200_000


def twins(output: Path, *sources: Path, options: Sequence[str] = ()) -> Path:
    """Compile both sources against a kernel of ours, with their driver."""
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", *options]
    command += [f"-I{TWINS}", f"-I{CORE}", "-o", str(output), str(TWINS / "twins.c"), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def drive(program: Path, seed: int) -> subprocess.CompletedProcess[str]:
    """Run the driver."""
    return subprocess.run([program, str(seed), str(STEPS)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("seed", range(1, 6))
def test_same_events_same_connection(tmp_path: Path, seed: int) -> None:
    """After each of 200,000 ACKs, losses, timeouts, undos, restarts and extremes both connections are equal."""
    sanitizers = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    program = twins(tmp_path / "twins", CORE / "ndm_tcp.c", CORE / "ndm_bpf.c", options=sanitizers)
    done = drive(program, seed)
    assert done.returncode == 0, done.stderr
    grown = {name: int(count) for name, count in map(str.split, done.stdout.splitlines())}
    assert grown.keys() == {"ndm_tcp", "ndm2"}
    assert min(grown.values()) > STEPS / 20, "the events must let the window grow, or they compare nothing"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("2 * tp->max_packets_out", "3 * tp->max_packets_out"),
        ("tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;", ""),
        ("event == CA_EVENT_LOSS", "event == CA_EVENT_COMPLETE_CWR"),
        ("tp->snd_ssthresh = tp->snd_cwnd;", "tp->snd_ssthresh = tp->snd_cwnd + 1;"),
        ("return tcp_reno_undo_cwnd(sk);", "return tcp_sk(sk)->snd_cwnd;"),
        (">= NDM_V2_CWND_MAX", "> NDM_V2_CWND_MAX"),
    ],
)
def test_a_difference_is_found(tmp_path: Path, right: str, wrong: str) -> None:
    """Each slip in the BPF program's rules shows."""
    source = (CORE / "ndm_bpf.c").read_text()
    assert right in source
    (tmp_path / "ndm_bpf.c").write_text(source.replace(right, wrong))
    done = drive(twins(tmp_path / "twins", CORE / "ndm_tcp.c", tmp_path / "ndm_bpf.c"), 1)
    assert done.returncode == 1
    assert "differ at step" in done.stderr
