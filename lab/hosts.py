"""What the kernel of this machine lacks for a run on it. Nothing is loaded or changed by asking."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from lab.cca import TWINS, kernel_name, registered
from lab.claim import vswitchd_runs
from lab.environment import python
from lab.lack import Lack

PROGRAMS = {
    "mnexec": "mininet",
    "ovs-vsctl": "openvswitch-switch",
    "tc": "iproute2",
    "ip": "iproute2",
    "modprobe": "kmod",
}
"""Program -> Debian package that has it."""

ROOT = Lack("root", "use sudo")
QDISCS = ("netem", "htb")
OVS_SOCKET = Path("/var/run/openvswitch/db.sock")
OS_RELEASE = Path("/etc/os-release")


def missing(ccas: Iterable[str]) -> list[Lack]:
    """Return what a run with these algorithms would miss on this kernel, each with its remedy; empty when nothing."""
    found = [ROOT] if os.geteuid() else []
    found += [Lack(name, as_root(f"apt-get install {pkg}")) for name, pkg in PROGRAMS.items() if not find_program(name)]
    found += [_of_kernel(f"the qdisc {name}") for name in QDISCS if not _has_qdisc(name)]
    found += [] if _has_datapath() else [_of_kernel("the openvswitch datapath")]
    if not (OVS_SOCKET.exists() and vswitchd_runs()):
        found.append(Lack("a running Open vSwitch", as_root("service openvswitch-switch start")))
    return found + [_algorithm(cca) for cca in ccas if not has_algorithm(cca)]


def _algorithm(cca: str) -> Lack:
    what = f"the algorithm {cca}"
    return Lack(what, f"{as_root(python())} -m lab cca load") if cca in TWINS else _of_kernel(what)


def _of_kernel(what: str) -> Lack:
    remedy = kernel_remedy(platform.release(), distribution())
    return Lack(what, as_root(remedy)) if remedy else Lack(f"{what}, which this kernel was built without")


def as_root(command: str) -> str:
    """Return a command as this user has to give it."""
    return f"sudo {command}" if os.geteuid() else command


def kernel_remedy(release: str, distribution: str) -> str:
    """Return how a machine gets the rest of its distribution's kernel; "" where there is no more to get.

    Examples
    --------
    >>> kernel_remedy("6.8.0-31-generic", "ubuntu")
    'apt-get install linux-modules-extra-6.8.0-31-generic'
    >>> kernel_remedy("6.1.0-30-cloud-amd64", "debian")
    'apt-get install linux-image-amd64, then start that kernel'
    >>> kernel_remedy("6.18.44", "debian")
    ''
    """
    if distribution == "ubuntu":
        return f"apt-get install linux-modules-extra-{release}"
    if distribution == "debian" and "-cloud-" in release:
        return f"apt-get install linux-image-{release.rpartition('-')[2]}, then start that kernel"
    return ""


def has_algorithm(cca: str) -> bool:
    """Say whether the kernel has the algorithm, or a module of it that it would load."""
    names = registered()
    return kernel_name(cca, lambda name: name in names or _module(f"tcp_{name}")) is not None


def find_program(name: str) -> str | None:
    """Return where a program is; those for root are not always on a user's path."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _module(name: str) -> bool:
    """Say whether the kernel has a module: loaded, built in, or there to be loaded."""
    return Path("/sys/module", name).exists() or _succeeds(find_program("modprobe"), "-qn", name)


def _has_qdisc(name: str) -> bool:
    """Say whether the kernel has a qdisc; one that has no modules is asked by using it, in a namespace of its own."""
    trial = ("-n", "tc", "qdisc", "add", "dev", "lo", "root", name)
    return _module(f"sch_{name}") or _succeeds(find_program("unshare"), *trial)


def _has_datapath() -> bool:
    return _module("openvswitch") or _succeeds(find_program("ovs-dpctl"), "dump-dps")


def _succeeds(program: str | None, *arguments: str) -> bool:
    if program is None:
        return False
    return subprocess.run([program, *arguments], capture_output=True, check=False).returncode == 0


def distribution() -> str:
    """Return the distribution's name as /etc/os-release has it: debian, ubuntu; "" when it is not known."""
    text = OS_RELEASE.read_text() if OS_RELEASE.exists() else ""
    return next((line[3:].strip('"') for line in text.splitlines() if line.startswith("ID=")), "")
