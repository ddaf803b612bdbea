"""Flows that share one bottleneck: ``python -m experiments.dumbbell``."""

from __future__ import annotations

import sys

import typer

from experiments import options as opt
from experiments.command import Asked, experiment
from lab.commandline import run_app
from lab.scenario import parse_flows
from topologies.units import parse_rate_mbit, parse_time_ms

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@experiment(app, "dumbbell")
def dumbbell(
    flows: opt.Flows = "ndm_tcp:1,cubic:1,reno:1,bbr:1",
    rate: opt.Rate = "20mbit",
    rtt: opt.Rtt = "40ms",
) -> Asked:
    """Run flows over one bottleneck and show how fairly they share it."""
    ccas = parse_flows(flows)
    return Asked({"pairs": len(ccas), "rate_mbit": parse_rate_mbit(rate), "rtt_ms": parse_time_ms(rtt)}, ccas)


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments.dumbbell"))
