"""`python -m analysis`: recorded runs as tables, figures, a page, other formats; compared, and run again."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from analysis.differences import changed_environment
from analysis.groups import group_runs
from analysis.harm import harm_summary
from analysis.repeats import compare, summarise_repeats
from analysis.summary import summarise
from analysis.tables import comparison_table, harm_table, repeats_table, summary_table
from lab.commandline import run_app
from lab.record import INFO_FILE, Run
from topologies.errors import FairbedError, UsageError

app = typer.Typer(
    name="analysis", help="Metrics and figures of recorded runs.", no_args_is_help=True, add_completion=False
)

Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directories, or directories of runs.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@app.command("summary")
def summary_command(runs: Runs, as_json: Json = False) -> None:
    """Print the tables of each run, and mean and interval over repeats."""
    opened = _open_all(runs)
    summaries = [summarise(run) for run in opened]
    repeats = [summarise_repeats(group.runs) for group in group_runs(opened) if len(group.runs) > 1]
    if as_json:
        content = {
            "runs": [each.as_dict() for each in summaries],
            "repeats": [each.as_dict() for each in repeats],
        }
        print(json.dumps(content, indent=2, allow_nan=False))
        return
    for table in [*map(summary_table, summaries), *map(repeats_table, repeats)]:
        _console().print(table, end="\n\n")


@app.command("plot")
def plot_command(
    runs: Runs,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Where to; RUN/figures when not given."),
    ] = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Write PDF too.")] = False,
) -> None:
    """Draw each run's figures, and of several runs what they say together, as PNG and SVG; print the paths."""
    from analysis.drawing import FORMATS  # matplotlib takes half a second to import
    from analysis.figures import save_all
    from analysis.group_figures import save_group_figures

    opened = _open_all(runs)
    formats = (*FORMATS, "pdf") if pdf else FORMATS
    for run, name in zip(opened, _names(opened), strict=True):
        own = run.path / "figures" if output is None else output if len(opened) == 1 else output / name
        _print_paths(save_all(run, own, formats))
    if len(opened) > 1:
        together = Path(os.path.commonpath([run.path.resolve().parent for run in opened])) / "figures"
        _print_paths(save_group_figures(opened, output or together, formats))


@app.command("report")
def report_command(
    runs: Runs,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
) -> None:
    """Write one HTML file that shows the runs, with no network needed, and print its path."""
    from analysis.report import write_report

    print(write_report(_open_all(runs), output))


@app.command("explain")
def explain_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")], as_json: Json = False
) -> None:
    """Print what each link was asked to be, beside what the kernel said it was; mark what differs."""
    from analysis.settings import settings, settings_table

    found = settings(Run.open(run))
    if as_json:
        print(json.dumps([one._asdict() | {"differs": one.differs} for one in found], indent=2))
        return
    _console().print(settings_table(found))
    print(f"{sum(one.differs for one in found)} of {len(found)} values differ from what was asked for")


@app.command("digest")
def digest_command(runs: Runs) -> None:
    """Print one hash per run over its data: the same for the same data, whatever the machine."""
    for run in _open_all(runs):
        print(f"{run.digest()}  {run.path}")


@app.command("compare")
def compare_command(
    a: Annotated[Path, typer.Argument(metavar="A", help="A run, or a directory of repeats.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another.")],
    as_json: Json = False,
) -> None:
    """Print how B differs from A: differences with their interval, effect size and p-value."""
    comparison = compare(_open_all([a]), _open_all([b]))
    if as_json:
        print(json.dumps(comparison.as_dict(), indent=2, allow_nan=False))
        return
    _console().print(comparison_table(comparison))


@app.command("export")
def export_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    csv: Annotated[bool, typer.Option("--csv", help="The three tables as CSV.")] = False,
    flent: Annotated[bool, typer.Option("--flent", help="The goodputs as Flent's data file (tcp_nup).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything in one JSON file.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Where to; RUN/export when not given."),
    ] = None,
) -> None:
    """Write a run in formats that other programs read, and print the paths."""
    from analysis.export import export_run

    wanted = [form for form, asked in (("csv", csv), ("flent", flent), ("json", as_json)) if asked]
    if not wanted:
        raise UsageError("say what to export: --csv, --flent, --json, or several of them")
    opened = Run.open(run)
    for form in wanted:
        _print_paths(export_run(opened, form, output))


@app.command("harm")
def harm_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run in which algorithms compete.")],
    baselines: Annotated[
        list[Path],
        typer.Argument(metavar="BASELINE", help="Runs of one flow alone, or of all on one algorithm."),
    ],
    as_json: Json = False,
) -> None:
    """Print what the flows of a run do to each other, held against baseline runs."""
    found = harm_summary(Run.open(run), _open_all(baselines))
    if as_json:
        print(json.dumps(found.as_dict(), indent=2, allow_nan=False))
        return
    _console().print(harm_table(found))


@app.command("replay")
def replay_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Directory of the new run; RUN-replay when not given."),
    ] = None,
) -> None:
    """Run the recorded scenario with the recorded seed again; say whether the record is identical, or what differs."""
    from analysis.replay import replay

    opened = Run.open(run)
    again, difference = replay(opened, output)
    print(f"replay   {again.path}")
    if difference is not None:
        changed = "; ".join(changed_environment(opened, again)) or "nothing"
        raise FairbedError(f"the records differ, first in {difference}. What changed around the run: {changed}")
    print(f"identical {again.digest()}")


def _names(runs: Sequence[Run]) -> list[str]:
    """Return a name for each run that no other has: its directory's, with the one above where that isn't enough."""
    names = [run.name for run in runs]
    above = [f"{run.path.resolve().parent.name}-{run.name}" for run in runs]
    for found in (names, above):
        if len(set(found)) == len(found):
            return found
    return [f"{number}-{name}" for number, name in enumerate(names, 1)]


def _print_paths(paths: Sequence[Path]) -> None:
    for path in paths:
        print(path)


def _open_all(paths: Sequence[Path]) -> list[Run]:
    """Return the runs at the paths; a directory that holds runs stands for them, in order of their names."""
    return [Run.open(run) for path in paths for run in _run_directories(path)]


def _run_directories(path: Path) -> list[Path]:
    if (path / INFO_FILE).exists() or not path.is_dir():
        return [path]
    return sorted(info.parent for info in path.glob(f"*/{INFO_FILE}")) or [path]


def _console() -> Console:
    """Return a console that is wide enough for the tables when there is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; what goes wrong is one line on stderr."""
    return run_app(app, "python -m analysis", arguments)


if __name__ == "__main__":
    sys.exit(main())
