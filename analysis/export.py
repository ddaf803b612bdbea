"""A run in formats that other programs read: CSV, one JSON file, Flent's data file."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from analysis import metrics
from analysis.series import RunSeries
from analysis.summary import summarise
from lab.record import TABLES, RecordError, Run

__all__ = ["FORMATS", "export_run"]

FLENT_VERSION = 4
FLENT_STEP_S = 0.2


def export_run(run: Run, form: str, directory: str | Path | None = None) -> list[Path]:
    """Write the run in a format ("csv", "json", "flent") and return the files.

    Parameters
    ----------
    run : Run
    form : str
        One of `FORMATS`.
    directory : path, optional
        Where to; ``export`` in the run's directory when not given. Files of the same name are replaced.

    Raises
    ------
    RecordError
        When a table is damaged, or the directory cannot be written.
    """
    directory = run.path / "export" if directory is None else Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return FORMATS[form](run, directory)
    except OSError as error:
        raise RecordError(f"cannot write to {directory}: {error.strerror or error}") from error


def _csv(run: Run, directory: Path) -> list[Path]:
    """Write each table as it is: one header line, an empty field where a value is unknown."""
    paths = []
    for table in TABLES:
        paths.append(directory / f"{table.name}.csv")
        getattr(run, table.name).write_csv(paths[-1])
    return paths


def _json(run: Run, directory: Path) -> list[Path]:
    """Write run.json, the summary and the tables, column by column, in one file."""
    content = {
        "run": run.info,
        "summary": summarise(run).as_dict(),
        **{table.name: getattr(run, table.name).to_dict(as_series=False) for table in TABLES},
    }
    path = directory / f"{run.name}.json"
    path.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")
    return [path]


def _flent(run: Run, directory: Path) -> list[Path]:
    """Write the goodputs as Flent's test tcp_nup has them, so that its plots ``upload`` and ``upload_box`` work.

    Flent names the streams by number; SERIES_META has the flow ids. Each flow's smoothed RTT is a series beside them.
    """
    path = directory / f"{run.name}.flent.gz"
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(json.dumps(flent_content(run), allow_nan=False).encode())
    return [path]


def flent_content(run: Run) -> dict[str, Any]:
    """Return what Flent's data file holds, in its format 4."""
    series = RunSeries(run)
    starts = np.arange(0, max(series.end_s - FLENT_STEP_S / 2, 0), FLENT_STEP_S)
    results: dict[str, list[float | None]] = {}
    meta: dict[str, dict[str, str]] = {}
    rates = np.full((len(series.flows), starts.size), np.nan)
    for number, flow in enumerate(series.flows):
        t_s, received = flow.known("bytes_received")
        rates[number] = metrics.windowed_rates_mbit(t_s, received, starts, FLENT_STEP_S, flow.active_s)
        upload, rtt = f"TCP upload::{number + 1}", f"TCP RTT::{number + 1}"
        results |= {upload: _nullable(rates[number]), rtt: _nullable(_held(flow.known("srtt_ms"), starts))}
        about = {"FLOW": flow.flow_id, "CONG_CONTROL": flow.cca}
        meta |= {upload: about | {"UNITS": "Mbits/s"}, rtt: about | {"UNITS": "ms"}}
    active = ~np.isnan(rates)
    total = np.where(active.any(axis=0), np.nansum(rates, axis=0), np.nan)
    results["TCP upload sum"] = _nullable(total)
    results["TCP upload avg"] = _nullable(total / np.maximum(active.sum(axis=0), 1))
    created = str(run.info.get("created") or "1970-01-01T00:00:00+00:00")[:19] + ".000000Z"
    metadata = {
        "NAME": "tcp_nup",
        "TITLE": run.name,
        "NOTE": "Fairbed: goodput at the receivers",
        "TIME": created,
        "T0": created,
        "LENGTH": series.end_s,
        "TOTAL_LENGTH": series.end_s,
        "STEP_SIZE": FLENT_STEP_S,
        "TEST_PARAMETERS": {"upload_streams": str(len(series.flows))},
        "DATA_FILENAME": f"{run.name}.flent.gz",
        "HOST": "",
        "HOSTS": [],
        "IP_VERSION": 4,
        "SERIES_META": meta | {"TCP upload sum": {"UNITS": "Mbits/s"}, "TCP upload avg": {"UNITS": "Mbits/s"}},
        "SCENARIO": run.scenario,
        "VERDICT": run.verdict,
    }
    return {
        "version": FLENT_VERSION,
        "metadata": metadata,
        "x_values": [round(float(t), 6) for t in starts],
        "results": results,
        "raw_values": {},
    }


def _held(samples: tuple[metrics.Array, metrics.Array], at_s: metrics.Array) -> metrics.Array:
    """Return the last sample at or before each time, NaN before the first."""
    t_s, values = samples
    if t_s.size == 0:
        return np.full(at_s.size, np.nan)
    index = np.searchsorted(t_s, at_s, side="right") - 1
    return np.where(index >= 0, values[np.maximum(index, 0)], np.nan)


def _nullable(values: metrics.Array) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


FORMATS: dict[str, Callable[[Run, Path], list[Path]]] = {"csv": _csv, "json": _json, "flent": _flent}
"""Writer of each format."""
