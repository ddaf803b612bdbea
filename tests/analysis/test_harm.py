"""Harm and paired impact, with values known by hand."""

import json

import pytest

from analysis import baseline_scenarios, harm_summary
from analysis.__main__ import main
from lab.record import Run
from tests.analysis.synthetic_runs import MakeRun
from topologies.errors import UsageError

MIX = {"cubic-1": 4.0, "bbr-1": 14.0}


def recorded(run: Run, scenario: dict[str, object]) -> Run:
    """Give a synthetic run the scenario that it stands for."""
    run.write_info(run.info | {"scenario": scenario})
    return Run.open(run.path)


@pytest.fixture
def runs(make_run: MakeRun) -> tuple[Run, list[Run]]:
    """A mix, and its baselines: 16 Mbit/s for cubic alone, 18 for bbr, 9 each for all-cubic, 7 each for all-bbr."""
    mixed = make_run(MIX, name="mix")
    wanted = baseline_scenarios(mixed.scenario)
    goodputs = {
        "solo:cubic-1": {"cubic-1": 16.0},
        "solo:bbr-1": {"bbr-1": 18.0},
        "all:cubic": {"cubic-1": 9.0, "bbr-1": 9.0},
        "all:bbr": {"cubic-1": 7.0, "bbr-1": 7.0},
    }
    assert list(wanted) == list(goodputs)
    made = [recorded(make_run(goodputs[key], name=key.replace(":", "-")), wanted[key]) for key in wanted]
    return mixed, made


def test_harm_and_impact(runs: tuple[Run, list[Run]]) -> None:
    """(16 - 4) / 16 and (18 - 14) / 18; 4 / 9 and 14 / 7; the same retransmissions and RTT are no harm."""
    harm = harm_summary(*runs)
    assert [flow.goodput for flow in harm.flows] == pytest.approx([0.75, 4 / 18], rel=1e-6)
    assert [flow.retransmissions for flow in harm.flows] == pytest.approx([0.0, 0.0], abs=1e-2)
    assert [flow.delay for flow in harm.flows] == [0.0, 0.0]
    assert harm.impact == pytest.approx({"cubic": 4 / 9, "bbr": 2.0}, rel=1e-6)
    assert harm.reasons == {}


def test_missing_baselines_are_named(runs: tuple[Run, list[Run]]) -> None:
    """What has no baseline is None with a reason; the order and the names of the baselines don't matter."""
    mixed, baselines = runs
    harm = harm_summary(mixed, [baselines[3], baselines[0]])
    assert harm.flows[0].goodput == pytest.approx(0.75) and harm.flows[1].goodput is None
    assert harm.impact["cubic"] is None and harm.impact["bbr"] == pytest.approx(2.0)
    assert "solo run" in harm.reasons["flows.bbr-1.goodput"]
    assert "every flow on cubic" in harm.reasons["impact.cubic"]


def test_unsound_and_foreign_baselines(runs: tuple[Run, list[Run]], make_run: MakeRun) -> None:
    """An invalid run is no baseline, nor one of another scenario: when none is left, an error says what is needed."""
    mixed, baselines = runs
    invalid = baselines[0]
    invalid.write_info(invalid.info | {"verdict": {"status": "invalid", "reasons": ["x"]}})
    with pytest.raises(UsageError, match="one flow alone"):
        harm_summary(mixed, [Run.open(invalid.path), make_run({"reno-1": 5.0}, name="other")])


def test_command(runs: tuple[Run, list[Run]], capsys: pytest.CaptureFixture[str]) -> None:
    """The table and the JSON say the same."""
    mixed, baselines = runs
    arguments = ["harm", str(mixed.path), *(str(run.path) for run in baselines)]
    assert main(arguments) == 0
    assert "0.750" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["impact"]["bbr"] == pytest.approx(2.0)


def test_one_algorithm_has_no_camps() -> None:
    """With a single congestion control the run is its own all-run."""
    flows = [{"flow_id": "bbr-1", "cca": "bbr"}, {"flow_id": "bbr-2", "cca": "bbr"}]
    assert list(baseline_scenarios({"flows": flows})) == ["solo:bbr-1", "solo:bbr-2"]
