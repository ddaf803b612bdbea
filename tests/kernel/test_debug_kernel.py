"""NDM-TCP in a lab kernel with the memory and undefined-behaviour sanitizers: ``make lab-debug``."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.kernels import lab_kernel
from tests.kernel.ndm_harness import ROOT

pytestmark = [pytest.mark.system, pytest.mark.slow]

HERE = Path(__file__).parent
CONFIG = "config config.debug"
WATCHDOG_S = 1200.0
REPORT = re.compile(r"KASAN|UBSAN|BUG:|WARNING:|Oops|Call Trace|list_(add|del) corruption|sleeping function")


@pytest.fixture(scope="module")
def debug_kernel() -> Path:
    """The directory of the lab kernel with sanitizers, which is made first where there is none (ten minutes)."""
    os.environ["FAIRBED_KERNEL_CONFIG"] = CONFIG
    try:
        return lab_kernel().path
    finally:
        del os.environ["FAIRBED_KERNEL_CONFIG"]


def run_inside(where: Path, *argv: str) -> str:
    """Return what a command in that kernel prints; a failure shows what it said."""
    lab = [sys.executable, "-m", "lab", "run", "--clock", "virtual", "--memory", "2048", "--", *argv]
    environment = os.environ | {"FAIRBED_KERNEL_CONFIG": CONFIG, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        lab, cwd=where, env=environment, capture_output=True, text=True, check=False, timeout=WATCHDOG_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def reports(messages: str) -> list[str]:
    """Return the lines by which a kernel complains."""
    return [line for line in messages.splitlines() if REPORT.search(line)]


def test_a_fault_would_be_reported(debug_kernel: Path, tmp_path: Path) -> None:
    """A module that writes behind its memory and shifts too far is caught at both."""
    shutil.copytree(HERE / "faulty", tmp_path / "faulty")
    kernel = debug_kernel / "kernel"
    build = ["make", "-s", "-C", f"{kernel}/src", f"O={kernel}/build", "ARCH=um", f"M={tmp_path}/faulty", "modules"]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = run_inside(tmp_path, "/bin/sh", "-c", "PATH=$PATH:/sbin; insmod faulty/faulty.ko; dmesg --color=never")
    assert "KASAN: slab-out-of-bounds in faulty_init" in said
    assert "UBSAN: shift-out-of-bounds" in said
    assert reports(said)


def test_nothing_is_reported_of_ndm_tcp(debug_kernel: Path, tmp_path: Path) -> None:
    """20 flows connect, lose, time out, undo, idle, change algorithm and close; the module goes in and out."""
    module = str(debug_kernel / "ndm_tcp.ko")
    said = json.loads(run_inside(tmp_path, sys.executable, str(HERE / "workout.py"), module))
    lived = said["counters"]
    undone = sum(count for name, count in lived.items() if name.endswith("Undo"))
    assert lived["TcpRetransSegs"] > 100, lived
    assert lived["TcpExtTCPTimeouts"] >= 20, lived
    assert undone > 0, lived
    assert lived["TcpExtTCPSpuriousRTOs"] > 0, lived
    assert said["refused"] == 30, "the module must not go while a socket has it"
    assert said["messages"].count("state of a connection: ndm_tcp 72, ndm2 80 of at most 104 bytes") == 31
    boot, loading, since = said["messages"].partition("ndm_tcp: loading out-of-tree module")
    assert loading, boot
    assert reports(since) == []
