"""The options that every experiment shares: scenario files say the same as options, and never both."""

import json
from pathlib import Path

import pytest

from experiments import dumbbell, graph, satellite, wifi
from lab.commandline import run_app


def explained(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    plan: dict[str, object] = json.loads(capsys.readouterr().out)
    return plan


@pytest.mark.parametrize("suffix", [".toml", ".json"])
@pytest.mark.parametrize("module", [dumbbell, wifi, satellite])
def test_a_saved_scenario_is_the_same_run(
    module: object, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = module.app  # type: ignore[attr-defined]
    path = tmp_path / f"saved{suffix}"
    options = ["--flows", "cubic:2", "--duration", "8s", "--explain"]
    assert run_app(app, "test", [*options, "--save-scenario", str(path)]) == 0
    plan = explained(capsys)
    assert run_app(app, "test", ["--scenario", str(path), "--explain"]) == 0
    assert explained(capsys) == plan
    assert run_app(app, "test", ["--scenario", str(path), "--seed", "7", "--explain"]) == 0
    assert explained(capsys)["scenario"] == plan["scenario"] | {"seed": 7}  # type: ignore[operator]


def test_options_that_a_scenario_would_hide_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "saved.toml"
    assert run_app(dumbbell.app, "test", ["--explain", "--save-scenario", str(path)]) == 0
    assert run_app(dumbbell.app, "test", ["--scenario", str(path), "--start-gap", "1s", "--rtt", "3ms"]) == 2
    assert "--scenario says all that rtt, start-gap would" in capsys.readouterr().err


def test_a_graph_needs_a_file_or_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(graph.app, "test", ["--explain"]) == 2
    assert "a FILE with the network is needed" in capsys.readouterr().err
