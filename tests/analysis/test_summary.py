"""Summaries of runs whose metrics are known by hand, and of runs that have something missing."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from analysis import (
    Run,
    Summary,
    compare,
    comparison_table,
    repeats_table,
    summarise,
    summarise_repeats,
    summary_table,
)
from lab.record import FLOWS, RecordError
from tests.analysis.synthetic_runs import MakeRun
from topologies.errors import UsageError

FOUR = {"ndm_tcp-1": 8.0, "cubic-1": 6.0, "reno-1": 4.0, "bbr-1": 1.0}


def text(table: object) -> str:
    """Return a table as a terminal of 100 columns shows it, white space folded."""
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(table)
    return " ".join(console.export_text().split())


def test_known_run(make_run: MakeRun) -> None:
    """Goodputs 8, 6, 4, 1: Jain 19² / (4 · 117), shares of 19, and what the fixture states."""
    summary = summarise(make_run(FOUR))
    flows = {flow.flow_id: flow for flow in summary.flows}
    assert [flow.flow_id for flow in summary.flows] == list(FOUR)
    assert flows["cubic-1"].goodput_mbit == pytest.approx(6.0)
    assert flows["cubic-1"].share == pytest.approx(6 / 19)
    assert flows["cubic-1"].retransmission_rate == pytest.approx(0.01, rel=1e-3)
    assert flows["cubic-1"].retransmission_rate_bytes == pytest.approx(0.02, rel=1e-3)
    assert flows["cubic-1"].rtt_inflation_p50_ms == flows["cubic-1"].rtt_inflation_p95_ms == pytest.approx(20.0)
    assert flows["cubic-1"].goodput_variation == pytest.approx(0.0, abs=1e-4)
    assert summary.goodput_mbit == pytest.approx(19.0)
    assert summary.jain == summary.jain_normalised == pytest.approx(361 / 468)
    assert summary.jain_windowed_mean == pytest.approx(361 / 468, rel=1e-4)
    assert summary.jain_windowed_min == pytest.approx(361 / 468, rel=1e-4)
    assert summary.epsilon_fairness == pytest.approx(1 / 8)
    assert summary.convergence_time_s is None
    assert summary.utilisation == pytest.approx(19 * 1514 / 1448 / 20, rel=1e-4)
    (queue,) = summary.queues
    assert queue.delay_p50_ms == queue.delay_p99_ms == queue.delay_max_ms == pytest.approx(20.0)
    assert (queue.drops, queue.drops_warmup, summary.drops) == (15, 5, 15)
    assert (summary.start_s, summary.end_s, summary.window_s) == (5.0, 20.0, 1.0)
    assert list(unexpected(summary)) == ["convergence_time_s"]
    assert (summary.verdict, summary.outcome, summary.seed, summary.notes) == ("valid", "complete", 1, ())


def test_an_aqms_own_sojourn_time(make_run: MakeRun) -> None:
    """Percentiles of the AQM's figure after the warm-up; none where the AQM has none."""
    run = make_run({"cubic-1": 5.0})
    assert summarise(run).queues[0].sojourn_p50_ms is None
    after = pl.col("t_s") >= 5.0
    run.write_tables(queues=run.queues.with_columns(sojourn_ms=pl.when(after).then(12.5).otherwise(99.0)))
    (queue,) = summarise(run).queues
    assert queue.sojourn_p50_ms == queue.sojourn_p95_ms == queue.sojourn_p99_ms == 12.5


def test_fair_run_converges_at_once(make_run: MakeRun) -> None:
    """Equal rates: Jain 1, converged after 0 s, no reason left."""
    summary = summarise(make_run({"cubic-1": 5.0, "cubic-2": 5.0}))
    assert summary.jain == pytest.approx(1.0)
    assert summary.convergence_time_s == pytest.approx(0.0)
    assert unexpected(summary) == {}


def test_late_flow_counts_in_windows_from_its_start(make_run: MakeRun) -> None:
    """A flow that joins at 10 s: lifetime counts its absence, windows do not, convergence starts there."""
    summary = summarise(make_run({"cubic-1": 6.0, "bbr-1": 6.0}, start_s={"bbr-1": 10.0}))
    assert summary.flows[1].goodput_mbit == pytest.approx(4.0)
    assert summary.jain == pytest.approx(100 / (2 * 52))
    assert summary.jain_windowed_min == pytest.approx(1.0)
    assert summary.convergence_time_s == pytest.approx(0.0)
    assert "bbr-1: not active throughout" in summary.notes[0]


def test_starving_flow_counts_as_zero(make_run: MakeRun) -> None:
    """It is active, so Jain falls to 1/2; its rates that divide by what it sent are undefined."""
    summary = summarise(make_run({"cubic-1": 5.0, "reno-1": 0.0}))
    assert summary.jain == summary.jain_windowed_mean == pytest.approx(0.5)
    assert summary.flows[1].goodput_mbit == 0.0 and summary.flows[1].share == 0.0
    assert summary.flows[1].retransmission_rate is None
    assert summary.reasons["flows.reno-1.retransmission_rate"] == "nothing was sent"


def test_all_flows_starve(make_run: MakeRun) -> None:
    """Jain of nothing is undefined, not 0 and not 1."""
    summary = summarise(make_run({"cubic-1": 0.0, "reno-1": 0.0}))
    assert summary.jain is None and summary.jain_windowed_mean is None
    assert summary.reasons["jain"] == "no flow received anything"


def test_unsampled_flow_makes_fairness_unknown(make_run: MakeRun) -> None:
    """Fairness among the others would be another quantity."""
    run = make_run({"cubic-1": 5.0, "reno-1": 3.0})
    run.write_tables(flows=run.flows.filter(pl.col("flow_id") != "reno-1"))
    summary = summarise(Run.open(run.path))
    assert summary.flows[0].goodput_mbit == pytest.approx(5.0)
    assert summary.flows[1].goodput_mbit is None
    assert summary.jain is None and summary.jain_windowed_mean is None
    assert summary.reasons["jain"] == "the goodput of reno-1 is unknown"
    assert "receiver's counter" in summary.reasons["flows.reno-1.goodput_mbit"]


def test_sized_flow_is_active_until_its_last_byte(make_run: MakeRun) -> None:
    """5 Mbit/s for 10 s are 6.25 MB; afterwards the other is alone and there is no contested window."""
    run = make_run({"cubic-1": 5.0, "reno-1": 10.0})
    flows = [
        flow | ({"size_bytes": 6_250_000} if flow["flow_id"] == "cubic-1" else {}) for flow in run.scenario["flows"]
    ]
    run.write_info(run.info | {"scenario": run.scenario | {"flows": flows}})
    summary = summarise(Run.open(run.path))
    assert summary.jain_windowed_min == pytest.approx(225 / 250)
    assert "cubic-1: not active throughout" in summary.notes[0]


def test_run_that_crashed_after_the_warm_up(make_run: MakeRun) -> None:
    """What was recorded counts, and a note says that it is not all."""
    outcome = {"status": "crashed", "message": "guest panic: BUG", "wall_s": {}}
    summary = summarise(make_run(FOUR, recorded_s=12.0, outcome=outcome, verdict=None))
    assert (summary.end_s, summary.outcome, summary.verdict) == (12.0, "crashed", "unknown")
    assert summary.jain == pytest.approx(361 / 468)
    assert summary.notes == ("the record ends at 12 s of 20 s",)
    assert "guest panic" in text(summary_table(summary))


def test_run_that_crashed_in_the_warm_up(make_run: MakeRun) -> None:
    """Everything is null, each with its reason."""
    summary = summarise(make_run(FOUR, recorded_s=2.0))
    content = summary.as_dict()
    assert content["jain"] is None and content["utilisation"] is None and content["drops"] is None
    assert summary.reasons["jain"] == "the record ends at 2 s, within the warm-up of 5 s"
    assert "within the warm-up" in text(summary_table(summary))


def test_run_without_anything(tmp_path: Path) -> None:
    """A run that died before its first sample still gives a summary and a table."""
    Run.create(tmp_path / "run").write_info({})
    summary = summarise(Run.open(tmp_path / "run"))
    assert (summary.flows, summary.queues, summary.outcome) == ((), (), "unknown")
    assert summary.reasons["goodput_mbit"] == "nothing was recorded"
    assert "nothing was recorded" in text(summary_table(summary))


def test_every_null_has_a_reason_and_json_takes_all(make_run: MakeRun, tmp_path: Path) -> None:
    """For complete, empty and half-recorded runs."""
    run = make_run(FOUR, name="a", paths=None, queues=None)
    bare = Run.create(tmp_path / "bare")
    bare.write_info({"scenario": run.scenario})
    for each in (run, bare, make_run(FOUR, name="b", recorded_s=1.0), make_run({"cubic-1": 1.0}, name="c")):
        content = json.loads(json.dumps(summarise(Run.open(each.path)).as_dict(), allow_nan=False))
        nulls = {key for key, value in content.items() if value is None} - {"seed"}
        for kind, name in (("flows", "flow_id"), ("queues", "queue_id")):
            nulls |= {
                f"{kind}.{row[name]}.{key}" for row in content[kind] for key, value in row.items() if value is None
            }
        assert nulls == set(content["reasons"])
        assert all(content["reasons"].values())


def test_table_names_run_seed_verdict_and_units(make_run: MakeRun) -> None:
    """And shows a dash with its reason below."""
    run = make_run(FOUR, verdict={"status": "suspect", "reasons": ["late samples"]})
    shown = text(summary_table(summarise(run)))
    for wanted in (run.path.name, "seed 1", "suspect: late samples", "Mbit/s", "0.771", "31.6"):
        assert wanted in shown
    assert "– converged after: censored" in shown


def test_repeats(make_run: MakeRun) -> None:
    """Mean and interval over three seeds, per congestion control and overall."""
    runs = [make_run({"cubic-1": 4.0 + i, "cubic-2": 4.0 + i, "bbr-1": 8.0}, seed=i, name=f"r{i}") for i in range(3)]
    repeats = summarise_repeats(runs)
    cubic = repeats.estimates["cubic"]
    assert cubic["goodput_mbit"].mean == pytest.approx(5.0)  # type: ignore[union-attr]
    assert 4.0 <= cubic["goodput_mbit"].low < 5.0 < cubic["goodput_mbit"].high <= 6.0 + 1e-9  # type: ignore
    assert cubic["share"].mean == pytest.approx((8 / 16 + 10 / 18 + 12 / 20) / 3)  # type: ignore[union-attr]
    assert (repeats.n, repeats.seeds) == (3, (0, 1, 2))
    assert "9 more would halve" in repeats.notes[0]
    assert repeats == summarise_repeats(runs)
    assert list(repeats.reasons) == ["overall.convergence_time_s"]
    assert "unknown in 2 of 3 runs (censored" in repeats.reasons["overall.convergence_time_s"]
    assert repeats.estimates["overall"]["convergence_time_s"].n == 1  # type: ignore[union-attr]
    json.dumps(repeats.as_dict(), allow_nan=False)
    assert "3 runs" in text(repeats_table(repeats))


def test_one_run_is_never_a_finding(make_run: MakeRun) -> None:
    """A single run has no interval, and the note says so."""
    repeats = summarise_repeats([make_run(FOUR)])
    assert repeats.estimates["overall"]["jain"].low is None  # type: ignore[union-attr]
    assert any("one run is never a finding" in note for note in repeats.notes)


def test_repeats_leave_out_invalid_and_crashed_runs(make_run: MakeRun) -> None:
    """And say which; the same seed twice is not two repeats."""
    good = [make_run(FOUR, name="a"), make_run(FOUR, name="b")]
    invalid = make_run(FOUR, name="c", verdict={"status": "invalid", "reasons": []})
    crashed = make_run(FOUR, name="d", outcome={"status": "crashed"})
    repeats = summarise_repeats([*good, invalid, crashed])
    assert repeats.n == 2
    assert "c is left out: invalid" in repeats.notes[0] and "d is left out: crashed" in repeats.notes[1]
    assert any("seed 1 is there more than once" in note for note in repeats.notes)
    assert set(summarise_repeats([invalid]).estimates["overall"].values()) == {None}


def test_repeats_refuse_different_scenarios(make_run: MakeRun) -> None:
    """Only the seed may differ; no run at all is refused too."""
    with pytest.raises(UsageError, match="differ by more than the seed"):
        summarise_repeats([make_run(FOUR, name="a"), make_run(FOUR, name="b", warmup_s=4.0)])
    with pytest.raises(UsageError, match="no run"):
        summarise_repeats([])


def test_compare(make_run: MakeRun) -> None:
    """The difference is B minus A, with effect size and p-value."""
    a = [make_run({"cubic-1": 4.0, "bbr-1": 6.0}, seed=i, name=f"a{i}") for i in range(3)]
    b = [make_run({"cubic-1": 5.0, "bbr-1": 5.0}, seed=i, name=f"b{i}") for i in range(3)]
    comparison = compare(a, b)
    found = comparison.differences["cubic"]["goodput_mbit"]
    assert found.difference.mean == pytest.approx(1.0)
    assert found.cliffs_delta == 1.0 and found.p_value == pytest.approx(0.1)
    assert comparison.differences["overall"]["jain"].difference.mean == pytest.approx(1 - 100 / 104)
    assert "+1.00" in text(comparison_table(comparison))
    json.dumps(comparison.as_dict(), allow_nan=False)


def test_damaged_table_is_one_error(make_run: MakeRun) -> None:
    """It names the file."""
    run = make_run(FOUR)
    path = run.path / FLOWS.file_name
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(RecordError, match=r"flows\.parquet"):
        summarise(Run.open(run.path))


def unexpected(summary: Summary) -> dict[str, str]:
    """Return the reasons but for those that every run of endless flows with one RTT over a FIFO has."""
    sojourns = tuple(f"sojourn_p{percent}_ms" for percent in (50, 95, 99))
    usual = ("completion_time_s", "rtt_goodput_ratio", "rtt_ratio", *sojourns)
    return {field: reason for field, reason in summary.reasons.items() if not field.endswith(usual)}


def changed(run: Run, **scenario: Any) -> Run:
    """Return a run whose scenario was changed after the fact."""
    run.write_info(run.info | {"scenario": run.scenario | scenario})
    return Run.open(run.path)


def test_completion_time(make_run: MakeRun) -> None:
    """1,000,000 bytes at 4 Mbit/s take 2 s from the flow's start, to the sample; a size it never reaches is None."""
    run = make_run({"cubic-1": 4.0, "bbr-1": 4.0}, start_s={"cubic-1": 3.0})
    run.write_tables(flows=run.flows.with_columns(bytes_acked="bytes_received"))
    flows = [
        {"flow_id": "cubic-1", "cca": "cubic", "start_s": 3.0, "size_bytes": 1_000_000},
        {"flow_id": "bbr-1", "cca": "bbr", "size_bytes": 10**12},
    ]
    summary = summarise(changed(run, flows=flows))
    assert summary.flows[0].completion_time_s == pytest.approx(2.0)
    assert summary.flows[1].completion_time_s is None
    assert summary.reasons["flows.bbr-1.completion_time_s"] == "it did not complete by 20 s"


def test_rtt_fairness(make_run: MakeRun) -> None:
    """6 Mbit/s at 40 ms against 2 Mbit/s at 120 ms: 3 to 1 for a third of the RTT; without a difference it is None."""
    run = make_run({"cubic-1": 6.0, "cubic-2": 2.0})
    assert summarise(run).rtt_goodput_ratio is None and "alike" in summarise(run).reasons["rtt_goodput_ratio"]
    paths = run.paths | {"cubic-2": run.paths["cubic-2"] | {"base_rtt_ms": 120.0}}
    run.write_info(run.info | {"paths": paths})
    summary = summarise(Run.open(run.path))
    assert summary.rtt_goodput_ratio == pytest.approx(3.0) and summary.rtt_ratio == pytest.approx(3.0)
