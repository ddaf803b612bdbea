"""Figures of one run: goodput, cwnd, RTT, backlog, Jain's index, the NDM algorithm's state, and an overview.

Each function returns a `matplotlib.figure.Figure` that belongs to the caller; there is no global state.
Colour and marker tell the congestion control, the line style tells flows of the same one apart, so a figure
reads in grey and with any colour vision. The same run gives the same bytes.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from analysis import metrics
from analysis.drawing import (
    FORMATS,
    REFERENCE,
    Draw,
    Plot,
    legend_above,
    line_style,
    new_figure,
    panels_figure,
    plain,
    reference,
    run_title,
    save_figures,
)
from analysis.series import FlowSeries, QueueSeries
from analysis.style import QUEUE_COLOURS, downsample
from analysis.topology_figure import topology_figure
from lab.record import Run
from topologies.units import format_size

__all__ = [
    "backlog_figure",
    "cwnd_figure",
    "delay_cdf_figure",
    "downsample",
    "ellipse",
    "goodput_delay_figure",
    "goodput_figure",
    "jain_figure",
    "mind_figure",
    "overview",
    "rtt_figure",
    "save_all",
    "share_figure",
]

Array = NDArray[np.float64]

OVERVIEW_HEIGHT_IN = 12.0


def _draw_goodput(plot: Plot, axes: Axes) -> list[Line2D]:
    windows = plot.series.windows
    for flow, rates in zip(plot.series.flows, windows.goodput_mbit, strict=True):
        plot.line(axes, flow, windows.centres_s, rates)
    axes.set_ylabel("goodput (Mbit/s)")
    axes.set_ylim(bottom=0)
    shares = {flow.fair_share_mbit for flow in plot.series.flows if flow.fair_share_mbit}
    return [reference(axes, share, f"fair share {share:.4g} Mbit/s") for share in sorted(shares)]


def _draw_share(plot: Plot, axes: Axes) -> list[Line2D]:
    """Stack the flows' parts of the goodput; a window in which nothing arrives is a gap."""
    windows = plot.series.windows
    rates = np.nan_to_num(windows.goodput_mbit)
    axes.set_ylabel("share of goodput (%)")
    axes.set_ylim(0, 100)
    total = rates.sum(axis=0)
    if not total.any():
        return []
    t_s, shares = _thinned(windows.centres_s, 100 * rates / np.where(total > 0, total, np.nan))
    looks = [plot.looks[flow.flow_id] for flow in plot.series.flows]
    bands = axes.stackplot(t_s, shares, colors=[look.colour for look in looks], edgecolor="white", linewidth=0.4)
    for number, band in enumerate(bands):
        band.set_hatch(HATCHES[number % len(HATCHES)])
    for edge in np.cumsum(_fair_parts(plot.series.flows))[:-1]:
        axes.axhline(100 * edge, **(REFERENCE | {"zorder": 3}))
    return [
        Line2D([], [], **REFERENCE, label="fair shares"),
        Line2D([], [], linestyle="", label="stacked in the legend's order"),
    ]


def _thinned(t_s: Array, rows: Array, most: int = 1500) -> tuple[Array, Array]:
    """Return means over as many neighbours as leave at most `most` columns: a band has an area, not extremes."""
    step = -(-t_s.size // most)
    starts = np.arange(0, t_s.size, step)
    return t_s[starts], np.add.reduceat(rows, starts, axis=1) / np.diff(starts, append=t_s.size)


def _fair_parts(flows: Sequence[FlowSeries]) -> Array:
    """Return each flow's part of the sum of the fair shares; nothing when one is unknown."""
    shares = np.array([flow.fair_share_mbit or np.nan for flow in flows])
    return shares / shares.sum() if np.all(shares > 0) else np.zeros(0)


def _draw_cwnd(plot: Plot, axes: Axes) -> list[Line2D]:
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


def _draw_rtt(plot: Plot, axes: Axes) -> list[Line2D]:
    for flow in plot.series.flows:
        plot.line(axes, flow, flow.t_s, flow.values("srtt_ms"), linewidth=0.9)
    axes.set_ylabel("smoothed RTT (ms)")
    bases = plot.series.base_rtts_ms
    entries = [reference(axes, base, f"base RTT {base:.4g} ms") for base in bases]
    low, high = axes.get_ylim()
    if bases:
        axes.set_ylim(bottom=max(0.0, bases[0] - 0.08 * (high - min(low, bases[0]))))
    return entries


def _draw_backlog(plot: Plot, axes: Axes) -> list[Line2D]:
    queues = plot.series.bottlenecks
    entries = []
    for number, queue in enumerate(queues):
        colour = QUEUE_COLOURS[number % len(QUEUE_COLOURS)]
        t_s, values = downsample(queue.t_s, queue.values("backlog_bytes"))
        axes.plot(t_s, values, color=colour, linewidth=0.9, label=queue.queue_id)
        entries.append(Line2D([], [], color=colour, linewidth=0.9, label=f"backlog at {queue.queue_id}"))
        entries += _draw_counted(axes, queue)
    limits = {queue.buffer_bytes for queue in queues if queue.buffer_bytes}
    entries += [reference(axes, limit, f"buffer {format_size(limit)}") for limit in sorted(limits)]
    axes.set_ylabel("backlog (kB)")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size / 1e3:g}"))
    top = max([*limits, *(np.nanmax(queue.values("backlog_bytes"), initial=0.0) for queue in queues)], default=0.0)
    axes.set_ylim(0, 1.2 * (top or 1.0))
    if len(queues) == 1 and queues[0].rate_mbit:
        _delay_axis(axes, queues[0].rate_mbit)
    return entries


def _draw_counted(axes: Axes, queue: QueueSeries) -> list[Line2D]:
    """Mark, above the line, the samples in which packets were dropped or marked."""
    top = queue.buffer_bytes or np.nanmax(queue.values("backlog_bytes"), initial=0.0)
    entries = []
    for column, words, colour, height in (
        ("drops", "drops", "#B2182B", 1.07),
        ("ecn_marks", "ECN marks", "#7B3294", 1.15),
    ):
        t_s, counts = queue.known(column)
        grown = np.diff(counts.astype(np.int64), prepend=0) > 0
        if grown.any():
            look: dict[str, Any] = {"color": colour, "marker": "|", "markersize": 7, "linestyle": ""}
            axes.plot(t_s[grown], np.full(int(grown.sum()), height * top), **look)
            entries.append(Line2D([], [], label=f"{words} ({int(counts[-1])} packets)", **look))
    return entries


def _delay_axis(axes: Axes, rate_mbit: float) -> None:
    """Add the queueing delay that a backlog means, on the right."""
    per_byte = float(metrics.backlog_delay_ms(1.0, rate_mbit))
    inverses: Any = (lambda size: size * per_byte, lambda delay: delay / per_byte)
    right = axes.secondary_yaxis("right", functions=inverses)
    right.set_ylabel("queueing delay (ms)")


def _draw_jain(plot: Plot, axes: Axes) -> list[Line2D]:
    windows, jain = plot.series.windows, plot.summary.jain
    # One flow alone has an index of 1, which would read as perfect fairness.
    contested = np.where(windows.contested, windows.jain, np.nan)
    axes.set_ylabel("Jain's index (0 to 1)")
    axes.set_ylim(0, 1.04)
    if np.all(np.isnan(contested)):
        return []
    (line,) = axes.plot(*downsample(windows.centres_s, contested), color="#000000", linewidth=1.2)
    line.set_label(f"windows of {windows.length_s:g} s")
    fair = axes.axhline(metrics.FAIR_JAIN, color="#BBBBBB", linewidth=0.8, zorder=1.3)
    fair.set_label(f"fair from {metrics.FAIR_JAIN:g}{_converged(plot)}")
    if jain is None:
        return [line, fair]
    (lifetime,) = axes.plot([plot.summary.start_s, plot.summary.end_s], [jain, jain], **REFERENCE)
    lifetime.set_label(f"lifetime {jain:.3f}")
    return [line, fair, lifetime]


def _converged(plot: Plot) -> str:
    found = plot.summary.convergence_time_s
    return ", not held for 5 s" if found is None else f", held {found:.3g} s after the last flow joined"


def _draw_column(column: str, label: str, top: float | None, bottom: float | None) -> Draw:
    """Return a function that draws one column of the flows that have it."""

    def draw(plot: Plot, axes: Axes) -> list[Line2D]:
        for flow in plot.series.flows:
            plot.line(axes, flow, flow.t_s, flow.values(column), linewidth=0.9)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=bottom, top=top)
        return []

    return draw


HATCHES = ("", "///", "...", "xxx", "\\\\\\")

FLAGS = ("DATA", "SS", "CONG", "LOSS", "NOISE")


def _spans(t_s: Array, bits: NDArray[np.int64]) -> list[tuple[float, float]]:
    """Return start and length, s, of each stretch of samples with the bit set, up to the next sample."""
    edges = np.flatnonzero(np.diff(bits, prepend=0, append=0))
    until = np.append(t_s, t_s[-1:])
    return [
        (float(t_s[start]), float(until[stop] - t_s[start]))
        for start, stop in zip(edges[::2], edges[1::2], strict=True)
    ]


def _draw_flags(plot: Plot, axes: Axes) -> list[Line2D]:
    """Draw one lane per flag bit, a bar where it is set; the flows share a lane, one below the other."""
    flows = [flow for flow in plot.series.flows if flow.has("ndm_flags")]
    height = 0.6 / max(1, len(flows))
    for number, flow in enumerate(flows):
        flags = np.nan_to_num(flow.values("ndm_flags")).astype(int)
        for bit in range(len(FLAGS)):
            bars = _spans(flow.t_s, flags >> bit & 1)
            bottom = bit + 0.3 - height * (number + 1)
            axes.broken_barh(bars, (bottom, 0.9 * height), color=plot.looks[flow.flow_id].colour)
    axes.set_yticks(range(len(FLAGS)), FLAGS)
    axes.set_ylim(-0.5, len(FLAGS) - 0.5)
    axes.set_ylabel("flags (set)")
    order = ", ".join(flow.flow_id for flow in flows)
    return [Line2D([], [], linestyle="", label=f"downwards: {order}")] if len(flows) > 1 else []


def goodput_figure(run: Run | Plot) -> Figure:
    """Return goodput over time, in sliding windows drawn at their middle, with the fair share dashed."""
    return panels_figure(Plot.of(run), [_draw_goodput], "Goodput")


def cwnd_figure(run: Run | Plot) -> Figure:
    """Return the congestion window over time, ssthresh thin."""
    return panels_figure(Plot.of(run), [_draw_cwnd], "Congestion window")


def rtt_figure(run: Run | Plot) -> Figure:
    """Return the smoothed RTT over time, the configured base RTT dashed."""
    return panels_figure(Plot.of(run), [_draw_rtt], "Round-trip time")


def backlog_figure(run: Run | Plot) -> Figure:
    """Return the bottleneck's backlog over time, the buffer dashed, drops marked."""
    return panels_figure(Plot.of(run), [_draw_backlog], "Bottleneck backlog", flows=())


def jain_figure(run: Run | Plot) -> Figure:
    """Return Jain's index over time in sliding windows, the lifetime's dashed."""
    return panels_figure(Plot.of(run), [_draw_jain], "Fairness", flows=())


def share_figure(run: Run | Plot) -> Figure:
    """Return each flow's share of the goodput over time, stacked, the fair shares dashed."""
    return panels_figure(Plot.of(run), [_draw_share], "Share of goodput")


def delay_cdf_figure(run: Run | Plot) -> Figure:
    """Return the distributions of the flows' smoothed RTT and of the bottlenecks' queueing delay after the warm-up."""
    plot = Plot.of(run)
    figure = new_figure()
    left, right = figure.subplots(1, 2, sharey=True)
    for flow in plot.series.flows:
        look = plot.looks[flow.flow_id]
        _draw_cdf(plot, left, flow.known("srtt_ms"), color=look.colour, linestyle=line_style(look))
    entries = []
    for number, queue in enumerate(queue for queue in plot.series.bottlenecks if queue.rate_mbit):
        t_s, backlog = queue.known("backlog_bytes")
        delays = metrics.backlog_delay_ms(backlog, queue.rate_mbit or 1.0)
        style: dict[str, Any] = {"color": QUEUE_COLOURS[number % len(QUEUE_COLOURS)]}
        _draw_cdf(plot, right, (t_s, delays), **style)
        entries.append(Line2D([], [], label=queue.queue_id, **style))
    left.set(xlabel="smoothed RTT (ms)", ylabel="part of the samples (0 to 1)", ylim=(0, 1.02))
    right.set_xlabel("queueing delay, backlog ÷ rate (ms)")
    for axes in (left, right):
        plain(axes)
    for base_ms in plot.series.base_rtts_ms:
        left.axvline(base_ms, **REFERENCE)
    bases = [Line2D([], [], **REFERENCE, label="base RTT")] if plot.series.base_rtts_ms else []
    legend_above(left, bases)
    legend_above(right, entries)
    run_title(figure, plot, "Delay distributions after the warm-up")
    plot.legend(figure, list(plot.looks))
    return figure


def _draw_cdf(plot: Plot, axes: Axes, samples: tuple[Array, Array], **style: Any) -> None:
    """Draw the empirical distribution function of the samples after the warm-up, in at most 1001 steps."""
    t_s, values = samples
    values = np.sort(values[t_s >= plot.series.warmup_s])
    if values.size:
        parts = np.linspace(0, 1, min(values.size, 1001))
        axes.plot(np.quantile(values, parts), parts, linewidth=1.3, **style)


def goodput_delay_figure(run: Run | Plot) -> Figure:
    """Return goodput against RTT inflation: a point per window, and the ellipse of one standard deviation per flow.

    Up and to the right is better: the delay axis is turned round. Source of the form: K. Winstein,
    H. Balakrishnan, "TCP ex Machina", SIGCOMM 2013.
    """
    plot = Plot.of(run)
    figure = new_figure(4.8)
    axes = figure.subplots()
    for flow, rates in zip(plot.series.flows, plot.series.windows.goodput_mbit, strict=True):
        look = plot.looks[flow.flow_id]
        points = _window_points(plot, flow, rates)
        shown = points[:: -(-len(points) // 400) or 1]
        faint: dict[str, Any] = {"color": look.colour, "alpha": 0.25, "linewidths": 0, "s": 12}
        axes.scatter(shown[:, 0], shown[:, 1], marker=look.marker, **faint)
        ellipse(axes, points, color=look.colour, linestyle=line_style(look), marker=look.marker)
    axes.set(xlabel="RTT above the base RTT, mean of a window (ms); better to the right", ylabel="goodput (Mbit/s)")
    axes.set_ylim(bottom=0)
    axes.invert_xaxis()
    plain(axes)
    run_title(figure, plot, f"Goodput and delay, windows of {plot.series.windows.length_s:g} s after the warm-up")
    plot.legend(figure, list(plot.looks))
    return figure


def _window_points(plot: Plot, flow: FlowSeries, rates: Array) -> Array:
    """Return RTT inflation and goodput of each window after the warm-up that has both."""
    windows = plot.series.windows
    t_s, srtt = flow.known("srtt_ms")
    if flow.base_rtt_ms is None or t_s.size == 0:
        return np.zeros((0, 2))
    sums = np.concatenate([[0.0], np.cumsum(srtt)])
    first, last = (np.searchsorted(t_s, windows.starts_s + length) for length in (0.0, windows.length_s))
    with np.errstate(invalid="ignore"):
        delays = (sums[last] - sums[first]) / (last - first) - flow.base_rtt_ms
    points = np.column_stack([delays, rates])[windows.starts_s >= plot.series.warmup_s]
    return np.asarray(points[~np.isnan(points).any(axis=1)])


def ellipse(axes: Axes, points: Array, color: str, linestyle: Any, marker: str) -> None:
    """Draw the mean of points and, from three of them on, the ellipse of one standard deviation around it."""
    if len(points) == 0:
        return
    middle = points.mean(axis=0)
    axes.plot(*middle, marker=marker, color=color, markeredgecolor="black", markersize=8, linestyle="")
    if len(points) < 3:
        return
    variances, directions = np.linalg.eigh(np.cov(points.T))
    width, height = 2 * np.sqrt(np.maximum(variances, 0))
    angle = float(np.degrees(np.arctan2(directions[1, 0], directions[0, 0])))
    look: dict[str, Any] = {"fill": False, "edgecolor": color, "linestyle": linestyle, "linewidth": 1.5}
    axes.add_patch(Ellipse((float(middle[0]), float(middle[1])), float(width), float(height), angle=angle, **look))


def overview(run: Run | Plot) -> Figure:
    """Return goodput, cwnd, RTT, backlog and Jain's index, stacked on one time axis."""
    draws = [_draw_goodput, _draw_cwnd, _draw_rtt, _draw_backlog, _draw_jain]
    return panels_figure(Plot.of(run), draws, "Overview", height_in=OVERVIEW_HEIGHT_IN)


def mind_figure(run: Run | Plot) -> Figure | None:
    """Return the NDM algorithm's state over time; None when no flow recorded any."""
    plot = Plot.of(run)
    lanes: list[tuple[str, Draw]] = [
        ("ndm_entropy", _draw_column("ndm_entropy", "entropy (‰)", 1040, -40)),
        ("ndm_flags", _draw_flags),
        ("ndm_plasticity", _draw_column("ndm_plasticity", "plasticity (‰)", 1040, 0)),
        ("ndm_output", _draw_column("ndm_output", "output (‰)", None, None)),
    ]
    draws = [draw for column, draw in lanes if any(flow.has(column) for flow in plot.series.flows)]
    having = [flow.flow_id for flow in plot.series.flows if any(flow.has(column) for column, _ in lanes)]
    return panels_figure(plot, draws, "NDM state", having, 2.3 * len(draws) + 1.4) if draws else None


def save_all(run: Run | Plot, directory: str | Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write every figure of the run and return the files, the overview first; PNG (150 dpi) and SVG by default.

    Figures of the same name in the directory are replaced. The same run gives the same bytes.

    Raises
    ------
    RecordError
        When a table is damaged, or the directory cannot be written.
    """
    plot = Plot.of(run)
    draws: dict[str, Callable[[Plot], Figure | None]] = {
        "overview": overview,
        "goodput": goodput_figure,
        "share": share_figure,
        "cwnd": cwnd_figure,
        "rtt": rtt_figure,
        "backlog": backlog_figure,
        "jain": jain_figure,
        "delay-cdf": delay_cdf_figure,
        "goodput-delay": goodput_delay_figure,
        "mind": mind_figure,
        "topology": lambda plot: topology_figure(plot.run),
    }
    return save_figures({name: draw(plot) for name, draw in draws.items()}, directory, formats)
