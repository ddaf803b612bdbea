"""Links measured against what was configured, over a grid: ``python -m experiments.calibrate``."""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, NamedTuple

import typer

from controller.plan import write as write_controller_plan
from experiments import options as opt
from experiments.markdown import markdown_table
from lab.commandline import run_app
from lab.guest import GUEST, Guest
from lab.kernels import checkout_job, compile_sources, lab_kernel
from lab.plan import make_plan
from lab.scenario import Scenario, make_flows, make_scenario
from topologies.errors import FairbedError
from topologies.units import PACKET_BYTES, bdp_bytes, format_rate, format_time

app = typer.Typer(add_completion=False, rich_markup_mode=None)

RATES_MBIT = (1.0, 10.0, 100.0, 1000.0)
RTTS_MS = (1.0, 10.0, 100.0, 600.0)
BUFFERS_BDP = (0.25, 1.0, 8.0)
LOSSES_PCT = (0.01, 0.1, 1.0, 5.0, 10.0, 20.0, 31.0)

MAX_BUFFER_BYTES = 160e6
"""Points with more are not run: the packets would not fit into the lab kernel's memory."""
MEMORY_MB = 2048

RATE_TOLERANCE = 0.01
RTT_TOLERANCE, RTT_SLACK_MS = 0.005, 0.1
DEVIATIONS = NormalDist().inv_cdf(0.995)
"""Half a 99 % interval in standard deviations."""


@dataclass(frozen=True)
class Point:
    """One link: its rate, the path's base RTT, the buffer and the loss in each direction."""

    rate_mbit: float
    rtt_ms: float
    buffer_bdp: float
    loss_pct: float = 0.0

    @property
    def buffer_bytes(self) -> float:
        """The buffer, which is at least one frame."""
        return max(PACKET_BYTES, bdp_bytes(self.rate_mbit, self.rtt_ms) * self.buffer_bdp)

    def scenario(self, seed: int) -> Scenario:
        """Return one whose network it is: with loss, a quarter of the delay is at each end and the rest in between."""
        shared = {"pairs": 1, "buffer": f"{self.buffer_bytes:.0f}B"}
        alone = {"rate_mbit": self.rate_mbit, "rtt_ms": self.rtt_ms}
        lossy = {
            "down_mbit": self.rate_mbit,
            "up_mbit": self.rate_mbit,
            "delay_ms": self.rtt_ms * 3 / 8,
            "ground_delay_ms": self.rtt_ms / 8,
            "loss_pct": self.loss_pct,
        }
        return make_scenario(
            name="calibrate",
            topology="satellite" if self.loss_pct else "dumbbell",
            params=shared | (lossy if self.loss_pct else alone),
            flows=make_flows(["cubic"]),
            duration_s=1.0,
            warmup_s=0.0,
            seed=seed,
        )


class Cell(NamedTuple):
    """What was measured, in words, and whether it is as configured; None where nothing was to be measured."""

    words: str
    good: bool | None


def grid() -> list[Point]:
    """Return the points without loss, then those with it; of buffers below a frame one."""
    still = [Point(*values) for values in itertools.product(RATES_MBIT, RTTS_MS, BUFFERS_BDP)]
    lossy = [Point(rate, rtt, 1.0, loss) for rate, rtt, loss in itertools.product(RATES_MBIT, RTTS_MS, LOSSES_PCT)]
    return list({(p.rate_mbit, p.rtt_ms, p.buffer_bytes, p.loss_pct): p for p in still + lossy}.values())


def measure(point: Point, directory: Path, seed: int, memory_mb: int) -> list[Cell]:
    """Return the rate, the idle RTT, the largest backlog, and the loss there and back, measured in a new directory."""
    plan = make_plan(point.scenario(seed)) | {"framework": "ryu"}
    raw = directory / "raw"
    raw.mkdir(parents=True)
    (raw / "plan.json").write_text(json.dumps(plan))
    write_controller_plan(raw / "controller.json", plan["controller"])
    words = ["-m", "lab.inside", "--openvswitch", "--", "-m", "lab.overload", str(GUEST / "run")]
    with Guest(lab_kernel(), checkout_job(words, directory, seed, "virtual", memory_mb)) as guest:
        assert guest.stderr is not None  # noqa: S101 - it has no terminal
        said = guest.stderr.read().decode().strip()
        if guest.wait():
            raise FairbedError(f"{point}: {said.splitlines()[-1] if said else 'it said nothing'}")
    return cells(point, plan, json.loads((raw / "overload.json").read_text()))


def cells(point: Point, plan: Mapping[str, Any], found: Mapping[str, Any]) -> list[Cell]:
    """Return what was found, judged."""
    (path,) = plan["paths"].values()
    losses = [Cell("", None)] * 2
    if point.loss_pct:
        losses = [_loss(point, found["sent"] - found[f"arrived_{way}"], found["sent"]) for way in ("there", "back")]
    return [
        _rate(found["rate_mbit"] / point.rate_mbit - 1),
        _idle_rtt(found["idle_rtt_ms"] - path["base_rtt_ms"], path["base_rtt_ms"]),
        _backlog(plan["queues"][path["bottleneck"]]["buffer_bytes"] - found["largest_backlog_bytes"]),
        *losses,
    ]


def _rate(error: float) -> Cell:
    return Cell(f"{error:+.2%}", abs(error) <= RATE_TOLERANCE)


def _idle_rtt(error_ms: float, base_ms: float) -> Cell:
    return Cell(f"{error_ms:+.3f} ms", abs(error_ms) <= max(RTT_SLACK_MS, RTT_TOLERANCE * base_ms))


def _backlog(missing_bytes: int) -> Cell:
    return Cell(f"{-missing_bytes:+d} B", 0 <= missing_bytes < PACKET_BYTES)


def _loss(point: Point, lost: int, sent: int) -> Cell:
    share = point.loss_pct / 100
    deviation = (sent * share * (1 - share)) ** 0.5
    return Cell(f"{lost / sent:.3%}", abs(lost - sent * share) <= DEVIATIONS * deviation + 0.5)


HEADER = ("rate", "RTT", "buffer", "loss", "rate", "idle RTT", "largest backlog", "lost, there", "lost, back")
SKIPPED = [Cell("not run", None), *[Cell("", None)] * 4]


def _row(point: Point, cells: Sequence[Cell]) -> list[str]:
    marks = {True: "", False: " ✗", None: ""}
    return [
        format_rate(point.rate_mbit),
        format_time(point.rtt_ms),
        f"{point.buffer_bdp:g} BDP" if point.buffer_bytes > PACKET_BYTES else "1 frame",
        f"{point.loss_pct:g} %" if point.loss_pct else "0",
        *(cell.words + marks[cell.good] for cell in cells),
    ]


def _document(command: str, rows: Sequence[Sequence[str]], summary: str) -> str:
    """Return the Markdown page."""
    from lab import provenance
    from lab.overload import DATAGRAMS, FRAMES

    facts = provenance.facts()
    table = markdown_table(HEADER, rows)
    return f"""# Links, measured against what was configured

Made by `{command}` on {datetime.now(UTC):%Y-%m-%d}, commit `{str(facts["commit"])[:12]}`, in the lab kernel on the
virtual clock. {summary}

The network of each row is built, and measured without flows: what TCP makes of it is another question.

- **rate**: what the bottleneck sends while frames are put into its queue until it refuses one, again and again, for
  {FRAMES} frames or longer; right within {RATE_TOLERANCE:.0%}.
- **idle RTT**: the least of three pings, less the path's base RTT; right within {RTT_SLACK_MS:g} ms or
  {RTT_TOLERANCE:.1%}.
- **largest backlog**: what waits in the bottleneck's queue when it refuses a frame, less the buffer; right when less
  than a frame ({PACKET_BYTES} bytes) is missing. On the virtual clock nothing leaves meanwhile.
- **lost**: of {DATAGRAMS} datagrams between the hosts in each direction; right within the binomial 99 % interval, so
  that one right cell in a hundred lies outside.

A cell marked ✗ is outside its bounds. Points with buffers above {MAX_BUFFER_BYTES / 1e6:g} MB are not run.

{table}"""


@app.command(help="Measure rate, RTT, loss and buffer of links over a grid, and write the table.")
def calibrate(
    page: Annotated[Path, typer.Option(help="The Markdown file to write.")] = Path("docs/calibration.md"),
    seed: opt.Seed = 1,
    memory: opt.Memory = MEMORY_MB,
    jobs: Annotated[int, typer.Option(min=1, help="Networks side by side.")] = len(os.sched_getaffinity(0)),
) -> None:
    """Run the experiment."""
    from rich.console import Console
    from rich.progress import track

    points = grid()
    console = Console(stderr=True)
    compile_sources()
    with tempfile.TemporaryDirectory(prefix="fairbed-calibrate-") as directory, ThreadPoolExecutor(jobs) as pool:

        def one(numbered: tuple[int, Point]) -> list[Cell]:
            number, point = numbered
            if point.buffer_bytes > MAX_BUFFER_BYTES:
                return SKIPPED
            return measure(point, Path(directory, str(number)), seed + number, memory)

        results = pool.map(one, enumerate(points))
        found = list(track(results, "links", len(points), console=console, disable=not console.is_terminal))
    _show(points, found)
    judged = [cell.good for row in found for cell in row if cell.good is not None]
    run_count = sum(row is not SKIPPED for row in found)
    summary = f"{run_count} of {len(points)} points were run; {sum(judged)} of {len(judged)} judged cells are right."
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(_document("make calibrate", [_row(*pair) for pair in zip(points, found, strict=True)], summary))
    print(f"{summary}\npage     {page}")


def _show(points: Sequence[Point], cells: Sequence[Sequence[Cell]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    for name in HEADER:
        table.add_column(name, justify="right", no_wrap=True)
    for point, row in zip(points, cells, strict=True):
        table.add_row(*_row(point, row))
    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments.calibrate"))
