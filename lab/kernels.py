"""Where things are that set-up made, and the finished lab kernel."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.guest import GUEST, Bind, Clock, GuestError, Job, LabKernel, guest_environment

CHECKOUT = Path(__file__).resolve().parent.parent
BUILD = CHECKOUT / "kernel" / "uml" / "build.sh"


def cache_directory() -> Path:
    """Return the directory that set-up filled: FAIRBED_CACHE, or where this interpreter's environment lives."""
    if given := os.environ.get("FAIRBED_CACHE"):
        return Path(given)
    return Path(sys.prefix).resolve().parent


def compile_sources() -> None:
    """Compile our sources where they changed and may be written: the guest can't, and would do it again each time."""
    for name in ("topologies", "lab", "controller"):
        compileall.compile_dir(CHECKOUT / name, quiet=2)


def checkout_job(words: Sequence[str], directory: Path, seed: int, clock: Clock, memory_mb: int) -> Job:
    """Return a job that runs this checkout's Python with these words, in the guest, at paths that never differ.

    ``directory`` is mounted writable at ``GUEST / "run"``.
    """
    checkout, environment = GUEST / "checkout", GUEST / "environment"
    return Job(
        argv=[f"{environment}/bin/python", *words],
        cwd=checkout,
        environment=guest_environment(environment),
        binds=[
            Bind(CHECKOUT, checkout, writable=False),
            Bind(Path(sys.prefix).resolve(), environment, writable=False),
            Bind(directory.resolve(), GUEST / "run"),
        ],
        seed=seed,
        clock=clock,
        memory_mb=memory_mb,
    )


def lab_kernel() -> LabKernel:
    """Return the lab kernel for this checkout, checked, and made first where it is missing or damaged.

    Raises
    ------
    GuestError
        When it can't be made: with the building script's own words.
    """
    built = subprocess.run(
        [str(BUILD), str(cache_directory() / "kernel")], stdout=subprocess.PIPE, text=True, check=False
    )
    if built.returncode:
        raise GuestError("there is no lab kernel, for the reason above; `python -m lab doctor` says what is missing")
    return LabKernel(Path(built.stdout.strip().splitlines()[-1]))
