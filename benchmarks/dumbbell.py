"""How fast the main job is: ``python -m benchmarks.dumbbell``.

Runs the main job and the same dumbbell in ns-3 in turn, several rounds, and prints medians: virtual seconds per
second of wall time while flows run, the wall time of every phase, of a second set-up, and the ratio to ns-3.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lab.commandline import run_app
from lab.kernels import CHECKOUT, cache_directory
from lab.record import Run
from topologies.errors import FairbedError

NS3_SCRIPT = CHECKOUT / "benchmarks" / "ns3_dumbbell.py"
START_AND_STOP = ("boot", "network", "controller", "calibration", "stop")

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def ns3_python() -> Path | None:
    """Return the interpreter of an environment with ns-3, made on first use; None where there is no wheel of it."""
    environment = cache_directory() / "ns3"
    python = environment / "bin" / "python"
    if not (environment / "complete").exists():
        print("installing ns-3 for the comparison (two minutes, once)", file=sys.stderr)
        subprocess.run(["/usr/bin/python3", "-m", "venv", str(environment)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "ns3"]
        if subprocess.run(pip, check=False).returncode:
            return None
        (environment / "complete").touch()
    return python


def main_job(duration_s: float, place: Path) -> dict[str, float]:
    """Run the main job and return the wall time of every phase, in s, and of the whole command."""
    argv = [sys.executable, "-m", "experiments.dumbbell", "--kernel", "lab", "--duration", f"{duration_s}s"]
    before = os.times().elapsed
    done = subprocess.run([*argv, "--out", str(place), "--json"], cwd=CHECKOUT, capture_output=True, text=True)
    whole = os.times().elapsed - before
    if done.returncode:
        raise FairbedError(f"the main job failed: {done.stderr.strip()}")
    phases: dict[str, float] = Run.open(place).outcome["wall_s"]
    return phases | {"whole command": whole}


def set_up_again() -> float:
    """Return how long set-up takes where everything is set up, in s."""
    before = os.times().elapsed
    subprocess.run([CHECKOUT / "lab" / "setup.sh"], capture_output=True, check=True)
    return os.times().elapsed - before


def ns3(python: Path, duration_s: float) -> dict[str, Any]:
    """Run the dumbbell in ns-3, on one CPU as the guest is, and return its wall times in s and its goodputs."""
    argv = ["taskset", "-c", str(max(os.sched_getaffinity(0))), str(python), str(NS3_SCRIPT), str(duration_s)]
    done = subprocess.run(argv, cwd=python.parent, capture_output=True, text=True)
    if done.returncode:
        raise FairbedError(f"ns-3 failed: {done.stderr.strip().splitlines()[-1:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each measure over rounds."""
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


@app.command()
def benchmark(
    duration: Annotated[float, typer.Option(help="Virtual seconds.")] = 60.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; medians are reported.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    with_ns3: Annotated[bool, typer.Option("--ns3/--no-ns3", help="Compare with ns-3.")] = True,
) -> None:
    """Measure the main job, and ns-3 beside it."""
    python = ns3_python() if with_ns3 else None
    ours, theirs = [], []
    again = statistics.median(set_up_again() for _ in range(rounds))
    with tempfile.TemporaryDirectory(prefix="fairbed-bench-") as place:
        for number in range(rounds):
            ours.append(main_job(duration, Path(place) / str(number)))
            if python:
                theirs.append(ns3(python, duration)["run_s"])
    phases = medians(ours)
    result = {
        "virtual_s_per_wall_s": duration / phases["flows"],
        "start_and_stop_s": sum(phases[name] for name in START_AND_STOP),
        "set_up_again_s": again,
        "phases_s": phases,
        "ns3_run_s": statistics.median(theirs) if theirs else None,
        "ns3_run_over_ours": statistics.median(theirs) / phases["flows"] if theirs else None,
    }
    print(json.dumps(result, indent=2)) if as_json else show(result, duration, rounds)


def show(result: dict[str, Any], duration_s: float, rounds: int) -> None:
    """Print the result as a table."""
    console = Console(highlight=False)
    table = Table("phase", "wall time, s", "share, %", title=f"main job, {duration_s:g} virtual s, median of {rounds}")
    phases = dict(result["phases_s"])
    whole = phases.pop("whole command")
    phases["planning, tables, figures"] = whole - sum(phases.values())
    for name, seconds in phases.items():
        table.add_row(name, f"{seconds:.2f}", f"{100 * seconds / whole:.0f}")
    table.add_row("whole command", f"{whole:.2f}", "100")
    console.print(table)
    console.print(
        f"while flows run: {result['virtual_s_per_wall_s']:.1f} virtual s per s (telemetry and controller included)"
    )
    console.print(f"boot, start and stop together: {result['start_and_stop_s']:.2f} s")
    console.print(f"set-up a second time: {result['set_up_again_s']:.2f} s")
    if result["ns3_run_s"] is None:
        console.print("ns-3: not compared")
    else:
        console.print(f"ns-3, the same dumbbell without sampling: {result['ns3_run_s']:.2f} s, "
                      f"{result['ns3_run_over_ours']:.1f} times ours")  # fmt: skip


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m benchmarks.dumbbell"))
