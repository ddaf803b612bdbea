"""Statistics over repeats: a mean with its interval, a difference with its size, and how many runs more.

Sources
-------
Efron 1993
    B. Efron, R. J. Tibshirani, "An Introduction to the Bootstrap", chapter 13 (percentile interval).
Cliff 1993
    N. Cliff, "Dominance statistics: ordinal analyses to answer ordinal questions", Psychological Bulletin.
Mann 1947
    H. B. Mann, D. R. Whitney, "On a test of whether one of two random variables is stochastically larger
    than the other", Annals of Mathematical Statistics.
Wilcoxon 1945
    F. Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin.
"""

import math
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Interval",
    "cliffs_delta",
    "mean_difference",
    "mean_interval",
    "rank_test",
    "repeats_to_halve",
    "signed_rank_test",
]

LEVEL = 0.95
RESAMPLES = 10_000
MAX_EXACT = 50_000  # splits enumerated, a fraction of a second


@dataclass(frozen=True)
class Interval:
    """A mean, or a difference of means, with its confidence interval.

    Attributes
    ----------
    mean : float
    low, high : float or None
        Bounds of the interval; None when a single value gives none.
    n : int
        How many values are behind it (the smaller side, for a difference).
    """

    mean: float
    low: float | None
    high: float | None
    n: int


def mean_interval(values: ArrayLike, rng: np.random.Generator, level: float = LEVEL) -> Interval:
    """Return the mean with its percentile bootstrap interval (10,000 resamples).

    Source: Efron 1993, §13.3. With few repeats the interval is too narrow rather than too wide. The same
    generator state gives the same interval.
    """
    x = _sample(values)
    if x.size == 1:
        return Interval(float(x[0]), None, None, 1)
    low, high = _bounds(_resampled_means(x, rng), level)
    return Interval(float(x.mean()), low, high, x.size)


def mean_difference(a: ArrayLike, b: ArrayLike, rng: np.random.Generator, level: float = LEVEL) -> Interval:
    """Return mean(b) - mean(a) with its percentile bootstrap interval, both sides resampled.

    Source: Efron 1993, chapter 13. Without interval when either side is a single value.
    """
    x, y = _sample(a), _sample(b)
    difference = float(y.mean() - x.mean())
    if min(x.size, y.size) == 1:
        return Interval(difference, None, None, 1)
    low, high = _bounds(_resampled_means(y, rng) - _resampled_means(x, rng), level)
    return Interval(difference, low, high, min(x.size, y.size))


def cliffs_delta(a: ArrayLike, b: ArrayLike) -> float:
    """Return the effect size P(b > a) - P(b < a), -1 to 1; 0 when neither tends to be larger.

    Source: Cliff 1993.

    Examples
    --------
    >>> cliffs_delta([1, 2, 3], [4, 5, 6]), cliffs_delta([1, 2], [1, 2])
    (1.0, 0.0)
    """
    return float(np.sign(_sample(b)[:, None] - _sample(a)[None, :]).mean())


def rank_test(a: ArrayLike, b: ArrayLike) -> float:
    """Return the two-sided p-value of the Mann-Whitney rank test, 0 to 1.

    Exact, ties included, by enumerating the splits of the pooled ranks up to 50,000 of them; beyond that
    the normal approximation with tie correction. Source: Mann 1947.

    Examples
    --------
    >>> rank_test([1, 2, 3], [4, 5, 6])     # 2 of the 20 splits are as extreme
    0.1
    """
    x, y = _sample(a), _sample(b)
    ranks = _mid_ranks(np.concatenate([x, y]))
    expected = x.size * (ranks.size + 1) / 2
    found = abs(ranks[: x.size].sum() - expected)
    if math.comb(ranks.size, x.size) <= MAX_EXACT:
        sums = np.array([sum(split) for split in combinations(ranks.tolist(), x.size)])
        return float(np.mean(np.abs(sums - expected) >= found - 1e-9))
    variance = x.size * y.size / ranks.size * ranks.var(ddof=1) if np.ptp(ranks) else 0.0
    return math.erfc(max(0.0, found - 0.5) / math.sqrt(2 * variance)) if variance else 1.0


def signed_rank_test(differences: ArrayLike) -> float:
    """Return the two-sided p-value of Wilcoxon's signed rank test of paired differences, 0 to 1.

    For two values of the same run, which share its luck. Differences of 0 are left out; exact, ties included, by
    enumerating the signs of up to 15 differences, beyond that the normal approximation. Source: Wilcoxon 1945.

    Examples
    --------
    >>> signed_rank_test([1, 2, 3, 4])      # 2 of the 16 choices of signs are as extreme
    0.125
    """
    x = _sample(differences)
    x = x[x != 0]
    if x.size == 0:
        return 1.0
    ranks = _mid_ranks(np.abs(x))
    found = abs(float(np.sign(x) @ ranks))
    if 2**x.size <= MAX_EXACT:
        sums = np.array(list(product((-1.0, 1.0), repeat=x.size))) @ ranks
        return float(np.mean(np.abs(sums) >= found - 1e-9))
    # The sum goes in steps of 2, so half a step, the continuity correction, is 1.
    return math.erfc(max(0.0, found - 1.0) / math.sqrt(2 * float(ranks @ ranks)))


def repeats_to_halve(n: int) -> int:
    """Return how many more repeats would halve the interval of n repeats: 3 n.

    A mean's interval shrinks with the square root of the number of repeats, so half the width takes four
    times as many (central limit theorem).

    Examples
    --------
    >>> repeats_to_halve(5)
    15
    """
    return 3 * n


def _sample(values: ArrayLike) -> NDArray[np.float64]:
    """Return the values as an array; refuse an empty or not finite one."""
    x = np.atleast_1d(np.asarray(values, float))
    if x.size == 0 or not np.all(np.isfinite(x)):
        raise ValueError("at least one value is needed, and all must be finite")
    return x


def _resampled_means(x: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the means of the resamples."""
    means: NDArray[np.float64] = x[rng.integers(x.size, size=(RESAMPLES, x.size))].mean(axis=1)
    return means


def _bounds(means: NDArray[np.float64], level: float) -> tuple[float, float]:
    """Return the percentile bounds of the level."""
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _mid_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ranks, 1 to n, ties sharing the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks
