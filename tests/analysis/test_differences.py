"""What differs first between two records."""

import polars as pl

from analysis import first_difference
from analysis.differences import changed_environment
from lab.record import Run
from tests.analysis.synthetic_runs import MakeRun

FLOWS = {"cubic-1": 6.0, "bbr-1": 4.0}


def test_identical_records(make_run: MakeRun) -> None:
    """The same run twice: nothing differs, whatever the directory and the wall time."""
    a, b = make_run(FLOWS, name="a"), make_run(FLOWS, name="b", created="2027-01-01T00:00:00+00:00")
    assert first_difference(a, b) is None and a.digest() == b.digest()


def test_first_cell_by_row(make_run: MakeRun) -> None:
    """Of two cells that differ, the one in the earlier row is named, with its key and both values."""
    a, b = make_run(FLOWS, name="a"), make_run(FLOWS, name="b")
    rows = pl.int_range(pl.len())
    b.write_tables(
        flows=b.flows.with_columns(
            pl.when(rows == 7).then(99).otherwise("cwnd_segments").cast(pl.UInt32).alias("cwnd_segments"),
            pl.when(rows == 5).then(None).otherwise("srtt_ms").alias("srtt_ms"),
        )
    )
    found = first_difference(a, Run.open(b.path))
    assert found == "flows, row 5 (t_s 0.1, flow_id cubic-1), column srtt_ms: 60.0 and None"


def test_missing_rows(make_run: MakeRun) -> None:
    """A record that ends earlier: the row counts."""
    a, b = make_run(FLOWS, name="a"), make_run(FLOWS, name="b")
    b.write_tables(queues=b.queues.head(100))
    assert first_difference(a, Run.open(b.path)) == "queues: 401 rows and 100 rows, the first 100 identical"


def test_scenario_comes_first(make_run: MakeRun) -> None:
    """Another seed is named before what it led to."""
    found = first_difference(make_run(FLOWS, name="a"), make_run({"cubic-1": 1.0, "bbr-1": 1.0}, name="b", seed=2))
    assert found == "scenario.seed: 1 and 2"


def test_environment(make_run: MakeRun) -> None:
    """What changed around a run is listed, what was measured there is not."""
    a = make_run(FLOWS, name="a", environment={"commit": "1", "kernel": "7", "idle_rtt_ms": {"x": 1}})
    b = make_run(FLOWS, name="b", environment={"commit": "2", "kernel": "7", "idle_rtt_ms": {"x": 2}})
    assert changed_environment(a, b) == ["environment.commit: '1' and '2'"]
