"""Exports: nothing is lost, and Flent's format is Flent's."""

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from analysis import export_run
from lab.record import FLOWS, RecordError, Run
from tests.analysis.synthetic_runs import MakeRun

GOODPUTS = {"cubic-1": 6.0, "bbr-1": 4.0}


def test_csv_reads_back(make_run: MakeRun, tmp_path: Path) -> None:
    """The tables read back are the tables, nulls included."""
    run = make_run(GOODPUTS)
    paths = export_run(run, "csv", tmp_path / "out")
    assert [path.name for path in paths] == ["flows.csv", "queues.csv", "events.csv"]
    assert pl.read_csv(paths[0], schema=FLOWS.schema).equals(run.flows)


def test_json_holds_everything(make_run: MakeRun, tmp_path: Path) -> None:
    """One file: run.json, the summary, the tables by column."""
    run = make_run(GOODPUTS, name="demo")
    (path,) = export_run(run, "json", tmp_path / "out")
    content = json.loads(path.read_text())
    assert content["run"] == run.info
    assert content["summary"]["jain"] == pytest.approx(100 / 104)
    assert content["flows"]["bytes_received"] == run.flows["bytes_received"].to_list()


def test_flent_file(make_run: MakeRun, tmp_path: Path) -> None:
    """Series of equal length named as tcp_nup names them; constant rates come out as they are, idle time as null."""
    run = make_run(GOODPUTS, name="demo", start_s={"bbr-1": 2.0})
    (path,) = export_run(run, "flent", tmp_path / "out")
    assert path.name == "demo.flent.gz"
    content = json.loads(gzip.decompress(path.read_bytes()))
    assert content["version"] == 4 and content["metadata"]["NAME"] == "tcp_nup"
    assert content["metadata"]["TEST_PARAMETERS"] == {"upload_streams": "2"}
    assert {len(values) for values in content["results"].values()} == {len(content["x_values"])} == {100}
    assert content["results"]["TCP upload::1"][50] == pytest.approx(6.0)
    assert content["results"]["TCP upload::2"][9] is None
    assert content["results"]["TCP upload sum"][9] == pytest.approx(6.0)
    assert content["results"]["TCP upload sum"][50] == pytest.approx(10.0)
    assert content["results"]["TCP upload avg"][50] == pytest.approx(5.0)
    assert content["metadata"]["SERIES_META"]["TCP upload::2"]["FLOW"] == "bbr-1"


def test_a_run_without_samples(tmp_path: Path) -> None:
    """A run that crashed at once exports empty tables."""
    run = Run.create(tmp_path / "crashed")
    run.write_info({"outcome": {"status": "crashed"}})
    for form in ("csv", "json", "flent"):
        assert all(path.exists() for path in export_run(run, form))


def test_directory_that_cannot_be_made(make_run: MakeRun, tmp_path: Path) -> None:
    """A file in the way is an error of ours that names it."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(RecordError, match="taken"):
        export_run(make_run(GOODPUTS), "csv", tmp_path / "taken")
