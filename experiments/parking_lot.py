"""Flows over one bottleneck against flows over several: ``python -m experiments.parking_lot``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from experiments import options as opt
from experiments.command import Asked, experiment
from lab.commandline import run_app
from lab.scenario import parse_flows
from topologies.errors import UsageError
from topologies.units import parse_rate_mbit, parse_time_ms

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Hops = Annotated[int, typer.Option(min=1, max=100, help="Number of bottlenecks in a row.")]
Long = Annotated[str, typer.Option(help="Algorithms of the flows over all bottlenecks.", metavar="CCA:N,…")]
Cross = Annotated[str, typer.Option(help="Algorithms of the flows over each single bottleneck.", metavar="CCA:N,…")]
HopDelay = Annotated[str, typer.Option(help="One-way delay of each core link.", metavar="TIME")]
AccessDelay = Annotated[str, typer.Option(help="One-way delay of each host's link.", metavar="TIME")]


@experiment(app, "parking_lot")
def parking_lot(
    hops: Hops = 3,
    long: Long = "cubic:1,ndm_tcp:1",
    cross: Cross = "cubic:1",
    rate: opt.Rate = "20mbit",
    hop_delay: HopDelay = "5ms",
    access_delay: AccessDelay = "5ms",
) -> Asked:
    """Run long flows over bottlenecks in a row, each of which has cross flows of its own."""
    long_ccas, cross_ccas = parse_flows(long), parse_flows(cross) if cross else []
    if not long_ccas:
        raise UsageError("--long: there must be a flow over all bottlenecks")
    return Asked(
        {
            "hops": hops,
            "long": len(long_ccas),
            "cross": len(cross_ccas),
            "rate_mbit": parse_rate_mbit(rate),
            "hop_delay_ms": parse_time_ms(hop_delay),
            "access_delay_ms": parse_time_ms(access_delay),
        },
        long_ccas + cross_ccas * hops,
    )


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments.parking_lot"))
