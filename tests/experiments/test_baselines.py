"""Baselines: what is run, what is kept, and when a kept one counts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.baselines import run_baselines
from lab import provenance
from lab.record import Run
from lab.scenario import Scenario, make_flows, make_scenario

ENVIRONMENT = {"kernel_kind": "lab", "clock": "virtual"}


def record(scenario: Scenario, place: Path, status: str = "complete") -> Run:
    run = Run.create(place)
    run.write_info(
        {
            "created": "2026-01-01T00:00:00+00:00",
            "scenario": scenario.model_dump(mode="json"),
            "environment": ENVIRONMENT,
            "outcome": {"status": status},
        }
    )
    return run


@pytest.fixture
def mixed(tmp_path: Path) -> Run:
    params: dict[str, Any] = {"pairs": 2, "rate_mbit": 20.0, "rtt_ms": 40.0, "buffer": "1bdp"}
    fields: dict[str, Any] = {"name": "dumbbell", "topology": "dumbbell", "params": params}
    fields |= {"flows": make_flows(["cubic", "bbr"]), "duration_s": 10.0, "warmup_s": 1.0, "seed": 1}
    return record(make_scenario(**fields), tmp_path / "mixed")


class Executed:
    """Records instead of running, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.flows: list[list[str]] = []

    def __call__(self, scenarios: Sequence[Scenario], places: Sequence[Path]) -> list[Run]:
        self.flows += [[flow.cca for flow in scenario.flows] for scenario in scenarios]
        return [record(scenario, place) for scenario, place in zip(scenarios, places, strict=True)]


def test_each_flow_alone_and_each_algorithm_among_its_own(
    mixed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "commit", lambda: "abc")
    executed = Executed()
    runs = run_baselines(mixed, tmp_path / "kept", executed)
    assert executed.flows == [["cubic"], ["bbr"], ["cubic", "cubic"], ["bbr", "bbr"]]
    assert [len(run.scenario["flows"]) for run in runs] == [1, 1, 2, 2]


def test_kept_ones_are_not_run_again(mixed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "commit", lambda: "abc")
    run_baselines(mixed, tmp_path / "kept", Executed())
    again = Executed()
    assert len(run_baselines(mixed, tmp_path / "kept", again)) == 4
    assert again.flows == []


def test_other_code_makes_its_own(mixed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "commit", lambda: "abc")
    run_baselines(mixed, tmp_path / "kept", Executed())
    monkeypatch.setattr(provenance, "commit", lambda: "def")
    again = Executed()
    run_baselines(mixed, tmp_path / "kept", again)
    assert len(again.flows) == 4


def test_an_incomplete_one_is_moved_aside_and_run_again(
    mixed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "commit", lambda: "abc")
    first = run_baselines(mixed, tmp_path / "kept", Executed())[0]
    first.write_info(first.info | {"outcome": {"status": "crashed"}})
    again = Executed()
    run_baselines(mixed, tmp_path / "kept", again)
    assert again.flows == [["cubic"]]
    assert (tmp_path / "kept" / f"{first.path.name}.incomplete0" / "run.json").exists()
