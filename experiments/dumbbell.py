"""Flows that share one bottleneck: ``python -m experiments.dumbbell``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from experiments import options as opt
from experiments.command import Asked, experiment
from lab.commandline import run_app
from lab.scenario import parse_flows
from topologies.units import parse_rate_mbit, parse_time_ms

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Jitter = Annotated[str, typer.Option(help="How far the delay of each way varies.", metavar="TIME")]
Distribution = Annotated[str, typer.Option(help="How it varies: uniform (to both sides), normal (its deviation), …")]
Reorder = Annotated[bool, typer.Option("--reorder", help="Let packets whose delay varies overtake one another.")]
Loss = Annotated[float, typer.Option(help="Random loss on each way, %.", metavar="PERCENT")]


@experiment(app, "dumbbell")
def dumbbell(
    flows: opt.Flows = "ndm_tcp:1,cubic:1,reno:1,bbr:1",
    rate: opt.Rate = "20mbit",
    rtt: opt.Rtt = "40ms",
    jitter: Jitter = "0ms",
    distribution: Distribution = "uniform",
    reorder: Reorder = False,
    loss: Loss = 0.0,
) -> Asked:
    """Run flows over one bottleneck and show how fairly they share it."""
    ccas = parse_flows(flows)
    path = {"pairs": len(ccas), "rate_mbit": parse_rate_mbit(rate), "rtt_ms": parse_time_ms(rtt)}
    air = {"jitter_ms": parse_time_ms(jitter), "distribution": distribution, "reorder": reorder, "loss_pct": loss}
    usual = {"jitter_ms": 0.0, "distribution": "uniform", "reorder": False, "loss_pct": 0.0}
    return Asked(path | {name: value for name, value in air.items() if value != usual[name]}, ccas)


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments.dumbbell"))
