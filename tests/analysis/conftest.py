"""Fixtures that record synthetic runs."""

from pathlib import Path
from typing import Any

import pytest

from lab.record import Run
from tests.analysis.synthetic_runs import MakeRun, constant_run, sawtooth


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Return a maker of runs of constant goodputs, by name."""

    def make(goodputs_mbit: dict[str, float], name: str = "run", **settings: Any) -> Run:
        return constant_run(tmp_path / name, goodputs_mbit, **settings)

    return make


@pytest.fixture
def sawtooth_run(tmp_path: Path) -> Run:
    """Return a run of 60 s that looks like TCP over a drop-tail bottleneck."""
    return sawtooth(tmp_path / "dumbbell-1")
