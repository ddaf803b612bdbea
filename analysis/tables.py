"""Tables for the terminal: units in the headers, and under each table why a value is missing."""

from collections.abc import Iterable, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.harm import HarmSummary
from analysis.repeats import Comparison, Difference, RepeatSummary
from analysis.statistics import Interval
from analysis.summary import UNSIZED, FlowSummary, QueueSummary, Summary

__all__ = ["comparison_table", "harm_table", "repeats_table", "summary_table"]

MISSING = "–"
VERDICT_STYLES = {"valid": "green", "suspect": "yellow", "invalid": "bold red"}

# field: (label, unit, factor, decimals)
Column = tuple[str, str, float, int]
FLOW_COLUMNS: dict[str, Column] = {
    "goodput_mbit": ("goodput", "Mbit/s", 1, 2),
    "share": ("share", "%", 100, 1),
    "retransmission_rate": ("retrans.", "% segments", 100, 3),
    "retransmission_rate_bytes": ("retrans.", "% bytes", 100, 3),
    "rtt_inflation_p50_ms": ("RTT infl. p50", "ms", 1, 1),
    "rtt_inflation_p95_ms": ("RTT infl. p95", "ms", 1, 1),
}
COMPLETION: dict[str, Column] = {"completion_time_s": ("completed after", "s", 1, 2)}
QUEUE_COLUMNS: dict[str, Column] = {
    "utilisation": ("utilis.", "%", 100, 1),
    "delay_p50_ms": ("delay p50", "ms", 1, 1),
    "delay_p95_ms": ("delay p95", "ms", 1, 1),
    "delay_p99_ms": ("delay p99", "ms", 1, 1),
    "delay_max_ms": ("delay max", "ms", 1, 1),
    "drops": ("drops", "packets", 1, 0),
    "drops_warmup": ("warm-up drops", "packets", 1, 0),
}
SOJOURN_COLUMNS: dict[str, Column] = {
    "sojourn_p50_ms": ("sojourn p50", "ms", 1, 1),
    "sojourn_p95_ms": ("sojourn p95", "ms", 1, 1),
    "sojourn_p99_ms": ("sojourn p99", "ms", 1, 1),
}
"""For queues whose AQM has the figure."""
HARM_COLUMNS: dict[str, Column] = {
    "solo_goodput_mbit": ("goodput alone", "Mbit/s", 1, 2),
    "contested_goodput_mbit": ("goodput in the mix", "Mbit/s", 1, 2),
    "goodput": ("harm to goodput", "0 to 1", 1, 3),
    "retransmissions": ("harm to retrans.", "0 to 1", 1, 3),
    "delay": ("harm to RTT p50", "0 to 1", 1, 3),
}
OVERALL_ROWS: dict[str, Column] = {
    "goodput_mbit": ("goodput, sum", "Mbit/s", 1, 2),
    "jain": ("Jain's index, lifetime", "", 1, 3),
    "jain_windowed_mean": ("Jain's index, windowed, mean", "", 1, 3),
    "jain_windowed_min": ("Jain's index, windowed, smallest", "", 1, 3),
    "jain_normalised": ("Jain's index, of goodput ÷ fair share", "", 1, 3),
    "epsilon_fairness": ("smallest ÷ largest goodput", "", 1, 3),
    "convergence_time_s": ("converged after", "s", 1, 1),
}
RTT_ROWS: dict[str, Column] = {
    "rtt_goodput_ratio": ("goodput at the shortest RTT ÷ at the longest", "", 1, 3),
    "rtt_ratio": ("longest base RTT ÷ shortest", "", 1, 2),
}
MEASURES: dict[str, Column] = {
    **OVERALL_ROWS,
    **RTT_ROWS,
    **FLOW_COLUMNS,
    **COMPLETION,
    "utilisation": ("utilisation", "%", 100, 1),
    "drops": ("drops", "packets", 1, 0),
    "queueing_delay_p50_ms": ("queueing delay p50", "ms", 1, 1),
    "queueing_delay_p95_ms": ("queueing delay p95", "ms", 1, 1),
    "queueing_delay_p99_ms": ("queueing delay p99", "ms", 1, 1),
}
SHOWN = {**QUEUE_COLUMNS, **MEASURES}


def summary_table(summary: Summary) -> RenderableType:
    """Return a run's tables: flows, the run as a whole, bottleneck queues, missing values, notes."""
    return Group(
        _heading(summary),
        *([_flow_table(summary.flows)] if summary.flows else []),
        *([_queue_table(summary.queues)] if summary.queues else []),
        _overall_table(summary),
        *_missing(summary.reasons),
        *_notes(summary.notes),
    )


def flow_columns(flows: Sequence[FlowSummary]) -> dict[str, Column]:
    """Return the columns of the flows' table: completion times only where a flow has one."""
    return FLOW_COLUMNS | (COMPLETION if any(flow.completion_time_s is not None for flow in flows) else {})


def overall_rows(summary: Summary) -> dict[str, Column]:
    """Return the rows of the run as a whole: RTT fairness only where the RTTs differ."""
    return OVERALL_ROWS | (RTT_ROWS if summary.rtt_ratio is not None else {})


def repeats_table(repeats: RepeatSummary) -> RenderableType:
    """Return the table of repeats: mean and interval of each measure, overall and per congestion control."""
    table = _table("of", "measure", "unit", "mean", "95 % interval", "runs")
    for group, measures in repeats.estimates.items():
        table.add_section()
        for name, interval in measures.items():
            label, unit, *_ = MEASURES[name]
            table.add_row(group, label, unit, *interval_cells(interval, name))
    pairs = _difference_table("b - a", repeats.differences, "pair a, b", "a", "b")
    return Group(
        _repeats_heading("", repeats),
        table,
        *([pairs] if repeats.differences else []),
        *_missing(repeats.reasons),
        *_notes(repeats.notes),
    )


def comparison_table(comparison: Comparison) -> RenderableType:
    """Return the table of two scenarios: both means, the difference with its interval, size and p-value."""
    table = _difference_table("B - A", comparison.differences, "of", "A", "B")
    headings = (_repeats_heading("A: ", comparison.a), _repeats_heading("B: ", comparison.b))
    return Group(*headings, table, *_notes(comparison.notes))


def _difference_table(
    name: str, differences: Mapping[str, Mapping[str, Difference]], of: str, first: str, second: str
) -> Table:
    """Return the rows of differences, grouped by what they are of."""
    table = _table(of, "measure", "unit", first, second, name, "95 % interval", "Cliff's delta", "p")
    for group, measures in differences.items():
        table.add_section()
        for measure, found in measures.items():
            table.add_row(group, *difference_cells(found, measure))
    return table


def difference_cells(found: Difference, name: str) -> list[str]:
    """Return label, unit, both means, the difference, its interval, effect size and p-value."""
    label, unit, *_ = MEASURES[name]
    means = [number(side.mean, name) for side in (found.a, found.b)]
    p_value = MISSING if found.p_value is None else f"{found.p_value:.3f}"
    mean, interval, _runs = interval_cells(found.difference, name)
    return [label, unit, *means, mean, interval, f"{found.cliffs_delta:+.2f}", p_value]


def harm_table(harm: HarmSummary) -> RenderableType:
    """Return the tables of harm to each flow and of the impact on each congestion control."""
    flows = _table("flow", *_headers(HARM_COLUMNS))
    for flow in harm.flows:
        flows.add_row(flow.flow_id, *cells(flow, HARM_COLUMNS))
    impact = _table("algorithm", "goodput in the mix\n÷ among its own")
    for cca, value in harm.impact.items():
        impact.add_row(cca, MISSING if value is None else f"{value:.3f}")
    fields: dict[str, list[str]] = {}
    for field, reason in harm.reasons.items():
        fields.setdefault(reason, []).append(field.removeprefix("flows.").replace(".", " "))
    missing = [Text(f"{MISSING} {', '.join(names)}: {reason}", style="dim") for reason, names in fields.items()]
    heading = Text(f"{harm.run}\n{harm.name or 'no scenario'}: harm, 0 (none) to 1", style="bold")
    return Group(heading, flows, *([impact] if harm.impact else []), *missing)


def _heading(summary: Summary) -> Text:
    """Return the lines that say which run this is and what it is worth."""
    text = Text(summary.run, style="bold")
    text.append(f"\n{summary.name or 'no scenario'}, seed {_or_missing(summary.seed)}, ", style="not bold")
    _append_verdict(text, summary.verdict, summary.verdict_reasons)
    text.append(f"\n{summary.outcome}", style="not bold" if summary.outcome == "complete" else "bold red")
    if summary.outcome_message:
        text.append(f": {summary.outcome_message}", style="not bold")
    text.append(
        f"; measured from {summary.start_s:g} s to {summary.end_s:g} s, windows of {summary.window_s:g} s",
        style="not bold",
    )
    return text


def _repeats_heading(prefix: str, repeats: RepeatSummary) -> Text:
    """Return the lines that say which runs these are, one per run."""
    count = f"{len(repeats.runs)} {'run' if len(repeats.runs) == 1 else 'runs'}"
    text = Text(f"{prefix}{repeats.name or 'no scenario'}, {count}", style="bold")
    for run, seed, verdict in zip(repeats.runs, repeats.seeds, repeats.verdicts, strict=True):
        text.append(f"\n  {run}, seed {_or_missing(seed)}, ", style="not bold")
        _append_verdict(text, verdict, ())
    return text


def _append_verdict(text: Text, verdict: str, reasons: Sequence[str]) -> None:
    text.append("verdict ", style="not bold")
    text.append(verdict, style=VERDICT_STYLES.get(verdict, "yellow"))
    if reasons:
        text.append(f": {'; '.join(reasons)}", style="not bold")


def _flow_table(flows: Sequence[FlowSummary]) -> Table:
    columns = flow_columns(flows)
    table = _table("flow", *_headers(columns))
    for flow in flows:
        table.add_row(flow.flow_id, *cells(flow, columns))
    return table


def _queue_table(queues: Sequence[QueueSummary]) -> Table:
    columns = queue_columns(queues)
    table = _table("bottleneck", *_headers(columns))
    for queue in queues:
        table.add_row(queue.queue_id, *cells(queue, columns))
    return table


def queue_columns(queues: Iterable[QueueSummary]) -> dict[str, Column]:
    """Return the columns of a table of queues: sojourn times only where an AQM has any."""
    told = any(queue.sojourn_p50_ms is not None for queue in queues)
    return QUEUE_COLUMNS | (SOJOURN_COLUMNS if told else {})


def _overall_table(summary: Summary) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_header=False)
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_column("unit")
    for field, (label, unit, _, _) in overall_rows(summary).items():
        value = getattr(summary, field)
        table.add_row(label, number(value, field), "" if value is None else unit)
    return table


def _table(first: str, *headers: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, overflow="fold")
    for header in headers:
        text = header in ("measure", "unit")
        table.add_column(header, justify="left" if text else "right", overflow="fold", vertical="bottom")
    return table


def _headers(columns: dict[str, Column]) -> list[str]:
    """Return headers of two or three short lines, so that a table fits a terminal of 80 columns."""
    return ["\n".join([*label.rsplit(" ", 1), unit]) for label, unit, _, _ in columns.values()]


def cells(row: object, columns: dict[str, Column]) -> list[str]:
    """Return a row's values, each in its column's unit and digits."""
    return [number(getattr(row, field), field, columns) for field in columns]


def number(value: float | None, field: str, columns: dict[str, Column] = MEASURES) -> str:
    """Return a value in its column's unit and digits."""
    _, _, factor, decimals = columns[field]
    # Adding 0.0 turns what rounds to -0.0 into 0.0.
    return MISSING if value is None else f"{round(value * factor, decimals) + 0.0:.{decimals}f}"


def interval_cells(interval: Interval | None, field: str) -> tuple[str, str, str]:
    """Return mean, interval and number of runs of an estimate."""
    if interval is None:
        return MISSING, MISSING, "0"
    bounds = MISSING
    if interval.low is not None and interval.high is not None:
        bounds = f"{number(interval.low, field)} .. {number(interval.high, field)}"
    return number(interval.mean, field), bounds, str(interval.n)


def _or_missing(value: object) -> str:
    return MISSING if value is None else str(value)


def missing_lines(reasons: dict[str, str]) -> list[str]:
    """Return one line per reason, with the fields that it explains."""
    fields: dict[str, list[str]] = {}
    for field, reason in reasons.items():
        name = field.rpartition(".")[2]
        if name not in SHOWN or name in RTT_ROWS or reason == UNSIZED:
            continue
        fields.setdefault(reason, []).append(_spoken(field))
    return [f"{MISSING} {', '.join(dict.fromkeys(names))}: {reason}" for reason, names in fields.items()]


def _missing(reasons: dict[str, str]) -> list[Text]:
    return [Text(line, style="dim") for line in missing_lines(reasons)]


def _spoken(field: str) -> str:
    """Return the key of a reason as the tables call it."""
    owner, _, name = field.rpartition(".")
    owner = owner.removeprefix("flows.").removeprefix("queues.")
    return f"{owner} {SHOWN[name][0]}".lstrip()


def _notes(notes: Sequence[str]) -> list[Text]:
    return [Text(f"Note: {note}", style="italic") for note in notes]
