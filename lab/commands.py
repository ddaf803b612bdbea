"""The commands of ``python -m lab``."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Annotated

import typer

from lab.cca_commands import cca_app
from lab.claim import CLAIM, clean
from lab.doctor import examine
from lab.guest import Bind, Clock, Guest, Job, guest_environment, remove_remains
from lab.kernels import CHECKOUT, lab_kernel
from topologies.errors import UsageError

app = typer.Typer(
    help="The lab kernel by hand, a Linux of its own in which you are root; and what this machine's own kernel can do.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

app.add_typer(cca_app, name="cca")

ClockOption = Annotated[str, typer.Option(help="real, or virtual: sleeping costs no time, a busy loop never ends.")]
Memory = Annotated[int, typer.Option(min=128, help="Its memory, MB.", metavar="MB")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of its random generator.")]
Writable = Annotated[
    list[Path] | None,
    typer.Option(help="A directory of the host that it may write to, besides the current one.", metavar="DIR"),
]
OpenVSwitch = Annotated[bool, typer.Option(help="Start Open vSwitch in it, 11 s after its boot.")]


@app.command("shell")
def shell_command(
    clock: ClockOption = "real", memory: Memory = 1024, seed: Seed = 1, writable: Writable = None,
    openvswitch: OpenVSwitch = False,
) -> None:  # fmt: skip
    """Give a prompt inside. What is written outside the current directory is gone at the end."""
    if not sys.stdin.isatty():
        raise UsageError("`lab shell` needs a terminal; `lab run -- COMMAND` runs one command")
    job = _job([os.environ.get("SHELL", "/bin/sh"), "-i"], clock, memory, seed, writable, openvswitch, tty=True)
    with Guest(lab_kernel(), job) as guest:
        raise typer.Exit(guest.wait())


@app.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run_command(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="The command and its arguments.")],
    clock: ClockOption = "real",
    memory: Memory = 1024,
    seed: Seed = 1,
    writable: Writable = None,
    openvswitch: OpenVSwitch = False,
) -> None:
    """Run a command inside; its output and exit status are this command's. Its standard input is empty."""
    with Guest(lab_kernel(), _job(command, clock, memory, seed, writable, openvswitch, tty=False)) as guest:
        assert guest.stdout is not None and guest.stderr is not None  # noqa: S101 - no tty was asked for
        errors = threading.Thread(target=_pass_on, args=(guest.stderr, sys.stderr.fileno()))
        errors.start()
        _pass_on(guest.stdout, sys.stdout.fileno())
        errors.join()
        raise typer.Exit(guest.wait())


@app.command("doctor")
def doctor_command(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what this machine can do, and what fixes the rest."""
    raise typer.Exit(examine(as_json))


@app.command("clean")
def clean_command() -> None:
    """Remove what killed runs left: yours of the lab kernel, and, as root, one on this machine's own."""
    if os.geteuid() and CLAIM.exists():
        raise UsageError("a run of root has, or had, this machine's own kernel: use sudo")
    removed = remove_remains() + (clean() if os.geteuid() == 0 else [])
    print("\n".join(f"removed {line}" for line in removed) or "there was nothing to remove")


def _job(
    command: Sequence[str], clock: str, memory_mb: int, seed: int, writable: Sequence[Path] | None, openvswitch: bool,
    *, tty: bool,
) -> Job:  # fmt: skip
    clocks: dict[str, Clock] = {"real": "real", "virtual": "virtual"}
    if clock not in clocks:
        raise UsageError(f"--clock {clock!r} must be one of real, virtual")
    missing = [str(path) for path in writable or () if not path.is_dir()]
    if missing:
        raise UsageError(f"--writable {missing[0]}: there is no such directory")
    start = [sys.executable, "-m", "lab.inside", "--openvswitch", "--"] if openvswitch else []
    callers = {name: os.environ[name] for name in ("TERM", "LANG", "LC_ALL", "NO_COLOR") if name in os.environ}
    return Job(
        argv=[*start, *command],
        cwd=Path.cwd(),
        environment=guest_environment(Path(sys.prefix)) | callers | {"PYTHONPATH": str(CHECKOUT)},
        binds=[Bind(path) for path in (Path.cwd(), *(p.resolve() for p in writable or ())) if path != Path("/")],
        seed=seed,
        clock=clocks[clock],
        memory_mb=memory_mb,
        tty=tty,
    )


def _pass_on(source: IO[bytes], target: int) -> None:
    """Copy bytes as they come."""
    while chunk := os.read(source.fileno(), 65536):
        os.write(target, chunk)
