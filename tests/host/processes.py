"""The processes of a run on a host's kernel, to be watched and killed."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.claim import VSWITCHD_PID
from tests.system.conftest import CHECKOUT

DEADLINE_S = 120.0

Start = Callable[..., "subprocess.Popen[str]"]


def children(parent: int) -> list[int]:
    """Return a process's children."""
    stats = [(int(path.name), words(int(path.name), "stat")) for path in Path("/proc").glob("[0-9]*")]
    return sorted(pid for pid, stat in stats if stat and int(stat.rpartition(")")[2].split()[1]) == parent)


def words(pid: int, file: str = "cmdline") -> str:
    """Return what a process's file says, nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def has_open(pid: int, name: str) -> bool:
    """Say whether a process has a file of this name open."""
    try:
        return any(path.readlink().name == name for path in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def find(victim: str, experiment: int) -> int | None:
    """Return the victim's process id, None as long as it isn't there."""
    if victim == "experiment":
        return experiment
    if victim == "vswitchd":
        return int(VSWITCHD_PID.read_text())
    runners = [pid for pid in children(experiment) if "lab.runner" in words(pid)]
    own = [pid for runner in runners for pid in children(runner)]
    traffic = [pid for pid in own if has_open(pid, "traffic.jsonl")]  # a fork of the runner, of which there are others
    found = {
        "runner": runners,
        "controller": [pid for pid in own if "-m controller" in words(pid)],
        "traffic": traffic,
        "iperf3": [pid for parent in traffic for pid in children(parent) if "iperf3" in words(pid)],
    }[victim]
    return found[0] if found else None


def wait_for(condition: Callable[[], Any]) -> Any:
    """Return what the condition gives once it gives anything."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.02)
    return found


def started(out: Path, *options: str) -> "subprocess.Popen[str]":
    """Start the dumbbell on this kernel."""
    argv = [
        sys.executable,
        "-m",
        "experiments.dumbbell",
        "--kernel",
        "host",
        "--duration",
        "60s",
        "--out",
        str(out),
        *options,
    ]
    return subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def ended(experiment: "subprocess.Popen[str]") -> tuple[str, str]:
    """Wait for an experiment's end and return what it said."""
    return experiment.communicate(timeout=DEADLINE_S)
