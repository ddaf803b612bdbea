"""Claims against results: each a ratio of means over seeds with its interval, and how often chance gives as much."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.articles.carry_out import COMPLETE, CRASHED, MISSING
from experiments.articles.measures import Result, of_series
from experiments.articles.trials import NDM, forms_of

CLAIMS = Path(__file__).with_name("claims.json")
NEEDED = 20
"""Repeats without which nothing is judged."""
EQUAL = 0.05
"""How far from 1 a ratio of what is called the same may be."""
RESAMPLES = 10_000
LEVEL = 0.95

REPRODUCED, NOT_REPRODUCED, NO_VERDICT = "reproduced", "not reproduced", "can't be judged"
FOOTPRINT = "footprint"

Quantity = tuple[str, str, str]
"""(trial, variant, measure)"""
Samples = dict[Quantity, dict[int, float]]
"""Quantity -> seed -> value."""


class Estimate(NamedTuple):
    """A ratio of means, or one mean, over seeds.

    Attributes
    ----------
    value, low, high
        None where there is none; ``why`` says why then. The interval is of 95 %.
    n
        Seeds behind it.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    why: str = ""


@dataclass(frozen=True)
class Verdict:
    """One claim in one form with one profile.

    Attributes
    ----------
    claim, form, profile
        The claim's entry; "published", "link" or "reordering"; "ndm_tcp" or "ndm2".
    word, why
        The verdict, and why there is none.
    estimate
        What was measured.
    by_chance, by_luck
        How often one run of each algorithm shows a difference as large as the published; and how often two runs of the
        same algorithm, the one compared with, do. None where no two figures are compared.
    """

    claim: Mapping[str, Any]
    form: str
    profile: str
    word: str
    why: str
    estimate: Estimate
    by_chance: float | None = None
    by_luck: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            **self.estimate._asdict(),
            "claim": self.claim["id"],
            "said": self.claim["said"],
            "form": self.form,
            "profile": self.profile,
            "verdict": self.word,
            "why": self.why,
            "by_chance": self.by_chance,
            "by_luck": self.by_luck,
        }


def articles() -> dict[str, Any]:
    """Return the articles, their tables and their claims."""
    data: dict[str, Any] = json.loads(CLAIMS.read_text(encoding="utf-8"))
    return data


def samples_of(results: Iterable[Result]) -> Samples:
    """Return the measures of all runs that are complete, and what their series say."""
    samples: Samples = {}
    for result in results:
        if result["status"] == COMPLETE:
            for name, value in {**result["measures"], **of_series(result["series"])}.items():
                if value is not None:
                    key = (result["trial"], result["variant"], name)
                    samples.setdefault(key, {})[result["seed"]] = float(value)
    return samples


def endings_of(results: Iterable[Result]) -> dict[tuple[str, str], Counter[str]]:
    """Return how many runs of each trial and variant ended in which way."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for result in results:
        found.setdefault((result["trial"], result["variant"]), Counter())[result["status"]] += 1
    return found


# ---- figures


def estimate(samples: Samples, quantities: Sequence[Quantity]) -> Estimate:
    """Return the mean of one quantity, a ÷ b of two, or (a ÷ b) ÷ (c ÷ d) of four, over the seeds that all have.

    The same seed gives all the same luck, so seeds are resampled together (percentile bootstrap; Efron and Tibshirani
    1993, chapter 13).

    Examples
    --------
    >>> found = {("t", "a", "x"): {1: 2.0, 2: 4.0}, ("t", "b", "x"): {1: 4.0, 2: 8.0}}
    >>> estimate(found, list(found))
    Estimate(value=0.5, low=0.5, high=0.5, n=2, why='')
    """
    missing = [key for key in quantities if not samples.get(key)]
    if missing:
        return Estimate(None, None, None, 0, f"no run of {missing[0][1]} has {missing[0][2]}")
    seeds = sorted(set.intersection(*(set(samples[key]) for key in quantities)))
    if not seeds:
        return Estimate(None, None, None, 0, "no seed has all that is compared")
    values = np.array([[samples[key][seed] for seed in seeds] for key in quantities])
    if np.any(values[1:].sum(axis=1) == 0):
        return Estimate(None, None, None, len(seeds), "what is compared with is 0 in every run")
    value = float(_quotient(values.mean(axis=1)))
    if len(seeds) == 1:
        return Estimate(value, None, None, 1)
    drawn = np.random.default_rng(0).integers(len(seeds), size=(RESAMPLES, len(seeds)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = _quotient(values[:, drawn].mean(axis=2))
    low, high = np.nanquantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high), len(seeds))


def _quotient(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a, a ÷ b or (a ÷ b) ÷ (c ÷ d) along the first axis."""
    if len(means) == 1:
        return np.asarray(means[0])
    ratio = means[0] / means[1]
    return np.asarray(ratio if len(means) == 2 else ratio / (means[2] / means[3]))


def share_as_extreme(a: Sequence[float], b: Sequence[float], published: float, side: str) -> float:
    """Return in which share of all pairs a ÷ b is at least as far on the claimed side as published.

    Written without dividing, so that runs without a single event count too; equal values are never a difference.

    Examples
    --------
    >>> share_as_extreme([1, 4], [2, 8], 0.5, "below")      # 1/2, 1/8 and 4/8 of 4 pairs, not 4/2
    0.75
    """
    x, y = np.asarray(a, float)[:, None], np.asarray(b, float)[None, :]
    found = (x <= published * y) & (x < y) if side == "below" else (x >= published * y) & (x > y)
    return float(found.mean())


def _luck(values: Sequence[float], published: float, side: str) -> float:
    """Return the same of two different runs of one algorithm."""
    n = len(values)
    same = share_as_extreme(values, values, published, side)  # a run against itself is never a difference
    return same * n / (n - 1) if n > 1 else 0.0


# ---- verdicts


def judge(claim: Mapping[str, Any], found: Estimate) -> tuple[str, str]:
    """Return the verdict on an estimate, and why there is none.

    Examples
    --------
    >>> judge({"side": "below"}, Estimate(0.5, 0.4, 0.6, 20))
    ('reproduced', '')
    >>> judge({"side": "below"}, Estimate(0.9, 0.7, 1.1, 20))
    ('not reproduced', '')
    >>> judge({"side": "below"}, Estimate(0.5, 0.4, 0.6, 3))
    ("can't be judged", '3 repeats; 20 are needed')
    """
    if found.value is None or found.low is None or found.high is None:
        return NO_VERDICT, found.why or "one repeat; 20 are needed"
    if found.n < NEEDED:
        return NO_VERDICT, f"{found.n} repeats; {NEEDED} are needed"
    return (REPRODUCED if _holds(claim, found.low, found.high) else NOT_REPRODUCED), ""


def _holds(claim: Mapping[str, Any], low: float, high: float) -> bool:
    """Say whether a whole interval is on the claimed side."""
    bound = claim.get("bound", 1.0)
    match claim["side"]:
        case "below":
            return high < float(bound)
        case "above":
            return low > float(bound)
        case "equal":
            return low >= 1 - EQUAL and high <= 1 + EQUAL
        case "within":
            return low >= float(bound[0]) and high <= float(bound[1])
    raise ValueError(f"claim {claim['id']} has no side")


def verdicts(results: Sequence[Result], tests: Sequence[str]) -> list[Verdict]:
    """Return the verdict on every claim of these tests, in every form and with both profiles."""
    samples, endings = samples_of(results), endings_of(results)
    found = []
    for claim in articles()["claims"]:
        if claim["test"] == "none":
            found.append(_unjudged(claim, claim["why"]))
        elif claim["test"] in tests:
            forms = forms_of(claim["test"]) if len(claim["quantities"][0]) == 2 else {"link": ""}
            found += [_verdict(claim, form, profile, samples, endings) for form in forms for profile in NDM]
    return found


def _unjudged(claim: Mapping[str, Any], why: str) -> Verdict:
    return Verdict(claim, "", NDM[0], NO_VERDICT, why, Estimate(None, None, None, 0))


def quantities_of(claim: Mapping[str, Any], form: str, profile: str) -> list[Quantity]:
    """Return what a claim compares: in a form of its test, and with a profile in the place of the published one."""
    whole = [entry if len(entry) == 3 else [forms_of(claim["test"])[form], *entry] for entry in claim["quantities"]]
    return [(trial, profile if variant == NDM[0] else variant, measure) for trial, variant, measure in whole]


def _verdict(
    claim: Mapping[str, Any],
    form: str,
    profile: str,
    samples: Samples,
    endings: Mapping[tuple[str, str], Counter[str]],
) -> Verdict:
    quantities = quantities_of(claim, form, profile)
    for trial, variant, _ in quantities:
        if endings.get((trial, variant), Counter())[MISSING]:
            return Verdict(claim, form, profile, NO_VERDICT, f"{variant} is not loaded", Estimate(None, None, None, 0))
    found = estimate(samples, quantities)
    word, why = judge(claim, found)
    crashed = sum(endings.get(key[:2], Counter())[CRASHED] for key in dict.fromkeys(quantities))
    if word == NO_VERDICT and crashed:
        why += f"; {crashed} runs did not end as they should"
    chances: tuple[float, ...] = ()
    if claim["published"] and len(quantities) == 2 and found.value is not None and claim["side"] in ("below", "above"):
        a, b = (list(samples[key].values()) for key in quantities)
        published = claim["published"][0] / claim["published"][1]
        if quantities[0][2] == quantities[1][2]:  # the same measure of two algorithms
            chances = (
                share_as_extreme(a, b, published, claim["side"]),
                _luck(b, published, claim["side"]),
            )
    return Verdict(claim, form, profile, word, why, found, *chances)


# ---- what must come out right, whatever the algorithms do


class Control(NamedTuple):
    """A check of the instrument: what was expected, what came, and whether that is right (None: not run)."""

    said: str
    found: str
    right: bool | None


JAIN_SLACK = 0.02
COLLAPSED_SHARE = 0.02
"""Of the link's rate."""
MSS_BYTES = 1448


def response_mbit(loss: float, rtt_s: float) -> float:
    """Return what a CUBIC flow gets under random loss, in Mbit/s of payload.

    The larger of CUBIC's response function (RFC 9438, section 5.2, C = 0.4 and beta = 0.7) and of Reno's, which it
    never falls below: 1.22 MSS / (RTT sqrt(p)) (Mathis et al., CCR 1997).

    Examples
    --------
    >>> round(response_mbit(0.005, 0.020), 1)       # 1.2247 * 1448 * 8 / 0.02 / sqrt(0.005)
    10.0
    """
    cubic, reno = 1.054 * math.pow(rtt_s / loss, 0.75), math.sqrt(1.5 / loss)  # segments in flight
    return max(cubic, reno) * MSS_BYTES * 8 / rtt_s / 1e6


def controls(results: Sequence[Result]) -> list[Control]:
    """Return the checks of the instrument."""
    samples = samples_of(results)
    return [_fair(samples), _law(samples), _collapse(samples)]


def _fair(samples: Samples) -> Control:
    said = f"Two Reno flows share a link evenly: 1, or at least {1 - JAIN_SLACK:g}, is in the interval of Jain's index"
    found = estimate(samples, [("others", "reno,reno", "jain")])
    if found.value is None or found.high is None:
        return Control(said, "not run", None)
    return Control(said, f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]", found.high >= 1 - JAIN_SLACK)


def _law(samples: Samples) -> Control:
    wanted = response_mbit(0.005, 0.020)
    said = (
        f"CUBIC under 0.5 % random loss at 20 ms gets its response function's {wanted:.1f} Mbit/s within a factor of 2"
    )
    found = estimate(samples, [("controls", "cubic", "goodput_mbit")])
    if found.value is None:
        return Control(said, "not run", None)
    return Control(said, _interval(found, " Mbit/s"), wanted / 2 <= found.value <= wanted * 2)


def _collapse(samples: Samples) -> Control:
    rate_mbit = 50.0
    share = f"{COLLAPSED_SHARE:.0%} of the link, {rate_mbit * COLLAPSED_SHARE:g} Mbit/s"
    said = f"Under 31 % loss everyone collapses: below {share}"
    keys = [key for key in samples if key[0] == "torture-link" and key[2] == "goodput_mbit"]
    if not keys:
        return Control(said, "not run", None)
    best = max((estimate(samples, [key]).value or 0.0, key[1]) for key in keys)
    return Control(said, f"most has {best[1]}: {best[0]:.3f} Mbit/s", best[0] < rate_mbit * COLLAPSED_SHARE)


def _interval(found: Estimate, unit: str) -> str:
    assert found.value is not None  # noqa: S101 - the callers have looked
    return (
        f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]{unit}"
        if found.low is not None
        else f"{found.value:.2f}{unit}"
    )
