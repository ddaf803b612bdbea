"""The command-line options that experiments share, and their units."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab.execute import WATCHDOG_S
from topologies.errors import UsageError
from topologies.units import parse_time_ms

Flows = Annotated[
    str,
    typer.Option(help="Algorithms and how many flows of each: ndm_tcp:2,cubic:2,bbr:1.", metavar="CCA:N,…"),
]
Rate = Annotated[str, typer.Option(help="Rate of the bottleneck: 20mbit, 1.5gbit.", metavar="RATE")]
Rtt = Annotated[str, typer.Option(help="Base round-trip time: 40ms, 1s.", metavar="TIME")]
Buffer = Annotated[str, typer.Option(help="Buffer of the bottleneck: 1bdp, 64KiB, 100packets.", metavar="SIZE")]
Aqm = Annotated[str, typer.Option(help="Queue management at the bottleneck: fifo, fq_codel, codel, pie, …")]
Duration = Annotated[str, typer.Option(help="Length of the run: 60s, 5min.", metavar="TIME")]
Warmup = Annotated[str, typer.Option(help="Beginning that lifetime figures leave out.", metavar="TIME")]
StartGap = Annotated[
    str, typer.Option(help="Time between the starts of two flows: 0s for all together.", metavar="TIME")
]
Sample = Annotated[str, typer.Option(help="Time between two samples: 1ms to 10s.", metavar="TIME")]
Repeats = Annotated[int, typer.Option(min=1, help="Runs with the seeds SEED, SEED + 1, …, in shuffled order.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random: the same seed, the same run.")]
Generator = Annotated[str, typer.Option(help="What sends: bulk (our own), iperf3.")]
Kernel = Annotated[
    str,
    typer.Option(help="host: this machine's kernel, as root; lab: the lab kernel; auto: host if it can, else lab."),
]
ClockOption = Annotated[
    str | None,
    typer.Option(help="virtual (lab kernel: bit-exact, faster than real time) or real.", show_default=False),
]
Framework = Annotated[str, typer.Option(help="The controller's framework: ryu, os-ken.")]
Memory = Annotated[int, typer.Option(min=256, help="Memory of the lab kernel, MB.", metavar="MB")]
Watchdog = Annotated[
    float,
    typer.Option(min=1, help="Real time without progress after which a run counts as hung, s.", metavar="S"),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Directory of the run; must not exist. Default: runs/NAME-DATE.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, nothing else on standard output.")]
Strict = Annotated[bool, typer.Option("--strict", help="Fail unless every verdict is valid.")]
Explain = Annotated[bool, typer.Option("--explain", help="Print what would be done to the network, and stop.")]

DEFAULT_WATCHDOG_S = WATCHDOG_S


def sample_ms(text: str) -> int:
    """Return the sampling interval in whole milliseconds."""
    value = parse_time_ms(text)
    if value != int(value):
        raise UsageError(f"--sample {text}: must be a whole number of milliseconds")
    return int(value)
