"""The adaptive policy against a simple model of a port, and decision by decision."""

from itertools import pairwise

import pytest

from controller import adaptive
from controller.adaptive import Decision, State, decide, jain, queue_of, shares

GROUPS = {"cubic": ["cubic-1", "cubic-2"], "bbr": ["bbr-1"], "ndm_tcp": ["ndm_tcp-1"]}
QUEUES = [0, 1, 2, 3]
APPETITE = {"cubic": 1.0, "bbr": 10.0, "ndm_tcp": 0.3}
"""How hard each algorithm presses into a shared queue, in the model."""


def model(state: State, rate_mbit: float = 20.0, most: dict[str, float] | None = None) -> dict[str, float]:
    """Return the flows' rates: each queue has its share, within a queue flows get by their appetite."""
    given = shares(GROUPS, state, QUEUES)
    rates = {}
    for number in QUEUES:
        own = {
            f: APPETITE[cca] for cca, flows in GROUPS.items() for f in flows if queue_of(GROUPS, state, cca) == number
        }
        for flow_id, appetite in own.items():
            rates[flow_id] = rate_mbit * given[number].guaranteed * appetite / sum(own.values())
    return {flow_id: min(rate, (most or {}).get(flow_id, rate)) for flow_id, rate in rates.items()}


def run(intervals: int, most: dict[str, float] | None = None) -> tuple[list[float], list[Decision]]:
    """Return Jain's index in each interval, and the decisions."""
    state, indices, decisions = State(), [], []
    for _ in range(intervals):
        rates = model(state, most=most)
        indices.append(jain(rates.values()))
        decided = decide(GROUPS, state, rates)
        if isinstance(decided, Decision):
            decisions.append(decided)
            decided = decided.state
        state = decided
    return indices, decisions


def test_jain_by_hand() -> None:
    """(1 + 3)^2 / (2 (1 + 9)) = 0.8."""
    assert jain([1, 3]) == 0.8
    assert jain([]) == 1.0


def test_unfairness_ends_within_a_few_decisions() -> None:
    """Windowed Jain rises from 0.5 to 1 and is never lowered by a decision."""
    indices, decisions = run(15)
    assert indices[0] < 0.6
    assert indices[-1] > 0.99
    assert all(after >= before - 1e-9 for before, after in pairwise(indices))
    assert [decision.subject for decision in decisions] == [
        "bbr to a queue of its own",
        "cubic to a queue of its own",
    ]


def test_the_reason_names_the_numbers() -> None:
    _, decisions = run(1)
    assert decisions[0].reason == "Jain 0.370: a bbr flow has 16.26 Mbit/s, its part is 5.00"


def test_rates_may_settle_after_a_decision() -> None:
    """Two intervals pass before the next."""
    first = decide(GROUPS, State(), model(State()))
    assert isinstance(first, Decision)
    state: State | Decision = first.state
    for left in (1, 0):
        assert isinstance(state, State)
        state = decide(GROUPS, state, model(state))
        assert isinstance(state, State)
        assert state.settling == left


def test_fair_flows_are_left_alone() -> None:
    assert decide(GROUPS, State(), dict.fromkeys(["cubic-1", "bbr-1"], 5.0)) == State()
    assert decide(GROUPS, State(), {"cubic-1": 5.0}) == State()
    assert decide(GROUPS, State(), {}) == State()


def test_weights_move_towards_who_has_less_within_bounds() -> None:
    """All have queues of their own: corrections are the square root of what is missing, at most 4."""
    state = State(own=("cubic", "bbr", "ndm_tcp"))
    decided = decide(GROUPS, state, {"cubic-1": 4.0, "cubic-2": 4.0, "bbr-1": 16.0, "ndm_tcp-1": 0.01})
    assert isinstance(decided, Decision)
    assert decided.subject == "weights"
    assert decided.state.corrections["bbr"] == pytest.approx((6.0025 / 16) ** 0.5, abs=1e-3)
    assert decided.state.corrections["ndm_tcp"] == adaptive.MAX_CORRECTION


def test_an_algorithm_that_cannot_use_its_part_does_not_get_everything() -> None:
    """ndm_tcp never has more than 1 Mbit/s: its weight stops at its bound, and decisions end."""
    _, decisions = run(200, most={"ndm_tcp-1": 1.0})
    assert len(decisions) < 20
    given = shares(GROUPS, decisions[-1].state, QUEUES)
    assert given[3].guaranteed < 0.7


def test_shares_are_by_flows_and_fit() -> None:
    """bbr alone: 1 of 4 flows; the rest in queue 0."""
    given = shares(GROUPS, State(own=("bbr",)), QUEUES)
    assert {q: share.guaranteed for q, share in given.items()} == {0: 0.75, 1: 0.0, 2: 0.25, 3: 0.0}
