"""Figures of several runs: means with intervals per group of repeats, goodput against delay, a heat map of a sweep."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.drawing import FORMATS, UNSOUND, new_figure, plain, save_figures, shortened
from analysis.figures import ellipse
from analysis.groups import Group, group_runs
from analysis.repeats import RepeatSummary, summarise_repeats
from analysis.statistics import Interval
from analysis.style import cca_looks
from analysis.summary import Summary, summarise
from analysis.tables import MEASURES
from lab.record import Run
from topologies.errors import UsageError

__all__ = [
    "convergence_figure",
    "goodput_delay_repeats_figure",
    "heat_map",
    "measure_figure",
    "save_group_figures",
]

GROUP_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GROUP_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo")
MOST_NAMED = 6


def measure_figure(groups: Sequence[Group], measure: str, title: str) -> Figure:
    """Return bars of one measure per congestion control, one colour for each group, with 95 % intervals.

    A single run has a bar and no interval: it is not a finding.
    """
    repeats = [summarise_repeats(group.runs) for group in groups]
    ccas = list(dict.fromkeys(name for summary in repeats for name in summary.estimates if name != "overall"))
    figure = new_figure()
    axes = figure.subplots()
    width = 0.8 / len(groups)
    for number, (group, summary) in enumerate(zip(groups, repeats, strict=True)):
        known = [
            (place, found)
            for place, cca in enumerate(ccas)
            if (found := summary.estimates.get(cca, {}).get(measure)) is not None
        ]
        _bars(axes, number, width, known, MEASURES[measure][2], f"{group.label} (n = {summary.n})", len(groups))
    axes.set_xticks(range(len(ccas)), ccas)
    axes.set_ylabel(f"{title} ({MEASURES[measure][1]})")
    axes.set_ylim(bottom=0)
    plain(axes)
    _group_title(figure, f"{title}, mean and 95 % interval", groups, repeats)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def _bars(
    axes: Axes, number: int, width: float, known: list[tuple[int, Interval]], factor: float, label: str, count: int
) -> None:
    """Draw one group's bars, an interval on each that has one."""
    places = np.array([place for place, _ in known]) + width * (number - (count - 1) / 2)
    look: dict[str, Any] = {"color": GROUP_COLOURS[number % len(GROUP_COLOURS)], "edgecolor": "white", "label": label}
    hatch = GROUP_HATCHES[number % len(GROUP_HATCHES)]
    axes.bar(places, [factor * found.mean for _, found in known], 0.92 * width, hatch=hatch, **look)
    for place, (_, found) in zip(places, known, strict=True):
        if found.low is not None and found.high is not None:
            bounds = [[factor * max(0.0, found.mean - found.low)], [factor * max(0.0, found.high - found.mean)]]
            axes.errorbar([place], [factor * found.mean], bounds, color="black", capsize=3, linewidth=1.2)


def goodput_delay_repeats_figure(group: Group) -> Figure:
    """Return goodput against RTT inflation over repeats: a point per run, and the ellipse of one standard deviation.

    Source of the form: K. Winstein, H. Balakrishnan, "TCP ex Machina", SIGCOMM 2013.
    """
    summaries = [summarise(run) for run in group.runs]
    figure = new_figure(4.8)
    axes = figure.subplots()
    looks = cca_looks([flow.cca for summary in summaries for flow in summary.flows])
    shown = list(dict.fromkeys(flow.cca for summary in summaries for flow in summary.flows))
    for cca in shown:
        colour, marker = looks[cca]
        points = _run_points(summaries, cca)
        axes.scatter(points[:, 0], points[:, 1], color=colour, marker=marker, alpha=0.5, linewidths=0)
        ellipse(axes, points, color=colour, linestyle="-", marker=marker)
    axes.set(xlabel="RTT above the base RTT, median (ms); better to the right", ylabel="goodput per flow (Mbit/s)")
    axes.set_ylim(bottom=0)
    axes.invert_xaxis()
    plain(axes)
    _group_title(figure, "Goodput and delay, one point per run", [group], [summarise_repeats(group.runs)])
    handles = [Line2D([], [], color=looks[cca][0], marker=looks[cca][1], linestyle="", label=cca) for cca in shown]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
    return figure


def _run_points(summaries: Sequence[Summary], cca: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a congestion control's mean RTT inflation and goodput in each run that has both."""
    points = []
    for summary in summaries:
        flows = [flow for flow in summary.flows if flow.cca == cca]
        values = [(flow.rtt_inflation_p50_ms, flow.goodput_mbit) for flow in flows]
        if values and all(None not in pair for pair in values):
            points.append(np.mean(np.array(values, float), axis=0))
    return np.array(points).reshape(-1, 2)


def convergence_figure(groups: Sequence[Group]) -> Figure:
    """Return each run's convergence time per group; a run that did not converge is an arrow at how long it had."""
    repeats = [summarise_repeats(group.runs) for group in groups]
    figure = new_figure()
    axes = figure.subplots()
    for number, group in enumerate(groups):
        colour = GROUP_COLOURS[number % len(GROUP_COLOURS)]
        for place, run in enumerate(group.runs):
            summary = summarise(run)
            x = number + 0.5 * ((place + 1) / (len(group.runs) + 1) - 0.5)
            found = summary.convergence_time_s
            starts = [flow.get("start_s") or 0.0 for flow in run.scenario.get("flows") or []]
            had = max(0.0, summary.end_s - max(starts, default=0.0))
            axes.plot([x], [had if found is None else found], "o" if found is not None else "^", color=colour,
                      markerfacecolor=colour if found is not None else "white")  # fmt: skip
    axes.set_xticks(range(len(groups)), [shortened(group.label, 40) for group in groups])
    axes.set_ylabel("convergence time (s)")
    axes.set_ylim(bottom=-0.03 * axes.get_ylim()[1])  # so that a point at 0 is whole
    axes.set_xlim(-0.6, len(groups) - 0.4)
    plain(axes)
    _group_title(figure, "Time until fairness holds, after the last flow joined", groups, repeats)
    grey: dict[str, Any] = {"color": "#555555", "linestyle": ""}
    done = Line2D([], [], marker="o", label="converged", **grey)
    censored = Line2D([], [], marker="^", markerfacecolor="white", label="not within the run (censored)", **grey)
    figure.legend(handles=[done, censored], loc="outside lower center", ncols=2, frameon=False)
    return figure


def heat_map(groups: Sequence[Group], x: str, y: str | None = None, measure: str = "jain") -> Figure:
    """Return a heat map of a measure's mean over a sweep of one or two settings; a cell without runs stays white.

    Raises
    ------
    UsageError
        When the groups differ in other settings too, so that a cell would mix what is not alike.
    """
    others = sorted({name for group in groups for name in group.settings} - {x, y})
    if others:
        raise UsageError(f"the runs differ in {', '.join(others)} too: a heat map shows one or two settings")
    columns, rows = _sorted_values(groups, x), _sorted_values(groups, y) if y else [None]
    means = np.full((len(rows), len(columns)), np.nan)
    repeats = [summarise_repeats(group.runs) for group in groups]
    for group, summary in zip(groups, repeats, strict=True):
        found = summary.estimates["overall"].get(measure)
        row = rows.index(group.settings[y]) if y else 0
        means[row, columns.index(group.settings[x])] = np.nan if found is None else found.mean
    figure = new_figure(1.6 + 0.6 * len(rows) + 0.8)
    axes = figure.subplots()
    label, unit, factor, decimals = MEASURES[measure]
    limits: dict[str, Any] = {"vmin": 0.0, "vmax": 1.0} if measure.startswith("jain") else {}
    image = axes.imshow(factor * means, cmap="cividis", aspect="auto", origin="lower", **limits)
    _cell_words(axes, factor * means, decimals, image.norm)
    axes.set_xticks(range(len(columns)), list(map(str, columns)))
    axes.set_yticks(range(len(rows)), list(map(str, rows)) if y else [""])
    axes.set(xlabel=x, ylabel=y or "")
    figure.colorbar(image, ax=axes, label=f"{label} ({unit or '0 to 1'})")
    _group_title(figure, f"{label}, mean over repeats", groups, repeats)
    return figure


def _sorted_values(groups: Sequence[Group], name: str) -> list[Any]:
    """Return the different values of a setting: numbers in order, other values as they come."""
    values = list(dict.fromkeys(group.settings[name] for group in groups))
    return sorted(values) if all(isinstance(value, int | float) for value in values) else values


def _cell_words(axes: Axes, values: Any, decimals: int, norm: Any) -> None:
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            colour = "black" if norm(value) > 0.55 else "white"
            axes.text(column, row, f"{value:.{decimals}f}", ha="center", va="center", color=colour)


def _group_title(figure: Figure, subject: str, groups: Sequence[Group], repeats: Sequence[RepeatSummary]) -> None:
    """Say what is shown, of which runs, and what their verdicts are."""
    names = [group.label for group in groups]
    shown = "; ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} groups of runs"
    verdicts = [verdict for summary in repeats for verdict in summary.verdicts]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    left_out = len(verdicts) - sum(summary.n for summary in repeats)
    words = f"verdicts: {counts}" + (f"; {left_out} left out" if left_out else "")
    sound = set(verdicts) == {"valid"} and not left_out
    figure.suptitle(
        f"{subject}\n{shortened(shown, 110)}; {words}", fontsize="medium", color="black" if sound else UNSOUND
    )


def save_group_figures(runs: Sequence[Run], directory: str | Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write what several runs say together, and return the files.

    A heat map is among them when the runs are a sweep of one or two settings with three values or more in all.
    """
    groups = group_runs(runs)
    figures: dict[str, Figure | None] = {
        "goodput-by-algorithm": measure_figure(groups, "goodput_mbit", "Goodput per flow"),
        "retransmissions": measure_figure(groups, "retransmission_rate", "Retransmitted"),
        "convergence": convergence_figure(groups),
    }
    names = list(groups[0].settings)
    if len(groups) >= 3 and len(names) in (1, 2):
        figures["heat-map"] = heat_map(groups, *names)
    for number, group in enumerate(groups, 1):
        if len(group.runs) > 1:
            name = "goodput-delay" if len(groups) == 1 else f"goodput-delay-{number}"
            figures[name] = goodput_delay_repeats_figure(group)
    return save_figures(figures, directory, formats)
