"""The first program in the lab kernel: starts what a machine has running, then is the command itself.

``python -m lab.inside [--openvswitch] -- COMMAND…``; a command ``-m MODULE …`` runs in this same interpreter, because
starting another costs.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time
from pathlib import Path

OVS_DIRECTORY = Path("/run/openvswitch")
OVS_SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"

OVS_EARLIEST_S = 11.0
"""Open vSwitch 3.1 counts processors at most every 10 s, from zero: started earlier in a kernel's life it finds none
and forwards nothing. On the virtual clock the wait is free."""

QUIET = ["-vconsole:off", "-vsyslog:off", "--no-chdir", "--log-file=/dev/null"]


def start_openvswitch() -> None:
    """Start Open vSwitch on private paths, as its package's init script would."""
    OVS_DIRECTORY.mkdir(exist_ok=True)
    database = str(OVS_DIRECTORY / "conf.db")
    socket = f"--remote=punix:{OVS_DIRECTORY}/db.sock"
    for argv in (
        ["ovsdb-tool", "create", database, OVS_SCHEMA],
        ["ovsdb-server", database, socket, "--pidfile", "--detach", *QUIET],
        ["ovs-vsctl", "--no-wait", "init"],
    ):
        subprocess.run(argv, check=True)
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    time.sleep(max(0.0, OVS_EARLIEST_S - uptime_s))
    subprocess.run(["ovs-vswitchd", "--pidfile", "--detach", *QUIET], check=True)


def main(arguments: list[str]) -> None:
    """Start what is asked for, then run the command in place of this program."""
    split = arguments.index("--")
    options, command = arguments[:split], arguments[split + 1 :]
    if "--openvswitch" in options:
        start_openvswitch()
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        print(f"fairbed: {command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
