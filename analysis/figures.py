"""Figures of one run: goodput, cwnd, RTT, backlog, Jain's index, the NDM algorithm's state, and an overview.

Each function returns a `matplotlib.figure.Figure` that belongs to the caller; there is no global state.
Colour and marker tell the congestion control, the line style tells flows of the same one apart, so a figure
reads in grey and with any colour vision. The same run gives the same bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from analysis import metrics
from analysis.series import FlowSeries, QueueSeries, RunSeries
from analysis.summary import Summary, summarise
from lab.record import RecordError, Run
from topologies.units import format_size

__all__ = [
    "backlog_figure",
    "cwnd_figure",
    "downsample",
    "goodput_figure",
    "jain_figure",
    "mind_figure",
    "overview",
    "rtt_figure",
    "save_all",
]

Array = NDArray[np.float64]

# Okabe & Ito's colours, without the yellow that is lost on white; twins share a colour, not a marker.
LOOKS = {
    "ndm_tcp": ("#009E73", "o"),
    "bpf_ndm": ("#009E73", "h"),
    "ndm2": ("#CC79A7", "P"),
    "bpf_ndm2": ("#CC79A7", "X"),
    "cubic": ("#0072B2", "s"),
    "reno": ("#E69F00", "^"),
    "bbr": ("#D55E00", "D"),
}
OTHER_LOOKS = (("#56B4E9", "v"), ("#000000", "<"), ("#7F7F7F", ">"), ("#56B4E9", "*"), ("#000000", "p"))
QUEUE_COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7")
LINE_STYLES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
REFERENCE: dict[str, Any] = {"color": "#555555", "linestyle": (0, (4, 3)), "linewidth": 1.0, "zorder": 1.5}
MARKERS_PER_LINE = 9
LEGEND_COLUMNS = 5
BUCKETS = 700
WIDTH_IN = 9.0
HEIGHT_IN = 4.2
OVERVIEW_HEIGHT_IN = 12.0
DPI = 150


def downsample(t_s: Array, values: Array, buckets: int = BUCKETS) -> tuple[Array, Array]:
    """Return at most about 2 points per bucket of equal time, the extremes among them, in order of time.

    A short series comes back as it is. Every bucket keeps its smallest and largest value, so no spike is
    lost; a gap (NaN) is kept where a bucket has nothing else.

    Examples
    --------
    >>> t, v = downsample(np.arange(1000.0), np.where(np.arange(1000) == 500, 9.0, 0.0), buckets=10)
    >>> t.size, float(v.max())
    (11, 9.0)
    """
    if t_s.size <= 2 * buckets:
        return t_s, values
    edges = np.linspace(t_s[0], t_s[-1], buckets + 1)[1:-1]
    starts = np.unique(np.concatenate([[0], np.searchsorted(t_s, edges)]))
    starts = starts[starts < t_s.size]
    stops = np.append(starts[1:], t_s.size)
    kept: set[int] = set()
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        part = values[start:stop]
        if np.all(np.isnan(part)):
            kept.add(start)
        else:
            kept.update((start + int(np.nanargmin(part)), start + int(np.nanargmax(part))))
    index = np.array(sorted(kept))
    return t_s[index], values[index]


@dataclass(frozen=True)
class _Style:
    colour: str
    marker: str
    line: Any
    phase: float  # where between two markers the first one sits, so that flows on one line show both


class _Plot:
    """A run's series, its summary and the styles of its flows."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.series = RunSeries(run)

    @cached_property
    def summary(self) -> Summary:
        return summarise(self.run)

    @cached_property
    def styles(self) -> dict[str, _Style]:
        """Style of each flow: colour and marker by congestion control, line style by its number within it."""
        ccas = list(dict.fromkeys(flow.cca for flow in self.series.flows))
        others = [cca for cca in ccas if cca not in LOOKS]
        looks = LOOKS | {cca: OTHER_LOOKS[i % len(OTHER_LOOKS)] for i, cca in enumerate(others)}
        seen = dict.fromkeys(ccas, 0)
        styles = {}
        for number, flow in enumerate(self.series.flows):
            styles[flow.flow_id] = _Style(
                *looks[flow.cca],
                LINE_STYLES[seen[flow.cca] % len(LINE_STYLES)],
                number / len(self.series.flows),
            )
            seen[flow.cca] += 1
        return styles

    def line(self, axes: Axes, flow: FlowSeries, t_s: Array, values: Array, **changes: Any) -> None:
        """Draw one flow's line."""
        if t_s.size == 0 or np.all(np.isnan(values)):
            return
        t_s, values = downsample(t_s, values)
        style = self.styles[flow.flow_id]
        options: dict[str, Any] = {
            "color": style.colour,
            "linestyle": style.line,
            "linewidth": 1.3,
            "marker": style.marker,
            "markersize": 4.5,
            "markerfacecolor": "white",
            "markevery": self._marked(style, t_s),
        }
        axes.plot(t_s, values, **(options | changes))

    def _marked(self, style: _Style, t_s: Array) -> list[int]:
        """Return the samples that carry a marker: evenly spread, each flow's between the others'."""
        span_s = max(self.series.end_s, 1e-9) / MARKERS_PER_LINE
        wanted = (np.arange(MARKERS_PER_LINE) + style.phase) * span_s
        inside = wanted[(wanted >= t_s[0]) & (wanted <= t_s[-1])]
        return sorted({min(int(index), t_s.size - 1) for index in np.searchsorted(t_s, inside)})

    def legend(self, figure: Figure, flow_ids: Sequence[str]) -> None:
        """Put the flows' legend below the panels, in rows of equal length."""
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
        style = self.styles[flow_id]
        return Line2D(
            [],
            [],
            color=style.colour,
            linestyle=style.line,
            linewidth=1.5,
            marker=style.marker,
            markersize=4.5,
            markerfacecolor="white",
            label=flow_id,
        )


Draw = Callable[[_Plot, Axes], list[Line2D]]
"""Draws into the axes and returns the legend entries that only it needs."""


def _draw_goodput(plot: _Plot, axes: Axes) -> list[Line2D]:
    windows = plot.series.windows
    for flow, rates in zip(plot.series.flows, windows.goodput_mbit, strict=True):
        plot.line(axes, flow, windows.centres_s, rates)
    axes.set_ylabel("goodput (Mbit/s)")
    axes.set_ylim(bottom=0)
    shares = {flow.fair_share_mbit for flow in plot.series.flows if flow.fair_share_mbit}
    return [_reference(axes, share, f"fair share {share:.4g} Mbit/s") for share in sorted(shares)]


def _draw_cwnd(plot: _Plot, axes: Axes) -> list[Line2D]:
    top = 1.0
    for flow in plot.series.flows:
        cwnd = flow.values("cwnd_segments")
        plot.line(axes, flow, flow.t_s, cwnd, linewidth=1.0)
        thin = {"linewidth": 0.6, "marker": "", "alpha": 0.75, "zorder": 1.6}
        plot.line(axes, flow, flow.t_s, flow.values("ssthresh_segments"), **thin)
        top = max(top, np.nanmax(cwnd, initial=0.0))
    axes.set_ylabel("cwnd (segments)")
    axes.set_ylim(0, 1.06 * top)  # ssthresh may start anywhere; what is above the largest cwnd says nothing
    return [Line2D([], [], color="#555555", linewidth=0.6, label="ssthresh (thin)")]


def _draw_rtt(plot: _Plot, axes: Axes) -> list[Line2D]:
    for flow in plot.series.flows:
        plot.line(axes, flow, flow.t_s, flow.values("srtt_ms"), linewidth=0.9)
    axes.set_ylabel("smoothed RTT (ms)")
    bases = plot.series.base_rtts_ms
    entries = [_reference(axes, base, f"base RTT {base:.4g} ms") for base in bases]
    low, high = axes.get_ylim()
    if bases:
        axes.set_ylim(bottom=max(0.0, bases[0] - 0.08 * (high - min(low, bases[0]))))
    return entries


def _draw_backlog(plot: _Plot, axes: Axes) -> list[Line2D]:
    queues = plot.series.bottlenecks
    entries = []
    for number, queue in enumerate(queues):
        colour = QUEUE_COLOURS[number % len(QUEUE_COLOURS)]
        t_s, values = downsample(queue.t_s, queue.values("backlog_bytes"))
        axes.plot(t_s, values, color=colour, linewidth=0.9, label=queue.queue_id)
        entries.append(Line2D([], [], color=colour, linewidth=0.9, label=f"backlog at {queue.queue_id}"))
        entries += _draw_drops(axes, queue)
    limits = {queue.buffer_bytes for queue in queues if queue.buffer_bytes}
    entries += [_reference(axes, limit, f"buffer {format_size(limit)}") for limit in sorted(limits)]
    axes.set_ylabel("backlog (kB)")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size / 1e3:g}"))
    top = max([*limits, *(np.nanmax(queue.values("backlog_bytes"), initial=0.0) for queue in queues)], default=0.0)
    axes.set_ylim(0, 1.14 * (top or 1.0))
    if len(queues) == 1 and queues[0].rate_mbit:
        _delay_axis(axes, queues[0].rate_mbit)
    return entries


def _draw_drops(axes: Axes, queue: QueueSeries) -> list[Line2D]:
    """Mark, above the line, the samples in which the drop counter grew."""
    t_s, drops = queue.known("drops")
    grown = np.diff(drops.astype(np.int64), prepend=0) > 0
    if not grown.any():
        return []
    look: dict[str, Any] = {"color": "#B2182B", "marker": "|", "markersize": 7, "linestyle": ""}
    level = 1.07 * (queue.buffer_bytes or np.nanmax(queue.values("backlog_bytes"), initial=0.0))
    axes.plot(t_s[grown], np.full(int(grown.sum()), level), **look)
    return [Line2D([], [], label=f"drops ({int(drops[-1])} packets)", **look)]


def _delay_axis(axes: Axes, rate_mbit: float) -> None:
    """Add the queueing delay that a backlog means, on the right."""
    per_byte = float(metrics.backlog_delay_ms(1.0, rate_mbit))
    inverses: Any = (lambda size: size * per_byte, lambda delay: delay / per_byte)
    right = axes.secondary_yaxis("right", functions=inverses)
    right.set_ylabel("queueing delay (ms)")


def _draw_jain(plot: _Plot, axes: Axes) -> list[Line2D]:
    windows, jain = plot.series.windows, plot.summary.jain
    # One flow alone has an index of 1, which would read as perfect fairness.
    contested = np.where(windows.contested, windows.jain, np.nan)
    axes.set_ylabel("Jain's index (0 to 1)")
    axes.set_ylim(0, 1.04)
    if np.all(np.isnan(contested)):
        return []
    (line,) = axes.plot(*downsample(windows.centres_s, contested), color="#000000", linewidth=1.2)
    line.set_label(f"windows of {windows.length_s:g} s")
    if jain is None:
        return [line]
    (lifetime,) = axes.plot([plot.summary.start_s, plot.summary.end_s], [jain, jain], **REFERENCE)
    lifetime.set_label(f"lifetime {jain:.3f}")
    return [line, lifetime]


def _draw_column(column: str, label: str, top: float | None, bottom: float | None) -> Draw:
    """Return a function that draws one column of the flows that have it."""

    def draw(plot: _Plot, axes: Axes) -> list[Line2D]:
        for flow in plot.series.flows:
            plot.line(axes, flow, flow.t_s, flow.values(column), linewidth=0.9)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=bottom, top=top)
        return []

    return draw


FLAGS = ("DATA", "SS", "CONG", "LOSS", "NOISE")


def _spans(t_s: Array, bits: NDArray[np.int64]) -> list[tuple[float, float]]:
    """Return start and length, s, of each stretch of samples with the bit set, up to the next sample."""
    edges = np.flatnonzero(np.diff(bits, prepend=0, append=0))
    until = np.append(t_s, t_s[-1:])
    return [
        (float(t_s[start]), float(until[stop] - t_s[start]))
        for start, stop in zip(edges[::2], edges[1::2], strict=True)
    ]


def _draw_flags(plot: _Plot, axes: Axes) -> list[Line2D]:
    """Draw one lane per flag bit, a bar where it is set; the flows share a lane, one below the other."""
    flows = [flow for flow in plot.series.flows if flow.has("ndm_flags")]
    height = 0.6 / max(1, len(flows))
    for number, flow in enumerate(flows):
        flags = np.nan_to_num(flow.values("ndm_flags")).astype(int)
        for bit in range(len(FLAGS)):
            bars = _spans(flow.t_s, flags >> bit & 1)
            bottom = bit + 0.3 - height * (number + 1)
            axes.broken_barh(bars, (bottom, 0.9 * height), color=plot.styles[flow.flow_id].colour)
    axes.set_yticks(range(len(FLAGS)), FLAGS)
    axes.set_ylim(-0.5, len(FLAGS) - 0.5)
    axes.set_ylabel("flags (set)")
    order = ", ".join(flow.flow_id for flow in flows)
    return [Line2D([], [], linestyle="", label=f"downwards: {order}")] if len(flows) > 1 else []


def goodput_figure(run: Run) -> Figure:
    """Return goodput over time, in sliding windows drawn at their middle, with the fair share dashed."""
    return _figure(_Plot(run), [_draw_goodput], "Goodput")


def cwnd_figure(run: Run) -> Figure:
    """Return the congestion window over time, ssthresh thin."""
    return _figure(_Plot(run), [_draw_cwnd], "Congestion window")


def rtt_figure(run: Run) -> Figure:
    """Return the smoothed RTT over time, the configured base RTT dashed."""
    return _figure(_Plot(run), [_draw_rtt], "Round-trip time")


def backlog_figure(run: Run) -> Figure:
    """Return the bottleneck's backlog over time, the buffer dashed, drops marked."""
    return _figure(_Plot(run), [_draw_backlog], "Bottleneck backlog", flows=())


def jain_figure(run: Run) -> Figure:
    """Return Jain's index over time in sliding windows, the lifetime's dashed."""
    return _figure(_Plot(run), [_draw_jain], "Fairness", flows=())


def overview(run: Run) -> Figure:
    """Return goodput, cwnd, RTT, backlog and Jain's index, stacked on one time axis."""
    draws = [_draw_goodput, _draw_cwnd, _draw_rtt, _draw_backlog, _draw_jain]
    return _figure(_Plot(run), draws, "Overview", height_in=OVERVIEW_HEIGHT_IN)


def mind_figure(run: Run) -> Figure | None:
    """Return the NDM algorithm's state over time; None when no flow recorded any."""
    plot = _Plot(run)
    lanes: list[tuple[str, Draw]] = [
        ("ndm_entropy", _draw_column("ndm_entropy", "entropy (‰)", 1040, -40)),
        ("ndm_flags", _draw_flags),
        ("ndm_plasticity", _draw_column("ndm_plasticity", "plasticity (‰)", 1040, 0)),
        ("ndm_output", _draw_column("ndm_output", "output (‰)", None, None)),
    ]
    draws = [draw for column, draw in lanes if any(flow.has(column) for flow in plot.series.flows)]
    having = [flow.flow_id for flow in plot.series.flows if any(flow.has(column) for column, _ in lanes)]
    return _figure(plot, draws, "NDM state", having, 2.3 * len(draws) + 1.4) if draws else None


def save_all(run: Run, directory: str | Path) -> list[Path]:
    """Write every figure of the run as PNG (150 dpi) and SVG, and return the files, the overview first.

    Figures of the same name in the directory are replaced. The same run gives the same bytes.

    Raises
    ------
    RecordError
        When a table is damaged, or the directory cannot be written.
    """
    directory = Path(directory)
    figures = {
        "overview": overview(run),
        "goodput": goodput_figure(run),
        "cwnd": cwnd_figure(run),
        "rtt": rtt_figure(run),
        "backlog": backlog_figure(run),
        "jain": jain_figure(run),
        "mind": mind_figure(run),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return [
            _save(figure, directory / f"{name}.{suffix}")
            for name, figure in figures.items()
            if figure is not None
            for suffix in ("png", "svg")
        ]
    except OSError as error:
        raise RecordError(f"cannot write figures to {directory}: {error.strerror or error}") from error


def _save(figure: Figure, path: Path) -> Path:
    # A fixed salt for the ids and no date: the same picture is the same file.
    with mpl.rc_context({"svg.hashsalt": "fairbed"}):
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=DPI, metadata=metadata)
    return path


def _figure(
    plot: _Plot,
    draws: Sequence[Draw],
    subject: str,
    flows: Sequence[str] | None = None,
    height_in: float = HEIGHT_IN,
) -> Figure:
    """Return a figure with one panel per drawing, on one time axis, legends outside of the data.

    `flows` are the ones in the legend, all when None.
    """
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(draws), 1, sharex=True, squeeze=False)[:, 0]
    for axes, draw in zip(panels, draws, strict=True):
        entries = draw(plot, axes)
        _decorate(plot, axes)
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
    panels[-1].set_xlabel("time since the run began (s)")
    _title(figure, plot, subject)
    shown = list(plot.styles) if flows is None else list(flows)
    if shown:
        plot.legend(figure, shown)
    return figure


def _title(figure: Figure, plot: _Plot, subject: str) -> None:
    summary = plot.summary
    seed = "" if summary.seed is None else f", seed {summary.seed}"
    lines = [f"{subject}: {plot.run.name}{seed}", f"verdict: {summary.verdict}"]
    if summary.verdict_reasons:
        lines[1] += f" ({_shortened('; '.join(summary.verdict_reasons))})"
    if summary.outcome != "complete":
        lines[1] += f"; {summary.outcome} at {summary.end_s:.4g} s"
    sound = summary.verdict == "valid" and summary.outcome == "complete"
    figure.suptitle("\n".join(lines), fontsize="medium", color="black" if sound else "#B2182B")


def _shortened(text: str, length: int = 80) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _decorate(plot: _Plot, axes: Axes) -> None:
    """Give every panel the same time axis, grid and warm-up."""
    end_s, warmup_s = plot.series.end_s, plot.series.warmup_s
    axes.set_xlim(0, end_s or 1.0)
    axes.grid(True, linewidth=0.4, color="#DDDDDD")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
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


def _reference(axes: Axes, value: float, label: str) -> Line2D:
    """Draw a dashed horizontal line and return its legend entry."""
    axes.axhline(value, **REFERENCE)
    return Line2D([], [], **REFERENCE, label=label)
