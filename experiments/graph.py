"""Flows over a network from a file: ``python -m experiments.graph FILE``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments import options as opt
from experiments.command import Asked, experiment
from lab.commandline import run_app
from lab.scenario import parse_flows
from topologies.errors import UsageError
from topologies.units import parse_rate_mbit, parse_time_ms

app = typer.Typer(add_completion=False, rich_markup_mode=None)

File = Annotated[
    Path | None,
    typer.Argument(
        help="GraphML, GML or JSON, such as a file of the Internet Topology Zoo. Not with --scenario.",
        show_default=False,
    ),
]
Pairs = Annotated[
    list[str] | None,
    typer.Option("--pair", help="Nodes between which flow k runs; may be given again. Default: drawn.", metavar="A,B"),
]
Delay = Annotated[
    str | None,
    typer.Option(help="Delay of links without one in the file.", metavar="TIME", show_default="by the distance"),
]


@experiment(app, "graph_file")
def graph(
    file: File = None,
    flows: opt.Flows = "ndm_tcp:1,cubic:1,bbr:1",
    pair: Pairs = None,
    pairs_seed: Annotated[int, typer.Option(min=0, help="Seed of the drawn pairs, the same for all repeats.")] = 1,
    rate: opt.Rate = "100mbit",
    delay: Delay = None,
) -> Asked:
    """Run flows between nodes of a network from a file."""
    if file is None:
        raise UsageError("a FILE with the network is needed, or --scenario")
    ccas = parse_flows(flows)
    ends = [tuple(text.split(",")) for text in pair or []]
    if ends and len(ends) != len(ccas):
        raise UsageError(f"--pair was given {len(ends)} times for {len(ccas)} flows")
    params = {
        "path": str(file.resolve()),
        "pairs": [list(two) for two in ends] or len(ccas),
        "rate_mbit": parse_rate_mbit(rate),
        "delay_ms": None if delay is None else parse_time_ms(delay),
        "seed": pairs_seed,
    }
    return Asked(params, ccas)


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments.graph"))
