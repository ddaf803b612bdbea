"""The articles' tests on the real thing: resumed, repeated bit for bit, and going on where an algorithm is missing."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.articles.carry_out import Store, attempt
from experiments.articles.trials import Job, Published, trial_named

pytestmark = pytest.mark.system


def run(trial: str, variant: str, place: Path, seed: int = 1, **changes: Any) -> dict[str, Any]:
    """Return the result of one run of a trial, with changes to its setting."""
    found = trial_named(trial)
    job = Job(replace(found, setting=replace(found.setting, **changes)), variant, seed)
    return attempt(job, Store(place).work(job), threading.Event())


def test_two_executions_agree_and_the_second_half_resumes(command: Callable[..., Any], tmp_path: Path) -> None:
    """Interrupted here is: told to run one test first, then that one and another."""
    first = command("experiments.articles", "constrained", "--repeats", 1, "--out", tmp_path / "a", "--json")
    assert first.status == 0, first.stderr
    kept = sorted((tmp_path / "a" / "results").rglob("*.json"))
    assert len(kept) == 12
    times = {path: path.stat().st_mtime_ns for path in kept}
    both = ("constrained", "controls", "--repeats", 1, "--json")
    resumed = command("experiments.articles", *both, "--out", tmp_path / "a")
    whole = command("experiments.articles", *both, "--out", tmp_path / "b")
    assert resumed.status == whole.status == 0, resumed.stderr + whole.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == times
    assert resumed.stdout == whole.stdout
    said = json.loads(resumed.stdout)
    assert said["not_complete"] == []
    assert {each["verdict"] for each in said["verdicts"]} == {"can't be judged"}  # one repeat judges nothing


def test_the_loopback_does_what_the_lines_for_tc_say(tmp_path: Path) -> None:
    """50 Mbit/s of frames; 0.5 % of about 2,000 segments of 64 KB and of their ACKs are lost."""
    found = run("constrained-published", "cubic", tmp_path)
    assert found["status"] == "complete", found["error"]
    assert 45 <= found["measures"]["goodput_mbit"] <= 50
    assert found["measures"]["dropped"] > 0
    assert len(found["series"]["retransmissions"]) == 20
    assert sum(found["series"]["retransmissions"]) == found["measures"]["retransmissions"]


def test_iperf3_ends_where_a_third_is_lost(tmp_path: Path) -> None:
    """It spins while its control connection waits, which stops virtual time unless something lets time go by.

    Where that connection itself gives up or waits too long, which is the seed's and the kernel's luck, the run ends
    too, and says so.
    """
    found = [run("torture-published", "reno", tmp_path, seed) for seed in (1, 2, 3, 4)]
    ended = [each for each in found if each["status"] == "complete"]
    given_up = [each["error"] for each in found if each["status"] == "crashed"]
    assert ended, given_up
    assert len(ended) + len(given_up) == len(found)
    assert all("control socket has closed" in error or "did not end within 130 s" in error for error in given_up)
    for each in ended:
        assert each["measures"]["goodput_mbit"] < 5
        assert each["measures"]["dropped"] >= 3


def test_a_paced_flow_never_queues_and_entropy_tells_jitter_from_a_queue_in_ndm2_only(tmp_path: Path) -> None:
    jitter, queue = (
        {cca: run(trial, cca, tmp_path)["measures"] for cca in ("ndm_tcp", "ndm2")}
        for trial in ("entropy-jitter", "entropy-queue")
    )
    payload_mbit = 5.0 * 1448 / 1514
    for paced in jitter.values():
        assert paced["goodput_mbit"] == pytest.approx(payload_mbit, rel=0.06)
        assert paced["dropped"] == 0
    assert queue["ndm2"]["dropped"] > 0
    assert queue["ndm2"]["entropy"] < 200 < 500 < jitter["ndm2"]["entropy"]
    assert min(queue["ndm_tcp"]["entropy"], jitter["ndm_tcp"]["entropy"]) > 700


def test_loss_on_a_hosts_own_way_is_frame_by_frame(tmp_path: Path) -> None:
    """TCP would hand its own interface several segments at a time, lost together: half the loss that was asked for."""
    found = run("controls", "cubic", tmp_path)
    assert found["verdict"] == {"status": "valid", "reasons": []}


@pytest.mark.parametrize("trial", ["constrained-published", "constrained-link"])
def test_an_algorithm_that_the_kernel_lacks(trial: str, tmp_path: Path) -> None:
    found = run(trial, "nosuch", tmp_path)
    assert found["status"] == "missing"
    assert "unknown algorithm nosuch" in found["error"]


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    found = run("constrained-published", "cubic", tmp_path, tc=("qdisc add dev lo root nosuchqdisc",))
    assert found["status"] == "crashed"
    assert "nosuchqdisc" in found["error"]


def test_the_unconstrained_loopback_on_the_real_clock(tmp_path: Path) -> None:
    """The published window grows, each second, by half to all of what is sent; the other's by next to nothing.

    Half where the RTT of the last ACKs is one number of milliseconds, all where it changed: how often, the machine
    decides. Half of an odd count of segments rounds down, so of three to one.
    """
    found = {cca: run("loopback-published", cca, tmp_path, seconds=3) for cca in ("ndm_tcp", "reno")}
    assert {each["status"] for each in found.values()} == {"complete"}
    series = found["ndm_tcp"]["series"]
    windows = [0, *series["cwnd_bytes"]]
    grown = [
        (after - before) / sent for before, after, sent in zip(windows, windows[1:], series["bytes"], strict=False)
    ]
    assert all(1 / 3 < each < 1.05 for each in grown), grown
    assert found["reno"]["measures"]["cwnd_per_sent_byte"] < 0.05
    setting = trial_named("loopback-published").setting
    assert isinstance(setting, Published) and setting.clock == "real"
