"""What this machine can do, what is missing for the rest, and what fixes that: ``python3 -m lab doctor``.

It works with a half-made set-up, so it imports the standard library only. It changes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab import environment
from lab.cca import TWINS, lacks, loaded, survey
from lab.environment import CHECKOUT, SETUP
from lab.hosts import ROOT, as_root, find_program, missing
from lab.lack import Lack

CCAS = ("ndm_tcp", "cubic", "reno", "bbr")
"""What the main job runs."""

LAB_PROGRAMS = ("ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "tc", "ip")
LAB_MEMORY_MB = 1024
LAB_MACHINES = ("x86_64",)
"""What user-mode Linux runs on."""

PROVIDERS = ("VBoxManage", "vmrun")
"""The programs of VirtualBox and VMware; libvirt is known by its plugin."""

VIRTUALISATION = Path("/dev/kvm")
LIBVIRT = Path("/usr/share/vagrant-plugins/plugins.d/vagrant-libvirt.json")
"""What Debian's package of the plugin installs."""


class Way(NamedTuple):
    """One thing that Fairbed can do on some machines.

    Attributes
    ----------
    name, what
        Its short name, and what it is.
    lacks
        What is missing for it.
    runs
        Whether experiments run in this way.
    """

    name: str
    what: str
    lacks: list[Lack]
    runs: bool = True


def ways() -> list[Way]:
    """Return what Fairbed can do, each with what this machine lacks for it, even for root."""
    python = environment.lacks()
    machine = survey()._replace(root=True)
    there = loaded(machine.names)
    ndm = {way: [] if way in there else found for way, found in lacks(machine).items()}
    host = [*python, *(lack for lack in missing(CCAS) if lack != ROOT)] if sys.platform == "linux" else [Lack("Linux")]
    return [
        Way("lab", "runs in the lab kernel, on the virtual or the real clock; needs no root", [*python, *lab_lacks()]),
        Way("host", "runs on this machine's own kernel, on the real clock, as root", host),
        Way("vagrant", "runs in a virtual machine that sets itself up (vagrant up)", vagrant_lacks()),
        Way(
            "module",
            f"NDM-TCP in this machine's own kernel as a module ({', '.join(TWINS)}), loaded by root",
            ndm["module"],
            runs=False,
        ),
        Way(
            "bpf",
            f"NDM-TCP in this machine's own kernel as BPF ({', '.join(TWINS.values())}), loaded by root",
            ndm["bpf"],
            runs=False,
        ),
    ]


def lab_lacks() -> list[Lack]:
    """Return what a run in the lab kernel lacks, the interpreter's packages apart."""
    if sys.platform != "linux" or platform.machine() not in LAB_MACHINES:
        machine = f"{sys.platform} on {platform.machine()}"
        return [Lack(f"Linux on {' or '.join(LAB_MACHINES)}: this is {machine}", "vagrant up")]
    programs = [name for name in LAB_PROGRAMS if not find_program(name)]
    found = [Lack(f"the programs {', '.join(programs)}", SETUP)] if programs else []
    if not any(cache_directory().glob("kernel/lab-*/linux")):
        found.append(Lack("the lab kernel, which is built once (four to seven minutes)", SETUP))
    free_mb = shutil.disk_usage("/dev/shm").free >> 20 if Path("/dev/shm").is_dir() else 0  # noqa: S108
    if free_mb < LAB_MEMORY_MB:
        fix = as_root(f"mount -o remount,size={2 * LAB_MEMORY_MB}M /dev/shm")
        found.append(Lack(f"{LAB_MEMORY_MB} MB of room in /dev/shm: {free_mb} MB are free", fix))
    return found


def cache_directory() -> Path:
    """Return the directory that set-up fills, whichever interpreter asks."""
    asked = subprocess.run([str(CHECKOUT / SETUP), "--where"], capture_output=True, text=True, check=False)
    return Path(asked.stdout.strip() or "/nonexistent")


def vagrant_lacks() -> list[Lack]:
    """Return what ``vagrant up`` lacks here."""
    found = [] if shutil.which("vagrant") else [Lack("vagrant", _package("vagrant"))]
    if not (any(map(shutil.which, PROVIDERS)) or LIBVIRT.exists()):
        found.append(Lack("a provider: VirtualBox, VMware, or libvirt", _package("vagrant-libvirt")))
    if sys.platform == "linux" and not _opens(VIRTUALISATION):
        found.append(Lack(f"hardware virtualisation ({VIRTUALISATION})", "switch it on in the machine's firmware"))
    return found


def _opens(device: Path) -> bool:
    try:
        os.close(os.open(device, os.O_RDWR))
    except PermissionError:
        return True  # for others
    except OSError:
        return False
    return True


def _package(name: str) -> str:
    """Return the command that installs a package where apt knows it, else where it is to be had."""
    known = shutil.which("apt-cache") and subprocess.run(["apt-cache", "show", name], capture_output=True, check=False)
    if known and known.returncode == 0:
        return as_root(f"apt-get install {name}")
    return "https://developer.hashicorp.com/vagrant/install"


def report(found: Sequence[Way]) -> str:
    """Return the text for people."""
    who = "root" if os.geteuid() == 0 else "an ordinary user"
    lines = [f"This machine: {platform.system()} {platform.release()} on {platform.machine()}, {who}", ""]
    for way in found:
        lines.append(f"{'yes' if not way.lacks else 'no ':4} {way.name:8} {way.what}")
        for lack in way.lacks:
            lines.append(f"              missing: {lack.what}")
            lines += [f"              fix:     {lack.fix}"] if lack.fix else []
    return "\n".join([*lines, "", _advice(found)])


def _advice(found: Sequence[Way]) -> str:
    """Return what to do next."""
    ready = [way.name for way in found if way.runs and not way.lacks]
    if not ready:
        return f"Nothing runs here yet; {SETUP} sets up most of what is missing"
    if ready[0] == "vagrant":
        return "Next: vagrant up"
    sudo = "sudo " if ready[0] == "host" and os.geteuid() else ""
    return f"Next: {sudo}{environment.python()} -m experiments.dumbbell"


def as_data(found: Sequence[Way]) -> dict[str, Any]:
    """Return the same for programs."""
    return {
        "machine": {"system": platform.system(), "kernel": platform.release(), "machine": platform.machine()},
        "ways": [
            {
                "name": way.name,
                "what": way.what,
                "ready": not way.lacks,
                "runs": way.runs,
                "missing": [lack._asdict() for lack in way.lacks],
            }
            for way in found
        ],
    }


def examine(as_json: bool) -> int:
    """Print what there is; return 0 when experiments run in at least one way, else 1."""
    found = ways()
    print(json.dumps(as_data(found), indent=1) if as_json else report(found))
    return 0 if any(way.runs and not way.lacks for way in found) else 1


def main(arguments: Sequence[str]) -> int:
    """Do ``lab doctor`` without the packages that other commands need."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that leaves early is no error
    parser = argparse.ArgumentParser(prog="python -m lab doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return examine(parser.parse_args(arguments).json)
