"""How others start the controller process; importing this loads neither the controller nor a framework."""

import socket
import sys
from pathlib import Path

from topologies.errors import FairbedError

__all__ = ["check_free", "command"]


def check_free(address: tuple[str, int]) -> None:
    """Raise a FairbedError if the address is taken; the framework itself would share it or go on without."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen()
        except OSError as error:
            raise FairbedError(f"cannot listen on {address[0]}:{address[1]}: {error.strerror}") from error


def command(
    plan: Path,
    listen: str = "127.0.0.1:6653",
    framework: str = "ryu",
    events: Path | None = None,
    ready_fd: int | None = None,
    ovsdb: str | None = None,
    begin_fd: int | None = None,
    application: Path | None = None,
) -> list[str]:
    """Return the controller's command line, to be started in the checkout's folder.

    Parameters
    ----------
    plan : pathlib.Path
        File written by `controller.plan.write`.
    listen : str
        Loopback address and port.
    framework : str
        "ryu" or "os-ken".
    events : pathlib.Path, optional
        Gets one JSON object a line.
    ready_fd : int, optional
        Descriptor that the process inherits: b"ready\\n" means that all rules are in force, an end without it
        that the process failed.
    ovsdb : str, optional
        "unix:/path" of the OVSDB server, where it isn't the usual one.
    begin_fd : int, optional
        Descriptor that the process inherits: 8 bytes, little-endian, say when the run begins, in ns of the monotonic
        clock. Without it the run begins when all rules are in force.
    application : pathlib.Path, optional
        File of an application that makes the rules in place of the plan's.

    Examples
    --------
    >>> " ".join(command(Path("plan.json"), framework="os-ken", ready_fd=5)[1:])
    '-m controller --plan plan.json --listen 127.0.0.1:6653 --framework os-ken --ready-fd 5'
    """
    options = {
        "--events": events,
        "--ready-fd": ready_fd,
        "--ovsdb": ovsdb,
        "--begin-fd": begin_fd,
        "--application": application,
    }
    given = [str(part) for name, value in options.items() if value is not None for part in (name, value)]
    required = ["--plan", str(plan), "--listen", listen, "--framework", framework]
    return [sys.executable, "-m", "controller", *required, *given]
