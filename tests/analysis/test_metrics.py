"""The metrics against values computed by hand, and against what must hold for any input."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import metrics

RATES = st.lists(st.floats(0, 1e6), min_size=1, max_size=30)
POSITIVE = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=30)
STEP_S = 0.1


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([1, 2, 3], 36 / 42),
        ([3, 1], 0.8),
        ([10, 0, 0, 0], 0.25),
        ([7], 1.0),
        ([1e-300, 1e-300], 1.0),
        ([1e300, 1e300], 1.0),
        ([0, 0], None),
        ([], None),
    ],
)
def test_jain(rates: list[float], expected: float | None) -> None:
    """By hand, at the ends of its range, at the ends of the floats."""
    assert metrics.jain(rates) == (None if expected is None else pytest.approx(expected))


@given(RATES)
def test_jain_lies_between_one_nth_and_one(rates: list[float]) -> None:
    """For any rates of which one is above 0."""
    index = metrics.jain(rates)
    assert index is None if max(rates) == 0 else 1 / len(rates) <= index <= 1  # type: ignore[operator]


@given(POSITIVE, st.floats(1e-3, 1e3), st.randoms())
def test_jain_knows_neither_units_nor_order(rates: list[float], factor: float, random: object) -> None:
    """It is the same in bit/s and in Mbit/s, and whichever flow is first."""
    shuffled = [rate * factor for rate in rates]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert metrics.jain(shuffled) == pytest.approx(metrics.jain(rates))


@given(st.integers(1, 20), st.integers(0, 20))
def test_jain_of_k_equal_flows_of_n_is_k_of_n(served: int, starved: int) -> None:
    """Jain's own reading of the index: the part of the flows that is served."""
    rates = [5.0] * served + [0.0] * starved
    assert metrics.jain(rates) == pytest.approx(served / (served + starved))


@pytest.mark.parametrize("rates", [[-1.0, 2.0], [math.nan], [math.inf]])
def test_jain_refuses_what_is_no_rate(rates: list[float]) -> None:
    """A negative or undefined rate is a fault of the caller."""
    with pytest.raises(ValueError, match="at least 0"):
        metrics.jain(rates)


def test_normalised_jain() -> None:
    """Two thirds and one third of the fair shares: 4 / (2 (1 + ...)) by hand; zero shares are refused."""
    assert metrics.normalised_jain([2, 8], [1, 4]) == 1.0
    assert metrics.normalised_jain([3, 1], [3, 3]) == pytest.approx((4 / 3) ** 2 / (2 * (1 + 1 / 9)))
    with pytest.raises(ValueError, match="above 0"):
        metrics.normalised_jain([1], [0])


@given(POSITIVE)
def test_epsilon_fairness_is_one_only_when_equal(rates: list[float]) -> None:
    """Between 0 and 1, and 1 for equal rates."""
    found = metrics.epsilon_fairness(rates)
    assert found is not None and 0 < found <= 1
    assert (found == 1) == (min(rates) == max(rates))
    assert metrics.epsilon_fairness([0, 0]) is metrics.epsilon_fairness([]) is None


def test_goodput_by_hand() -> None:
    """1,250,000 bytes in a second are 10 Mbit/s; between samples and outside of them it is still right."""
    t_s, received = [0.0, 1.0, 2.0], [0, 1_250_000, 1_250_000]
    assert metrics.goodput_mbit(t_s, received, 0, 1) == 10.0
    assert metrics.goodput_mbit(t_s, received, 0.5, 1.5) == 5.0
    assert metrics.goodput_mbit(t_s, received, 1, 2) == 0.0
    assert metrics.goodput_mbit(t_s, received, 0, 4) == 2.5  # the flow ended: nothing more came
    assert metrics.goodput_mbit([5.0], [1_250_000], 0, 10) == 1.0  # nothing came before the first sample
    assert metrics.goodput_mbit([], [], 0, 1) is None
    assert metrics.goodput_mbit(t_s, received, 1, 1) is None


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=40), st.floats(0.1, 0.9))
def test_goodput_of_parts_adds_up_to_the_whole(increments: list[int], cut: float) -> None:
    """Bytes are neither lost nor counted twice at a window's bound."""
    t_s, received = np.arange(len(increments), dtype=float), np.cumsum(increments)
    end = t_s[-1]
    whole = metrics.goodput_mbit(t_s, received, 0, end)
    parts = [
        metrics.goodput_mbit(t_s, received, 0, cut * end),
        metrics.goodput_mbit(t_s, received, cut * end, end),
    ]
    assert parts[0] * cut + parts[1] * (1 - cut) == pytest.approx(whole, abs=1e-6)  # type: ignore[operator]


def test_utilisation() -> None:
    """Throughput over rate; unknown when either is."""
    assert metrics.utilisation(metrics.throughput_mbit([0, 1], [0, 2_500_000], 0, 1), 20.0) == 1.0
    assert metrics.utilisation(None, 20.0) is metrics.utilisation(3.0, None) is None


def test_counted_takes_whole_samples() -> None:
    """The last sample not after a bound speaks for it."""
    t_s, drops = [0.0, 1.0, 2.0], [0, 5, 7]
    assert metrics.counted(t_s, drops, 0, 2) == 7
    assert metrics.counted(t_s, drops, 0.5, 1.5) == 5
    assert metrics.counted(t_s, drops, 1, 1.9) == 0
    assert metrics.counted(t_s, drops, -1, 10) == 7
    assert metrics.counted([], [], 0, 1) is None


def test_retransmission_rate() -> None:
    """5 of 1000, and undefined when nothing was sent."""
    assert metrics.retransmission_rate(5, 1000) == 0.005
    assert metrics.retransmission_rate(0, 0) is metrics.retransmission_rate(None, 10) is None


def test_window_length_and_starts() -> None:
    """At least 1 s and 5 base RTTs; a tenth of a window apart; inside the run."""
    assert metrics.default_window_s([]) == 1.0
    assert metrics.default_window_s([40.0]) == 1.0
    assert metrics.default_window_s([40.0, 600.0]) == 3.0
    starts = metrics.window_starts(0.0, 2.0, 1.0)
    assert starts == pytest.approx(np.arange(11) / 10)
    assert metrics.window_starts(0.0, 0.9, 1.0).size == 0


def test_windowed_rates_and_jain() -> None:
    """A starving flow counts as 0, one that is not there yet does not count."""
    starts = np.array([0.0, 1.0, 2.0])
    t_s = np.arange(5.0)
    steady = metrics.windowed_rates_mbit(t_s, t_s * 125_000, starts, 1.0)
    assert steady == pytest.approx([1.0, 1.0, 1.0])
    late = metrics.windowed_rates_mbit(t_s, np.maximum(0, t_s - 1) * 125_000, starts, 1.0, (1.0, 9.0))
    assert np.isnan(late[0]) and late[1:] == pytest.approx([1.0, 1.0])
    starving = np.zeros(3)
    assert metrics.windowed_jain([steady, late]) == pytest.approx([1.0, 1.0, 1.0])
    assert metrics.windowed_jain([steady, starving]) == pytest.approx([0.5, 0.5, 0.5])
    assert np.isnan(metrics.windowed_jain([starving, starving])).all()
    assert np.isnan(metrics.windowed_rates_mbit([], [], starts, 1.0)).all()


def convergence(fair_from_s: float, end_s: float = 30.0, join_s: float = 0.0) -> metrics.Convergence:
    """Return the convergence of a run whose windows of 1 s are fair from fair_from_s on."""
    starts = metrics.window_starts(0.0, end_s, 1.0)
    return metrics.convergence_time(starts, np.where(starts >= fair_from_s - 1e-9, 0.99, 0.5), 1.0, join_s)


def test_convergence_time_by_hand() -> None:
    """From the last flow's start until fairness begins to hold."""
    assert convergence(0.0).time_s == 0.0
    assert convergence(7.0).time_s == pytest.approx(7.0)
    assert convergence(7.0, join_s=5.0).time_s == pytest.approx(2.0)
    assert convergence(0.0, join_s=5.0).time_s == pytest.approx(0.0)


def test_convergence_is_censored_with_a_reason() -> None:
    """Fair from 26 s holds for 4 s only when the run ends at 30 s: not reached."""
    assert convergence(25.0).time_s == pytest.approx(25.0)
    found = convergence(25.1)
    assert found.time_s is None and "censored" in found.reason
    assert "less than a window" in convergence(0.0, join_s=29.5).reason


def test_convergence_needs_an_unbroken_hold() -> None:
    """One unfair window of the 5 s starts the clock anew; an undefined one is not fair."""
    starts = metrics.window_starts(0.0, 20.0, 1.0)
    for bad in (0.94, np.nan):
        index = np.where(np.isclose(starts, 3.0), bad, 1.0)
        assert metrics.convergence_time(starts, index, 1.0, 0.0).time_s == pytest.approx(3.1)


def test_coefficient_of_variation() -> None:
    """By hand: 1 and 3 have mean 2 and deviation 1; a constant has 0; one value has none."""
    assert metrics.coefficient_of_variation([1.0, np.nan, 3.0]) == 0.5
    assert metrics.coefficient_of_variation([4.0, 4.0]) == 0.0
    assert metrics.coefficient_of_variation([4.0]) is metrics.coefficient_of_variation([0.0, 0.0]) is None


def test_delays() -> None:
    """1 BDP of 20 Mbit/s and 40 ms drains in 40 ms; inflation counts from the configured RTT."""
    assert metrics.backlog_delay_ms([100_000, 1514], 20.0) == pytest.approx([40.0, 0.6056])
    assert metrics.rtt_inflation_ms([60.0, 39.0], 40.0) == pytest.approx([20.0, -1.0])
    with pytest.raises(ValueError, match="above 0"):
        metrics.backlog_delay_ms([1], 0)


def test_percentiles() -> None:
    """Linear between ranks: of 0..100 the p95 is 95."""
    assert metrics.percentiles(range(101), (50, 95, 100)) == [50.0, 95.0, 100.0]
    assert metrics.percentiles([], (50, 95)) == [None, None]


def test_harm() -> None:
    """Ware et al.: from 10 to 4 Mbit/s is 0.6, from 20 to 80 ms is 0.75, no change is 0."""
    assert metrics.harm_more_is_better(10, 4) == 0.6
    assert metrics.harm_less_is_better(20, 80) == 0.75
    assert metrics.harm_more_is_better(5, 5) == metrics.harm_less_is_better(5, 5) == 0
    assert metrics.harm_more_is_better(0, 4) is metrics.harm_less_is_better(20, 0) is None
