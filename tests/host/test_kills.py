"""Whatever is killed, and whenever: after ``lab clean`` the machine is as it was."""

import json
import os
import random
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.claim import CLAIM, VSWITCHD_PID, vswitchd_runs
from tests.host.machine import differences, snapshot
from tests.host.processes import Start, ended, find, wait_for, words
from tests.system.conftest import Command

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

VICTIMS = ("experiment", "runner", "controller", "vswitchd", "traffic", "iperf3")
"""The sampler is the runner itself."""

MOMENTS = 50
IN_EVERY_RUN = len(VICTIMS)
LATEST_S = {"experiment": 9.0, "runner": 7.0, "controller": 6.0, "vswitchd": 8.0, "traffic": 5.0, "iperf3": 4.0}
"""Of the moment, counted from when the victim is first there; the run goes on for longer."""


@pytest.fixture(scope="session")
def as_it_was(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The machine before the first of these tests."""
    return snapshot(tmp_path_factory.getbasetemp())


@pytest.fixture
def switches_on() -> Iterator[Callable[[], None]]:
    """Give a function that starts Open vSwitch's daemon as it had been started, if it is dead."""
    argv = Path(f"/proc/{VSWITCHD_PID.read_text().strip()}/cmdline").read_text().rstrip("\0").split("\0")

    def start() -> None:
        if not vswitchd_runs():
            subprocess.run(argv, check=True)
            subprocess.run(["ovs-vsctl", "--timeout=20", "list-br"], check=True, capture_output=True)

    yield start
    start()


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(n, marks=[pytest.mark.slow] if n >= IN_EVERY_RUN else [], id=f"{n}-{VICTIMS[n % len(VICTIMS)]}")
        for n in range(MOMENTS)
    ],
)
def test_nothing_is_left_after_clean(
    moment: int,
    start: Start,
    as_it_was: dict[str, Any],
    switches_on: Callable[[], None],
    command: Command,
    tmp_path: Path,
) -> None:
    victim = VICTIMS[moment % len(VICTIMS)]
    delay_s = random.Random(moment).uniform(0, LATEST_S[victim])  # noqa: S311
    experiment = start(tmp_path / "run", *(["--generator", "iperf3"] if victim == "iperf3" else []))
    pid = wait_for(lambda: find(victim, experiment.pid) or experiment.poll() is not None)
    assert experiment.poll() is None, experiment.communicate()[1]
    time.sleep(delay_s)
    os.kill(pid, signal.SIGKILL)
    stage = CLAIM.read_text()[:40] if CLAIM.exists() else "nothing claimed"
    if victim in ("controller", "traffic", "iperf3"):  # the run goes on without it
        time.sleep(0.5)
        experiment.send_signal(signal.SIGINT)
    _, errors = ended(experiment)
    if victim == "vswitchd":
        switches_on()
    done = command("lab", "clean")
    print(
        f"{victim} killed {delay_s:.2f} s after it came ({stage}); {shlex.quote(errors[-200:])}; clean: {done.stdout}"
    )
    assert done.status == 0, done.stderr
    assert "Traceback" not in errors
    found = differences(as_it_was, snapshot(tmp_path.parent))
    assert found == {}, json.dumps(found, indent=1)


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(4))
def test_switches_that_die_while_bridges_are_made_hold_nothing_up(
    attempt: int, start: Start, as_it_was: dict[str, Any], switches_on: Callable[[], None], tmp_path: Path
) -> None:
    # the command that makes bridges may outlive the daemon, and make them when they have been deleted already
    experiment = start(tmp_path / "run")
    wait_for(lambda: any("add-br" in words(int(path.name)) for path in Path("/proc").glob("[0-9]*")))
    os.kill(int(VSWITCHD_PID.read_text()), signal.SIGKILL)
    _, errors = ended(experiment)
    assert "Open vSwitch's daemon, ovs-vswitchd, ended during the run" in errors
    switches_on()
    assert differences(as_it_was, snapshot(tmp_path.parent)) == {}


@pytest.mark.slow
def test_what_the_kernel_loaded_for_a_killed_run_is_unloaded(start: Start, command: Command, tmp_path: Path) -> None:
    """On a distribution's kernel (`make test-stock`); the lab kernel has all but NDM-TCP built in."""
    if Path("/sys/module/sch_netem").exists():
        pytest.skip("netem is built into this kernel, or loaded already")
    before = snapshot(tmp_path)
    experiment = start(tmp_path / "run")
    wait_for(lambda: find("traffic", experiment.pid) or experiment.poll() is not None)
    assert experiment.poll() is None, experiment.communicate()[1]
    runner = find("runner", experiment.pid)
    assert runner is not None
    loaded = set(snapshot(tmp_path)["modules"]) - set(before["modules"])
    for pid in (experiment.pid, runner):
        os.kill(pid, signal.SIGKILL)
    ended(experiment)
    done = command("lab", "clean")
    print(f"loaded for the run: {', '.join(sorted(loaded))}; clean: {done.stdout}")
    assert done.status == 0, done.stderr
    assert "sch_netem" in loaded
    left = differences(before, snapshot(tmp_path))
    held = left.pop("modules", {"gone": [], "come": []})
    assert held in ({"gone": [], "come": []}, {"gone": [], "come": ['"nfnetlink"']})  # the daemon's, by its socket
    assert {f"removed module {name}" for name in loaded - {"nfnetlink"}} <= set(done.stdout.split("\n"))
    assert left == {}
