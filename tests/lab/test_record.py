"""The record of a run: created once, written whole or not at all, read also when a run crashed."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.record import EVENTS, FLOWS, FORMAT_VERSION, QUEUES, RecordError, Run, RunExistsError

SCENARIO = {"name": "dumbbell", "seed": 1, "flows": [{"flow_id": "cubic-1", "cca": "cubic"}]}


def flow_rows(*rows: dict[str, Any]) -> pl.DataFrame:
    """Return a flow table of rows that name only what they know."""
    return pl.DataFrame([{"flow_id": "cubic-1", "cca": "cubic", **row} for row in rows], schema=FLOWS.schema)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a small recorded run."""
    run = Run.create(tmp_path / "run")
    run.write_info({"scenario": SCENARIO, "created": "2026-01-01T00:00:00+00:00"})
    run.write_tables(
        flows=flow_rows({"t_s": 0.1, "bytes_acked": 1448}, {"t_s": 0.05, "bytes_acked": 0}),
        queues=pl.DataFrame([{"t_s": 0.0, "queue_id": "s1->s2", "drops": 0}], schema=QUEUES.schema),
        events=pl.DataFrame([(0.0, "lab", "start", "", "")], schema=EVENTS.schema, orient="row"),
    )
    return run


def test_tables_come_back_sorted_and_typed(run: Run) -> None:
    """Rows are in order of time, columns in the schema's order and types."""
    read = Run.open(run.path)
    assert read.flows.schema == FLOWS.schema
    assert read.flows["t_s"].to_list() == [0.05, 0.1]
    assert read.flows["bytes_acked"].to_list() == [0, 1448]
    assert read.flows["srtt_ms"].null_count() == 2
    assert read.events["kind"].to_list() == ["start"]
    assert read.scenario == SCENARIO
    assert read.info["format"] == FORMAT_VERSION


def test_events_at_one_instant_keep_their_order(run: Run) -> None:
    """Events of one source at the same time stay as recorded: in virtual time many share an instant."""
    rows = [(1.0, "lab", kind, "", "") for kind in ("stop", "start", "a")]
    run.write_tables(events=pl.DataFrame(rows, schema=EVENTS.schema, orient="row"))
    assert Run.open(run.path).events["kind"].to_list() == ["stop", "start", "a"]


def test_create_accepts_an_empty_directory_and_nothing_else(tmp_path: Path) -> None:
    """A run is never overwritten."""
    (tmp_path / "empty").mkdir()
    Run.create(tmp_path / "empty")
    with pytest.raises(RunExistsError, match="not empty") as caught:
        Run.create(tmp_path / "empty")
    assert caught.value.exit_status == 2
    (tmp_path / "file").write_text("")
    with pytest.raises(RunExistsError, match="exists already"):
        Run.create(tmp_path / "file")
    with pytest.raises(RecordError, match="cannot create"):
        Run.create(tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"format": 1', "not JSON"),
        ("\x80", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "no format version"),
        ("{}", "no format version"),
        ('{"format": true}', "no format version"),
        ('{"format": 2}', "format 2, newer than 1"),
        ('{"format": 1, "paths": []}', "paths is not an object"),
        ('{"format": 1, "queues": {"s1->s2": 3}}', "queues.s1->s2 is not an object"),
        ('{"format": 1, "scenario": {"flows": {}}}', "scenario.flows is not a list"),
        ('{"format": 1, "scenario": {"flows": [{"cca": "bbr"}]}}', r"flows\[0\] has no flow_id"),
    ],
)
def test_open_refuses_damaged_info(tmp_path: Path, content: str, complaint: str) -> None:
    """A damaged or newer run.json is one clear error that names the file."""
    (tmp_path / "run.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(RecordError, match=complaint) as caught:
        Run.open(tmp_path)
    assert "run.json" in str(caught.value)


def test_open_refuses_what_is_no_run(tmp_path: Path) -> None:
    """A missing directory, and one without run.json."""
    with pytest.raises(RecordError, match="no such directory"):
        Run.open(tmp_path / "missing")
    with pytest.raises(RecordError, match=r"it has no run\.json"):
        Run.open(tmp_path)


def test_crashed_run_gives_empty_frames(tmp_path: Path) -> None:
    """A run that died before any table was written is readable."""
    Run.create(tmp_path / "run").write_info({})
    run = Run.open(tmp_path / "run")
    assert (run.flows.height, run.queues.height, run.events.height) == (0, 0, 0)
    assert run.flows.schema == FLOWS.schema
    assert run.verdict == {} and run.scenario == {}
    assert len(run.digest()) == 64


def test_truncated_table_names_the_file(run: Run) -> None:
    """A truncated Parquet file is an error of ours, at every length; the other tables stay readable."""
    path = run.path / "flows.parquet"
    content = path.read_bytes()
    for length in (0, 3, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(RecordError, match=r"flows\.parquet, it is damaged or truncated"):
            _ = Run.open(run.path).flows
    assert Run.open(run.path).queues.height == 1


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_never_escape(run: Run, data: st.DataObject) -> None:
    """A file with one byte changed is refused before the Parquet reader, which can abort, sees it."""
    original = run.path / "flows.parquet"
    content = bytearray(original.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    damaged = run.path / "damaged"
    damaged.mkdir(exist_ok=True)
    for name in ("run.json", "checksums.json"):
        (damaged / name).write_bytes((run.path / name).read_bytes())
    (damaged / "flows.parquet").write_bytes(content)
    with pytest.raises(RecordError, match=r"flows\.parquet, it is damaged"):
        _ = Run.open(damaged).flows


def test_checksums_follow_what_is_written(run: Run) -> None:
    """A table written again has its new checksum, the others keep theirs; a run without any is read as it is."""
    before = json.loads((run.path / "checksums.json").read_text())
    run.write_tables(flows=flow_rows({"t_s": 9.0}))
    after = json.loads((run.path / "checksums.json").read_text())
    assert after["flows.parquet"] != before["flows.parquet"] and after["queues.parquet"] == before["queues.parquet"]
    assert Run.open(run.path).flows["t_s"].to_list() == [9.0]
    (run.path / "checksums.json").unlink()
    assert Run.open(run.path).flows["t_s"].to_list() == [9.0]


@pytest.mark.parametrize("content", ["{", "[]", '{"flows.parquet": "x"}'])
def test_damaged_checksums(run: Run, content: str) -> None:
    """An error that names the file."""
    (run.path / "checksums.json").write_text(content)
    with pytest.raises(RecordError, match=r"checksums\.json"):
        _ = Run.open(run.path).flows


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (pl.DataFrame({"t_s": [0.0]}), "missing: flow_id, cca"),
        (flow_rows({"t_s": 0.0}).with_columns(extra=pl.lit(1)), "unknown: extra"),
        (
            flow_rows({"t_s": 0.0}).with_columns(pl.lit("x").alias("srtt_ms")),
            "srtt_ms is String, not Float64",
        ),
        (flow_rows({"t_s": 0.0}).with_columns(pl.lit(1.5).alias("bytes_sent")), "bytes_sent is Float64"),
        (flow_rows({"t_s": 0.0}).with_columns(pl.lit(300).alias("tcp_state")), "out of its column's range"),
        (flow_rows({"t_s": 0.0}).with_columns(pl.lit(-1).alias("bytes_sent")), "out of its column's range"),
        (flow_rows({"t_s": None}), "t_s must have a value"),
        (flow_rows({"t_s": float("nan")}), "t_s must have a value"),
    ],
)
def test_frames_that_do_not_fit_are_refused(run: Run, frame: pl.DataFrame, complaint: str) -> None:
    """A frame that does not fit its schema is refused, and what is on disk stays."""
    before = (run.path / "flows.parquet").read_bytes()
    with pytest.raises(RecordError, match=complaint):
        run.write_tables(flows=frame, events=pl.DataFrame(schema=EVENTS.schema))
    assert (run.path / "flows.parquet").read_bytes() == before
    assert Run.open(run.path).events.height == 1


def test_info_is_written_whole_or_not_at_all(run: Run) -> None:
    """What JSON cannot hold is refused, the old file stays, no temporary file is left."""
    for bad in ({"outcome": {"wall_s": float("nan")}}, {"verdict": object()}, {"paths": [1]}):
        with pytest.raises(RecordError, match=r"run\.json"):
            run.write_info(bad)
    assert Run.open(run.path).scenario == SCENARIO
    names = sorted(path.name for path in run.path.iterdir())
    assert names == ["checksums.json", "events.parquet", "flows.parquet", "queues.parquet", "raw", "run.json"]
    run.write_info(run.info | {"outcome": {"status": "complete"}})
    assert run.outcome == Run.open(run.path).outcome == {"status": "complete"}


def test_writing_to_a_directory_that_is_gone_is_our_error(tmp_path: Path) -> None:
    """The message names the file that could not be written."""
    with pytest.raises(RecordError, match=r"cannot write .*run\.json"):
        Run(tmp_path / "gone").write_info({})


def test_digest_depends_on_data_and_scenario_only(run: Run) -> None:
    """Encoding, row groups, wall time and environment leave it as it is; the scenario changes it."""
    digest = run.digest()
    run.flows.write_parquet(run.path / "flows.parquet", compression="uncompressed", row_group_size=1)
    (run.path / "checksums.json").unlink()  # another program wrote the table
    run.write_info(run.info | {"created": "2030-01-01", "outcome": {"wall_s": {"boot": 3.0}}})
    assert Run.open(run.path).digest() == digest
    run.write_info(run.info | {"scenario": SCENARIO | {"seed": 2}})
    assert Run.open(run.path).digest() != digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"bytes_acked": 1}, {"bytes_acked": 2}),
        ({"bytes_acked": 0}, {"bytes_acked": None}),
        ({"bytes_acked": 1}, {"bytes_sent": 1}),
        ({"ndm_output": -1}, {"ndm_output": 1}),
        ({"srtt_ms": 1.0}, {"srtt_ms": 1.0 + 2**-52}),
        ({"flow_id": "a", "cca": "bc"}, {"flow_id": "ab", "cca": "c"}),
    ],
)
def test_digest_tells_values_apart(run: Run, one: dict[str, Any], other: dict[str, Any]) -> None:
    """Each differing value gives another digest."""
    digests = set()
    for row in (one, other):
        run.write_tables(flows=flow_rows({"t_s": 0.0, **row}))
        digests.add(Run.open(run.path).digest())
    assert len(digests) == 2


def test_digest_does_not_depend_on_the_order_of_writing(run: Run) -> None:
    """Rows of different flows come in any order from the sampler."""
    rows = [{"t_s": t, "flow_id": f} for t in (0.0, 0.1) for f in ("a", "b")]
    run.write_tables(flows=flow_rows(*rows))
    digest = run.digest()
    run.write_tables(flows=flow_rows(*reversed(rows)))
    assert run.digest() == digest


def test_digest_is_stable_between_versions(tmp_path: Path) -> None:
    """A digest written down stays valid: this one was computed by hand from the definition."""
    run = Run.create(tmp_path / "run")
    run.write_info({"scenario": {"b": 1, "a": 2}})
    parts = [b"fairbed 1\n", b'{"a": 2, "b": 1}\n']
    for table in (FLOWS, QUEUES, EVENTS):
        parts.append(f"{table.name} 0\n".encode())
        parts += [f"{name} {dtype}\n".encode() for name, dtype in table.schema.items()]
    assert run.digest() == hashlib.sha256(b"".join(parts)).hexdigest()


def test_import_is_light() -> None:
    """The record can be read where there is no Mininet and no matplotlib."""
    code = "import sys, json, lab.record; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"mininet", "matplotlib", "ryu", "os_ken"} & set(json.loads(result.stdout))
