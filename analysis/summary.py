"""One run as numbers: `summarise(run)` gives a frozen `Summary`, in which every null has its reason.

The figures count from the end of the warm-up to the end of the run, unless a field says otherwise.
"""

from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from analysis import metrics
from analysis.series import FlowSeries, QueueSeries, RunSeries
from lab.record import Run

__all__ = ["FlowSummary", "QueueSummary", "Summary", "summarise", "summarise_series"]

T = TypeVar("T")

UNSIZED = "it sends for as long as it runs"


@dataclass(frozen=True)
class FlowSummary:
    """One flow; definitions and sources are in `analysis.metrics`.

    Attributes
    ----------
    flow_id, cca : str
    goodput_mbit : float or None
        Payload its receiver got, Mbit/s.
    share : float or None
        Its part of all flows' goodput, 0 to 1.
    goodput_variation : float or None
        Coefficient of variation of its windowed goodput.
    retransmission_rate, retransmission_rate_bytes : float or None
        Retransmitted ÷ sent, in data segments and in bytes, 0 to 1.
    rtt_inflation_p50_ms, rtt_inflation_p95_ms : float or None
        Smoothed RTT above the configured base RTT, ms.
    completion_time_s : float or None
        Of a flow of a given size, from its start until all of it was acknowledged, warm-up or not.
    """

    flow_id: str
    cca: str
    goodput_mbit: float | None
    share: float | None
    goodput_variation: float | None
    retransmission_rate: float | None
    retransmission_rate_bytes: float | None
    rtt_inflation_p50_ms: float | None
    rtt_inflation_p95_ms: float | None
    completion_time_s: float | None


@dataclass(frozen=True)
class QueueSummary:
    """One bottleneck queue.

    Attributes
    ----------
    queue_id : str
    throughput_mbit, utilisation : float or None
        What it sent, Mbit/s, headers included, and the same ÷ its rate, 0 to 1.
    delay_p50_ms, delay_p95_ms, delay_p99_ms, delay_max_ms : float or None
        Queueing delay of the sampled backlog, ms.
    sojourn_p50_ms, sojourn_p95_ms, sojourn_p99_ms : float or None
        Time in the queue as the AQM itself tells it, ms (RFC 7928).
    drops, drops_warmup : int or None
        Packets dropped after the warm-up and during it.
    """

    queue_id: str
    throughput_mbit: float | None
    utilisation: float | None
    delay_p50_ms: float | None
    delay_p95_ms: float | None
    delay_p99_ms: float | None
    delay_max_ms: float | None
    sojourn_p50_ms: float | None
    sojourn_p95_ms: float | None
    sojourn_p99_ms: float | None
    drops: int | None
    drops_warmup: int | None


@dataclass(frozen=True)
class Summary:
    """A run as numbers.

    Attributes
    ----------
    run : str
        The run directory.
    name, seed : str, int or None
        Of the scenario.
    verdict, verdict_reasons : str, tuple of str
        "valid", "suspect", "invalid", or "unknown" when the run has none.
    outcome, outcome_message : str
        "complete", "crashed", "interrupted", or "unknown" when the run did not live to say.
    start_s, end_s : float
        The measured window: from the end of the warm-up to the end of the run.
    window_s : float
        Length of the sliding windows; each starts a tenth of it after the one before.
    flows, queues : tuple
        Per flow, and per bottleneck queue.
    goodput_mbit : float or None
        Sum over the flows.
    utilisation : float or None
        Of the bottleneck, when there is one; of several, see `queues`.
    jain, jain_normalised, epsilon_fairness : float or None
        Over the whole measured window, over the flows active in some part of it.
    jain_windowed_mean, jain_windowed_min : float or None
        Over the sliding windows in which two or more flows are active throughout.
    convergence_time_s : float or None
        Seconds from the last flow's start, warm-up or not, until fairness holds.
    rtt_goodput_ratio, rtt_ratio : float or None
        Goodput at the shortest base RTT ÷ at the longest, and the longest RTT ÷ the shortest; None when all are alike.
    drops : int or None
        Packets dropped at the bottlenecks.
    reasons : dict
        Why a field is None; the key is the field, `flows.<flow_id>.<field>` or `queues.<queue_id>.<field>`.
    notes : tuple of str
        What a reader should know before comparing.
    """

    run: str
    name: str
    seed: int | None
    verdict: str
    verdict_reasons: tuple[str, ...]
    outcome: str
    outcome_message: str
    start_s: float
    end_s: float
    window_s: float
    flows: tuple[FlowSummary, ...]
    queues: tuple[QueueSummary, ...]
    goodput_mbit: float | None
    utilisation: float | None
    jain: float | None
    jain_normalised: float | None
    epsilon_fairness: float | None
    jain_windowed_mean: float | None
    jain_windowed_min: float | None
    convergence_time_s: float | None
    rtt_goodput_ratio: float | None
    rtt_ratio: float | None
    drops: int | None
    reasons: dict[str, str]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as JSON takes it: units are in the names, null has its reason in `reasons`."""
        return asdict(self)


def summarise(run: Run) -> Summary:
    """Return a run as numbers; also of one that crashed, with what it recorded."""
    return summarise_series(RunSeries(run))


def summarise_series(series: RunSeries) -> Summary:
    """Return a run, whose samples are arrays already, as numbers."""
    return _Summariser(series).summary()


class _Summariser:
    """Computes the parts of a summary and collects why one is missing."""

    def __init__(self, series: RunSeries) -> None:
        self.series = series
        self.start_s, self.end_s = series.warmup_s, series.end_s
        self.reasons: dict[str, str] = {}

    def summary(self) -> Summary:
        run, series = self.series.run, self.series
        goodputs = {flow.flow_id: self._goodput(flow) for flow in series.flows}
        queues = tuple(self._queue(queue) for queue in series.bottlenecks)
        return Summary(
            run=str(run.path),
            name=str(run.scenario.get("name") or ""),
            seed=run.scenario.get("seed"),
            verdict=str(run.verdict.get("status") or "unknown"),
            verdict_reasons=tuple(map(str, run.verdict.get("reasons") or ())),
            outcome=str(run.outcome.get("status") or "unknown"),
            outcome_message=str(run.outcome.get("message") or ""),
            start_s=self.start_s,
            end_s=self.end_s,
            window_s=series.windows.length_s,
            flows=tuple(self._flow(flow, goodputs) for flow in series.flows),
            queues=queues,
            **self._overall(goodputs, queues),
            reasons=self.reasons,
            notes=tuple(self._notes()),
        )

    def _or_reason(self, value: T | None, field: str, reason: str) -> T | None:
        """Return the value; when it is None, keep the reason, or the better one that the window has none."""
        if value is None:
            self.reasons[field] = self._no_window() or reason
        return value

    def _no_window(self) -> str:
        if self.end_s > self.start_s:
            return ""
        if self.end_s == 0:
            return "nothing was recorded"
        return f"the record ends at {self.end_s:.4g} s, within the warm-up of {self.start_s:.4g} s"

    def _goodput(self, flow: FlowSeries) -> float | None:
        field, reason = f"flows.{flow.flow_id}.goodput_mbit", "its receiver's counter was not recorded"
        if not flow.active_in(self.start_s, self.end_s):
            return self._or_reason(None, field, "the flow is not active between warm-up and end")
        value = metrics.goodput_mbit(*flow.known("bytes_received"), self.start_s, self.end_s)
        return self._or_reason(value, field, reason)

    def _flow(self, flow: FlowSeries, goodputs: dict[str, float | None]) -> FlowSummary:
        prefix = f"flows.{flow.flow_id}"
        goodput, total = goodputs[flow.flow_id], self._total(goodputs)
        share = goodput / total if goodput is not None and total else None
        windows = self.series.windows
        row = self.series.flows.index(flow)
        rates = windows.goodput_mbit[row, windows.starts_s >= self.start_s - metrics.EPSILON_S]
        variation = metrics.coefficient_of_variation(rates)
        p50, p95 = self._rtt_inflation(flow)
        return FlowSummary(
            flow.flow_id,
            flow.cca,
            goodput,
            self._or_reason(share, f"{prefix}.share", "its goodput or the sum of all is unknown or 0"),
            self._or_reason(
                variation, f"{prefix}.goodput_variation", "fewer than two windows, or nothing was received"
            ),
            self._retransmissions(flow, "retransmission_rate", "retrans_segments", "data_segs_out"),
            self._retransmissions(flow, "retransmission_rate_bytes", "bytes_retrans", "bytes_sent"),
            p50,
            p95,
            self._completion(flow),
        )

    def _completion(self, flow: FlowSeries) -> float | None:
        field = f"flows.{flow.flow_id}.completion_time_s"
        if flow.size_bytes is None:
            self.reasons[field] = UNSIZED
            return None
        found = metrics.completion_time_s(*flow.known("bytes_acked"), flow.size_bytes, flow.active_s[0])
        if found is None:
            self.reasons[field] = f"it did not complete by {self.end_s:.4g} s"
        return found

    def _retransmissions(self, flow: FlowSeries, field: str, again: str, sent: str) -> float | None:
        counts = [metrics.counted(*flow.known(name), self.start_s, self.end_s) for name in (again, sent)]
        reason = "the sender's counters were not recorded" if None in counts else "nothing was sent"
        return self._or_reason(metrics.retransmission_rate(*counts), f"flows.{flow.flow_id}.{field}", reason)

    def _rtt_inflation(self, flow: FlowSeries) -> list[float | None]:
        inflation = np.zeros(0)
        if flow.base_rtt_ms is not None:
            inflation = metrics.rtt_inflation_ms(self._measured(flow, "srtt_ms"), flow.base_rtt_ms)
        reason = "no RTT sample" if flow.base_rtt_ms is not None else "the flow's base RTT is not in run.json"
        found = metrics.percentiles(inflation, (50, 95))
        fields = ("rtt_inflation_p50_ms", "rtt_inflation_p95_ms")
        return [
            self._or_reason(value, f"flows.{flow.flow_id}.{field}", reason)
            for value, field in zip(found, fields, strict=True)
        ]

    def _measured(self, samples: FlowSeries | QueueSeries, column: str) -> metrics.Array:
        """Return the known values of a column within the measured window."""
        t_s, values = samples.known(column)
        inside = (t_s >= self.start_s) & (t_s <= self.end_s + metrics.EPSILON_S)
        return np.asarray(values[inside], np.float64)

    def _queue(self, queue: QueueSeries) -> QueueSummary:
        prefix = f"queues.{queue.queue_id}"
        throughput = metrics.throughput_mbit(*queue.known("sent_bytes"), self.start_s, self.end_s)
        used = metrics.utilisation(throughput, queue.rate_mbit)
        delays = np.zeros(0)
        if queue.rate_mbit:
            delays = metrics.backlog_delay_ms(self._measured(queue, "backlog_bytes"), queue.rate_mbit)
        t_s, drops = queue.known("drops")
        before, after = (-1.0, self.start_s), (self.start_s, self.end_s)
        unsampled = "the queue was not sampled"
        unshaped = unsampled if queue.empty or queue.rate_mbit else "the queue's rate is not in run.json"
        values: dict[str, Any] = {
            "throughput_mbit": self._or_reason(throughput, f"{prefix}.throughput_mbit", unsampled),
            "utilisation": self._or_reason(used, f"{prefix}.utilisation", unshaped),
            "drops": self._or_reason(metrics.counted(t_s, drops, *after), f"{prefix}.drops", unsampled),
            "drops_warmup": self._or_reason(metrics.counted(t_s, drops, *before), f"{prefix}.drops_warmup", unsampled),
        }
        names = ("delay_p50_ms", "delay_p95_ms", "delay_p99_ms", "delay_max_ms")
        for name, value in zip(names, metrics.percentiles(delays, (50, 95, 99, 100)), strict=True):
            values[name] = self._or_reason(value, f"{prefix}.{name}", unshaped)
        sojourns = metrics.percentiles(self._measured(queue, "sojourn_ms"), (50, 95, 99))
        for percent, value in zip((50, 95, 99), sojourns, strict=True):
            name = f"sojourn_p{percent}_ms"
            values[name] = self._or_reason(value, f"{prefix}.{name}", "this AQM has no such figure")
        return QueueSummary(queue.queue_id, **values)

    def _overall(self, goodputs: dict[str, float | None], queues: tuple[QueueSummary, ...]) -> dict[str, Any]:
        """Return the fields of the run as a whole."""
        one = queues[0] if len(queues) == 1 else None
        many = "several bottlenecks, each has its own" if queues else "no bottleneck queue was recorded"
        drops = [queue.drops for queue in queues]
        known = [count for count in drops if count is not None]
        return {
            "goodput_mbit": self._or_reason(self._total(goodputs), "goodput_mbit", "no flow's goodput is known"),
            "utilisation": self._or_reason(
                one.utilisation if one else None,
                "utilisation",
                self.reasons.get(f"queues.{one.queue_id}.utilisation", "") if one else many,
            ),
            "drops": self._or_reason(
                sum(known) if known and len(known) == len(drops) else None,
                "drops",
                "a bottleneck was not sampled",
            ),
            **self._lifetime_fairness(goodputs),
            **self._windowed_fairness(),
            **self._rtt_fairness(goodputs),
            "convergence_time_s": self._convergence(),
        }

    def _total(self, goodputs: dict[str, float | None]) -> float | None:
        """Return the sum of the known goodputs."""
        known = [goodput for goodput in goodputs.values() if goodput is not None]
        return sum(known) if known else None

    def _lifetime_fairness(self, goodputs: dict[str, float | None]) -> dict[str, float | None]:
        active = [flow for flow in self.series.flows if flow.active_in(self.start_s, self.end_s)]
        rates = [goodputs[flow.flow_id] for flow in active]
        shares = [flow.fair_share_mbit for flow in active]
        unknown = [flow.flow_id for flow in active if flow.unknown]
        reason = f"the goodput of {', '.join(unknown)} is unknown" if unknown else "no flow received anything"
        x = [] if unknown else [rate for rate in rates if rate is not None]
        known_shares = [share for share in shares if share]
        weighed = metrics.normalised_jain(x, known_shares) if x and len(known_shares) == len(x) else None
        unweighed = reason if not x or all(shares) else "a flow's fair share is not in run.json"
        return {
            "jain": self._or_reason(metrics.jain(x), "jain", reason),
            "jain_normalised": self._or_reason(weighed, "jain_normalised", unweighed),
            "epsilon_fairness": self._or_reason(metrics.epsilon_fairness(x), "epsilon_fairness", reason),
        }

    def _windowed_fairness(self) -> dict[str, float | None]:
        windows = self.series.windows
        counted = windows.contested & (windows.starts_s >= self.start_s - metrics.EPSILON_S)
        index = windows.jain[counted & ~np.isnan(windows.jain)]
        reason = f"no window of {windows.length_s:g} s with two or more active flows of known goodput"
        return {
            "jain_windowed_mean": self._or_reason(
                float(index.mean()) if index.size else None, "jain_windowed_mean", reason
            ),
            "jain_windowed_min": self._or_reason(
                float(index.min()) if index.size else None, "jain_windowed_min", reason
            ),
        }

    def _rtt_fairness(self, goodputs: dict[str, float | None]) -> dict[str, float | None]:
        known = [
            (rate, flow.base_rtt_ms)
            for flow in self.series.flows
            if (rate := goodputs[flow.flow_id]) is not None and flow.base_rtt_ms is not None
        ]
        goodput_ratio, rtt_ratio = metrics.rtt_fairness(*zip(*known, strict=True)) if known else (None, None)
        alike = "the flows' base RTTs are alike or unknown"
        starved = "the flows with the longest base RTT received nothing" if rtt_ratio else alike
        return {
            "rtt_goodput_ratio": self._or_reason(goodput_ratio, "rtt_goodput_ratio", starved),
            "rtt_ratio": self._or_reason(rtt_ratio, "rtt_ratio", alike),
        }

    def _convergence(self) -> float | None:
        flows, windows = self.series.flows, self.series.windows
        if len(flows) < 2:
            self.reasons["convergence_time_s"] = "it takes two flows to converge"
            return None
        last_join = max(flow.active_s[0] for flow in flows)
        found = metrics.convergence_time(windows.starts_s, windows.jain, windows.length_s, last_join)
        if found.time_s is None:
            self.reasons["convergence_time_s"] = found.reason
        return found.time_s

    def _notes(self) -> list[str]:
        """Return what a reader should know before comparing."""
        partial = [
            flow.flow_id
            for flow in self.series.flows
            if flow.active_s[0] > self.start_s + metrics.EPSILON_S or flow.active_s[1] < self.end_s - metrics.EPSILON_S
        ]
        notes = []
        if partial and not self._no_window():
            notes.append(
                f"{', '.join(partial)}: not active throughout; goodput, share and lifetime Jain count the "
                "idle time as 0, windowed Jain does not"
            )
        duration = self.series.run.scenario.get("duration_s")
        if isinstance(duration, int | float) and self.end_s < 0.99 * duration:
            notes.append(f"the record ends at {self.end_s:.4g} s of {duration:g} s")
        return notes
