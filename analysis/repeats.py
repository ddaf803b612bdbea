"""Several runs as numbers: repeats of one scenario that differ by seed, and two scenarios side by side."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from analysis import statistics
from analysis.statistics import Interval
from analysis.summary import FlowSummary, Summary, summarise
from lab.record import Run
from topologies.errors import UsageError

__all__ = [
    "Comparison",
    "Difference",
    "RepeatSummary",
    "between_algorithms",
    "compare",
    "same_scenario",
    "summarise_repeats",
]

OVERALL = "overall"
PAIRED = ("goodput_mbit", "retransmission_rate", "rtt_inflation_p50_ms")
ONE_RUN = "one run is never a finding: repeat it with other seeds"

Measures = dict[str, dict[str, float | None]]
"""Values of one run: group ("overall" or a congestion control) to measure to value."""


@dataclass(frozen=True)
class Difference:
    """One measure of two scenarios.

    Attributes
    ----------
    a, b : Interval
        Mean of each.
    difference : Interval
        Mean of b - mean of a.
    cliffs_delta : float
        Effect size, -1 to 1, above 0 when b tends to be larger.
    p_value : float or None
        Of the two-sided rank test (the signed one for pairs); None when either side is a single run.
    """

    a: Interval
    b: Interval
    difference: Interval
    cliffs_delta: float
    p_value: float | None


@dataclass(frozen=True)
class RepeatSummary:
    """Repeats of one scenario.

    Attributes
    ----------
    runs : tuple of str
        The run directories, all that were given.
    name : str
        Of the scenario.
    seeds, verdicts : tuple
        Of each run.
    n : int
        Runs counted: complete and not invalid.
    estimates : dict
        Group ("overall" or a congestion control) to measure to mean with its interval, None when no run has
        it. A congestion control's goodput, retransmission rate and RTT inflation are means over its flows,
        its share is their sum.
    differences : dict
        How the congestion controls differ, run by run (`between_algorithms`).
    reasons : dict
        Why an estimate is None or is of fewer runs than `n`; the key is `<group>.<measure>`.
    notes : tuple of str
        What a reader should know before concluding.
    """

    runs: tuple[str, ...]
    name: str
    seeds: tuple[int | None, ...]
    verdicts: tuple[str, ...]
    n: int
    estimates: dict[str, dict[str, Interval | None]]
    differences: dict[str, dict[str, Difference]]
    reasons: dict[str, str]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as JSON takes it."""
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """Two scenarios side by side; the measures are those that both have."""

    a: RepeatSummary
    b: RepeatSummary
    differences: dict[str, dict[str, Difference]]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON takes it."""
        return asdict(self)


def summarise_repeats(runs: Sequence[Run], seed: int = 0) -> RepeatSummary:
    """Return mean and 95 % interval of every measure over the repeats of one scenario.

    Runs that are invalid or did not complete are left out, and a note says so. `seed` is the bootstrap's.

    Raises
    ------
    UsageError
        When there is no run, or the scenarios differ by more than the seed.
    """
    if not runs:
        raise UsageError("no run to summarise")
    if not all(same_scenario(runs[0], run) for run in runs):
        raise UsageError("these runs are not repeats: their scenarios differ by more than the seed")
    summaries = [summarise(run) for run in runs]
    counted = [summary for summary in summaries if _counts(summary)]
    rng = np.random.default_rng(seed)
    values = _collect([_measures(summary) for summary in counted or summaries])
    return RepeatSummary(
        tuple(summary.run for summary in summaries),
        summaries[0].name,
        tuple(summary.seed for summary in summaries),
        tuple(summary.verdict for summary in summaries),
        len(counted),
        {
            group: {
                name: statistics.mean_interval(found, rng) if found and counted else None
                for name, found in measures.items()
            }
            for group, measures in values.items()
        },
        between_algorithms(runs, seed),
        _reasons(values, counted),
        tuple(_notes(summaries, counted)),
    )


def compare(a: Sequence[Run], b: Sequence[Run], seed: int = 0) -> Comparison:
    """Return the differences, b minus a, of every measure that both scenarios have."""
    first, second = summarise_repeats(a, seed), summarise_repeats(b, seed)
    rng = np.random.default_rng(seed)
    left, right = _counted_values(a), _counted_values(b)
    differences = {
        group: {
            name: _difference(left[group][name], right[group][name], rng)
            for name in left[group]
            if left[group][name] and right[group][name]
        }
        for group in left
        if group in right
    }
    notes = [*(f"A: {note}" for note in first.notes), *(f"B: {note}" for note in second.notes)]
    if not any(differences.values()):
        notes.append("there is no measure that both have")
    return Comparison(first, second, differences, tuple(notes))


def between_algorithms(runs: Sequence[Run], seed: int = 0) -> dict[str, dict[str, Difference]]:
    """Return how the congestion controls of one scenario differ over its repeats: pair to measure to difference.

    The pair "cubic, bbr" holds bbr minus cubic, run by run, since two flows of one run share its luck: the interval is
    of the mean of those differences, the p-value of the signed rank test. Empty unless two runs count.
    """
    rng = np.random.default_rng(seed)
    counted = [_measures(summary) for summary in map(summarise, runs) if _counts(summary)]
    ccas = list(dict.fromkeys(name for measures in counted for name in measures if name != OVERALL))
    if len(counted) < 2:
        return {}
    found = {f"{a}, {b}": _paired(counted, a, b, rng) for a, b in combinations(ccas, 2)}
    return {pair: differences for pair, differences in found.items() if differences}


def _paired(runs: Sequence[Measures], a: str, b: str, rng: np.random.Generator) -> dict[str, Difference]:
    """Return the paired differences of every measure that both have in two runs or more."""
    differences = {}
    for name in PAIRED:
        pairs = [(measures[a].get(name), measures[b].get(name)) for measures in runs if a in measures and b in measures]
        known = [(float(x), float(y)) for x, y in pairs if x is not None and y is not None]
        if len(known) < 2:
            continue
        x, y = np.array(known).T
        differences[name] = Difference(
            statistics.mean_interval(x, rng),
            statistics.mean_interval(y, rng),
            statistics.mean_interval(y - x, rng),
            statistics.cliffs_delta(x, y),
            statistics.signed_rank_test(y - x),
        )
    return differences


def same_scenario(a: Run, b: Run) -> bool:
    """Return whether two runs are repeats: their scenarios differ by nothing but the seed."""
    return _without_seed(a) == _without_seed(b)


def _without_seed(run: Run) -> str:
    return json.dumps({key: value for key, value in run.scenario.items() if key != "seed"}, sort_keys=True)


def _counts(summary: Summary) -> bool:
    """Return whether a run may be counted."""
    return summary.verdict != "invalid" and summary.outcome == "complete"


def _counted_values(runs: Sequence[Run]) -> dict[str, dict[str, list[float]]]:
    summaries = [summary for summary in map(summarise, runs) if _counts(summary)]
    return _collect([_measures(summary) for summary in summaries])


def _difference(a: list[float], b: list[float], rng: np.random.Generator) -> Difference:
    single = min(len(a), len(b)) == 1
    return Difference(
        statistics.mean_interval(a, rng),
        statistics.mean_interval(b, rng),
        statistics.mean_difference(a, b, rng),
        statistics.cliffs_delta(a, b),
        None if single else statistics.rank_test(a, b),
    )


def _measures(summary: Summary) -> Measures:
    """Return the measures of one run that are compared between runs."""
    overall = {
        name: getattr(summary, name)
        for name in ("utilisation", "jain", "jain_windowed_mean", "convergence_time_s", "drops")
    }
    one = summary.queues[0] if len(summary.queues) == 1 else None
    for name in ("delay_p50_ms", "delay_p95_ms", "delay_p99_ms"):
        overall[f"queueing_{name}"] = getattr(one, name) if one else None
    groups: Measures = {OVERALL: overall}
    for cca in dict.fromkeys(flow.cca for flow in summary.flows):
        groups[cca] = _cca_measures([flow for flow in summary.flows if flow.cca == cca])
    return groups


def _cca_measures(flows: list[FlowSummary]) -> dict[str, float | None]:
    """Return the measures of one congestion control: means over its flows, the share their sum."""
    values: dict[str, float | None] = {
        "goodput_mbit": _mean(flow.goodput_mbit for flow in flows),
        "share": _mean(flow.share for flow in flows),
        "retransmission_rate": _mean(flow.retransmission_rate for flow in flows),
        "rtt_inflation_p50_ms": _mean(flow.rtt_inflation_p50_ms for flow in flows),
    }
    if values["share"] is not None:
        values["share"] *= len(flows)
    return values


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean, None when any value is unknown."""
    found = list(values)
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known and len(known) == len(found) else None


def _collect(runs: Sequence[Measures]) -> dict[str, dict[str, list[float]]]:
    """Return the known values of each measure, over the runs."""
    collected: dict[str, dict[str, list[float]]] = {}
    for measures in runs:
        for group, values in measures.items():
            for name, value in values.items():
                found = collected.setdefault(group, {}).setdefault(name, [])
                if value is not None:
                    found.append(float(value))
    return collected


def _reasons(values: dict[str, dict[str, list[float]]], counted: Sequence[Summary]) -> dict[str, str]:
    """Return why a measure is known in fewer runs than were counted."""
    reasons = {}
    for group, measures in values.items():
        for name, found in measures.items():
            if not counted:
                reasons[f"{group}.{name}"] = "no run counts"
            elif len(found) < len(counted):
                why = next(filter(None, (_reason(summary, group, name) for summary in counted)), "")
                missing = len(counted) - len(found)
                reasons[f"{group}.{name}"] = f"unknown in {missing} of {len(counted)} runs ({why})"
    return reasons


def _reason(summary: Summary, group: str, name: str) -> str:
    """Return why one run lacks a measure, empty when it does not."""
    flows = [flow.flow_id for flow in summary.flows if flow.cca == group]
    queues = [queue.queue_id for queue in summary.queues]
    fields = [name] if group == OVERALL else [f"flows.{flow}.{name}" for flow in flows]
    if name.startswith("queueing_"):
        if len(queues) != 1:
            return "several bottlenecks, each has its own" if queues else "no bottleneck queue was recorded"
        fields = [f"queues.{queues[0]}.{name.removeprefix('queueing_')}"]
    return next((summary.reasons[field] for field in fields if field in summary.reasons), "")


def _notes(summaries: Sequence[Summary], counted: Sequence[Summary]) -> list[str]:
    """Return what a reader should know before concluding."""
    notes = [
        f"{summary.run} is left out: {'invalid' if summary.verdict == 'invalid' else summary.outcome}"
        for summary in summaries
        if not _counts(summary)
    ]
    seeds = [summary.seed for summary in counted]
    repeated = sorted({str(seed) for seed in seeds if seeds.count(seed) > 1})
    if repeated:
        notes.append(f"seed {', '.join(repeated)} is there more than once: those runs are not independent")
    if len(counted) == 1:
        notes.append(ONE_RUN)
    if len(counted) > 1:
        more = statistics.repeats_to_halve(len(counted))
        notes.append(f"{len(counted)} runs, mean and 95 % bootstrap interval; {more} more would halve the intervals")
        if len(counted) < 6:
            least = 2.0 ** (1 - len(counted))
            notes.append(f"with {len(counted)} runs the rank test of pairs cannot give a p below {least:.3g}")
    return notes
