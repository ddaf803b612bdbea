"""A run has its kernel to itself, leaves everyone else's things alone, and puts back what it changed."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis import Run
from lab.claim import CLAIM, GROUP
from lab.guest import GUEST
from tests.host.machine import differences, snapshot
from tests.host.processes import Start, ended, find, wait_for
from tests.system.conftest import Command

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

SHORT = ("--duration", "4s", "--warmup", "1s", "--flows", "cubic:1,bbr:1")


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """See that the machine is as before at the end."""
    before = snapshot(tmp_path)
    yield
    assert differences(before, snapshot(tmp_path)) == {}


@pytest.fixture
def others_network() -> Iterator[None]:
    """What someone else has on the machine: a bridge with a port, a pair of interfaces."""
    subprocess.run(["ip", "link", "add", "other1", "type", "veth", "peer", "name", "other2"], check=True)
    subprocess.run(["ovs-vsctl", "add-br", "other", "--", "add-port", "other", "other1"], check=True)
    yield
    subprocess.run(["ovs-vsctl", "del-br", "other"], check=True)
    subprocess.run(["ip", "link", "del", "other1"], check=True)


def test_a_run_beside_someone_elses_network(others_network: None, on_host: Callable[..., Run], tmp_path: Path) -> None:
    before = snapshot(tmp_path)
    run = on_host(*SHORT)
    assert differences(before, snapshot(tmp_path)) == {}
    assert run.info["environment"]["kernel_kind"] == "host" and run.info["environment"]["clock"] == "real"
    assert run.outcome["status"] == "complete"


def test_a_second_run_is_refused_and_the_first_left_alone(start: Start, command: Command, tmp_path: Path) -> None:
    first = start(tmp_path / "first")
    wait_for(lambda: (tmp_path / "first/raw/samples").exists())
    runner = find("runner", first.pid)
    second = command("experiments.dumbbell", "--kernel", "host", "--out", tmp_path / "second")
    assert second.status == 1
    assert f"this machine's kernel is in use: process {runner} has a run of dumbbell on it" in second.stderr
    cleaned = command("lab", "clean")
    assert cleaned.status == 1 and "nothing is removed" in cleaned.stderr
    assert first.poll() is None
    first.send_signal(signal.SIGINT)
    ended(first)
    assert Run.open(tmp_path / "first").outcome["status"] == "interrupted"


@pytest.mark.parametrize("taken", ["bridge s1", pytest.param("interface s1-eth1", marks=pytest.mark.slow)])
def test_a_name_that_is_taken_is_refused_before_anything_is_made(taken: str, command: Command, tmp_path: Path) -> None:
    kind, name = taken.split()
    make = {
        "bridge": ["ovs-vsctl", "add-br", name],
        "interface": ["ip", "link", "add", name, "type", "veth", "peer", "name", "other2"],
    }
    remove = {"bridge": ["ovs-vsctl", "del-br", name], "interface": ["ip", "link", "del", name]}
    subprocess.run(make[kind], check=True)
    try:
        before = snapshot(tmp_path)
        done = command("experiments.dumbbell", "--kernel", "host", "--out", tmp_path / "run")
        assert done.status == 1
        assert f"this machine has {name} already, not made by Fairbed" in done.stderr
        assert differences(before, snapshot(tmp_path)) == {}
        assert command("lab", "clean").stdout == "there was nothing to remove\n"
        assert differences(before, snapshot(tmp_path)) == {}
    finally:
        subprocess.run(remove[kind], check=True)


@pytest.mark.slow
def test_a_taken_port_is_refused(command: Command, tmp_path: Path) -> None:
    listener = subprocess.Popen(
        [sys.executable, "-c", "import socket,time; s=socket.create_server(('127.0.0.1',6653)); time.sleep(99)"]
    )
    try:
        time.sleep(1)
        done = command("experiments.dumbbell", "--kernel", "host", "--out", tmp_path / "run")
        assert done.status == 1 and "cannot listen on 127.0.0.1:6653: Address already in use" in done.stderr
    finally:
        listener.kill()
        listener.wait()


@pytest.mark.slow
@pytest.mark.parametrize("size_kb", [16, 120, 400])
def test_a_full_disk_is_one_line(size_kb: int, command: Command, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_kb}k", "tmpfs", str(small)], check=True)
    try:
        done = command("experiments.dumbbell", "--kernel", "host", "--out", small / "run", *SHORT)
        *_, last = done.stderr.splitlines()
        assert done.status == 1 and "Traceback" not in done.stderr
        assert last.startswith("fairbed: ") and "No space left on device" in last
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.slow
def test_the_next_run_takes_down_what_a_killed_one_left(
    start: Start, on_host: Callable[..., Run], tmp_path: Path
) -> None:
    killed = start(tmp_path / "killed")
    wait_for(lambda: (tmp_path / "killed/raw/samples").exists())
    runner: Any = find("runner", killed.pid)
    subprocess.run(["kill", "-9", str(runner)], check=True)
    _, errors = ended(killed)
    assert killed.returncode == 1 and "ended without saying why" in errors
    assert CLAIM.exists()
    groups = [path.read_text().strip() for path in Path("/sys/class/net").glob("*/netdev_group")]
    assert groups.count(str(GROUP)) > 0  # pairs of the switches' are left, or the next would have nothing to do
    assert on_host(*SHORT).outcome["status"] == "complete"


@pytest.mark.slow
@pytest.mark.skipif(not GUEST.exists(), reason="would set this machine's clock; in a lab kernel nobody else minds")
def test_a_clock_that_is_set_does_not_matter(start: Start, tmp_path: Path) -> None:
    experiment = start(tmp_path / "run", "--duration", "8s", "--warmup", "1s", "--flows", "cubic:1")
    wait_for(lambda: (tmp_path / "run/raw/samples").exists())
    for when in ("2040-01-01", "2020-01-01"):
        time.sleep(2)
        subprocess.run(["date", "-s", when], check=True, capture_output=True)
    _, errors = ended(experiment)
    run = Run.open(tmp_path / "run")
    assert run.outcome["status"] == "complete", errors
    assert run.verdict["status"] != "invalid", run.verdict
    assert run.flows["t_s"].max() == pytest.approx(8.0, abs=0.2)
    assert run.flows["t_s"].is_sorted()


@pytest.mark.slow
def test_a_stopped_runner_shows_in_the_verdict(start: Start, tmp_path: Path) -> None:
    experiment = start(tmp_path / "run", "--duration", "6s", "--warmup", "1s", "--flows", "cubic:1")
    wait_for(lambda: (tmp_path / "run/raw/samples").exists())
    runner: Any = find("runner", experiment.pid)
    time.sleep(2)
    subprocess.run(["kill", f"-{signal.SIGSTOP}", str(runner)], check=True)
    time.sleep(1)
    subprocess.run(["kill", f"-{signal.SIGCONT}", str(runner)], check=True)
    ended(experiment)
    verdict = Run.open(tmp_path / "run").verdict
    assert verdict["status"] == "suspect" and "ms late" in " ".join(verdict["reasons"])
