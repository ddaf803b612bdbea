"""Flows over a satellite link: ``python -m experiments.satellite``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from experiments import options as opt
from experiments.command import Asked, experiment
from lab.commandline import run_app
from lab.scenario import parse_flows
from topologies.satellite import satellite_events
from topologies.units import parse_rate_mbit, parse_time_ms

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Orbit = Annotated[str, typer.Option(help="geo: far, still, deep buffers; leo: near, with a handover every 15 s.")]
Down = Annotated[str | None, typer.Option(help="Rate towards the users.", metavar="RATE", show_default="by orbit")]
Up = Annotated[str | None, typer.Option(help="Rate from the users.", metavar="RATE", show_default="by orbit")]
Delay = Annotated[str | None, typer.Option(help="One-way delay of the link.", metavar="TIME", show_default="by orbit")]
Loss = Annotated[float, typer.Option(help="Random loss in each direction, %.", metavar="PERCENT")]


@experiment(app, "satellite", buffer=None)
def satellite(
    flows: opt.Flows = "ndm_tcp:1,cubic:1,bbr:1",
    orbit: Orbit = "geo",
    down: Down = None,
    up: Up = None,
    delay: Delay = None,
    loss: Loss = 0.0,
) -> Asked:
    """Run flows down a satellite link. A leo link's handovers are drawn from the seed, or read with --events."""
    ccas = parse_flows(flows)
    return Asked(
        {
            "pairs": len(ccas),
            "orbit": orbit,
            "down_mbit": None if down is None else parse_rate_mbit(down),
            "up_mbit": None if up is None else parse_rate_mbit(up),
            "delay_ms": None if delay is None else parse_time_ms(delay),
            "loss_pct": loss,
        },
        ccas,
        satellite_events if orbit == "leo" else lambda duration_s, seed: (),
    )


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments.satellite"))
