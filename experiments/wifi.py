"""Flows over a chain of lossy radio hops: ``python -m experiments.wifi``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from experiments import options as opt
from experiments.command import Asked, experiment
from lab.commandline import run_app
from lab.scenario import parse_flows
from topologies.units import parse_rate_mbit, parse_time_ms
from topologies.wifi import wifi_events

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Hops = Annotated[int, typer.Option(min=1, max=100, help="Number of radio hops.")]
Delay = Annotated[str, typer.Option(help="One-way delay of each hop.", metavar="TIME")]
Jitter = Annotated[str, typer.Option(help="How far each hop's delay varies to both sides.", metavar="TIME")]
Reorder = Annotated[bool, typer.Option("--reorder", help="Let packets whose delay varies overtake one another.")]
Loss = Annotated[float, typer.Option(help="Mean loss of each hop, in bursts, %.", metavar="PERCENT")]
Burst = Annotated[float, typer.Option(help="Mean length of a burst of losses, packets.", metavar="PACKETS")]
Slot = Annotated[str, typer.Option(help="Time between bunches of packets; 0s for one by one.", metavar="TIME")]
Wander = Annotated[
    str, typer.Option(help="Time after which rates change to 0.5 to 1.5 times; 0s: never.", metavar="TIME")
]


@experiment(app, "wifi")
def wifi(
    flows: opt.Flows = "ndm_tcp:1,cubic:1,bbr:1",
    hops: Hops = 2,
    rate: opt.Rate = "40mbit",
    delay: Delay = "3ms",
    jitter: Jitter = "1ms",
    reorder: Reorder = False,
    loss: Loss = 0.5,
    burst: Burst = 4.0,
    slot: Slot = "0s",
    wander: Wander = "1s",
) -> Asked:
    """Run flows over radio hops that lose packets in bursts, vary in delay and wander in rate."""
    ccas, rate_mbit, wander_ms = parse_flows(flows), parse_rate_mbit(rate), parse_time_ms(wander)
    return Asked(
        {
            "pairs": len(ccas),
            "hops": hops,
            "rate_mbit": rate_mbit,
            "delay_ms": parse_time_ms(delay),
            "jitter_ms": parse_time_ms(jitter),
            "reorder": reorder,
            "loss_pct": loss,
            "burst_packets": burst,
            "slot_ms": parse_time_ms(slot),
        },
        ccas,
        lambda duration_s, seed: wifi_events(duration_s, seed, hops, rate_mbit, wander_ms / 1e3) if wander_ms else (),
    )


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments.wifi"))
