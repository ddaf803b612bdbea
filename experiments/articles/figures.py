"""The figures: each run a dot, each mean with its interval, what an article published a cross."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from analysis.drawing import new_figure, plain
from analysis.style import cca_looks
from experiments.articles.measures import NOISE, Result
from experiments.articles.trials import NDM, forms_of, trial_named
from experiments.articles.verdicts import Samples, articles, estimate, samples_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORM_WORDS = {
    "published": "as published (loopback device)",
    "link": "between two hosts, over a link",
    "reordering": "over a link that reorders",
}
PUBLISHED_ROW: dict[str, tuple[str, dict[str, tuple[str, float]]]] = {
    # test: (article, table), then measure: (row of that table, factor to the measure's unit)
    "constrained": (
        "correction",
        {"retransmissions": ("retransmissions", 1), "goodput_mbit": ("receiver's bitrate", 1)},
    ),
    "torture": ("torture", {"retransmissions": ("retransmissions", 1), "goodput_mbit": ("receiver's bitrate", 1e-3)}),
    "clean": ("memory", {"retransmissions": ("retransmissions", 1), "goodput_mbit": ("bitrate", 1)}),
    "loopback": ("loopback", {"retransmissions": ("retransmissions", 1), "goodput_mbit": ("bitrate", 1000)}),
}
MEASURE_WORDS = {"retransmissions": "retransmissions (segments)", "goodput_mbit": "goodput (Mbit/s)"}


class Drawn(NamedTuple):
    """A figure, its file's name without suffix, and what to say below it."""

    name: str
    figure: Figure
    caption: str


def published(test: str, measure: str) -> dict[str, float]:
    """Return what a test's article published of a measure, by algorithm."""
    article, rows = PUBLISHED_ROW[test]
    words, factor = rows[measure]
    for table in articles()["tables"]:
        for row, values in table.get("rows", {}).items() if table["article"] == article else ():
            if row.startswith(words):
                return {cca: value * factor for cca, value in values.items()}
    return {}


def spread_figure(test: str, results: Sequence[Result]) -> Drawn | None:
    """Draw every run's retransmissions and goodput, by form and algorithm."""
    samples = samples_of(results)
    own = forms_of(test)
    forms = {form: own[form] for form in FORM_WORDS if any(key[0] == own.get(form) for key in samples)}
    if not forms:
        return None
    figure = new_figure(1.3 + 1.9 * len(MEASURE_WORDS))
    panels = figure.subplots(len(MEASURE_WORDS), len(forms), squeeze=False)
    for column, (form, trial) in enumerate(forms.items()):
        for row, measure in enumerate(MEASURE_WORDS):
            axes, marks = panels[row, column], published(test, measure) if form == "published" else {}
            _spread(axes, trial, measure, samples, marks)
            axes.set_xlabel(MEASURE_WORDS[measure])
            axes.tick_params(labelleft=column == 0)
        panels[0, column].set_title(FORM_WORDS[form], fontsize="medium")
    figure.suptitle(f"{test}: every run a dot, mean and 95 % interval, × as published", fontsize="medium")
    return Drawn(f"articles-{test}", figure, f"{test}: {_runs(samples, forms.values())} runs")


def _runs(samples: Samples, trials: Any) -> int:
    wanted = set(trials)
    return sum(len(values) for key, values in samples.items() if key[0] in wanted and key[2] == "retransmissions")


def _spread(axes: Axes, trial: str, measure: str, samples: Samples, marks: Mapping[str, float]) -> None:
    variants = trial_named(trial).variants
    looks = cca_looks(variants)
    draw = np.random.default_rng(0)
    for row, variant in enumerate(variants):
        values = list(samples.get((trial, variant, measure), {}).values())
        colour, marker = looks[variant]
        spread = draw.uniform(-0.28, 0.28, len(values))
        axes.plot(values, row + spread, linestyle="", marker=marker, markersize=4, alpha=0.45, color=colour)
        if values:
            found = estimate(samples, [(trial, variant, measure)])
            axes.plot([float(np.mean(values))], [row], marker="|", markersize=14, color="black")
            if found.low is not None and found.high is not None:
                axes.plot([found.low, found.high], [row, row], color="black", linewidth=2)
        if variant in marks:
            axes.plot([marks[variant]], [row], marker="x", markersize=9, markeredgewidth=2, color="#B2182B")
    axes.set_yticks(range(len(variants)), variants)
    axes.set_ylim(len(variants) - 0.5, -0.5)
    if measure == "retransmissions":
        _from_zero(
            axes, [value for variant in variants for value in samples.get((trial, variant, measure), {}).values()]
        )
    axes.margins(x=0.08)
    plain(axes)


def _from_zero(axes: Axes, values: Sequence[float]) -> None:
    """Begin at 0, and take a logarithmic axis where values lie apart by more than a factor of 50."""
    above = [value for value in values if value > 0] or [1.0]
    if max(above) > 50 * min(above):
        linear = max(min(above), max(above) / 1e4)
        axes.set_xscale("symlog", linthresh=linear)
        axes.set_xlim(left=-linear / 5)
        axes.xaxis.set_major_formatter("{x:g}")
    else:
        axes.set_xlim(left=-0.03 * max(above))


def learning_figure(results: Sequence[Result]) -> Drawn | None:
    """Draw the retransmissions of each second, mean over the seeds, by form and algorithm."""
    forms = {
        form: name
        for form, name in forms_of("constrained").items()
        if _series(results, name, "cubic", "retransmissions")
    }
    if not forms:
        return None
    figure = new_figure(3.8)
    panels = figure.subplots(1, len(forms), squeeze=False, sharey=True)[0]
    for axes, (form, trial) in zip(panels, forms.items(), strict=True):
        for variant in trial_named(trial).variants:
            rows = _series(results, trial, variant, "retransmissions")
            if rows:
                colour, marker = cca_looks([variant])[variant]
                mean = np.mean(rows, axis=0)
                axes.plot(np.arange(mean.size) + 0.5, mean, color=colour, marker=marker, markersize=4, label=variant)
        axes.set_yscale("symlog", linthresh=1)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.axvline(10, color="#999999", linewidth=0.8, linestyle=":")
        axes.set_title(FORM_WORDS[form], fontsize="medium")
        axes.set_xlabel("time (s)")
        plain(axes)
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("retransmissions per second")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle("Does it learn? Retransmissions over time, mean of all seeds", fontsize="medium")
    return Drawn("articles-learning", figure, "retransmissions of each second; the dotted line parts the two halves")


def _series(results: Sequence[Result], trial: str, variant: str, name: str) -> list[list[float]]:
    """Return a series of every complete run, cut to the shortest."""
    rows = [
        result["series"][name]
        for result in results
        if (result["trial"], result["variant"]) == (trial, variant) and name in result.get("series", {})
    ]
    shortest = min(map(len, rows), default=0)
    return [row[:shortest] for row in rows] if shortest else []


PATHS = {
    "entropy-calm": "nothing disturbs",
    "entropy-jitter": "jitter only",
    "entropy-loss": "loss only",
    "entropy-queue": "a queue only",
}


def entropy_figure(results: Sequence[Result]) -> Drawn | None:
    """Draw each profile's entropy over time on four paths."""
    if not _series(results, "entropy-queue", NDM[0], "entropy"):
        return None
    figure = new_figure(4.4)
    panels = figure.subplots(len(NDM), len(PATHS), sharex=True, sharey=True)
    for row, profile in enumerate(NDM):
        for axes, (trial, words) in zip(panels[row], PATHS.items(), strict=True):
            rows = np.array(_series(results, trial, profile, "entropy"))
            if rows.size:
                t_s = np.arange(rows.shape[1]) / 5
                low, middle, high = np.quantile(rows, [0.1, 0.5, 0.9], axis=0)
                colour = cca_looks([profile])[profile][0]
                axes.fill_between(t_s, low, high, color=colour, alpha=0.25, linewidth=0)
                axes.plot(t_s, middle, color=colour, linewidth=1.2)
            axes.axhline(NOISE, color="#555555", linewidth=0.9, linestyle="--")
            axes.set_ylim(-30, 1030)
            plain(axes)
            if row == 0:
                axes.set_title(words, fontsize="medium")
        panels[row, 0].set_ylabel(f"{profile}\nentropy")
    for axes in panels[-1]:
        axes.set_xlabel("time (s)")
    figure.suptitle(
        f"Does entropy tell noise from congestion? Median and 10–90 % of the seeds; noise is from {NOISE} on",
        fontsize="medium",
    )
    return Drawn(
        "articles-entropy", figure, "entropy over time, by profile and path; above the dashed line counts as noise"
    )


def others_figure(results: Sequence[Result]) -> Drawn | None:
    """Draw who gets which share of the common link, by mix."""
    samples = samples_of(results)
    mixes = [variant for variant in trial_named("others").variants if "," in variant]
    mixes = [mix for mix in mixes if ("others", mix, "jain") in samples]
    if not mixes:
        return None
    figure = new_figure(1.2 + 0.42 * len(mixes))
    axes = figure.subplots()
    looks = cca_looks([])
    for row, mix in enumerate(mixes):
        left = 0.0
        for flow_id in _flow_ids(mix):
            share = 100 * float(np.mean(list(samples["others", mix, f"share {flow_id}"].values())))
            cca = flow_id.rsplit("-", 1)[0]
            axes.barh(row, share, left=left, color=looks[cca][0], edgecolor="white", linewidth=1.5, height=0.7)
            if share > 4:
                label = f"{cca} {share:.0f} %" if share > 13 else f"{share:.0f}"
                axes.text(
                    left + share / 2,
                    row,
                    label,
                    ha="center",
                    va="center",
                    color="white",
                    fontsize="small",
                )
            left += share
        found = estimate(samples, [("others", mix, "jain")])
        axes.text(101, row, f"Jain {found.value:.2f}", va="center", fontsize="small")
    axes.set_yticks(range(len(mixes)), [mix.replace(",", " + ") for mix in mixes])
    axes.set_ylim(len(mixes) - 0.5, -0.5)
    axes.set_xlim(0, 112)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("share of the goodput of all flows (%)")
    plain(axes)
    figure.suptitle(
        "What NDM-TCP and others leave each other: 20 Mbit/s, 40 ms, drop-tail of one BDP, 60 s", fontsize="medium"
    )
    return Drawn("articles-others", figure, "shares of a common link, mean of all seeds")


def _flow_ids(mix: str) -> list[str]:
    """Return the flows of a mix.

    Examples
    --------
    >>> _flow_ids("cubic,cubic,bbr")
    ['cubic-1', 'cubic-2', 'bbr-1']
    """
    ccas = mix.split(",")
    return [f"{cca}-{ccas[: index + 1].count(cca)}" for index, cca in enumerate(ccas)]


def window_figure(results: Sequence[Result]) -> Drawn | None:
    """Draw the congestion windows over the loopback device over time, median of the seeds."""
    trial = "loopback-published"
    if not _series(results, trial, NDM[0], "cwnd_bytes"):
        return None
    figure = new_figure(3.6)
    axes = figure.subplots()
    for variant in trial_named(trial).variants:
        rows = _series(results, trial, variant, "cwnd_bytes")
        if rows:
            colour, marker = cca_looks([variant])[variant]
            median = np.median(rows, axis=0)
            axes.plot(np.arange(1, median.size + 1), median, color=colour, marker=marker, markersize=4, label=variant)
    axes.set_yscale("log")
    axes.set_xlabel("time (s)")
    axes.set_ylabel("congestion window (bytes)")
    plain(axes)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(
        "What makes the window grow to gigabytes? Loopback device, unconstrained; median of the seeds",
        fontsize="medium",
    )
    return Drawn("articles-window", figure, "congestion windows on the unconstrained loopback device")
