"""The command-line options that experiments share, and their units."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab.execute import WATCHDOG_S
from topologies.errors import UsageError
from topologies.units import parse_time_ms, parse_time_s

Flows = Annotated[
    str,
    typer.Option(help="Algorithms and how many flows of each: ndm_tcp:2,cubic:2,bbr:1.", metavar="CCA:N,…"),
]
Rate = Annotated[str, typer.Option(help="Rate of the bottleneck: 20mbit, 1.5gbit.", metavar="RATE")]
Rtt = Annotated[str, typer.Option(help="Base round-trip time: 40ms, 1s.", metavar="TIME")]
Buffer = Annotated[str, typer.Option(help="Buffer of the bottleneck: 1bdp, 64KiB, 100packets.", metavar="SIZE")]
Aqm = Annotated[str, typer.Option(help="Queue management at the bottleneck: fifo, fq_codel, codel, pie, …")]
Queues = Annotated[
    str,
    typer.Option(
        help="Queue policy: shared, per_cca, per_flow, weighted:ndm_tcp=2,cubic=1, priority:ndm_tcp, isolate:ndm_tcp, "
        "police:bbr=4mbit, adaptive.",
        metavar="POLICY",
    ),
]
QueuesAt = Annotated[
    list[str] | None,
    typer.Option(
        help="Change the queue policy during the run: 30s=per_cca. May be given again.", metavar="TIME=POLICY"
    ),
]
Faults = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        help="Break something: 10s=kill-controller, =restart-controller or =kill-vswitchd. May be given again.",
        metavar="TIME=WHAT",
    ),
]
ControllerFile = Annotated[
    Path | None,
    typer.Option("--controller", help="Your own Ryu (or os-ken) application in place of ours.", show_default=False),
]
Events = Annotated[
    str | None,
    typer.Option(help="A timeline of link changes, CSV or JSON, in place of the experiment's own.", metavar="FILE"),
]
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
ScenarioFile = Annotated[
    Path | None,
    typer.Option(
        "--scenario",
        help="Run the scenario in this file, .toml or .json, in place of what options would describe.",
        metavar="FILE",
        show_default=False,
    ),
]
SaveScenario = Annotated[
    Path | None,
    typer.Option(
        help="Write the scenario to this new file, .toml or .json, for --scenario.", metavar="FILE", show_default=False
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Directory of the run; must not exist. Default: runs/NAME-DATE.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, nothing else on standard output.")]
Strict = Annotated[bool, typer.Option("--strict", help="Fail unless every verdict is valid.")]
Harm = Annotated[
    bool,
    typer.Option(
        "--harm", help="Run each flow alone and each algorithm among its own too, and show harm and paired impact."
    ),
]
Explain = Annotated[bool, typer.Option("--explain", help="Print what would be done to the network, and stop.")]

DEFAULT_WATCHDOG_S = WATCHDOG_S


def timed(option: str, texts: list[str] | None) -> list[tuple[float, str]]:
    """Return the (s, word) pairs of an option's TIME=WORD texts, in order of time.

    Examples
    --------
    >>> timed("queues-at", ["30s=per_cca", "1min=weighted:ndm_tcp=2"])
    [(30.0, 'per_cca'), (60.0, 'weighted:ndm_tcp=2')]
    """
    found = []
    for text in texts or []:
        time, equals, word = text.partition("=")
        if not equals or not word:
            raise UsageError(f"--{option} {text!r} is not TIME=WORD, such as 30s=per_cca")
        found.append((parse_time_s(time), word))
    return sorted(found)


def sample_ms(text: str) -> int:
    """Return the sampling interval in whole milliseconds."""
    value = parse_time_ms(text)
    if value != int(value):
        raise UsageError(f"--sample {text}: must be a whole number of milliseconds")
    return int(value)
