"""The record of a run: a directory with run.json, three Parquet tables and the raw logs.

    RUN/run.json          format version, scenario, paths, queues, environment, verdict, outcome
    RUN/flows.parquet     one row per flow and sample
    RUN/queues.parquet    one row per queue and sample
    RUN/events.parquet    controller decisions, topology changes, what the lab did
    RUN/checksums.json    CRC-32 of each table's file
    RUN/raw/              logs of the tools, as they wrote them

Counters are cumulative, null means unknown, `t_s` is seconds since the run began on one monotonic clock.
A run that crashed may lack any table, and any part of run.json but its format version: reading it gives
empty frames and empty dictionaries. Nothing here needs root, Mininet or a plot library.
"""

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from topologies.errors import FairbedError

__all__ = ["EVENTS", "FLOWS", "FORMAT_VERSION", "QUEUES", "RecordError", "Run", "RunExistsError", "Table"]

FORMAT_VERSION = 1
INFO_FILE = "run.json"
RAW_DIRECTORY = "raw"
CHECKSUMS_FILE = "checksums.json"


class RecordError(FairbedError):
    """A run directory that cannot be read or written as asked: the message names the file."""


class RunExistsError(RecordError):
    """The directory asked for is taken; runs are never overwritten."""

    exit_status = 2


@dataclass(frozen=True)
class Table:
    """One table of the record.

    Attributes
    ----------
    name : str
        File name without its suffix.
    schema : polars.Schema
        Columns, in the file's order.
    key : tuple of str
        Columns that identify a row; never null.
    order : tuple of str
        Columns the rows are sorted by; rows that tie keep the order they were recorded in.
    """

    name: str
    schema: pl.Schema
    key: tuple[str, ...]
    order: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """Name of the table's file in the run directory."""
        return f"{self.name}.parquet"


FLOWS = Table(
    "flows",
    pl.Schema(
        {
            "t_s": pl.Float64(),
            "flow_id": pl.String(),
            "cca": pl.String(),
            "tcp_state": pl.UInt8(),
            "ca_state": pl.UInt8(),
            "cwnd_segments": pl.UInt32(),
            "ssthresh_segments": pl.UInt32(),  # null = infinite
            "srtt_ms": pl.Float64(),
            "rttvar_ms": pl.Float64(),
            "min_rtt_ms": pl.Float64(),
            "mss_bytes": pl.UInt32(),
            "bytes_sent": pl.UInt64(),  # with retransmissions
            "bytes_acked": pl.UInt64(),
            "bytes_retrans": pl.UInt64(),
            "bytes_received": pl.UInt64(),  # of the receiver's socket
            "segs_out": pl.UInt64(),
            "data_segs_out": pl.UInt64(),  # with retransmissions
            "retrans_segments": pl.UInt64(),
            "lost_segments": pl.UInt32(),
            "delivered_segments": pl.UInt32(),
            "delivery_rate_mbit": pl.Float64(),
            "pacing_rate_mbit": pl.Float64(),  # null = unlimited
            "bbr_bw_mbit": pl.Float64(),
            "bbr_min_rtt_ms": pl.Float64(),
            "bbr_pacing_gain": pl.Float64(),
            "bbr_cwnd_gain": pl.Float64(),
            "ndm_entropy": pl.UInt16(),  # 0..1000
            "ndm_flags": pl.UInt8(),
            "ndm_plasticity": pl.UInt16(),
            "ndm_output": pl.Int16(),
        }
    ),
    key=("t_s", "flow_id", "cca"),
    order=("t_s", "flow_id"),
)

QUEUES = Table(
    "queues",
    pl.Schema(
        {
            "t_s": pl.Float64(),
            "queue_id": pl.String(),
            "backlog_bytes": pl.UInt32(),
            "backlog_packets": pl.UInt32(),
            "drops": pl.UInt32(),
            "overlimits": pl.UInt32(),
            "ecn_marks": pl.UInt32(),  # null = the queue has no such counter
            "sojourn_ms": pl.Float64(),  # the AQM's own figure; null = it has none
            "sent_bytes": pl.UInt64(),  # Ethernet frames
            "sent_packets": pl.UInt64(),
        }
    ),
    key=("t_s", "queue_id"),
    order=("t_s", "queue_id"),
)

EVENTS = Table(
    "events",
    pl.Schema(
        {
            "t_s": pl.Float64(),
            "source": pl.String(),
            "kind": pl.String(),
            "subject": pl.String(),
            "detail": pl.String(),  # JSON or ""
        }
    ),
    key=("t_s", "source", "kind", "subject", "detail"),
    order=("t_s", "source"),  # sources write side by side; each one's own order is kept
)

TABLES = (FLOWS, QUEUES, EVENTS)


class Run:
    """A run directory, opened or just created.

    Examples
    --------
    >>> import tempfile
    >>> run = Run.create(Path(tempfile.mkdtemp()) / "demo")
    >>> run.write_info({"format": FORMAT_VERSION, "scenario": {"name": "demo", "seed": 1}})
    >>> Run.open(run.path).scenario["name"]
    'demo'
    >>> Run.open(run.path).flows.height
    0
    """

    def __init__(self, path: Path) -> None:
        """Take the directory as it is; `create` and `open` check it."""
        self.path = path

    def __repr__(self) -> str:
        """Return the run with its directory."""
        return f"Run({str(self.path)!r})"

    @classmethod
    def create(cls, path: str | Path) -> Self:
        """Return a run in a new directory; one that exists already must be empty.

        Raises
        ------
        RunExistsError
            When the path is a file, or a directory that holds anything.
        RecordError
            When the directory cannot be made.
        """
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise RunExistsError(f"{path} exists and is not empty: a run is never overwritten")
            (path / RAW_DIRECTORY).mkdir()
        except FileExistsError as error:
            raise RunExistsError(f"{path} exists already: a run is never overwritten") from error
        except OSError as error:
            raise RecordError(f"cannot create the run directory {path}: {_reason(error)}") from error
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Return the run recorded in a directory, its run.json checked, its tables not yet read.

        Raises
        ------
        RecordError
            When it is no run directory, or run.json is damaged or of a newer format.
        """
        run = cls(Path(path))
        _ = run.info
        return run

    @cached_property
    def info(self) -> dict[str, Any]:
        """The contents of run.json."""
        return _read_info(self.path)

    @property
    def name(self) -> str:
        """Name of the run directory."""
        return self.path.resolve().name

    @property
    def raw(self) -> Path:
        """Directory of the raw logs."""
        return self.path / RAW_DIRECTORY

    @property
    def scenario(self) -> dict[str, Any]:
        """The scenario, empty when the run crashed before it was written."""
        return self._section("scenario")

    @property
    def paths(self) -> dict[str, Any]:
        """Path of each flow: nodes, base RTT, bottleneck, rate, fair share."""
        return self._section("paths")

    @property
    def queue_settings(self) -> dict[str, Any]:
        """Settings of each queue: rate, buffer, AQM, whether it is a bottleneck."""
        return self._section("queues")

    @property
    def verdict(self) -> dict[str, Any]:
        """Verdict on the run's fidelity: status and reasons."""
        return self._section("verdict")

    @property
    def outcome(self) -> dict[str, Any]:
        """How the run ended: status, message, wall time of each phase."""
        return self._section("outcome")

    def _section(self, name: str) -> dict[str, Any]:
        section: dict[str, Any] = self.info.get(name) or {}
        return section

    @cached_property
    def flows(self) -> pl.DataFrame:
        """The flow samples, empty when none were recorded."""
        return _read_table(self.path, FLOWS)

    @cached_property
    def queues(self) -> pl.DataFrame:
        """The queue samples, empty when none were recorded."""
        return _read_table(self.path, QUEUES)

    @cached_property
    def events(self) -> pl.DataFrame:
        """The events, empty when none were recorded."""
        return _read_table(self.path, EVENTS)

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Write run.json, whole or not at all; a missing format version is filled in."""
        content = {"format": FORMAT_VERSION, **info}
        try:
            text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        except (TypeError, ValueError) as error:
            raise RecordError(f"{self.path / INFO_FILE} cannot hold this: {error}") from error
        parsed = json.loads(text)
        _check_info(parsed, self.path / INFO_FILE)
        _write_atomically(self.path / INFO_FILE, lambda path: path.write_text(text, encoding="utf-8"))
        self.info = parsed

    def write_tables(
        self,
        flows: pl.DataFrame | None = None,
        queues: pl.DataFrame | None = None,
        events: pl.DataFrame | None = None,
    ) -> None:
        """Write the tables given, each checked, sorted, and whole or not at all.

        Raises
        ------
        RecordError
            When a frame does not fit its schema (nothing is written then), or a file cannot be written.
        """
        frames = {"flows": flows, "queues": queues, "events": events}
        checked = [
            (
                table,
                _in_order(_conform(frame, table, str(self.path / table.file_name)), table),
            )
            for table in TABLES
            if (frame := frames[table.name]) is not None
        ]
        replaced = {table.file_name for table, _ in checked}
        others = {name: crc for name, crc in _checksums(self.path).items() if name not in replaced}
        _write_checksums(self.path, others)  # never those of a table that is being replaced
        for table, frame in checked:
            _write_atomically(self.path / table.file_name, frame.write_parquet)
            self.__dict__[table.name] = frame
        written = {table.file_name: zlib.crc32((self.path / table.file_name).read_bytes()) for table, _ in checked}
        _write_checksums(self.path, others | written)

    def digest(self) -> str:
        """Return the SHA-256 (64 hex digits) over the scenario and every value of the three tables.

        It does not depend on how Parquet encodes the values, on the rest of run.json, or on wall time:
        two runs have the same digest when, and only when, they recorded the same for the same scenario.
        """
        digest = hashlib.sha256(f"fairbed {FORMAT_VERSION}\n".encode())
        digest.update(json.dumps(self.scenario, sort_keys=True).encode() + b"\n")
        for table in TABLES:
            for part in _canonical_bytes(getattr(self, table.name), table):
                digest.update(part)
        return digest.hexdigest()


def _read_info(directory: Path) -> dict[str, Any]:
    """Return the checked contents of run.json."""
    path = directory / INFO_FILE
    if not directory.is_dir():
        raise RecordError(f"{directory} is not a run directory: no such directory")
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecordError(f"{directory} is not a run directory: it has no {INFO_FILE}") from error
    except OSError as error:
        raise RecordError(f"cannot read {path}: {_reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is not JSON: {error}") from error
    _check_info(info, path)
    return dict(info)


def _check_info(info: object, path: Path) -> None:
    """Raise RecordError unless run.json has a known format and sections of the right shape."""
    version = info.get("format") if isinstance(info, dict) else None
    if not isinstance(info, dict) or type(version) is not int or version < 1:
        raise RecordError(f"{path} is not a run's record: it has no format version")
    if version > FORMAT_VERSION:
        raise RecordError(f"{path} has format {version}, newer than {FORMAT_VERSION}: update Fairbed to read it")
    for section in ("scenario", "paths", "queues", "verdict", "outcome"):
        _expect(info.get(section), dict, path, section)
    for section in ("paths", "queues"):
        for key, value in (info.get(section) or {}).items():
            _expect(value, dict, path, f"{section}.{key}")
    flows = (info.get("scenario") or {}).get("flows")
    _expect(flows, list, path, "scenario.flows")
    for number, flow in enumerate(flows or []):
        named = isinstance(flow, dict) and isinstance(flow.get("flow_id"), str)
        if not named or not isinstance(flow.get("cca"), str):
            raise RecordError(f"{path} is damaged: scenario.flows[{number}] has no flow_id or no cca")


def _expect(value: object, kind: type, path: Path, where: str) -> None:
    """Raise RecordError unless the value is absent, null or of the kind asked."""
    if value is not None and not isinstance(value, kind):
        raise RecordError(f"{path} is damaged: {where} is not {'an object' if kind is dict else 'a list'}")


def _read_table(directory: Path, table: Table) -> pl.DataFrame:
    """Return one table, sorted; empty when its file is missing."""
    path = directory / table.file_name
    if not path.exists():
        return table.schema.to_frame()
    try:
        # From memory, not mapped: a damaged file then is an error of ours and never a bus error.
        content = path.read_bytes()
        _check_content(path, content)
        frame = pl.read_parquet(content)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise RecordError(f"cannot read {path}, it is damaged or truncated: {_reason(error)}") from error
    return _in_order(_conform(frame, table, str(path)), table)


def _check_content(path: Path, content: bytes) -> None:
    """Raise RecordError when a file isn't what was written: some damage makes the Parquet reader abort the process."""
    expected = _checksums(path.parent).get(path.name)
    if expected is not None and zlib.crc32(content) != expected:
        raise RecordError(f"cannot read {path}, it is damaged or truncated: {CHECKSUMS_FILE} has another checksum")


def _checksums(directory: Path) -> dict[str, int]:
    """Return the CRC-32 of the tables' files by name; empty when none were recorded."""
    path = directory / CHECKSUMS_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"cannot read {path}: {_reason(error)}") from error
    if not isinstance(content, dict) or not all(type(value) is int for value in content.values()):
        raise RecordError(f"{path} is damaged: it must hold a number for each file")
    return content


def _write_checksums(directory: Path, checksums: Mapping[str, int]) -> None:
    text = json.dumps(checksums, indent=2) + "\n"
    _write_atomically(directory / CHECKSUMS_FILE, lambda path: path.write_text(text, encoding="utf-8"))


def _in_order(frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    """Return the frame sorted; one that is sorted already, as the lab writes them, as it is."""
    first, second = (pl.col(name) for name in table.order)
    rising = (first > first.shift()) | ((first == first.shift()) & (second >= second.shift()))
    if frame.select(rising.slice(1).all()).item():
        return frame
    return frame.sort(*table.order, maintain_order=True)


def _conform(frame: pl.DataFrame, table: Table, where: str) -> pl.DataFrame:
    """Return the frame in the table's columns, order and types, or raise RecordError."""
    missing = [name for name in table.schema if name not in frame.columns]
    unknown = [name for name in frame.columns if name not in table.schema]
    if missing or unknown:
        found = [f"{kind}: {', '.join(names)}" for kind, names in (("missing", missing), ("unknown", unknown)) if names]
        raise RecordError(f"{where} does not have the columns of {table.name}: {'; '.join(found)}")
    for name, wanted in table.schema.items():
        if not _castable(frame.schema[name], wanted):
            raise RecordError(f"{where}: column {name} is {frame.schema[name]}, not {wanted}")
    try:
        frame = frame.select(table.schema.names()).cast(table.schema)
    except pl.exceptions.PolarsError as error:
        raise RecordError(f"{where}: a value is out of its column's range: {_reason(error)}") from error
    for name in table.key:
        if frame[name].null_count() or (name == "t_s" and not frame[name].is_finite().all()):
            raise RecordError(f"{where}: column {name} must have a value in every row")
    return frame


def _castable(found: pl.DataType, wanted: pl.DataType) -> bool:
    """Return whether a column can be cast without changing what its values mean."""
    if found == wanted or found == pl.Null:
        return True
    return found.is_integer() and wanted.is_numeric()


def _canonical_bytes(frame: pl.DataFrame, table: Table) -> Iterator[bytes]:
    """Yield bytes that determine the table's values, and that its values determine."""
    yield f"{table.name} {frame.height}\n".encode()
    for name, dtype in table.schema.items():
        column = frame[name]
        yield f"{name} {dtype}\n".encode()
        yield np.packbits(column.is_null().to_numpy()).tobytes()
        if dtype == pl.String:
            for text in column.fill_null("").to_list():
                encoded = text.encode()
                yield len(encoded).to_bytes(8, "little") + encoded
            continue
        values = column.fill_null(0).to_numpy()
        if dtype.is_float():
            values = np.where(np.isnan(values), np.nan, values + 0.0)  # one NaN, and no -0.0
        yield values.astype(values.dtype.newbyteorder("<")).tobytes()


def _write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a file beside the target, then put it in the target's place."""
    temporary: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        os.close(descriptor)
        write(temporary)
        temporary.chmod(0o644)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise RecordError(f"cannot write {path}: {_reason(error)}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _reason(error: BaseException) -> str:
    """Return the first line of what went wrong, without the path that the caller names."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).strip() or type(error).__name__).splitlines()[0]
