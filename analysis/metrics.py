"""The metrics, as pure functions over arrays: each names its definition, unit, range and source.

Where a quantity is undefined the answer is None (NaN inside an array), never 0 or 1; the caller says why.
Counters are cumulative and sampled at the times `t_s`, which rise. Rates are in Mbit/s (10⁶ bit/s).

Sources
-------
Jain 1984
    R. Jain, D.-M. Chiu, W. Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource
    Allocation in Shared Computer Systems", DEC-TR-301.
RFC 5166
    "Metrics for the Evaluation of Congestion Control Mechanisms".
RFC 7928
    "Characterization Guidelines for Active Queue Management (AQM)".
tcpeval
    draft-irtf-iccrg-tcpeval, "Common TCP Evaluation Suite".
Ware 2019
    R. Ware et al., "Beyond Jain's Fairness Index: Setting the Bar for the Deployment of Congestion Control
    Algorithms", HotNets 2019.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Convergence",
    "backlog_delay_ms",
    "coefficient_of_variation",
    "completion_time_s",
    "convergence_time",
    "counted",
    "default_window_s",
    "epsilon_fairness",
    "goodput_mbit",
    "harm_less_is_better",
    "harm_more_is_better",
    "jain",
    "normalised_jain",
    "percentiles",
    "retransmission_rate",
    "rtt_fairness",
    "rtt_inflation_ms",
    "throughput_mbit",
    "utilisation",
    "window_starts",
    "windowed_jain",
    "windowed_rates_mbit",
]

Array = NDArray[np.float64]

MBIT_PER_BYTE = 8e-6
MIN_WINDOW_S = 1.0
WINDOW_BASE_RTTS = 5.0
STEPS_PER_WINDOW = 10
FAIR_JAIN = 0.95
HOLD_S = 5.0
EPSILON_S = 1e-4  # a sample that comes this late is still the one that was due; far below a sample's distance


def _counter_at(t_s: ArrayLike, counter: ArrayLike, at_s: ArrayLike) -> Array:
    """Return a counter at any time: linear between samples, 0 before the first, held after the last."""
    values = np.interp(np.asarray(at_s, float), np.asarray(t_s, float), np.asarray(counter, float), left=0.0)
    return np.asarray(values, np.float64)


def _rate_mbit(t_s: ArrayLike, counter_bytes: ArrayLike, start_s: float, stop_s: float) -> float | None:
    """Return the growth of a byte counter over a window, in Mbit/s; None without samples or a window."""
    if np.size(t_s) == 0 or stop_s <= start_s:
        return None
    first, last = _counter_at(t_s, counter_bytes, [start_s, stop_s])
    return float((last - first) * MBIT_PER_BYTE / (stop_s - start_s))


def goodput_mbit(t_s: ArrayLike, bytes_received: ArrayLike, start_s: float, stop_s: float) -> float | None:
    """Return a flow's goodput, Mbit/s, at least 0: payload bytes its receiver got ÷ window length.

    Source: tcpeval §6.1.3. None when the flow has no samples or the window no length.

    Examples
    --------
    >>> goodput_mbit([0, 10], [0, 2_500_000], 0, 10)
    2.0
    """
    return _rate_mbit(t_s, bytes_received, start_s, stop_s)


def throughput_mbit(t_s: ArrayLike, sent_bytes: ArrayLike, start_s: float, stop_s: float) -> float | None:
    """Return a link's throughput, Mbit/s, at least 0: all bytes it sent, headers included ÷ window length.

    Source: RFC 5166. None when there are no samples or the window has no length.
    """
    return _rate_mbit(t_s, sent_bytes, start_s, stop_s)


def utilisation(throughput: float | None, rate_mbit: float | None) -> float | None:
    """Return throughput ÷ configured rate, 0 to 1 (a burst can carry a short window a little above).

    Source: RFC 5166. None when the throughput is unknown or the link is unshaped.
    """
    return None if throughput is None or not rate_mbit else throughput / rate_mbit


def jain(rates: ArrayLike) -> float | None:
    """Return Jain's fairness index (Σx)² / (n Σx²), 1/n (one takes all) to 1 (all equal).

    Source: Jain 1984; RFC 5166. None when there are no flows or every x is 0.

    Examples
    --------
    >>> jain([5, 5, 5, 5]), jain([1, 0, 0, 0]), jain([0, 0])
    (1.0, 0.25, None)
    """
    x = np.asarray(rates, float)
    if not np.all(np.isfinite(x)) or np.any(x < 0):
        raise ValueError("rates must be finite and at least 0")
    if x.size == 0 or x.max() == 0:
        return None
    scaled = x / x.max()  # keeps the squares away from overflow and underflow
    index = float(scaled.sum() ** 2 / (x.size * np.square(scaled).sum()))
    return min(1.0, max(1.0 / x.size, index))  # rounding only


def normalised_jain(rates: ArrayLike, fair_shares: ArrayLike) -> float | None:
    """Return Jain's index of xᵢ ÷ flow i's max-min fair share, 1/n to 1.

    For several bottlenecks or several RTTs, where equal rates are not what is fair. Source: Jain 1984.
    None when there are no flows or every x is 0; a fair share must be above 0.

    Examples
    --------
    >>> normalised_jain([2, 8], [1, 4])
    1.0
    """
    shares = np.asarray(fair_shares, float)
    if np.any(~(shares > 0)):
        raise ValueError("fair shares must be above 0")
    return jain(np.asarray(rates, float) / shares)


def epsilon_fairness(rates: ArrayLike) -> float | None:
    """Return min x ÷ max x, 0 (one flow starves) to 1 (all equal).

    Source: RFC 5166. None when there are no flows or every x is 0.

    Examples
    --------
    >>> epsilon_fairness([2, 4, 8])
    0.25
    """
    x = np.asarray(rates, float)
    return float(x.min() / x.max()) if x.size and x.max() > 0 else None


def default_window_s(base_rtts_ms: Sequence[float]) -> float:
    """Return the length of the sliding windows, s: 1 s, but at least 5 of the longest base RTT.

    Examples
    --------
    >>> default_window_s([40.0, 20.0]), default_window_s([600.0])
    (1.0, 3.0)
    """
    return max(MIN_WINDOW_S, WINDOW_BASE_RTTS * max(base_rtts_ms, default=0.0) / 1e3)


def window_starts(start_s: float, stop_s: float, window_s: float, step_s: float | None = None) -> Array:
    """Return the starts, s, of the sliding windows that lie inside [start_s, stop_s].

    Each starts one step after the one before; the default step is a tenth of a window.
    """
    step_s = window_s / STEPS_PER_WINDOW if step_s is None else step_s
    count = int(np.floor((stop_s - start_s - window_s) / step_s + EPSILON_S)) + 1
    return start_s + step_s * np.arange(max(count, 0), dtype=np.float64)


def windowed_rates_mbit(
    t_s: ArrayLike,
    counter_bytes: ArrayLike,
    starts_s: Array,
    window_s: float,
    active_s: tuple[float, float] = (-np.inf, np.inf),
) -> Array:
    """Return a byte counter's rate in each window, Mbit/s; NaN where the flow is not active.

    A flow is active in a window when its activity (first and last second given) covers all of it, whether
    it gets any bytes or not: a flow that starves counts as 0, one that has not joined yet does not count.
    """
    if np.size(t_s) == 0:
        return np.full(starts_s.size, np.nan)
    grown = _counter_at(t_s, counter_bytes, starts_s + window_s) - _counter_at(t_s, counter_bytes, starts_s)
    first, last = active_s
    active = (starts_s >= first - EPSILON_S) & (starts_s + window_s <= last + EPSILON_S)
    return np.where(active, grown * MBIT_PER_BYTE / window_s, np.nan)


def windowed_jain(rates_mbit: ArrayLike) -> Array:
    """Return Jain's index of each window over the flows active in it; NaN where it is undefined.

    `rates_mbit` has one row per flow and one column per window, NaN where a flow is not active
    (`windowed_rates_mbit`). Source: Jain 1984, per window.
    """
    rates = np.atleast_2d(np.asarray(rates_mbit, float))
    active = ~np.isnan(rates)
    x, n = np.where(active, rates, 0.0), active.sum(axis=0)
    if not np.all(np.isfinite(x)) or np.any(x < 0):
        raise ValueError("rates must be finite and at least 0")
    largest = x.max(axis=0, initial=0.0)
    x = x / np.where(largest > 0, largest, 1.0)  # as in jain
    with np.errstate(divide="ignore", invalid="ignore"):
        index = x.sum(axis=0) ** 2 / (n * np.square(x).sum(axis=0))
        return np.where(largest > 0, np.clip(index, 1.0 / n, 1.0), np.nan)


@dataclass(frozen=True)
class Convergence:
    """When a run became fair.

    Attributes
    ----------
    time_s : float or None
        Seconds from the last flow's start until fairness began to hold; None when it was not reached.
    reason : str
        Why there is no time; empty when there is one.
    """

    time_s: float | None
    reason: str = ""


def convergence_time(
    starts_s: Array,
    jain_index: Array,
    window_s: float,
    last_join_s: float,
    threshold: float = FAIR_JAIN,
    hold_s: float = HOLD_S,
) -> Convergence:
    """Return how long after the last flow joined fairness began, s, at least 0.

    The first t at or after the last start such that Jain's index is at least `threshold` in every sliding
    window inside [t, t + hold_s] (at least one window); given as t minus the last start, in steps of the
    windows. Censored, so None with a reason, when the run ends first. Declared by this project.
    """
    wanted = starts_s >= last_join_s - EPSILON_S
    starts, fair = starts_s[wanted], jain_index[wanted] >= threshold  # NaN is not fair
    if starts.size == 0:
        return Convergence(None, f"the run ended less than a window ({window_s:g} s) after the last flow joined")
    step_s = float(starts[1] - starts[0]) if starts.size > 1 else window_s
    needed = int(np.floor((max(hold_s, window_s) - window_s) / step_s + EPSILON_S)) + 1
    fair_in_a_row = np.convolve(fair, np.ones(needed), mode="valid") if fair.size >= needed else np.zeros(0)
    holds = np.flatnonzero(fair_in_a_row > needed - 0.5)
    if holds.size == 0:
        left = starts[-1] + window_s - last_join_s
        return Convergence(
            None, f"censored: Jain's index did not stay at {threshold:g} for {hold_s:g} s within {left:.4g} s"
        )
    return Convergence(max(0.0, float(starts[holds[0]] - last_join_s)))


def coefficient_of_variation(rates: ArrayLike) -> float | None:
    """Return standard deviation ÷ mean of a flow's windowed goodput, at least 0.

    The deviation is the population's; NaN windows are left out. Source: RFC 5166. None with fewer than two
    windows or a mean of 0.

    Examples
    --------
    >>> coefficient_of_variation([1.0, 3.0])
    0.5
    """
    x = np.asarray(rates, float)
    x = x[~np.isnan(x)]
    return float(x.std() / x.mean()) if x.size >= 2 and x.mean() > 0 else None


def counted(t_s: ArrayLike, counter: ArrayLike, start_s: float, stop_s: float) -> int | None:
    """Return what a counter of whole things gained after start_s and up to stop_s.

    The last sample not after a bound speaks for it, 0 before the first. None without samples or a window.
    """
    times, values = np.asarray(t_s, float), np.asarray(counter)
    if times.size == 0 or stop_s <= start_s:
        return None
    before, after = np.searchsorted(times, [start_s + EPSILON_S, stop_s + EPSILON_S], side="right")
    return int(values[after - 1] if after else 0) - int(values[before - 1] if before else 0)


def retransmission_rate(retransmitted: float | None, sent: float | None) -> float | None:
    """Return retransmitted ÷ sent, both in data segments or both in bytes, 0 to 1.

    What is sent includes what is sent again (`data_segs_out`, `bytes_sent`). Retransmissions can be
    spurious: drops at the queue are another figure. Source: nsperf's practice. None when
    nothing was sent or either is unknown.

    Examples
    --------
    >>> retransmission_rate(5, 1000)
    0.005
    """
    return None if retransmitted is None or not sent else retransmitted / sent


def backlog_delay_ms(backlog_bytes: ArrayLike, rate_mbit: float) -> Array:
    """Return the queueing delay of a backlog, ms, at least 0: bytes * 8 ÷ rate at the bottleneck.

    Source: RFC 7928.

    Examples
    --------
    >>> backlog_delay_ms([0, 100_000], 20.0).tolist()
    [0.0, 40.0]
    """
    if not rate_mbit > 0:
        raise ValueError("the rate must be above 0")
    return np.asarray(backlog_bytes, float) * (MBIT_PER_BYTE * 1e3) / rate_mbit


def rtt_inflation_ms(srtt_ms: ArrayLike, base_rtt_ms: float) -> Array:
    """Return smoothed RTT - the flow's *configured* base RTT, ms.

    Not the smallest RTT seen: a flow that joins a standing queue never sees the path empty.
    Declared by this project.
    """
    return np.asarray(srtt_ms, float) - base_rtt_ms


def percentiles(values: ArrayLike, wanted: Sequence[float]) -> list[float | None]:
    """Return the percentiles asked for (0 to 100), linear between ranks; None each when there are no values.

    Examples
    --------
    >>> percentiles([1, 2, 3, 4, 5], [50, 100]), percentiles([], [50])
    ([3.0, 5.0], [None])
    """
    x = np.asarray(values, float)
    return [float(value) for value in np.percentile(x, wanted)] if x.size else [None] * len(wanted)


def rtt_fairness(rates: ArrayLike, base_rtts_ms: ArrayLike) -> tuple[float | None, float | None]:
    """Return the goodput ratio and the RTT ratio of the flows with the shortest and with the longest base RTT.

    Mean goodput at the shortest RTT ÷ mean goodput at the longest, at least 0: 1 is fair, above 1 short paths win;
    beside it the longest RTT ÷ the shortest. Source: tcpeval §6.2. (None, None) when all RTTs are the same; the goodput
    ratio is None when the long paths got nothing.

    Examples
    --------
    >>> rtt_fairness([8.0, 6.0, 2.0], [20.0, 20.0, 80.0])
    (3.5, 4.0)
    """
    x, rtts = np.asarray(rates, float), np.asarray(base_rtts_ms, float)
    if x.size == 0 or rtts.min() == rtts.max():
        return None, None
    short, long = x[rtts == rtts.min()].mean(), x[rtts == rtts.max()].mean()
    return (float(short / long) if long > 0 else None), float(rtts.max() / rtts.min())


def completion_time_s(t_s: ArrayLike, bytes_acked: ArrayLike, size_bytes: float, start_s: float) -> float | None:
    """Return a sized flow's completion time, s: until the first sample that has all its bytes acknowledged.

    At most one sampling interval above the true one. Source: RFC 7928. None when it did not complete.

    Examples
    --------
    >>> completion_time_s([1.0, 1.5, 2.0], [100, 900, 1000], size_bytes=1000, start_s=0.5)
    1.5
    """
    times, acked = np.asarray(t_s, float), np.asarray(bytes_acked, float)
    reached = np.flatnonzero(acked >= size_bytes)
    return float(times[reached[0]] - start_s) if reached.size else None


def harm_more_is_better(solo: float, contested: float) -> float | None:
    """Return (solo - contested) ÷ solo, for goodput and the like: 0 no harm, 1 nothing left.

    Below 0 the flow did better in company. Source: Ware 2019. None when the solo value is 0.

    Examples
    --------
    >>> harm_more_is_better(solo=10.0, contested=4.0)
    0.6
    """
    return (solo - contested) / solo if solo > 0 else None


def harm_less_is_better(solo: float, contested: float) -> float | None:
    """Return (contested - solo) ÷ contested, for delay, loss and the like: 0 no harm, towards 1 ever worse.

    Below 0 the flow did better in company. Source: Ware 2019. None when the contested value is 0.

    Examples
    --------
    >>> harm_less_is_better(solo=20.0, contested=80.0)
    0.75
    """
    return (contested - solo) / contested if contested > 0 else None
