"""What the figures share: a run prepared for drawing, panels on one time axis, title, legend, files.

A figure belongs to the caller; there is no global state. The same run gives the same bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from analysis.series import FlowSeries, RunSeries
from analysis.style import Look, downsample, flow_looks
from analysis.summary import Summary, summarise_series
from lab.record import RecordError, Run

Array = NDArray[np.float64]

LINE_STYLES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
REFERENCE: dict[str, Any] = {"color": "#555555", "linestyle": (0, (4, 3)), "linewidth": 1.0, "zorder": 1.5}
MARKS: dict[str, dict[str, Any]] = {
    "join": {"color": "#666666", "linestyle": ":", "linewidth": 0.9, "zorder": 1.4, "label": "flow joins"},
    "leave": {"color": "#999999", "linestyle": "-.", "linewidth": 0.9, "zorder": 1.4, "label": "flow leaves"},
    "controller": {"color": "#882255", "linestyle": "-", "linewidth": 0.7, "zorder": 1.4, "label": "controller"},
    "link": {"color": "#117733", "linestyle": "--", "linewidth": 0.7, "zorder": 1.4, "label": "link"},
}
UNSOUND = "#B2182B"
MARKERS_PER_LINE = 9
LEGEND_COLUMNS = 5
WIDTH_IN = 9.0
HEIGHT_IN = 4.2
DPI = 150
FORMATS = ("png", "svg")


def line_style(look: Look) -> Any:
    """Return matplotlib's line style of a flow."""
    return LINE_STYLES[look.number % len(LINE_STYLES)]


class Plot:
    """A run's series, its summary and the looks of its flows."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.series = RunSeries(run)

    @classmethod
    def of(cls, source: "Run | Plot") -> "Plot":
        """Return the run prepared for drawing; one that is prepared already as it is."""
        return source if isinstance(source, Plot) else cls(source)

    @cached_property
    def summary(self) -> Summary:
        """The run as numbers."""
        return summarise_series(self.series)

    @cached_property
    def looks(self) -> dict[str, Look]:
        """Look of each flow, by its id."""
        return flow_looks(self.series.flows)

    def line(self, axes: Axes, flow: FlowSeries, t_s: Array, values: Array, **changes: Any) -> None:
        """Draw one flow's line."""
        if t_s.size == 0 or np.all(np.isnan(values)):
            return
        t_s, values = downsample(t_s, values)
        look = self.looks[flow.flow_id]
        options: dict[str, Any] = {
            "color": look.colour,
            "linestyle": line_style(look),
            "linewidth": 1.3,
            "marker": look.marker,
            "markersize": 4.5,
            "markerfacecolor": "white",
            "markevery": self._marked(look, t_s),
        }
        axes.plot(t_s, values, **(options | changes))

    def _marked(self, look: Look, t_s: Array) -> list[int]:
        """Return the samples that carry a marker: evenly spread, each flow's between the others'."""
        span_s = max(self.series.end_s, 1e-9) / MARKERS_PER_LINE
        wanted = (np.arange(MARKERS_PER_LINE) + look.phase) * span_s
        inside = wanted[(wanted >= t_s[0]) & (wanted <= t_s[-1])]
        return sorted({min(int(index), t_s.size - 1) for index in np.searchsorted(t_s, inside)})

    def legend(self, figure: Figure, flow_ids: Sequence[str]) -> None:
        """Put the flows' legend below the panels, in rows of equal length."""
        if not flow_ids:
            return
        rows = -(-len(flow_ids) // LEGEND_COLUMNS)
        handles = [self._handle(flow_id) for flow_id in flow_ids]
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=-(-len(flow_ids) // rows),
            handlelength=4.0,
            frameon=False,
        )

    def _handle(self, flow_id: str) -> Line2D:
        look = self.looks[flow_id]
        return Line2D(
            [],
            [],
            color=look.colour,
            linestyle=line_style(look),
            linewidth=1.5,
            marker=look.marker,
            markersize=4.5,
            markerfacecolor="white",
            label=flow_id,
        )


Draw = Callable[[Plot, Axes], list[Line2D]]
"""Draws into the axes and returns the legend entries that only it needs."""


def save_figures(
    figures: Mapping[str, Figure | None], directory: str | Path, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write the figures that there are, in each format, and return the files; the same run gives the same bytes.

    Raises
    ------
    RecordError
        When the directory cannot be written.
    """
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return [
            _save(figure, directory / f"{name}.{suffix}")
            for name, figure in figures.items()
            if figure is not None
            for suffix in formats
        ]
    except OSError as error:
        raise RecordError(f"cannot write figures to {directory}: {error.strerror or error}") from error


def _save(figure: Figure, path: Path) -> Path:
    # A fixed salt for the ids and no date: the same picture is the same file.
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with mpl.rc_context({"svg.hashsalt": "fairbed", "pdf.fonttype": 42}):
        figure.savefig(path, dpi=DPI, metadata=dates.get(path.suffix))
    return path


def new_figure(height_in: float = HEIGHT_IN) -> Figure:
    """Return an empty figure."""
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panels_figure(
    plot: Plot,
    draws: Sequence[Draw],
    subject: str,
    flows: Sequence[str] | None = None,
    height_in: float = HEIGHT_IN,
) -> Figure:
    """Return a figure with one panel per drawing, on one time axis, legends outside of the data.

    `flows` are the ones in the legend, all when None.
    """
    figure = new_figure(height_in)
    panels = figure.subplots(len(draws), 1, sharex=True, squeeze=False)[:, 0]
    for axes, draw in zip(panels, draws, strict=True):
        entries = draw(plot, axes)
        _decorate(plot, axes)
        legend_above(axes, entries + (_event_entries(plot) if axes is panels[0] else []))
    panels[-1].set_xlabel("time since the run began (s)")
    run_title(figure, plot, subject)
    shown = list(plot.looks) if flows is None else list(flows)
    plot.legend(figure, shown)
    return figure


def legend_above(axes: Axes, entries: list[Line2D]) -> None:
    """Put a panel's own legend above it, at the right."""
    if entries:
        axes.legend(
            handles=entries,
            loc="lower right",
            bbox_to_anchor=(1, 1),
            borderaxespad=0.1,
            ncols=5,
            frameon=False,
            fontsize="small",
        )


def run_title(figure: Figure, plot: Plot, subject: str) -> None:
    """Name the run, its seed and its verdict above the figure, in red when the run is not sound."""
    summary = plot.summary
    seed = "" if summary.seed is None else f", seed {summary.seed}"
    lines = [f"{subject}: {plot.run.name}{seed}", f"verdict: {summary.verdict}"]
    if summary.verdict_reasons:
        lines[1] += f" ({shortened('; '.join(summary.verdict_reasons))})"
    if summary.outcome != "complete":
        lines[1] += f"; {summary.outcome} at {summary.end_s:.4g} s"
    sound = summary.verdict == "valid" and summary.outcome == "complete"
    figure.suptitle("\n".join(lines), fontsize="medium", color="black" if sound else UNSOUND)


def shortened(text: str, length: int = 80) -> str:
    """Return the text, cut to the length."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def plain(axes: Axes) -> None:
    """Give a panel a faint grid and no box."""
    axes.grid(True, linewidth=0.4, color="#DDDDDD")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _event_entries(plot: Plot) -> list[Line2D]:
    """Return the legend entries of the vertical lines that there are."""
    kinds = {kind for _, kind, _ in plot.series.marks}
    return [Line2D([], [], **look) for kind, look in MARKS.items() if kind in kinds]


def _decorate(plot: Plot, axes: Axes) -> None:
    """Give every panel the same time axis, grid and warm-up."""
    end_s, warmup_s = plot.series.end_s, plot.series.warmup_s
    axes.set_xlim(0, end_s or 1.0)
    plain(axes)
    for t_s, kind, _ in plot.series.marks:
        axes.axvline(t_s, **MARKS[kind])
    if warmup_s > 0:
        axes.axvspan(0, min(warmup_s, end_s or 1.0), color="#F0F0F0", zorder=0)
        axes.text(
            0.004 * (end_s or 1.0),
            1.0,
            "warm-up",
            transform=axes.get_xaxis_transform(),
            fontsize="x-small",
            color="#555555",
            va="bottom",
            ha="left",
        )
    if not axes.lines and not axes.collections:
        axes.text(0.5, 0.5, "nothing to show", transform=axes.transAxes, ha="center", color="#555555")


def reference(axes: Axes, value: float, label: str) -> Line2D:
    """Draw a dashed horizontal line and return its legend entry."""
    axes.axhline(value, **REFERENCE)
    return Line2D([], [], **REFERENCE, label=label)
