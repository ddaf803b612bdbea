"""What the kernel of this machine lacks for a run on it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from lab.cca import REMEDIES, has_algorithm

PROGRAMS = {"mnexec": "mininet", "ovs-vsctl": "openvswitch-switch", "tc": "iproute2", "ip": "iproute2"}
"""Program -> Debian package that has it."""

QDISCS = ("netem", "htb")
OVS_SOCKET = Path("/var/run/openvswitch/db.sock")


def missing(ccas: Iterable[str]) -> list[str]:
    """Return what a run with these algorithms would miss on this kernel, each with its remedy; empty when nothing."""
    found = []
    if os.geteuid():
        found.append("root (use sudo)")
    found += [f"{name} (install {package})" for name, package in PROGRAMS.items() if not shutil.which(name)]
    found += [f"the qdisc {name} (modprobe sch_{name})" for name in QDISCS if not _module(f"sch_{name}")]
    if not _module("openvswitch"):
        found.append("the openvswitch datapath (modprobe openvswitch)")
    if not OVS_SOCKET.exists():
        found.append("a running Open vSwitch (service openvswitch-switch start)")
    found += [
        f"the algorithm {cca} ({REMEDIES.get(cca, f'modprobe tcp_{cca}')})" for cca in ccas if not has_algorithm(cca)
    ]
    return found


def _module(name: str) -> bool:
    """Say whether the kernel has a module: loaded, built in, or there to be loaded."""
    if Path("/sys/module", name).exists():
        return True
    modprobe = shutil.which("modprobe") or "/sbin/modprobe"
    try:
        return subprocess.run([modprobe, "-qn", name], check=False, capture_output=True).returncode == 0
    except OSError:
        return False
