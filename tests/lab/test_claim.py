"""The claim on a kernel: its lock, what it names, and what is put back. (What it does to a network: tests/host.)"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import claim, commands
from lab.commandline import run_app
from lab.plan import make_plan
from lab.scenario import make_flows, make_scenario
from tests.system.conftest import CHECKOUT
from topologies.errors import FairbedError

HOLD = """
import os, sys, time
from pathlib import Path
from lab import claim
claim.CLAIM = Path(sys.argv[1])
with claim._locked() as file:
    os.pwrite(file, b'{"scenario": "dumbbell"}', 0)
    print("locked", flush=True)
    if os.fork() == 0:
        print(os.getpid(), flush=True)
    time.sleep(60)
"""


def plan_of(cca: str, **fields: Any) -> dict[str, Any]:
    """Return the plan of one flow through a dumbbell."""
    params = {"pairs": 1, "rate_mbit": 20.0, "rtt_ms": 40.0, "buffer": "1bdp"}
    times = {"duration_s": 5.0, "warmup_s": 1.0, "seed": 1}
    return make_plan(
        make_scenario(name="x", topology="dumbbell", params=params, flows=make_flows([cca]), **times, **fields)
    )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the claim's file in a directory of the test's own."""
    monkeypatch.setattr(claim, "CLAIM", tmp_path / "claim.json")
    return tmp_path / "claim.json"


@pytest.fixture
def holder(place: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that has the claim locked, and a child of it that goes on."""
    argv = [sys.executable, "-c", HOLD, str(place)]
    with subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        child = int(process.stdout.readline())
        yield process
        os.kill(child, 9)
        process.kill()


def test_a_second_one_is_refused_and_told_who_has_it(holder: "subprocess.Popen[str]") -> None:
    with pytest.raises(FairbedError, match=rf"in use: process {holder.pid} has a run of dumbbell on it.*--kernel lab"):
        claim._lock()


def test_the_lock_dies_with_its_owner_though_its_child_lives(holder: "subprocess.Popen[str]") -> None:
    holder.kill()
    holder.wait()
    with claim._locked() as file:
        assert claim._read(file) == {"scenario": "dumbbell"}


def test_who_waited_for_the_lock_of_a_removed_file_gets_the_new_one(place: Path) -> None:
    with claim._locked():
        place.unlink()
    with claim._locked() as file:
        assert os.fstat(file).st_ino == place.stat().st_ino


def test_a_claim_that_was_cut_off_names_nothing(place: Path) -> None:
    place.write_text('{"run": "1-2", "interf')
    with claim._locked() as file:
        assert claim._read(file) is None


def test_a_claim_that_names_nothing_leaves_no_file(place: Path) -> None:
    with claim._locked() as file:
        claim._discharge(file)
    assert not place.exists()


def test_a_shorter_claim_takes_the_place_of_a_longer_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write_text(json.dumps({"run": "an older one", "scenario": "x" * 1000}))
    taken_down: list[str] = []
    monkeypatch.setattr(claim, "take_down", lambda found: taken_down.append(found["run"]) or [])  # type: ignore[func-returns-value]
    monkeypatch.setattr(claim, "_refuse_taken_names", lambda plan: None)
    monkeypatch.setattr(claim, "SYSCTLS", {})
    with claim.claimed(plan_of("cubic")):
        assert json.loads(place.read_text())["run"].startswith(f"{os.getpid()}-")
    assert taken_down[0] == "an older one" and len(taken_down) == 2
    assert not place.exists()


def test_a_plans_interfaces_and_modules() -> None:
    plan = plan_of("bbr", aqm="codel")
    pairs = [line for line in plan["links"] if " peer " in line]
    made = {line.split()[3] for line in pairs} | {line.split()[-1] for line in pairs}
    outside = {name for name in made if not name.startswith(("snd", "rcv"))}
    assert set(claim.interfaces(plan)) == outside != set()
    assert {"tcp_bbr", "sch_codel", "sch_netem"} <= set(claim.modules(plan))
    assert "veth" not in claim.modules(plan)  # without it everyone's pairs would go


def test_settings_are_put_back_but_for_those_set_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "_sysctl", tmp_path.joinpath)
    (tmp_path / "ours").write_text("5000\n")
    (tmp_path / "others").write_text("7\n")
    done = claim._put_back({"ours": ["1000\n", "5000\n"], "others": ["1\n", "5000\n"]})
    assert done == ["sysctl ours back at 1000"]
    assert [(tmp_path / name).read_text() for name in ("ours", "others")] == ["1000\n", "7\n"]


def test_one_failing_step_does_not_keep_the_others_from_being_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "_sysctl", tmp_path.joinpath)
    (tmp_path / "ours").write_text("5000\n")

    def fail(tag: str) -> list[str]:
        raise FairbedError("Open vSwitch is gone")

    monkeypatch.setattr(claim, "_remove_rows", fail)
    with pytest.raises(FairbedError, match="is gone"):
        claim.take_down({"run": "", "interfaces": [], "sysctls": {"ours": ["1\n", "5000\n"]}, "modules": []})
    assert (tmp_path / "ours").read_text() == "1\n"


def test_processes_of_the_run_are_killed_and_no_others() -> None:
    def sleeper(run: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sleep", "60"], env=os.environ | {claim.RUN_ID: run})

    with sleeper("test-1") as ours, sleeper("test-11") as others:
        assert claim._kill_processes("test-1") == [f"process {ours.pid}"]
        assert ours.wait() == -9 and others.poll() is None
        others.kill()


def test_an_interface_that_is_not_of_our_group_stays() -> None:
    assert claim.remove_interfaces(["lo", "no-such-interface"]) == []


def test_a_process_is_named_for_good() -> None:
    assert claim.start_ticks(os.getpid()) == claim.start_ticks(os.getpid()) > 0
    assert claim.start_ticks(2**22 + 1) == 0  # above the largest id there can be


@pytest.mark.parametrize(
    ("claimed", "status", "said"),
    [
        (True, 2, "fairbed: a run of root has, or had, this machine's own kernel: use sudo\n"),
        (False, 0, "there was nothing to remove\n"),
    ],
)
def test_a_users_clean_leaves_this_machines_kernel_alone(
    claimed: bool,
    status: int,
    said: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(commands, "CLAIM", place)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(place.parent))
    if claimed:
        place.write_text("{}")
    assert run_app(commands.app, "lab", ["clean"]) == status
    captured = capfd.readouterr()
    assert captured.out + captured.err == said


def test_a_claim_is_json_with_all_that_is_needed() -> None:
    made = json.loads(json.dumps(claim._new_claim(plan_of("cubic"))))
    assert made.keys() == {"run", "scenario", "caller", "interfaces", "sysctls", "modules"}
    assert made["caller"] == [os.getppid(), claim.start_ticks(os.getppid())]
