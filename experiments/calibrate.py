"""Links measured against what was configured, over a grid: ``python -m experiments.calibrate``."""

from __future__ import annotations

import bisect
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from experiments import options as opt
from lab.commandline import run_app
from lab.execute import Where, execute
from lab.scenario import Scenario, make_flows, make_scenario
from topologies.units import PACKET_BYTES, bdp_bytes, format_rate, format_time

if TYPE_CHECKING:
    import polars as pl

    from lab.record import Run

app = typer.Typer(add_completion=False, rich_markup_mode=None)

RATES_MBIT = (1.0, 10.0, 100.0, 1000.0)
RTTS_MS = (1.0, 10.0, 100.0, 600.0)
BUFFERS_BDP = (0.25, 1.0, 8.0)
LOSSES_PCT = (0.01, 0.1, 1.0, 5.0, 10.0, 20.0, 31.0)
LOSSY_RTTS_MS = (12.0, 100.0)

WINDOW_BYTES = 16e6
"""What one flow can surely have in flight: a quarter of its largest window."""
MAX_IN_FLIGHT_BYTES = 160e6
"""Points that need more are not run: the packets would not fit into the lab kernel's memory."""
MAX_BITS = 12e9
"""How much is sent at most, and what slow start needs at long RTTs besides."""
LOSSY_FLOWS = 16
LOSSY_S = 60.0
FRAMES = 500
"""Frames from which a rate is taken: one more or less is a fifth of a percent."""
SAMPLES = 30_000
"""How often a run looks at its queue at most; and not more than every ms."""
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
    def flows(self) -> int:
        """How many CUBIC flows are to fill it: one, as far as a flow's window reaches."""
        return LOSSY_FLOWS if self.loss_pct else max(1, -int(-self.in_flight_bytes // WINDOW_BYTES))

    @property
    def in_flight_bytes(self) -> float:
        """What is under way when the buffer is full."""
        return bdp_bytes(self.rate_mbit, self.rtt_ms) * (1 + self.buffer_bdp)

    @property
    def buffer_bytes(self) -> float:
        """The buffer, which is at least one frame."""
        return max(PACKET_BYTES, bdp_bytes(self.rate_mbit, self.rtt_ms) * self.buffer_bdp)

    def scenario(self, seed: int) -> Scenario:
        """Return what measures it."""
        full_s = self.rtt_ms / 1e3 * (1 + self.buffer_bdp)
        long_s = min(10 + 60 * full_s, MAX_BITS / (self.rate_mbit * 1e6) + 20 * self.rtt_ms / 1e3, 300)
        duration_s = LOSSY_S if self.loss_pct else round(long_s, 3)
        shared = {"pairs": self.flows, "buffer": f"{self.buffer_bytes:.0f}B"}
        alone = {"rate_mbit": self.rate_mbit, "rtt_ms": self.rtt_ms}
        lossy = {
            "down_mbit": self.rate_mbit,
            "up_mbit": self.rate_mbit,
            "delay_ms": self.rtt_ms / 2 - 5,  # the ground has 5 ms each way
            "loss_pct": self.loss_pct,
        }
        return make_scenario(
            name="calibrate",
            topology="satellite" if self.loss_pct else "dumbbell",
            params=shared | (lossy if self.loss_pct else alone),
            flows=make_flows(["cubic"] * self.flows),
            duration_s=duration_s,
            warmup_s=0.0,
            seed=seed,
            sample_ms=max(1, int(duration_s * 1e3 / SAMPLES)),
        )


class Cell(NamedTuple):
    """What was measured, in words, and whether it is as configured; None where it could not be measured."""

    words: str
    good: bool | None


def grid() -> list[Point]:
    """Return the points without loss, then those with it; of buffers below a frame one."""
    still = [Point(*values) for values in itertools.product(RATES_MBIT, RTTS_MS, BUFFERS_BDP)]
    lossy = [Point(20.0, rtt_ms, 1.0, loss_pct) for rtt_ms in LOSSY_RTTS_MS for loss_pct in LOSSES_PCT]
    return list({(p.rate_mbit, p.rtt_ms, p.buffer_bytes, p.loss_pct): p for p in still + lossy}.values())


def measure(point: Point, run: Run) -> list[Cell]:
    """Return the rate, the idle RTT, the largest backlog, and the loss in both directions."""
    import polars as pl

    name = next(iter(run.paths.values()))["bottleneck"]
    queue = run.queues.filter(pl.col("queue_id") == name)
    losses = [_loss(point, *counts) for counts in _netem_counts(run)] if point.loss_pct else [Cell("", None)] * 2
    return [_rate(point, queue), _idle_rtt(run), _backlog(run.queue_settings[name]["buffer_bytes"], queue), *losses]


def _rate(point: Point, queue: pl.DataFrame) -> Cell:
    """Return the rate of the fastest stretch of at least a second and `FRAMES` frames."""
    seconds, sent, backlog = (queue[name].to_list() for name in ("t_s", "sent_bytes", "backlog_bytes"))
    least_s = max(1.0, FRAMES * PACKET_BYTES * 8e-6 / point.rate_mbit)
    ends = [bisect.bisect_left(seconds, start + least_s) for start in seconds]
    rates = {
        (sent[end] - sent[start]) * 8e-6 / (seconds[end] - seconds[start]): (start, end)
        for start, end in enumerate(ends)
        if end < len(seconds)
    }
    fastest_mbit = max(rates)
    start, end = rates[fastest_mbit]
    error = fastest_mbit / point.rate_mbit - 1
    if error < -RATE_TOLERANCE and min(backlog[start:end]) == 0:
        return Cell(f"flows reach {1 + error:.0%}", None)
    return Cell(f"{error:+.2%}", abs(error) <= RATE_TOLERANCE)


def _idle_rtt(run: Run) -> Cell:
    """Return how far the idle RTT of the flow that is furthest off is from its base RTT."""
    flows = run.info["environment"]["idle_rtt_ms"].items()
    errors = [
        (rtt_ms - run.paths[flow_id]["base_rtt_ms"], run.paths[flow_id]["base_rtt_ms"]) for flow_id, rtt_ms in flows
    ]
    error_ms, base_ms = max(errors, key=lambda pair: abs(pair[0]))
    return Cell(f"{error_ms:+.3f} ms", abs(error_ms) <= max(RTT_SLACK_MS, RTT_TOLERANCE * base_ms))


def _backlog(buffer_bytes: int, queue: pl.DataFrame) -> Cell:
    """Return the buffer less the largest backlog, which some sample finds only where the queue was long full."""
    largest, drops = (max(queue[name].to_list()) for name in ("backlog_bytes", "drops"))
    missing = buffer_bytes - largest
    if not drops:
        return Cell(f"{largest / buffer_bytes:.0%} used, no drop", None)
    return Cell(f"{-missing:+d} B", 0 <= missing < PACKET_BYTES)


def _netem_counts(run: Run) -> Iterator[tuple[int, int]]:
    """Yield (drops, packets) of each direction's loss."""
    state = json.loads((run.raw / "tc.json").read_text())
    plan = json.loads((run.raw / "plan.json").read_text())
    lossy = {entry["interface"] for entry in plan["seeds"]}
    for qdisc in itertools.chain.from_iterable(map(json.loads, state.values())):
        if qdisc["kind"] == "netem" and qdisc["dev"] in lossy:
            yield qdisc["drops"], qdisc["packets"] + qdisc["drops"]


def _loss(point: Point, drops: int, packets: int) -> Cell:
    share = point.loss_pct / 100
    deviation = (packets * share * (1 - share)) ** 0.5
    good = abs(drops - packets * share) <= DEVIATIONS * deviation + 0.5
    return Cell(f"{drops / max(1, packets):.3%} of {packets}", good)


HEADER = ("rate", "RTT", "buffer", "loss", "flows", "rate", "idle RTT", "largest backlog", "lost, data", "lost, ACKs")
SKIPPED = [Cell("not run", None), *[Cell("", None)] * 4]


def _row(point: Point, cells: Sequence[Cell]) -> list[str]:
    marks = {True: "", False: " ✗", None: ""}
    return [
        format_rate(point.rate_mbit),
        format_time(point.rtt_ms),
        f"{point.buffer_bdp:g} BDP" if point.buffer_bytes > PACKET_BYTES else "1 frame",
        f"{point.loss_pct:g} %" if point.loss_pct else "0",
        str(point.flows) if cells is not SKIPPED else "",
        *(cell.words + marks[cell.good] for cell in cells),
    ]


def _document(command: str, rows: Sequence[Sequence[str]], summary: str) -> str:
    """Return the Markdown page."""
    from lab import provenance

    facts = provenance.facts()
    lines = [HEADER, ["---:"] * len(HEADER), *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"""# Links, measured against what was configured

Made by `{command}` on {datetime.now(UTC):%Y-%m-%d}, commit `{str(facts["commit"])[:12]}`, in the lab kernel on the
virtual clock. {summary}

- **rate**: what the bottleneck sent, in Ethernet frames, in its fastest second, or {FRAMES} frames where those take
  longer; right within {RATE_TOLERANCE:.0%}. "Flows reach": the queue was empty at times, so the flows were slow, not
  the link.
- **idle RTT**: the least of three pings before the flows begin, less the path's base RTT; right within
  {RTT_SLACK_MS:g} ms or {RTT_TOLERANCE:.1%}.
- **largest backlog**: of all samples, less the buffer; right when less than a frame ({PACKET_BYTES} bytes) is missing.
  Samples are a millisecond apart at least, in which 83 frames leave at 1 Gbit/s: there the fullest moment may lie
  between two. A queue that never dropped says how far it was filled in place of that.
- **lost**: netem's drops in each direction, of the packets that came; right within the binomial 99 % interval, so that
  one right cell in a hundred lies outside.

The flows are CUBIC: one, where one's window reaches, {LOSSY_FLOWS} where there is loss, to have packets to count (flows
that lose a third of their packets hardly send). A cell marked ✗ is outside its bounds. Points with more than
{MAX_IN_FLIGHT_BYTES / 1e6:g} MB in flight are not run.

{table}"""


@app.command(help="Measure rate, RTT, loss and buffer of links over a grid, and write the table.")
def calibrate(
    page: Annotated[Path, typer.Option(help="The Markdown file to write.")] = Path("docs/calibration.md"),
    seed: opt.Seed = 1,
    memory: opt.Memory = MEMORY_MB,
    jobs: Annotated[int, typer.Option(min=1, help="Runs side by side.")] = len(os.sched_getaffinity(0)),
) -> None:
    """Run the experiment."""
    from rich.console import Console
    from rich.progress import track

    points = grid()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="fairbed-calibrate-") as directory, ThreadPoolExecutor(jobs) as pool:

        def one(numbered: tuple[int, Point]) -> list[Cell]:
            number, point = numbered
            if point.in_flight_bytes > MAX_IN_FLIGHT_BYTES:
                return SKIPPED
            run = execute(point.scenario(seed), Path(directory, str(number)), Where("lab", "virtual", memory))
            return measure(point, run)

        results = pool.map(one, enumerate(points))
        cells = list(track(results, "links", len(points), console=console, disable=not console.is_terminal))
    _show(points, cells)
    judged = [cell.good for row in cells for cell in row if cell.good is not None]
    run_count = sum(row is not SKIPPED for row in cells)
    summary = f"{run_count} of {len(points)} points were run; {sum(judged)} of {len(judged)} judged cells are right."
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(_document("make calibrate", [_row(*pair) for pair in zip(points, cells, strict=True)], summary))
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
