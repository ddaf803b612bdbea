"""Fixtures of the tests that run the real thing: Mininet, Open vSwitch, the controller and the module in the lab."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from analysis import Run

CHECKOUT = Path(__file__).resolve().parents[2]
KERNEL = os.environ.get("FAIRBED_TEST_KERNEL", "lab")
"""Where the dumbbell runs: "host" for this machine's own kernel (make test-host)."""


@dataclass(frozen=True)
class Done:
    """A finished command."""

    status: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture(scope="session")
def command() -> Command:
    """Return a function that runs ``python -m MODULE ARGUMENTS`` as a user would."""

    def run(*arguments: object, timeout_s: float = 300) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", *map(str, arguments)],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def record(command: Command, out: Path, kernel: str, *options: object) -> Run:
    """Run the dumbbell experiment on a kernel with these options and return its record."""
    done = command("experiments.dumbbell", "--kernel", kernel, "--out", out, "--json", *options)
    assert done.status == 0, done.stderr
    json.loads(done.stdout)
    return Run.open(out)


@pytest.fixture(scope="session")
def dumbbell(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Return a function that runs the dumbbell experiment with these options and gives its record."""

    def run(*options: object, kernel: str = KERNEL) -> Run:
        return record(command, tmp_path_factory.mktemp("runs") / "run", kernel, *options)

    return run


@pytest.fixture(scope="session")
def main_job(dumbbell: Callable[..., Run]) -> Run:
    """The main job as the README gives it, recorded once for all tests."""
    return dumbbell()
