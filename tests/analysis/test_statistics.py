"""Statistics over repeats against known values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import statistics

VALUES = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8)


def rng() -> np.random.Generator:
    """Return the same generator every time."""
    return np.random.default_rng(7)


@settings(max_examples=25, deadline=None)
@given(VALUES)
def test_interval_holds_the_mean_and_stays_within_the_values(values: list[float]) -> None:
    """For any sample."""
    found = statistics.mean_interval(values, rng())
    assert found.n == len(values)
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9  # type: ignore[operator]
    assert found.mean == pytest.approx(np.mean(values))


def test_interval_is_seeded_and_near_the_normal_one() -> None:
    """The same generator gives the same interval; for 400 normal values it is about mean ± 1.96 s/√n."""
    values = np.random.default_rng(1).normal(10.0, 2.0, 400)
    found = statistics.mean_interval(values, rng())
    assert found == statistics.mean_interval(values, rng())
    half = 1.96 * values.std() / 20
    assert found.low == pytest.approx(values.mean() - half, abs=0.03)
    assert found.high == pytest.approx(values.mean() + half, abs=0.03)


def test_one_value_has_no_interval() -> None:
    """And no value is refused."""
    assert statistics.mean_interval([3.0], rng()) == statistics.Interval(3.0, None, None, 1)
    assert statistics.mean_difference([3.0], [4.0, 6.0], rng()) == statistics.Interval(2.0, None, None, 1)
    with pytest.raises(ValueError, match="at least one value"):
        statistics.mean_interval([], rng())


def test_difference_of_constants_is_certain() -> None:
    """B minus A."""
    found = statistics.mean_difference([1, 1, 1], [4, 4], rng())
    assert (found.mean, found.low, found.high, found.n) == (3.0, 3.0, 3.0, 2)


def test_cliffs_delta_by_hand() -> None:
    """Of the 4 pairs of (1, 3) and (2, 4) three are larger, one smaller."""
    assert statistics.cliffs_delta([1, 3], [2, 4]) == 0.5
    assert statistics.cliffs_delta([4, 5], [1, 2]) == -1.0


def test_rank_test_exact() -> None:
    """Known two-sided values: 2/20 for 3 against 3 apart, 2/252 for 5 against 5, 1 for equal samples."""
    assert statistics.rank_test([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / 20)
    assert statistics.rank_test(range(5), range(5, 10)) == pytest.approx(2 / 252)
    assert statistics.rank_test([1, 1], [1, 1]) == 1.0
    assert statistics.rank_test([1, 2], [1, 2]) == 1.0


def test_rank_test_approximation_by_hand() -> None:
    """12 against 12 apart: z = (72 - 0.5) / √300 = 4.128, p = 3.66e-5; all tied: 1."""
    assert statistics.rank_test(range(12), range(12, 24)) == pytest.approx(3.66e-5, rel=0.01)
    assert statistics.rank_test([1] * 12, [1] * 12) == 1.0


@given(VALUES, VALUES)
@settings(max_examples=25, deadline=None)
def test_rank_test_is_symmetric(a: list[float], b: list[float]) -> None:
    """Swapping the sides changes nothing, and the value is a probability."""
    found = statistics.rank_test(a, b)
    assert 0 < found <= 1
    assert found == pytest.approx(statistics.rank_test(b, a))


def test_repeats_to_halve() -> None:
    """Four times as many in all."""
    assert statistics.repeats_to_halve(5) == 15


def test_signed_rank_by_enumeration() -> None:
    """All of one sign among n gives 2 / 2^n; the smallest one against it the next step; 0 says nothing."""
    assert statistics.signed_rank_test([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(2 / 64)
    assert statistics.signed_rank_test([-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(4 / 64)
    assert statistics.signed_rank_test([0.0, 0.0]) == 1.0
    assert statistics.signed_rank_test([1.0, -1.0]) == 1.0


def test_signed_rank_of_many_is_close_to_exact() -> None:
    """16 values, beyond what is enumerated: within 0.01 of the enumeration done here, signs by the bits of a number."""
    values = np.array([(-1.0) ** index * (index + 1) + 0.25 for index in range(16)])
    ranks = np.abs(values).argsort().argsort() + 1.0
    assert np.unique(np.abs(values)).size == 16
    signs = 2 * (np.arange(2**16)[:, None] >> np.arange(16) & 1) - 1
    exact = np.mean(np.abs(signs @ ranks) >= abs(np.sign(values) @ ranks))
    assert statistics.signed_rank_test(values) == pytest.approx(exact, abs=0.01)
