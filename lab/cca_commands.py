"""``python -m lab cca``: NDM-TCP into this machine's kernel, out of it, and what else the kernel has."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lab.cca import LOADING, REMEDIES, TWINS, Machine, load, loaded, obstacles, survey, unload
from lab.kernels import cache_directory
from topologies.errors import UsageError

ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")

cca_app = typer.Typer(
    help="The congestion-control algorithms of this machine's kernel.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


def build_directory() -> Path:
    """Return where NDM-TCP is built for the running kernel."""
    return cache_directory() / "ndm" / platform.release()


@cca_app.command("load")
def load_command(
    how: Annotated[
        str, typer.Option(help="module, bpf, or auto: the module if the kernel takes it, else BPF.")
    ] = "auto",
) -> None:
    """Load NDM-TCP in whatever way this kernel allows. Needs root."""
    if how not in ("auto", *LOADING):
        raise UsageError(f"--how {how!r} must be one of auto, {', '.join(LOADING)}")
    before = survey()
    way = load(before, build_directory(), how)
    names = TWINS.keys() if way == "module" else TWINS.values()
    already = "already " if way in loaded(before.names) else ""
    print(f"{already}loaded as {'a module' if way == 'module' else 'BPF programs'}: {', '.join(names)}")


@cca_app.command("unload")
def unload_command() -> None:
    """Unload NDM-TCP, the module and the BPF programs. Needs root."""
    ways = unload(survey(), build_directory())
    print(f"unloaded: {', '.join(ways)}" if ways else "not loaded")


@cca_app.command("list")
def list_command(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the algorithms that this kernel has, and how NDM-TCP could be loaded."""
    machine = survey()
    rows = algorithms(machine, set(ALLOWED.read_text().split()) if ALLOWED.exists() else set())
    blocked = obstacles(machine)
    if as_json:
        print(json.dumps({"algorithms": rows, "loaded": loaded(machine.names), "obstacles": blocked}, indent=1))
        return
    table = Table("algorithm", "here", "who may use it")
    for row in rows:
        table.add_row(row["name"], row["here"], row["who"])
    Console(highlight=False, soft_wrap=True).print(table)
    for way, obstacle in blocked.items():
        if way not in loaded(machine.names):
            print(f"NDM-TCP as {'a module' if way == 'module' else 'BPF'}: {obstacle or 'can be loaded'}")


def algorithms(machine: Machine, allowed: set[str]) -> list[dict[str, str]]:
    """Return a row for each registered algorithm and each of Fairbed's own that is missing."""
    rows = [
        {"name": name, "here": "registered", "who": "everyone" if name in allowed else "root"}
        for name in sorted(machine.names)
    ]
    for name, twin in TWINS.items():
        if name not in machine.names:
            here = f"as {twin}" if twin in machine.names else f"missing: {REMEDIES[name]}"
            rows.append({"name": name, "here": here, "who": ""})
    return rows
