"""Runs that are damaged, partial, foreign or none: a clear error, or an explicit partial result, from every command."""

import json
from pathlib import Path
from typing import Any

import pytest

from analysis import Run, compare, summarise, summarise_repeats
from analysis.__main__ import main
from analysis.figures import save_all
from lab.record import FORMAT_VERSION, RecordError
from tests.analysis.synthetic_runs import MakeRun
from topologies.errors import UsageError

FLOWS = {"cubic-1": 6.0, "bbr-1": 4.0}
Capture = pytest.CaptureFixture[str]


def complaint(arguments: list[str], capsys: Capture) -> str:
    """Return the one line on standard error of a command that must fail, and print nothing else."""
    assert main(arguments) != 0, arguments
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("fairbed: ") and err.count("\n") == 1, arguments
    return err


def commands(path: Path, scratch: Path) -> list[list[str]]:
    """Return every command that reads one run."""
    return [
        ["summary", str(path)],
        ["plot", str(path), "-o", str(scratch / "figures")],
        ["report", str(path), "-o", str(scratch / "page.html")],
        ["export", str(path), "--json", "-o", str(scratch / "export")],
        ["digest", str(path)],
        ["compare", str(path), str(path)],
        ["harm", str(path), str(path)],
        ["replay", str(path), "-o", str(scratch / "replay")],
    ]


@pytest.mark.parametrize("length", [0, 3, 200, -1], ids=["empty", "3 bytes", "200 bytes", "last byte missing"])
def test_truncated_parquet(make_run: MakeRun, tmp_path: Path, capsys: Capture, length: int) -> None:
    """Every command that needs the table names the file."""
    path = make_run(FLOWS, name="cut").path
    table = path / "flows.parquet"
    table.write_bytes(table.read_bytes()[:length])
    for arguments in commands(path, tmp_path)[:6]:
        assert "flows.parquet, it is damaged or truncated" in complaint(arguments, capsys)


def test_a_run_that_crashed_halfway(make_run: MakeRun, tmp_path: Path, capsys: Capture) -> None:
    """What was recorded is analysed, and table, figure and JSON say how far it got."""
    outcome = {"status": "crashed", "message": "kernel panic at 8 s"}
    verdict = {"status": "invalid", "reasons": ["the run did not finish"]}
    run = make_run(FLOWS, name="half", recorded_s=8.0, outcome=outcome, verdict=verdict)
    summary = summarise(run)
    assert summary.jain == pytest.approx(100 / 104) and summary.end_s == 8.0
    assert main(["summary", str(run.path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "crashed: kernel panic at 8 s" in shown and "the record ends at 8 s of 20 s" in shown
    assert save_all(run, tmp_path / "figures", ("svg",))
    assert "crashed at 8 s" in (tmp_path / "figures" / "overview.svg").read_text()
    repeats = summarise_repeats([run, make_run(FLOWS, name="whole", seed=2)])
    assert repeats.n == 1 and "is left out: invalid" in repeats.notes[0]


def test_a_run_that_crashed_before_anything(tmp_path: Path, capsys: Capture) -> None:
    """Nothing but run.json: the summary says so, figures and page can be made, replay and harm say what is missing."""
    run = Run.create(tmp_path / "nothing")
    run.write_info({"outcome": {"status": "crashed", "message": "no kernel"}})
    for arguments in commands(run.path, tmp_path)[:6]:
        assert main(arguments) == 0, arguments
    assert "nothing was recorded" in capsys.readouterr().out
    harm, replay = commands(run.path, tmp_path)[6:]
    assert "no scenario" in complaint(harm, capsys)
    assert "recorded no scenario" in complaint(replay, capsys)


def test_a_run_of_a_stock_kernel_is_not_replayed(tmp_path: Path, capsys: Capture) -> None:
    run = Run.create(tmp_path / "stock")
    run.write_info(
        {"outcome": {"status": "complete"}, "scenario": {"seed": 1}, "environment": {"kernel_kind": "stock"}}
    )
    assert "python -m experiments.stock" in complaint(["replay", str(run.path)], capsys)


def test_an_empty_flow(make_run: MakeRun) -> None:
    """A flow that was never seen: its values are None with a reason, and fairness isn't that of the others."""
    run = make_run(FLOWS, name="gap")
    run.write_tables(flows=run.flows.filter(run.flows["flow_id"] != "bbr-1"))
    summary = summarise(Run.open(run.path))
    assert summary.flows[0].goodput_mbit == pytest.approx(6.0) and summary.flows[1].goodput_mbit is None
    assert "not recorded" in summary.reasons["flows.bbr-1.goodput_mbit"]
    assert summary.jain is None and "bbr-1 is unknown" in summary.reasons["jain"]


def test_a_flow_that_got_nothing(make_run: MakeRun) -> None:
    """A flow that starves counts as 0: Jain's index of one of two is a half."""
    summary = summarise(make_run({"cubic-1": 6.0, "bbr-1": 0.0}))
    assert summary.jain == pytest.approx(0.5) and summary.epsilon_fairness == 0.0
    assert summary.flows[1].retransmission_rate is None
    assert summary.reasons["flows.bbr-1.retransmission_rate"] == "nothing was sent"


def test_a_newer_format(tmp_path: Path, capsys: Capture) -> None:
    """Every command refuses it and says which version it knows."""
    run = Run.create(tmp_path / "newer")
    (run.path / "run.json").write_text(json.dumps({"format": FORMAT_VERSION + 1}))
    for arguments in commands(run.path, tmp_path):
        assert f"format {FORMAT_VERSION + 1}, newer than {FORMAT_VERSION}" in complaint(arguments, capsys)


def test_different_scenarios_are_no_repeats(make_run: MakeRun) -> None:
    """As repeats they are refused; compared as A and B, each keeps its own name."""
    a, b = make_run(FLOWS, name="a"), make_run(FLOWS, name="b", duration_s=30.0)
    with pytest.raises(UsageError, match="differ by more than the seed"):
        summarise_repeats([a, b])
    with pytest.raises(UsageError, match="differ by more than the seed"):
        compare([a, b], [a])
    assert compare([a], [b]).differences["overall"]["jain"].difference.mean == pytest.approx(0.0)


@pytest.mark.parametrize("what", ["missing", "empty", "file"])
def test_no_run_directory(tmp_path: Path, capsys: Capture, what: str) -> None:
    """A missing path, an empty directory, a file: not a run directory."""
    path = tmp_path / what
    if what == "empty":
        path.mkdir()
    elif what == "file":
        path.write_text("hello")
    for arguments in commands(path, tmp_path):
        assert "is not a run directory" in complaint(arguments, capsys)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "no format version"),
        ('{"format": "1"}', "no format version"),
        ('{"format": 1, "scenario": []}', "scenario is not an object"),
        ('{"format": 1, "scenario": {"flows": [{}]}}', "flow_id"),
    ],
)
def test_a_damaged_run_json(tmp_path: Path, content: str, words: str) -> None:
    """The file and the place in it are named."""
    run = Run.create(tmp_path / "damaged")
    (run.path / "run.json").write_text(content)
    with pytest.raises(RecordError, match=words):
        Run.open(run.path)


def test_single_runs_have_no_winner(make_run: MakeRun, capsys: Capture) -> None:
    """One run against one: no interval, no p-value, and the sentence that says why."""
    a, b = make_run(FLOWS, name="a"), make_run({"cubic-1": 5.0, "bbr-1": 5.0}, name="b", duration_s=21.0)
    found: dict[str, Any] = compare([a], [b]).as_dict()["differences"]["overall"]["jain"]
    assert found["p_value"] is None and found["difference"]["low"] is None and found["difference"]["n"] == 1
    assert main(["compare", str(a.path), str(b.path)]) == 0
    assert capsys.readouterr().out.count("one run is never a finding") == 2


def test_export_needs_a_format(make_run: MakeRun, capsys: Capture) -> None:
    """Without one, the choices are named."""
    assert "--csv, --flent, --json" in complaint(["export", str(make_run(FLOWS).path)], capsys)
