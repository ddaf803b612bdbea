"""The policy `adaptive`: decisions from measured rates, by a pure function.

All flows of a port begin in queue 0. When they share unfairly, the algorithm that takes most for each of its flows
gets a queue of its own, whose guarantee is its flows' part; when queues of their own still don't make the flows even,
their weights are corrected. After each decision the rates may settle for two intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from controller.shaping import QueueShare

__all__ = ["Decision", "State", "decide", "jain", "queue_of", "shares"]

FAIR = 0.95
"""Jain's index from which nothing is changed: what the analysis calls converged."""
GAIN = 0.5
"""Exponent of a weight's correction: half of the way, in logarithms."""
MAX_CORRECTION = 4.0
"""A weight stays within this factor of its flows' part: an algorithm that can't use more is not given all."""
SETTLE = 2
"""Intervals after a decision before the next."""

Groups = Mapping[str, Sequence[str]]
"""Algorithm -> its flows."""
Rates = Mapping[str, float]
"""Flow -> Mbit/s in the interval; a flow that sent nothing is not there."""


class State(NamedTuple):
    """What has been decided for a port.

    Attributes
    ----------
    own : tuple of str
        Algorithms with a queue of their own.
    corrections : mapping
        Algorithm -> factor on its weight, 1 if it isn't there.
    settling : int
        Intervals to let pass.
    """

    own: tuple[str, ...] = ()
    corrections: Mapping[str, float] = {}
    settling: int = 0


class Decision(NamedTuple):
    """A change: what it is called, why, and the state after it."""

    subject: str
    reason: str
    state: State


def jain(rates: Iterable[float]) -> float:
    """Return Jain's index, (Σx)² / (n Σx²), from 1/n to 1; 1 for no rates.

    Examples
    --------
    >>> jain([1, 1, 1, 1]), jain([1, 0, 0, 0])
    (1.0, 0.25)
    """
    values = list(rates)
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else 1.0


def decide(groups: Groups, state: State, rates: Rates) -> State | Decision:
    """Return the decision for an interval's rates, or the state as it is from now on when there is none."""
    if state.settling:
        return state._replace(settling=state.settling - 1)
    index = jain(rates.values())
    if len(rates) < 2 or index >= FAIR:
        return state
    fair = math.fsum(rates.values()) / len(rates)
    means = {cca: _mean(flows, rates) for cca, flows in groups.items() if any(flow in rates for flow in flows)}
    common = [cca for cca in means if cca not in state.own]
    together = [rates[flow] for cca in common for flow in groups[cca] if flow in rates]
    if len(common) > 1 and jain(together) < FAIR:
        greediest = max(common, key=means.__getitem__)
        reason = f"Jain {index:.3f}: a {greediest} flow has {means[greediest]:.2f} Mbit/s, its part is {fair:.2f}"
        return Decision(
            f"{greediest} to a queue of its own", reason, state._replace(own=(*state.own, greediest), settling=SETTLE)
        )
    corrections = {**state.corrections, **_corrected(state, means, fair)}
    if len(means) < 2 or corrections == dict(state.corrections):
        return state
    words = ", ".join(f"{cca} {mean:.2f}" for cca, mean in means.items())
    reason = f"Jain {index:.3f}: Mbit/s for each flow are {words}, their part is {fair:.2f}"
    return Decision("weights", reason, state._replace(corrections=corrections, settling=SETTLE))


def _mean(flows: Sequence[str], rates: Rates) -> float:
    own = [rates[flow] for flow in flows if flow in rates]
    return math.fsum(own) / len(own)


def _corrected(state: State, means: Mapping[str, float], fair: float) -> dict[str, float]:
    """Return new factors for the algorithms with queues of their own; the others' stays 1."""
    corrected = {}
    for cca in state.own:
        if means.get(cca):
            factor = state.corrections.get(cca, 1.0) * (fair / means[cca]) ** GAIN
            corrected[cca] = round(min(MAX_CORRECTION, max(1 / MAX_CORRECTION, factor)), 4)
    return corrected


def queue_of(groups: Groups, state: State, cca: str) -> int:
    """Return the queue that an algorithm's flows are in: group k's own, from 1, is queue k, all others' is 0."""
    return list(groups).index(cca) + 1 if cca in state.own else 0


def shares(groups: Groups, state: State, queues: Iterable[int]) -> dict[int, QueueShare]:
    """Return each queue's share: its flows, times their algorithm's correction, of all.

    Flows that send nothing count too: others borrow what they leave, and when they come their part is there.
    """
    weights = dict.fromkeys(queues, 0.0)
    for cca, flows in groups.items():
        weights[queue_of(groups, state, cca)] += len(flows) * state.corrections.get(cca, 1.0)
    total = math.fsum(weights.values())
    return {queue: QueueShare(weight / total) for queue, weight in weights.items()}
