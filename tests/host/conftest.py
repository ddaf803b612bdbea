"""Tests of runs on a host's kernel: this machine's where that can, else one in a lab kernel (make test-host)."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from analysis import Run
from lab import hosts
from lab.doctor import CCAS
from lab.guest import GUEST
from tests.host.processes import Start, started
from tests.system.conftest import KERNEL, Command, command, record

__all__ = ["command", "on_host", "start"]


@pytest.fixture(autouse=True, scope="session")
def able() -> None:
    """Skip where this kernel can't carry a run, or was not offered: these tests kill its Open vSwitch."""
    if KERNEL != "host" and not (GUEST / "job").exists():
        pytest.skip("only where asked for (make test-host), or inside a lab kernel")
    if lacks := hosts.missing(CCAS):
        pytest.skip(f"this kernel lacks {lacks[0]}: `make test-host` runs these inside a lab kernel then")


@pytest.fixture
def on_host(command: Command, tmp_path: Path) -> Callable[..., Run]:
    """Return a function that runs the dumbbell on this kernel with these options and gives its record."""
    return lambda *options: record(command, tmp_path / "run", "host", *options)


@pytest.fixture
def start() -> Iterator[Start]:
    """Give a function that starts the dumbbell on this kernel; it does not outlive the test."""
    begun: list[subprocess.Popen[str]] = []

    def run(out: Path, *options: str) -> "subprocess.Popen[str]":
        begun.append(started(out, *options))
        return begun[-1]

    yield run
    for experiment in begun:
        experiment.kill()
        experiment.communicate()
