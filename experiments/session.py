"""What every experiment does with its scenarios: run them, show the tables, draw the figures."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from experiments.baselines import run_baselines
from lab.execute import CANCEL_S, Kernel, Where, choose, execute
from lab.guest import Clock
from lab.plan import make_plan
from lab.record import Run
from lab.scenario import Scenario
from topologies.errors import FairbedError, UsageError

J = TypeVar("J")
R = TypeVar("R")

RUNS = Path("runs")
FIGURES = "figures"


def chosen(option: str, value: str, choices: Sequence[str]) -> Any:
    """Return an option's value if it is one of the choices, or raise a UsageError that lists them."""
    if value not in choices:
        raise UsageError(f"--{option} {value!r} must be one of {', '.join(choices)}")
    return value


@dataclass(frozen=True)
class Session:
    """The options that say where an experiment runs and where its results go."""

    kernel: str
    clock: str | None
    framework: str
    memory_mb: int
    watchdog_s: float
    out: Path | None
    as_json: bool
    strict: bool
    explain: bool
    application: Path | None = None
    harm: bool = False

    def run(self, scenarios: Sequence[Scenario]) -> None:
        """Run the scenarios and show what came out: a table on standard output, progress on standard error.

        Raises
        ------
        FairbedError
            When a run failed; what was recorded is kept, and the message says where.
        """
        if not self.check(scenarios):
            return
        out = self.out or RUNS / f"{scenarios[0].name}-{datetime.now():%Y%m%d-%H%M%S}"
        several = len(scenarios) > 1
        if several and out.exists() and any(out.iterdir() if out.is_dir() else [out]):
            raise UsageError(f"{out} exists and is not empty: a run is never overwritten")
        runs = self.execute(scenarios, [out / f"seed{scenario.seed}" if several else out for scenario in scenarios])
        figures = [path for run in runs for path in draw(run)]
        if several:
            figures += draw_together(runs, out / FIGURES)
        baselines = [run_baselines(run, RUNS / "baselines", self.execute) for run in runs] if self.harm else []
        self._show(runs, figures, baselines)
        bad = [run for run in runs if run.verdict["status"] != "valid"]
        if self.strict and bad:
            raise FairbedError(f"--strict: {len(bad)} of {len(runs)} runs have a verdict other than valid")

    def _where(self) -> Where:
        return Where(
            chosen("kernel", self.kernel, get_args(Kernel)),
            None if self.clock is None else chosen("clock", self.clock, get_args(Clock)),
            self.memory_mb,
            chosen("framework", self.framework, ("ryu", "os-ken")),
            self.watchdog_s,
            self.application,
        )

    def check(self, scenarios: Sequence[Scenario]) -> bool:
        """Raise what is wrong with any scenario, before anything starts; say whether they are to be run."""
        plans = [make_plan(scenario) for scenario in scenarios]
        if self.explain:
            print(json.dumps(plans[0], indent=1))
        return not self.explain

    def execute(self, scenarios: Sequence[Scenario], places: Sequence[Path]) -> list[Run]:
        """Run every scenario, several side by side where the clock is virtual; in order of the scenarios."""
        where = self._where()
        kernel, clock, _ = choose(where, {flow.cca for scenario in scenarios for flow in scenario.flows})
        side_by_side = len(os.sched_getaffinity(0)) if (kernel, clock) == ("lab", "virtual") else 1
        jobs = list(zip(range(len(scenarios)), scenarios, places, strict=True))
        random.Random(scenarios[0].seed).shuffle(jobs)  # noqa: S311 - order only
        cancelled = threading.Event()
        with _progress(len(jobs)) as follow:

            def one(job: tuple[int, Scenario, Path]) -> tuple[int, Run]:
                index, scenario, place = job
                return index, execute(scenario, place, where, follow(scenario), cancelled)

            done = dict(at_once(one, jobs, side_by_side, cancelled))
        return [done[index] for index in range(len(scenarios))]

    def _show(self, runs: Sequence[Run], figures: Sequence[Path], baselines: Sequence[Sequence[Run]]) -> None:
        from analysis import harm_summary, harm_table, repeats_table, summarise, summarise_repeats, summary_table

        summaries = [summarise(run) for run in runs]
        harms = [harm_summary(run, solo) for run, solo in zip(runs, baselines, strict=False)]
        repeats = summarise_repeats(runs) if len(runs) > 1 else None
        if self.as_json:
            content: dict[str, Any] = {"runs": [summary.as_dict() for summary in summaries]}
            if repeats:
                content["repeats"] = repeats.as_dict()
            if harms:
                content["harm"] = [harm.as_dict() for harm in harms]
            print(json.dumps(content, indent=2, allow_nan=False))
            return
        console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
        console.print(repeats_table(repeats) if repeats else summary_table(summaries[0]))
        for harm in harms:
            console.print(harm_table(harm))
        for run in runs:
            reasons = "".join(f"\n         {reason}" for reason in run.verdict["reasons"] if repeats)
            console.print(f"run      {run.path} ({run.verdict['status']}){reasons}", soft_wrap=True)
        for path in figures:
            if path.suffix == ".png":
                console.print(f"figure   {path} (and .svg)", soft_wrap=True)


def at_once(work: Callable[[J], R], jobs: Sequence[J], count: int, cancelled: threading.Event) -> list[R]:
    """Return what `work` makes of each job, so many side by side; one failure, or Ctrl-C, cancels them all."""
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(work, job) for job in jobs]
        try:
            # In slices: polars restarts system calls after Ctrl-C, so a longer wait would not see it.
            while waiting := wait(futures, CANCEL_S).not_done:
                for finished in set(futures) - waiting:
                    finished.result()  # raises what went wrong
            return [future.result() for future in futures]
        except BaseException:
            cancelled.set()
            pool.shutdown(cancel_futures=True)
            raise


def draw(run: Run) -> list[Path]:
    """Draw a run's figures into its directory and return their paths."""
    from analysis.figures import save_all

    return save_all(run, run.path / FIGURES)


def draw_together(runs: Sequence[Run], directory: Path) -> list[Path]:
    """Draw what several runs say together and return the figures' paths."""
    from analysis.group_figures import save_group_figures

    return save_group_figures(runs, directory)


@contextmanager
def _progress(count: int) -> Iterator[Callable[[Scenario], Callable[[Mapping[str, Any]], None]]]:
    """Show each run's progress on standard error; gives the function that follows one scenario's run."""
    console = Console(stderr=True)
    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn(),
        console=console, disable=not console.is_terminal,
    )  # fmt: skip

    def follow(scenario: Scenario) -> Callable[[Mapping[str, Any]], None]:
        task = bars.add_task(f"seed {scenario.seed}", total=scenario.duration_s, state="starting")

        def hear(message: Mapping[str, Any]) -> None:
            _update(bars, task, console, scenario, message)

        return hear

    with bars:
        yield follow


def _update(bars: Progress, task: TaskID, console: Console, scenario: Scenario, message: Mapping[str, Any]) -> None:
    if "t_s" in message:
        bars.update(task, completed=message["t_s"], state=f"{message['t_s']:.0f} of {scenario.duration_s:g} s")
    elif "phase" in message:
        bars.update(task, state=message["phase"])
    elif "nodes" in message:
        bars.update(task, state=f"network, {message['nodes']} of {message['of']} nodes")
    elif "where" in message:
        where = f"{message['where']} kernel, {message['clock']} clock"
        console.print(f"seed {scenario.seed}: {where} ({message['why']})", soft_wrap=True)
    elif "done" in message:
        bars.update(task, completed=scenario.duration_s, state="done")
