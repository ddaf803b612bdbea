"""The comparison of queue policies: what is run, how it is told."""

import json
from pathlib import Path

import pytest

from analysis.statistics import Interval
from experiments import queues
from lab.commandline import run_app
from topologies.errors import UsageError

CCAS = ["ndm_tcp", "cubic"]


def test_every_policy_is_compared_once() -> None:
    from controller.queues import POLICIES

    assert {policy.partition(":")[0] for policy in queues.POLICIES} == set(POLICIES)


def test_policies_that_name_an_absent_algorithm_are_left_out_of_the_usual_ones() -> None:
    assert queues._names(None, CCAS) == list(queues.POLICIES)
    assert [name for name in queues._names(None, ["cubic"]) if "ndm_tcp" in name] == []
    assert queues._names(["isolate:ndm_tcp"], ["cubic"]) == ["isolate:ndm_tcp"]  # asked for: refused later, by name


def test_the_same_policy_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="shared is given twice"):
        queues._names(["shared", "per_cca", "shared"], CCAS)


def test_a_policys_folder_is_a_plain_name() -> None:
    assert queues._folder("weighted:ndm_tcp=2,cubic=1") == "weighted-ndm_tcp2-cubic1"


def test_cells_have_half_the_interval_only_where_there_is_one() -> None:
    assert queues._cell(Interval(0.5, 0.4, 0.6, 5), 100.0, 1) == "50.0 ± 10.0"
    assert queues._cell(Interval(0.5, None, None, 1), 1.0, 3) == "0.500"
    assert queues._cell(None, 1.0, 3) == "–"


def test_the_table_has_a_row_for_each_policy_and_a_share_for_each_algorithm() -> None:
    one = Interval(0.25, None, None, 1)
    measures = dict.fromkeys([*queues.COLUMNS, "share of cubic", "share of bbr"], one)
    header, rows = queues._table({"shared": measures, "per_cca": measures})
    assert header[-2:] == ["cubic %", "bbr %"]
    assert [row[0] for row in rows] == ["shared", "per_cca"]
    assert {len(row) for row in rows} == {len(header)}
    lines = queues._markdown(header, rows).splitlines()
    assert lines[0].startswith("| policy | Jain, lifetime |")
    assert lines[1].count("---:") == len(header) - 1


def test_explain_prints_a_plan_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run_app(queues.app, "queues", ["--explain", "--queues", "per_cca", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["controller"]["policy"] == "per_cca"
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--queues", "fair"], "unknown queue policy 'fair'"),
        (["--queues", "isolate:ndm_tcp", "--flows", "cubic:2"], "'ndm_tcp', which has no flow"),
        (["--rate", "20"], "no unit"),
    ],
)
def test_mistakes_are_found_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert run_app(queues.app, "queues", [*options, "--out", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
