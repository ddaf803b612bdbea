"""Baseline runs for harm and paired impact: run when asked for, kept, and used again where nothing has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from lab import provenance
from lab.record import RecordError, Run
from lab.scenario import Scenario, make_scenario, scenario_hash

Execute = Callable[[Sequence[Scenario], Sequence[Path]], list[Run]]


def place_of(scenario: Scenario, kept: Path, commit: str, kernel: str) -> Path:
    """Return where a baseline is kept: it depends on the scenario, the code and the kernel that made it."""
    key = hashlib.sha256(f"{scenario_hash(scenario)} {commit} {kernel}".encode()).hexdigest()[:16]
    return kept / key


def run_baselines(mixed: Run, kept: Path, execute: Execute) -> list[Run]:
    """Return a mixed run's baselines; those that are complete in ``kept`` already are not run again.

    In a checkout with uncommitted changes nothing is used again: the code that made it is not known.
    """
    from analysis import baseline_scenarios

    commit = provenance.commit() or "+"
    kernel = str(mixed.info["environment"].get("kernel_kind")) + str(mixed.info["environment"].get("clock"))
    if commit.endswith("+"):
        commit += mixed.info["created"]
    scenarios = [make_scenario(**fields) for fields in baseline_scenarios(mixed.scenario).values()]
    places = {place_of(scenario, kept, commit, kernel): scenario for scenario in scenarios}
    missing = {place: scenario for place, scenario in places.items() if not _complete(place)}
    if missing:
        execute(list(missing.values()), list(missing))
    return [Run.open(place) for place in places]


def _complete(place: Path) -> bool:
    """Say whether a complete run is there; what a killed one left is moved out of the way."""
    try:
        if Run.open(place).outcome.get("status") == "complete":
            return True
    except RecordError:
        pass
    if place.exists():
        number = sum(1 for _ in place.parent.glob(f"{place.name}.incomplete*"))
        place.rename(place.with_name(f"{place.name}.incomplete{number}"))
    return False
