"""``python -m experiments.articles``: run what the articles ran, and what they should have, and judge their claims."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from experiments import options as opt
from experiments.articles.carry_out import COMPLETE, Store, carry_out, digest
from experiments.articles.measures import Result
from experiments.articles.trials import TESTS, Job, chosen_tests, jobs_of, trials_of
from experiments.session import RUNS
from lab.commandline import run_app
from topologies.errors import FairbedError

if TYPE_CHECKING:
    from experiments.articles.verdicts import Control, Verdict

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Tests = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TEST]…", help=f"What to run: {', '.join(TESTS)}. Without, all of it.", show_default=False),
]
Out = Annotated[Path, typer.Option(help="Directory of the results; those that are there are not made again.")]
Report = Annotated[Path | None, typer.Option(help="Write one HTML page.", metavar="FILE", show_default=False)]
Page = Annotated[
    Path | None,
    typer.Option(help="Write the summary in Markdown, figures beside it.", metavar="FILE", show_default=False),
]
PROCESSORS = len(os.sched_getaffinity(0))
Jobs = Annotated[int, typer.Option(min=1, help="Runs side by side.")]


@app.command(help="Test the claims of four articles on NDM-TCP: as published, and as it should be.")
def articles(
    tests: Tests = None,
    repeats: Annotated[int, typer.Option(min=1, help="Seeds of each run: SEED, SEED + 1, …; 20 are needed.")] = 20,
    seed: opt.Seed = 1,
    jobs: Jobs = PROCESSORS,
    out: Out = RUNS / "articles",
    report: Report = None,
    page: Page = None,
    as_json: opt.Json = False,
) -> None:
    """Run the experiment."""
    from experiments.articles.page import summary_tables, write_markdown, write_page
    from experiments.articles.verdicts import controls, verdicts

    chosen = chosen_tests(tests or ())
    store, todo = Store(out), jobs_of(trials_of(chosen), seed, repeats)
    _run(todo, store, jobs)
    results = [result for job in todo if (result := store.load(job)) is not None]
    found, checks = verdicts(results, chosen), controls(results)
    if as_json:
        print(json.dumps(_plain(results, found, checks), indent=1, allow_nan=False))
    else:
        _show(summary_tables(found, checks), results, out)
    if report is not None:
        print(f"report   {write_page(report, results, found, checks)}", file=sys.stderr if as_json else sys.stdout)
    if page is not None:
        print(f"page     {write_markdown(page, results, found, checks)}", file=sys.stderr if as_json else sys.stdout)
    if wrong := [check.said for check in checks if check.right is False]:
        raise FairbedError(f"a control came out wrong, so nothing here can be trusted: {'; '.join(wrong)}")


def _run(jobs: Sequence[Job], store: Store, side_by_side: int) -> None:
    """Run what is missing, with progress on standard error."""
    console = Console(stderr=True)
    done = sum(store.load(job) is not None for job in jobs)
    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, disable=not console.is_terminal,
    )  # fmt: skip
    with bars:
        bar = bars.add_task("runs", total=len(jobs), completed=done)

        def tell(job: Job, result: Result) -> None:
            bars.update(bar, advance=1, description=job.trial.name)
            if result["status"] != COMPLETE:
                console.print(
                    f"{job.trial.name}, {job.variant}, seed {job.seed}: {result['status']}: {result['error']}"
                )

        carry_out(jobs, store, side_by_side, tell)


def _show(tables: Sequence[Table], results: Sequence[Result], out: Path) -> None:
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    for table in tables:
        console.print(table)
    ended = [result for result in results if result["status"] != COMPLETE]
    console.print(
        f"runs     {len(results)}, of which {len(ended)} did not end as they should; in {out}", soft_wrap=True
    )
    console.print(f"digest   {digest(results)} (of what ran on the virtual clock)")


def _plain(results: Sequence[Result], found: Sequence[Verdict], checks: Sequence[Control]) -> dict[str, object]:
    return {
        "verdicts": [verdict.as_dict() for verdict in found],
        "controls": [check._asdict() for check in checks],
        "not_complete": [
            {name: result[name] for name in ("trial", "variant", "seed", "status", "error")}
            for result in results
            if result["status"] != COMPLETE
        ],
        "digest": digest(results),
    }


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments.articles"))
