"""One HTML file that shows one run, or compares several: no network, no other file, light and dark.

The page carries its data, its script and the plotly.js of the plotly package; its own content security policy forbids
it to load anything else.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis import metrics
from analysis.groups import Group, group_runs, settings
from analysis.repeats import Comparison, Difference, RepeatSummary, compare, summarise_repeats
from analysis.series import FlowSeries, QueueSeries, RunSeries
from analysis.statistics import Interval
from analysis.style import OTHER_LOOKS, QUEUE_COLOURS, downsample, flow_looks, lightened
from analysis.summary import Summary, summarise_series
from analysis.tables import (
    MEASURES,
    MISSING,
    Column,
    cells,
    difference_cells,
    flow_columns,
    interval_cells,
    missing_lines,
    number,
    overall_rows,
    queue_columns,
)
from analysis.topology_svg import topology_svg
from lab.record import RecordError, Run
from topologies.errors import UsageError
from topologies.units import format_size

__all__ = ["page_style", "report_html", "write_report"]

Array = NDArray[np.float64]

PAGE = Path(__file__).parent / "page"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
GROUP_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
GREY = ("#5C6166", "#A2A8AE")
DROP, MARK = ("#B2182B", "#FF8A80"), ("#7B3294", "#D7B5E8")
MARK_WORDS = {
    "join": "dotted upright: a flow joins",
    "leave": "dash-dotted upright: a flow leaves",
    "controller": "solid upright: the controller acts",
    "link": "dashed upright: a link changes",
}
FLOAT_BUDGET = 700_000
"""Values of all runs together, 4 bytes each, before a line is thinned: 3.7 MB of the page."""
MOST_EVENTS = 500
MOST_MARKS = 400
COMPARED = (
    ("goodput_mbit", "goodput per flow (Mbit/s)"),
    ("retransmission_rate", "retransmitted (% of segments)"),
    ("rtt_inflation_p50_ms", "RTT above base, p50 (ms)"),
)
COMPARED_OVERALL = (
    ("jain", "Jain's index, lifetime"),
    ("queueing_delay_p95_ms", "queueing delay, p95 (ms)"),
    ("utilisation", "utilisation (%)"),
)


def write_report(runs: Sequence[Run], path: str | Path) -> Path:
    """Write the page of the runs and return its path; a file that exists is replaced.

    Raises
    ------
    UsageError
        When there is no run.
    RecordError
        When a table is damaged, or the file cannot be written.
    """
    path = Path(path)
    text = report_html(runs)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def report_html(runs: Sequence[Run]) -> str:
    """Return the page of one run, or of several: means over repeats, differences, then each run."""
    if not runs:
        raise UsageError("no run to report on")
    from plotly.offline import get_plotlyjs  # 5 MB of script, which only a page needs

    budget = FLOAT_BUDGET // len(runs)
    groups = group_runs(runs)
    labels = {run.path: group.label for group in groups for run in group.runs}
    sections = [_run_section(run, index, labels[run.path], len(runs) == 1, budget) for index, run in enumerate(runs)]
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    body = [*(_comparison_sections(groups) if len(runs) > 1 else []), *sections]
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">',
            f"<title>{escape(title)} – Fairbed</title><style>{_asset('report.css')}</style></head><body>",
            *([f"<header><h1>{len(runs)} runs compared</h1></header>"] if len(runs) > 1 else []),
            *body,
            f"<script>{get_plotlyjs()}</script>",
            f"<script>{_asset('report.js')}</script></body></html>",
        ]
    )


def page_style() -> str:
    """Return the style sheet of Fairbed's pages."""
    return _asset("report.css")


def _asset(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _embedded(name: str, content: Any) -> str:
    """Return data for the page's script; nothing in it can end the element."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


# --- one run ---------------------------------------------------------------------------------------------------------


def _run_section(run: Run, index: int, label: str, alone: bool, budget: int) -> str:
    """Return everything about one run; folded away, but for its heading, when there are others."""
    series = RunSeries(run)
    summary = summarise_series(series)
    drawn = RunData(series, budget).content()
    parts = [
        _verdict(summary),
        _summary_tables(summary),
        _legend(drawn["flows"]),
        '<div class="plots" role="img" aria-label="Flows, queues, fairness and events over time"></div>',
        _events_table(run),
        *_about(run, summary),
    ]
    seed = "" if summary.seed is None else f", seed {summary.seed}"
    heading = escape(f"{run.name}: {label}{seed}")
    content = "".join(parts)
    if alone:
        inner = f"<h1>{heading}</h1>{content}"
    else:
        word = f'<span class="{escape(summary.verdict)}">{escape(summary.verdict)}</span>'
        inner = f'<details class="fold"><summary>{heading}, {word}</summary>{content}</details>'
    return f'<section class="run" data-run="run-{index}">{inner}</section>{_embedded(f"run-{index}", drawn)}'


def _verdict(summary: Summary) -> str:
    reasons = f": {'; '.join(summary.verdict_reasons)}" if summary.verdict_reasons else ""
    outcome = f"{summary.outcome}{': ' + summary.outcome_message if summary.outcome_message else ''}"
    ended = "" if summary.outcome == "complete" else ' class="crashed"'
    window = f"measured from {summary.start_s:g} s to {summary.end_s:g} s, sliding windows of {summary.window_s:g} s"
    kind = summary.verdict if summary.verdict in ("valid", "suspect", "invalid") else "unknown"
    return (
        f'<p>Verdict <span class="verdict {kind}">{escape(summary.verdict)}</span>{escape(reasons)}. '
        f'<span{ended}>Outcome {escape(outcome)}</span>; {window}.</p><p class="faint">{escape(summary.run)}</p>'
    )


def _summary_tables(summary: Summary) -> str:
    of_flows, of_queues = flow_columns(summary.flows), queue_columns(summary.queues)
    flows = [[flow.flow_id, *cells(flow, of_flows)] for flow in summary.flows]
    queues = [[queue.queue_id, *cells(queue, of_queues)] for queue in summary.queues]
    overall = [
        [label, number(value, name) if (value := getattr(summary, name)) is None else f"{number(value, name)} {unit}"]
        for name, (label, unit, *_) in overall_rows(summary).items()
    ]
    tables = [
        _table(["flow", *_headers(of_flows)], flows),
        _table(["bottleneck", *_headers(of_queues)], queues),
    ]
    notes = [*missing_lines(summary.reasons), *(f"Note: {note}" for note in summary.notes)]
    return "".join([*tables, _table(["the run as a whole", ""], overall), *map(_faint, notes)])


def _headers(columns: Mapping[str, Column]) -> list[str]:
    return [f"{label}\n{unit}" for label, unit, *_ in columns.values()]


def _faint(text: str) -> str:
    return f'<p class="faint">{escape(text)}</p>'


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], words: Iterable[int] = (0,)) -> str:
    """Return a table, empty without rows; a header's second line is its unit; `words` are the columns of text."""
    if not rows:
        return ""
    kinds = [' class="words"' if index in set(words) else "" for index in range(len(headers))]
    heads = [f"{escape(name)}<small>{escape(unit)}</small>" for name, _, unit in (h.partition("\n") for h in headers)]
    head = "".join(f"<th{kind}>{text}</th>" for kind, text in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{escape(text)}</td>" for kind, text in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _legend(flows: Sequence[Mapping[str, Any]]) -> str:
    """Return the buttons that show and hide each flow in all panels."""
    strokes = {"solid": "", "dash": "6 3", "dot": "2 2", "dashdot": "6 2 2 2", "longdash": "10 3"}
    buttons = [
        f'<button type="button" data-flow="{index}" aria-pressed="true"><svg aria-hidden="true">'
        f'<line x2="28" y1="4" y2="4" stroke="{flow["colours"][0]}" stroke-width="3" '
        f'stroke-dasharray="{strokes[flow["dash"]]}"/></svg>{escape(flow["flow_id"])}</button>'
        for index, flow in enumerate(flows)
    ]
    doing = [
        f'<button type="button" data-do="{name}"{extra}>{words}</button>'
        for name, words, extra in (
            ("all", "all flows", ' class="end"'),
            ("none", "no flow", ""),
            ("reset", "whole run", ""),
        )
    ]
    return (
        '<h2>Over time</h2><p class="faint">Drag across any panel to zoom all of them, double-click for the whole run; '
        f'a flow\'s button shows or hides it everywhere.</p><div class="flows">{"".join(buttons + doing)}</div>'
    )


def _events_table(run: Run) -> str:
    events = run.events
    if events.is_empty():
        return ""
    rows = [
        [f"{t_s:.3f}", source, kind, subject, detail]
        for t_s, source, kind, subject, detail in events.head(MOST_EVENTS).iter_rows()
    ]
    more = f", the first {MOST_EVENTS} of {events.height}" if events.height > MOST_EVENTS else f" ({events.height})"
    table = _table(["time\ns", "source", "kind", "subject", "detail"], rows, words=(1, 2, 3, 4))
    return f'<details class="events"><summary>Events{more}</summary>{table}</details>'


def _about(run: Run, summary: Summary) -> list[str]:
    """Return topology, scenario, environment, and how to run it again."""
    command = f"python -m analysis replay {summary.run}"
    about = [
        ("Topology", topology_svg(run), True),
        ("Scenario", _pairs(settings(run) | {"seed": summary.seed}) + _json(run.scenario), True),
        ("Environment", _json(run.info.get("environment") or {}), False),
    ]
    folded = [
        f"<details{' open' if is_open else ''}><summary><b>{title}</b></summary>{content}</details>"
        for title, content, is_open in about
        if content
    ]
    return [
        "<h2>What was run</h2>",
        *folded,
        "<h2>Run it again</h2>",
        f"<pre>{escape(command)}</pre>",
        '<p class="faint">It runs the recorded scenario with the recorded seed in a new directory, and says whether '
        f"the record is identical. Digest of this record: <code>{run.digest()}</code></p>",
    ]


def _pairs(values: Mapping[str, Any]) -> str:
    rows = [[name, MISSING if value is None else str(value)] for name, value in values.items()]
    return _table(["setting", "value"], rows, words=(0, 1))


def _json(content: Mapping[str, Any]) -> str:
    if not content:
        return ""
    return f"<details><summary>as JSON</summary><pre>{escape(json.dumps(content, indent=1))}</pre></details>"


# --- the panels' data ------------------------------------------------------------------------------------------------


@dataclass
class _Panel:
    """One panel: what its axis says, and the lines in it."""

    label: str
    unit: str = ""
    height: int = 160
    from_zero: bool = True
    range: tuple[float, float] | None = None
    note: str = ""
    ticks: list[str] = field(default_factory=list)
    references: list[float] = field(default_factory=list)
    traces: list[dict[str, Any]] = field(default_factory=list)


class RunData:
    """The lines of one run as the page's script takes them.

    Parameters
    ----------
    series : RunSeries
    budget : int
        Values that all lines together may have; above it each line is thinned, its extremes kept.
    """

    def __init__(self, series: RunSeries, budget: int) -> None:
        self.series = series
        self.looks = flow_looks(series.flows)
        self._arrays: dict[str, int] = {}
        rows = series.run.flows.height * 6 + series.run.queues.height
        self._buckets = None if rows <= budget else max(100, budget // (24 * max(1, len(series.flows))))

    def content(self) -> dict[str, Any]:
        """Return what the script draws."""
        panels = [
            self._goodput(),
            self._flow_columns("cwnd (segments)", {"cwnd_segments": 1.3, "ssthresh_segments": 0.6}, "ssthresh thin"),
            self._rtt(),
            self._backlog(),
            self._jain(),
            *self._mind(),
            self._events(),
        ]
        return {
            "end_s": self.series.end_s or 1.0,
            "warmup_s": self.series.warmup_s,
            "flows": [
                {"flow_id": flow.flow_id, "colours": self._colours(flow), "dash": self._dash(flow)}
                for flow in self.series.flows
            ],
            "marks": [{"t_s": t_s, "kind": kind} for t_s, kind, _ in self.series.marks[:MOST_MARKS]],
            "panels": [vars(panel) for panel in panels],
            "arrays": list(self._arrays),
        }

    def _colours(self, flow: FlowSeries) -> list[str]:
        colour = self.looks[flow.flow_id].colour
        return [colour, lightened(colour)]

    def _dash(self, flow: FlowSeries) -> str:
        return DASHES[self.looks[flow.flow_id].number % len(DASHES)]

    def _array(self, values: Array) -> int:
        """Return the number of an array in the page, the same for the same values."""
        text = base64.b64encode(values.astype("<f4").tobytes()).decode()
        return self._arrays.setdefault(text, len(self._arrays))

    def _line(self, t_s: Array, values: Array, name: str, **look: Any) -> list[dict[str, Any]]:
        """Return a line, none when it has no value."""
        if t_s.size == 0 or np.all(np.isnan(values)):
            return []
        if self._buckets is not None:
            t_s, values = downsample(t_s, values, self._buckets)
        plain = {"flow": None, "dash": "solid", "width": 1.4, "opacity": 1}
        return [plain | {"name": name, "x": self._array(t_s), "y": self._array(values)} | look]

    def _flow_line(self, flow: FlowSeries, t_s: Array, values: Array, **look: Any) -> list[dict[str, Any]]:
        own = {"colours": self._colours(flow), "dash": self._dash(flow), "flow": self.series.flows.index(flow)}
        return self._line(t_s, values, flow.flow_id, **(own | look))

    def _goodput(self) -> _Panel:
        windows = self.series.windows
        shares = sorted({flow.fair_share_mbit for flow in self.series.flows if flow.fair_share_mbit})
        note = f"windows of {windows.length_s:g} s; " if windows.starts_s.size else ""
        kinds = dict.fromkeys(kind for _, kind, _ in self.series.marks)
        upright = "".join(f"; {MARK_WORDS[kind]}" for kind in kinds)
        panel = _Panel("goodput (Mbit/s)", "Mbit/s", 200, references=shares, note=note + "fair share dashed" + upright)
        for flow, rates in zip(self.series.flows, windows.goodput_mbit, strict=True):
            panel.traces += self._flow_line(flow, windows.centres_s, rates)
        return panel

    def _flow_columns(self, label: str, columns: Mapping[str, float], note: str = "") -> _Panel:
        """Return a panel of columns of the flows' table, each with its line width."""
        panel = _Panel(label, note=note)
        for flow in self.series.flows:
            for column, width in columns.items():
                look = {"width": width, "opacity": 1 if width >= 1 else 0.7}
                panel.traces += self._flow_line(flow, flow.t_s, flow.values(column), **look)
        if "ssthresh_segments" in columns:  # it may start anywhere: what is far above the largest cwnd says nothing
            top = max((np.nanmax(flow.values("cwnd_segments"), initial=1.0) for flow in self.series.flows), default=1.0)
            panel.traces = [trace for trace in panel.traces if trace["width"] >= 1 or self._below(trace, 1.5 * top)]
        return panel

    def _below(self, trace: Mapping[str, Any], top: float) -> bool:
        values = np.frombuffer(base64.b64decode(list(self._arrays)[trace["y"]]), "<f4")
        return bool(np.nanmax(values) <= top)

    def _rtt(self) -> _Panel:
        panel = _Panel("smoothed RTT (ms)", "ms", from_zero=False, references=self.series.base_rtts_ms)
        panel.note = "configured base RTT dashed"
        for flow in self.series.flows:
            panel.traces += self._flow_line(flow, flow.t_s, flow.values("srtt_ms"), width=1.1)
        return panel

    def _backlog(self) -> _Panel:
        panel = _Panel("backlog (kB)", "kB")
        limits = sorted({queue.buffer_bytes for queue in self.series.bottlenecks if queue.buffer_bytes})
        panel.references = [limit / 1e3 for limit in limits]
        words = [f"buffer {format_size(limit)} dashed" for limit in limits]
        for place, queue in enumerate(self.series.bottlenecks):
            colour = QUEUE_COLOURS[place % len(QUEUE_COLOURS)]
            look = {"colours": [colour, lightened(colour)], "width": 1.1}
            panel.traces += self._line(queue.t_s, queue.values("backlog_bytes") / 1e3, queue.queue_id, **look)
            for column, name, colours, symbol in (
                ("drops", "drops", DROP, "line-ns-open"),
                ("ecn_marks", "ECN marks", MARK, "line-ns-open"),
            ):
                panel.traces += self._grown(queue, column, f"{name} at {queue.queue_id}", colours, symbol)
            if queue.buffer_bytes and queue.rate_mbit:
                words.append(f"= {float(metrics.backlog_delay_ms(queue.buffer_bytes, queue.rate_mbit)):.3g} ms")
        names = {trace["name"].partition(" at ")[0] for trace in panel.traces if "symbol" in trace}
        panel.note = "; ".join([" ".join(words), *(f"{name} marked on top" for name in sorted(names))]).strip("; ")
        return panel

    def _grown(self, queue: QueueSeries, column: str, name: str, colours: Sequence[str], symbol: str) -> list[Any]:
        """Return a mark above the backlog for each sample in which the counter grew."""
        t_s, values = queue.known(column)
        grown = t_s[np.diff(values.astype(np.int64), prepend=0) > 0]
        if grown.size == 0:
            return []
        top = (queue.buffer_bytes or np.nanmax(queue.values("backlog_bytes"), initial=0.0)) / 1e3
        level = np.full(grown.size, top * (1.08 if column == "drops" else 1.16))
        buckets, self._buckets = self._buckets, None  # marks have no extremes to keep: the budget counts lines
        found = self._line(grown, level, name, colours=colours, symbol=symbol)
        self._buckets = buckets
        return found

    def _jain(self) -> _Panel:
        windows = self.series.windows
        panel = _Panel("Jain's index (0 to 1)", range=(0, 1.04), references=[metrics.FAIR_JAIN])
        panel.note = f"fair from {metrics.FAIR_JAIN:g}, dashed; only where two or more flows are active"
        contested = np.where(windows.contested, windows.jain, np.nan)
        panel.traces = self._line(windows.centres_s, contested, "Jain's index", colours=["#000000", "#E6E6E6"])
        return panel

    def _mind(self) -> list[_Panel]:
        """Return the panels of the NDM algorithm's state that some flow recorded."""
        panels = []
        for name in ("entropy", "plasticity", "output"):
            column, label = f"ndm_{name}", f"{name} (‰)"
            if any(flow.has(column) and np.nanmax(np.abs(flow.values(column))) > 0 for flow in self.series.flows):
                panels.append(self._flow_columns(label, {column: 1.1}, "state of the NDM algorithm"))
                panels[-1].height = 110
        return panels

    def _events(self) -> _Panel:
        """Return the lanes of events, one for each source that said something while the run was measured."""
        events = self.series.run.events
        rows = [row for row in events.iter_rows(named=True) if 0 <= row["t_s"] <= (self.series.end_s or 1.0)]
        sources = sorted({row["source"] for row in rows})
        panel = _Panel("", height=40 + 28 * max(1, len(sources)), ticks=sources, from_zero=False)
        panel.range = (-0.6, max(0.4, len(sources) - 0.4))
        panel.note = "" if rows else "no event while the run was measured"
        for lane, source in enumerate(sources):
            own = [row for row in rows if row["source"] == source][:5000]
            t_s = np.array([row["t_s"] for row in own])
            texts = [
                escape(" ".join(filter(None, [f"{row['t_s']:.3f} s", row["kind"], row["subject"], row["detail"]])))
                for row in own
            ]
            look: dict[str, Any] = {"colours": list(GREY), "symbol": "diamond-open", "text": texts, "flow": None}
            look |= {"name": source, "dash": "solid", "width": 1, "opacity": 1}
            panel.traces.append(look | {"x": self._array(t_s), "y": self._array(np.full(t_s.size, float(lane)))})
        return panel


# --- several runs ----------------------------------------------------------------------------------------------------


def _comparison_sections(groups: Sequence[Group]) -> list[str]:
    """Return what the groups of repeats say together: a picture, the difference of two, and each one's means."""
    repeats = [summarise_repeats(group.runs) for group in groups]
    sections = [
        "<section><h2>Means and 95 % intervals</h2>",
        '<div data-comparison="comparison" role="img" aria-label="Means with intervals"></div>',
        _embedded("comparison", _comparison_content(groups, repeats)),
    ]
    if len(groups) == 2:
        found = compare(groups[0].runs, groups[1].runs)
        sections.append(f"<h2>B - A</h2>{_difference_table(groups, found)}")
    for group, summary in zip(groups, repeats, strict=True):
        sections.append(f"<h2>{escape(group.label)}</h2>{_repeats_table(summary)}")
    return [*sections, "</section><h2>The runs</h2>"]


def _comparison_content(groups: Sequence[Group], repeats: Sequence[RepeatSummary]) -> dict[str, Any]:
    ccas = list(dict.fromkeys(name for summary in repeats for name in summary.estimates if name != "overall"))
    panels = [
        {"label": label, "groups": [_points(summary, ccas, name) for summary in repeats]} for name, label in COMPARED
    ]
    panels += [
        {"label": label, "groups": [_points(summary, ["overall"], name) for summary in repeats]}
        for name, label in COMPARED_OVERALL
    ]
    colours = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", *(look[0] for look in OTHER_LOOKS)]
    chosen = [colours[index % len(colours)] for index in range(len(groups))]
    return {
        "groups": [f"{group.label} (n = {summary.n})" for group, summary in zip(groups, repeats, strict=True)],
        "colours": [[colour, lightened(colour)] for colour in chosen],
        "symbols": [GROUP_SYMBOLS[index % len(GROUP_SYMBOLS)] for index in range(len(groups))],
        "panels": panels,
    }


def _points(summary: RepeatSummary, names: Sequence[str], measure: str) -> dict[str, list[Any]]:
    """Return mean and interval of one measure of each group or congestion control that has it, in its unit."""
    factor = MEASURES[measure][2]
    found = [(name, summary.estimates.get(name, {}).get(measure)) for name in names]
    known = [(name, interval) for name, interval in found if interval is not None]
    return {
        "names": [name for name, _ in known],
        "means": [factor * interval.mean for _, interval in known],
        "above": [factor * _reach(interval, interval.high) for _, interval in known],
        "below": [factor * _reach(interval, interval.low) for _, interval in known],
    }


def _reach(interval: Interval, bound: float | None) -> float:
    return 0.0 if bound is None else abs(bound - interval.mean)


def _repeats_table(summary: RepeatSummary) -> str:
    rows = [
        [group, MEASURES[name][0], MEASURES[name][1], *interval_cells(interval, name)]
        for group, measures in summary.estimates.items()
        for name, interval in measures.items()
    ]
    table = _table(["of", "measure", "unit", "mean", "95 % interval", "runs"], rows, words=(0, 1, 2))
    notes = [*missing_lines(summary.reasons), *(f"Note: {note}" for note in summary.notes)]
    pairs = _differences("b - a", summary.differences, ("pair a, b", "a", "b"))
    return table + pairs + "".join(map(_faint, notes))


def _difference_table(groups: Sequence[Group], found: Comparison) -> str:
    which = _faint(f"A: {groups[0].label}. B: {groups[1].label}.")
    table = _differences("B - A", found.differences, ("of", "A", "B"))
    return which + table + "".join(_faint(f"Note: {note}") for note in found.notes)


def _differences(name: str, found: Mapping[str, Mapping[str, Difference]], names: tuple[str, str, str]) -> str:
    rows = [
        [group, *difference_cells(each, measure)]
        for group, measures in found.items()
        for measure, each in measures.items()
    ]
    of, first, second = names
    headers = [of, "measure", "unit", first, second, name, "95 % interval", "Cliff's delta", "p\nrank test"]
    return _table(headers, rows, words=(0, 1, 2))
