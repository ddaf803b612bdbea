"""A run's samples as arrays: per flow, per bottleneck queue, and per sliding window.

Summary and figures both start here, so that a number in a table and a line in a picture agree.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis import metrics
from lab.record import Run

__all__ = ["FlowSeries", "QueueSeries", "RunSeries", "Windows"]

Array = NDArray[np.float64]

NO_ROWS = np.zeros(0, np.uint32)


@dataclass(frozen=True, eq=False)
class _Samples:
    """Rows of one flow or queue in its table, in time; a column is taken out when it is first asked for."""

    table: pl.DataFrame
    rows: NDArray[np.uint32]

    @property
    def empty(self) -> bool:
        """Whether nothing was recorded."""
        return self.rows.size == 0

    @cached_property
    def t_s(self) -> Array:
        """Times of the samples, s."""
        return self._column("t_s").to_numpy()

    @cached_property
    def _columns(self) -> dict[str, pl.Series]:
        return {}

    def _column(self, name: str) -> pl.Series:
        if name not in self._columns:
            self._columns[name] = self.table[name].gather(self.rows)
        return self._columns[name]

    def values(self, column: str) -> Array:
        """Return a column with NaN where it is null, one value for each of `t_s`."""
        return self._column(column).cast(pl.Float64).fill_null(np.nan).to_numpy()

    def known(self, column: str) -> tuple[Array, Array]:
        """Return times and values of the samples where the column is not null."""
        values = self._column(column)
        if values.null_count() == 0:
            return self.t_s, values.to_numpy()
        return self.t_s[values.is_not_null().to_numpy()], values.drop_nulls().to_numpy()

    def has(self, column: str) -> bool:
        """Whether the column has any value."""
        return self._column(column).null_count() < self.rows.size


@dataclass(frozen=True, eq=False)
class FlowSeries(_Samples):
    """The samples of one flow and what the scenario says about it.

    Attributes
    ----------
    flow_id, cca : str
    active_s : tuple of float
        First and last second in which the flow had something to send.
    base_rtt_ms, fair_share_mbit : float or None
        Configured base RTT and max-min fair share, None when run.json does not tell.
    size_bytes : float or None
        How much it has to send; None when it sends for as long as it runs.
    """

    flow_id: str
    cca: str
    active_s: tuple[float, float]
    base_rtt_ms: float | None
    fair_share_mbit: float | None
    size_bytes: float | None

    @property
    def unknown(self) -> bool:
        """Whether no one recorded what its receiver got."""
        return not self.has("bytes_received")

    def active_in(self, start_s: float, stop_s: float) -> bool:
        """Return whether the flow is active in some part of a window."""
        return max(start_s, self.active_s[0]) < min(stop_s, self.active_s[1])


@dataclass(frozen=True, eq=False)
class QueueSeries(_Samples):
    """The samples of one queue and its settings.

    Attributes
    ----------
    queue_id : str
    rate_mbit : float or None
        Configured rate, None when it is unshaped or run.json does not tell.
    buffer_bytes : float or None
    """

    queue_id: str
    rate_mbit: float | None
    buffer_bytes: float | None


@dataclass(frozen=True, eq=False)
class Windows:
    """The sliding windows of a run.

    Attributes
    ----------
    length_s : float
        Length of each window.
    starts_s : array
        First second of each window.
    goodput_mbit : array, one row per flow and one column per window
        NaN where the flow is not active throughout the window.
    jain : array
        Jain's index over the flows active in each window, NaN where it is undefined.
    """

    length_s: float
    starts_s: Array
    goodput_mbit: Array
    jain: Array

    @property
    def centres_s(self) -> Array:
        """The middle of each window, s: where a plot puts its value."""
        return self.starts_s + self.length_s / 2

    @property
    def contested(self) -> NDArray[np.bool_]:
        """Which windows have two or more active flows: with one, Jain's index is 1 and says nothing."""
        return np.asarray((~np.isnan(self.goodput_mbit)).sum(axis=0) >= 2)


class RunSeries:
    """Everything of a run as arrays; it works on a run that crashed, with what there is."""

    def __init__(self, run: Run) -> None:
        """Take an opened run; its tables are read when they are first asked for."""
        self.run = run

    @cached_property
    def end_s(self) -> float:
        """Last second measured: the scenario's duration, or the last sample when the run ended before."""
        last = [float(table["t_s"].max()) for table in (self.run.flows, self.run.queues) if table.height]  # type: ignore[arg-type]
        measured = max(last, default=0.0)
        return min(measured, _number(self.run.scenario, "duration_s") or measured)

    @cached_property
    def warmup_s(self) -> float:
        """First second that counts."""
        return _number(self.run.scenario, "warmup_s") or 0.0

    @cached_property
    def flows(self) -> list[FlowSeries]:
        """The flows, in the scenario's order, and those recorded beside it."""
        declared = {flow["flow_id"]: flow for flow in self.run.scenario.get("flows") or []}
        for flow_id, rows in self._flow_rows.items():
            declared.setdefault(flow_id, {"flow_id": flow_id, "cca": self.run.flows["cca"][int(rows[0])]})
        return [self._flow(flow) for flow in declared.values()]

    def _flow(self, flow: dict[str, Any]) -> FlowSeries:
        flow_id = flow["flow_id"]
        path = self.run.paths.get(flow_id) or {}
        rows = self._flow_rows.get(flow_id, NO_ROWS)
        return FlowSeries(
            self.run.flows,
            rows,
            flow_id,
            flow["cca"],
            self._activity(flow, rows),
            _number(path, "base_rtt_ms"),
            _number(path, "fair_share_mbit"),
            _number(flow, "size_bytes"),
        )

    @cached_property
    def _flow_rows(self) -> dict[str, NDArray[np.uint32]]:
        return _rows(self.run.flows, "flow_id")

    @cached_property
    def _queue_rows(self) -> dict[str, NDArray[np.uint32]]:
        return _rows(self.run.queues, "queue_id")

    def _activity(self, flow: dict[str, Any], rows: NDArray[np.uint32]) -> tuple[float, float]:
        """Return when the flow had something to send: from its start to its stop, last byte or the end."""
        first = _number(flow, "start_s") or 0.0
        stop, size = _number(flow, "stop_s"), _number(flow, "size_bytes")
        last = self.end_s if stop is None else min(stop, self.end_s)
        if size is not None:
            complete = self.run.flows[rows].filter(pl.col("bytes_received") >= size)["t_s"]
            last = min([last, *complete.head(1)])
        return first, last

    @cached_property
    def bottlenecks(self) -> list[QueueSeries]:
        """The bottleneck queues; every queue when run.json does not tell which are."""
        settings = self.run.queue_settings
        wanted = [queue for queue, values in settings.items() if values.get("bottleneck")]
        recorded = list(self._queue_rows)
        return [self._queue(queue) for queue in wanted or [queue for queue in recorded if queue not in settings]]

    def _queue(self, queue_id: str) -> QueueSeries:
        settings = self.run.queue_settings.get(queue_id) or {}
        rows = self._queue_rows.get(queue_id, NO_ROWS)
        return QueueSeries(
            self.run.queues, rows, queue_id, _number(settings, "rate_mbit"), _number(settings, "buffer_bytes")
        )

    @cached_property
    def marks(self) -> list[tuple[float, str, str]]:
        """What happened while the run was measured: time in s, kind, words.

        The kinds are "join" and "leave" (flows, but for those that are there from the beginning or to the end),
        "controller" and "link".
        """
        marks = [(flow.active_s[0], "join", flow.flow_id) for flow in self.flows if flow.active_s[0] > 0]
        marks += [(flow.active_s[1], "leave", flow.flow_id) for flow in self.flows if flow.active_s[1] < self.end_s]
        events = self.run.events.filter(
            pl.col("source").is_in(["controller", "link"]) & (pl.col("t_s") > 0) & (pl.col("t_s") < self.end_s)
        )
        for t_s, source, kind, subject in events.select("t_s", "source", "kind", "subject").iter_rows():
            marks.append((t_s, source, f"{kind} {subject}".strip()))
        return sorted(marks)

    @cached_property
    def base_rtts_ms(self) -> list[float]:
        """The different base RTTs of the flows, in rising order."""
        return sorted({flow.base_rtt_ms for flow in self.flows if flow.base_rtt_ms is not None})

    @cached_property
    def windows(self) -> Windows:
        """The sliding windows over the whole run, warm-up included."""
        length_s = metrics.default_window_s(self.base_rtts_ms)
        starts_s = metrics.window_starts(0.0, self.end_s, length_s)
        goodput = np.full((len(self.flows), starts_s.size), np.nan)
        for row, flow in enumerate(self.flows):
            t_s, received = flow.known("bytes_received")
            goodput[row] = metrics.windowed_rates_mbit(t_s, received, starts_s, length_s, flow.active_s)
        index = metrics.windowed_jain(goodput)
        if any(flow.unknown and flow.active_in(0.0, self.end_s) for flow in self.flows):
            index[:] = np.nan  # fairness among the rest would be another quantity
        return Windows(length_s, starts_s, goodput, index)


def _rows(table: pl.DataFrame, key: str) -> dict[str, NDArray[np.uint32]]:
    """Return the rows of each key, in time; of several at one time the last."""
    index = pl.int_range(pl.len(), dtype=pl.UInt32).alias("row")
    groups = table.select(key, index).group_by(key, maintain_order=True).agg("row")
    t_s = table["t_s"].to_numpy()
    found = {}
    for name, group in groups.iter_rows():
        rows = np.asarray(group, np.uint32)
        found[name] = rows[np.diff(t_s[rows], append=np.inf) > 0]
    return found


def _number(values: dict[str, Any], key: str) -> float | None:
    """Return a number of run.json, None when it is missing, null or no number."""
    value = values.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
