"""The same flows and seeds under each queue policy: ``python -m experiments.queues``."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments import options as opt
from experiments.markdown import markdown_table
from experiments.session import RUNS, Session
from lab.commandline import run_app
from lab.scenario import make_flows, make_scenario, parse_flows
from topologies.errors import FairbedError, UsageError
from topologies.units import parse_buffer, parse_rate_mbit, parse_time_ms, parse_time_s

if TYPE_CHECKING:
    from analysis.statistics import Interval
    from lab.record import Run

app = typer.Typer(add_completion=False, rich_markup_mode=None)

POLICIES = (
    "shared",
    "per_cca",
    "per_flow",
    "weighted:ndm_tcp=2",
    "priority:ndm_tcp",
    "isolate:ndm_tcp",
    "police",
    "adaptive",
)
COLUMNS = {
    # measure: (header, factor, decimals)
    "jain": ("Jain, lifetime", 1.0, 3),
    "jain_windowed_mean": ("Jain, windowed", 1.0, 3),
    "utilisation": ("utilisation %", 100.0, 1),
    "delay_p50_ms": ("delay p50 ms", 1.0, 1),
    "delay_p95_ms": ("delay p95 ms", 1.0, 1),
    "retransmission_rate": ("retrans. %", 100.0, 2),
}
DRAWN = ("jain_windowed_mean", "utilisation", "delay_p50_ms", "retransmission_rate")
DRAWN_WORDS = ("Jain's index, windowed", "utilisation (%)", "queueing delay, p50 (ms)", "retransmitted (% of segments)")
SHARE = "share of "

Values = Mapping[str, Mapping[str, "Interval | None"]]
"""Policy -> measure -> mean over the seeds with its interval."""

Policies = Annotated[
    list[str] | None,
    typer.Option("--queues", help="A policy to compare. May be given again; without, one of each.", metavar="POLICY"),
]


@app.command(help="Run the same flows and seeds under each queue policy and compare them.")
def queues(
    policies: Policies = None,
    flows: opt.Flows = "ndm_tcp:1,cubic:1,reno:1,bbr:1",
    rate: opt.Rate = "20mbit",
    rtt: opt.Rtt = "40ms",
    buffer: opt.Buffer = "1bdp",
    aqm: opt.Aqm = "fifo",
    duration: opt.Duration = "60s",
    warmup: opt.Warmup = "10s",
    start_gap: opt.StartGap = "0s",
    repeats: opt.Repeats = 3,
    seed: opt.Seed = 1,
    kernel: opt.Kernel = "auto",
    clock: opt.ClockOption = None,
    framework: opt.Framework = "ryu",
    memory: opt.Memory = 1024,
    watchdog: opt.Watchdog = opt.DEFAULT_WATCHDOG_S,
    out: opt.Out = None,
    json: opt.Json = False,
    strict: opt.Strict = False,
    explain: opt.Explain = False,
) -> None:
    """Run the experiment."""
    out = out or RUNS / f"queues-{datetime.now():%Y%m%d-%H%M%S}"
    session = Session(kernel, clock, framework, memory, watchdog, out, json, strict, explain)
    ccas = parse_flows(flows)
    parse_buffer(buffer)
    names = _names(policies, ccas)
    scenarios = [
        make_scenario(
            name="queues",
            topology="dumbbell",
            params={
                "pairs": len(ccas),
                "rate_mbit": parse_rate_mbit(rate),
                "rtt_ms": parse_time_ms(rtt),
                "buffer": buffer,
            },
            aqm=aqm,
            queues=policy,
            flows=make_flows(ccas, parse_time_s(start_gap)),
            duration_s=parse_time_s(duration),
            warmup_s=parse_time_s(warmup),
            seed=seed + index,
        )
        for policy in names
        for index in range(repeats)
    ]
    if session.check(scenarios):
        runs = session.execute(scenarios, [out / _folder(each.queues) / f"seed{each.seed}" for each in scenarios])
        _show(out, _by_policy(names, runs), json, strict)


def _names(policies: Sequence[str] | None, ccas: Sequence[str]) -> list[str]:
    """Return the policies to compare: those asked for, or all of `POLICIES` that name no other algorithm."""
    if policies:
        repeated = {policy for policy in policies if list(policies).count(policy) > 1}
        if repeated:
            raise UsageError(f"--queues {sorted(repeated)[0]} is given twice")
        return list(policies)
    return [policy for policy in POLICIES if "ndm_tcp" in ccas or "ndm_tcp" not in policy]


def _folder(policy: str) -> str:
    """Return a policy's directory name."""
    return policy.replace(":", "-").replace("=", "").replace(",", "-")


def _by_policy(names: Sequence[str], runs: Sequence[Run]) -> dict[str, list[Run]]:
    return {name: [run for run in runs if run.scenario["queues"] == name] for name in names}


def _show(out: Path, runs: Mapping[str, Sequence[Run]], as_json: bool, strict: bool) -> None:
    """Write table and figure beside the runs, and print the table."""
    values = {policy: _measures(group) for policy, group in runs.items()}
    header, rows = _table(values)
    (out / "comparison.md").write_text(_markdown(header, rows))
    figures = _draw(values, runs, out / "figures")
    bad = [run for group in runs.values() for run in group if run.verdict["status"] != "valid"]
    if as_json:
        content = {policy: {name: _plain(value) for name, value in own.items()} for policy, own in values.items()}
        print(json_module.dumps(content, indent=2, allow_nan=False))
    else:
        _print(header, rows)
        for run in bad:
            print(f"{run.path}: verdict {run.verdict['status']}: {'; '.join(run.verdict['reasons'])}")
        print(f"runs     {out}\ntable    {out / 'comparison.md'}\nfigure   {figures[0]} (and .svg)")
    if strict and bad:
        raise FairbedError(f"--strict: {len(bad)} runs have a verdict other than valid")


def _measures(runs: Sequence[Run]) -> dict[str, Interval | None]:
    """Return each measure's mean over the runs, with its interval; None where a run doesn't have it."""
    import numpy as np

    from analysis import summarise
    from analysis.statistics import mean_interval

    found: dict[str, list[float | None]] = {}
    for summary in map(summarise, runs):
        (queue,) = summary.queues
        known = {name: getattr(summary, name, None) for name in ("jain", "jain_windowed_mean", "utilisation")}
        known |= {name: getattr(queue, name) for name in ("delay_p50_ms", "delay_p95_ms")}
        known["retransmission_rate"] = _mean([flow.retransmission_rate for flow in summary.flows])
        for cca in dict.fromkeys(flow.cca for flow in summary.flows):
            shares = [flow.share for flow in summary.flows if flow.cca == cca]
            mean = _mean(shares)
            known[SHARE + cca] = None if mean is None else mean * len(shares)
        for name, value in known.items():
            found.setdefault(name, []).append(value)
    rng = np.random.default_rng(0)
    return {
        name: None if None in values else mean_interval([value for value in values if value is not None], rng)
        for name, values in found.items()
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _table(values: Values) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows, a policy each: means, with half the interval's width where there is one."""
    shares = [name for name in next(iter(values.values())) if name.startswith(SHARE)]
    columns = COLUMNS | {name: (f"{name.removeprefix(SHARE)} %", 100.0, 1) for name in shares}
    rows = [
        [policy, *(_cell(own[name], factor, decimals) for name, (_, factor, decimals) in columns.items())]
        for policy, own in values.items()
    ]
    return ["policy", *(header for header, _, _ in columns.values())], rows


def _cell(value: Interval | None, factor: float, decimals: int) -> str:
    if value is None:
        return "–"
    text = f"{value.mean * factor:.{decimals}f}"
    if value.low is None or value.high is None or value.n < 2:
        return text
    return f"{text} ± {(value.high - value.low) / 2 * factor:.{decimals}f}"


def _plain(value: Interval | None) -> dict[str, Any] | None:
    return None if value is None else {"mean": value.mean, "low": value.low, "high": value.high, "n": value.n}


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown_table(header, rows, words=1)


def _print(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 200, highlight=False).print(table)


def _draw(values: Values, runs: Mapping[str, Sequence[Run]], directory: Path) -> list[Path]:
    """Draw a panel for each measure, the policies below one another, a dot with its interval for each."""
    from analysis.drawing import new_figure, save_figures

    figure = new_figure(1.6 + 0.32 * len(values))
    panels = figure.subplots(1, len(DRAWN), sharey=True)
    for axes, measure, words in zip(panels, DRAWN, DRAWN_WORDS, strict=True):
        factor = COLUMNS[measure][1]
        for row, own in enumerate(values.values()):
            _draw_value(axes, row, own[measure], factor)
        axes.set_xlabel(words, fontsize="small")
        axes.grid(axis="x", alpha=0.3)
        axes.margins(x=0.15)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(values)), list(values))
    panels[0].invert_yaxis()
    count = min(map(len, runs.values()))
    seeds = f"{count} seeds, mean and 95 % interval" if count > 1 else "one seed"
    figure.suptitle(f"{_flows_words(runs)}: the same flows under each queue policy, {seeds}", fontsize="medium")
    return save_figures({"comparison": figure}, directory)


def _draw_value(axes: Any, row: int, value: Interval | None, factor: float) -> None:
    if value is None:
        return
    if value.low is not None and value.high is not None:
        axes.plot([value.low * factor, value.high * factor], [row, row], color="#7F7F7F", linewidth=3, alpha=0.6)
    axes.plot([value.mean * factor], [row], marker="o", color="#0072B2", markersize=6)


def _flows_words(runs: Mapping[str, Sequence[Run]]) -> str:
    """Return the flows and the link in short: "cubic, bbr on 20 Mbit/s"."""
    scenario = next(iter(runs.values()))[0].scenario
    ccas = ", ".join(dict.fromkeys(flow["cca"] for flow in scenario["flows"]))
    return f"{ccas} on {scenario['params']['rate_mbit']:g} Mbit/s"


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments.queues"))
