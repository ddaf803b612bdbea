"""Flows that share one bottleneck: ``python -m experiments.dumbbell``."""

from __future__ import annotations

import sys

import typer

from experiments import options as opt
from experiments.session import Session
from lab.commandline import run_app
from lab.scenario import Scenario, make_flows, make_scenario, parse_flows
from topologies.units import parse_buffer, parse_rate_mbit, parse_time_ms, parse_time_s

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(help="Run flows over one bottleneck and show how fairly they share it.")
def dumbbell(
    flows: opt.Flows = "ndm_tcp:1,cubic:1,reno:1,bbr:1",
    rate: opt.Rate = "20mbit",
    rtt: opt.Rtt = "40ms",
    buffer: opt.Buffer = "1bdp",
    aqm: opt.Aqm = "fifo",
    queues: opt.Queues = "shared",
    queues_at: opt.QueuesAt = None,
    fault: opt.Faults = None,
    duration: opt.Duration = "60s",
    warmup: opt.Warmup = "5s",
    start_gap: opt.StartGap = "0s",
    sample: opt.Sample = "50ms",
    repeats: opt.Repeats = 1,
    seed: opt.Seed = 1,
    generator: opt.Generator = "bulk",
    kernel: opt.Kernel = "auto",
    clock: opt.ClockOption = None,
    framework: opt.Framework = "ryu",
    controller: opt.ControllerFile = None,
    memory: opt.Memory = 1024,
    watchdog: opt.Watchdog = opt.DEFAULT_WATCHDOG_S,
    out: opt.Out = None,
    json: opt.Json = False,
    strict: opt.Strict = False,
    explain: opt.Explain = False,
) -> None:
    """Run the experiment."""
    session = Session(kernel, clock, framework, memory, watchdog, out, json, strict, explain, controller)
    ccas = parse_flows(flows)
    parse_buffer(buffer)  # refused here, with the option's own text

    def scenario(with_seed: int) -> Scenario:
        return make_scenario(
            name="dumbbell",
            topology="dumbbell",
            params={
                "pairs": len(ccas),
                "rate_mbit": parse_rate_mbit(rate),
                "rtt_ms": parse_time_ms(rtt),
                "buffer": buffer,
            },
            aqm=aqm,
            queues=queues,
            queues_at=[{"at_s": at_s, "queues": policy} for at_s, policy in opt.timed("queues-at", queues_at)],
            faults=[{"at_s": at_s, "what": what} for at_s, what in opt.timed("fault", fault)],
            flows=make_flows(ccas, parse_time_s(start_gap), generator),
            duration_s=parse_time_s(duration),
            warmup_s=parse_time_s(warmup),
            sample_ms=opt.sample_ms(sample),
            seed=with_seed,
        )

    session.run([scenario(seed + index) for index in range(repeats)])


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments.dumbbell"))
