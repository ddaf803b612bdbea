"""What a machine has that a run could leave behind."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OVSDB = "unix:/var/run/openvswitch/db.sock"
COUNTS = {"next_cfg", "cur_cfg", "statistics"}
"""Columns of Open vSwitch's own row that grow whenever anyone changes something."""

RESTLESS = (
    "fs/",
    "kernel/random/",
    "kernel/ns_last_pid",
    "kernel/pty/nr",
    "vm/stat_refresh",
    "net/netfilter/nf_conntrack_count",
)
"""Below /proc/sys: what changes by itself."""

PLACES = ("/tmp", "/run", "/var/tmp", "/dev/shm")  # noqa: S108


def snapshot(except_below: Path) -> dict[str, Any]:
    """Return all there is, but for files below a directory: equal snapshots mean that nothing was left."""
    return {
        "namespaces": sorted(set(_namespaces())),
        "links": _json("ip", "-j", "link", "show"),
        "addresses": sorted(_addresses()),
        "qdiscs": sorted(json.dumps(qdisc) for qdisc in _json("tc", "-j", "qdisc", "show")),
        "open vswitch": _rows(),
        "processes": sorted(_processes()),
        "mounts": sorted(_mounts()),
        "sysctls": dict(_sysctls()),
        "modules": sorted(line.split()[0] for line in _text(Path("/proc/modules")).splitlines()),
        "listeners": sorted(_listeners()),
        "files": sorted(set(_files(except_below))),
    }


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return what differs between two snapshots, by kind: what is gone, what has come."""
    found = {}
    for kind, old in before.items():
        new = after[kind]
        if old != new:
            was, now = (
                {json.dumps(item) for item in (each.items() if isinstance(each, dict) else each)} for each in (old, new)
            )
            found[kind] = {"gone": sorted(was - now), "come": sorted(now - was)}
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _json(*argv: str) -> list[Any]:
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout or "[]"))


def _namespaces() -> Iterator[str]:
    """Yield every network and mount namespace that a process is in or holds open."""
    for process in Path("/proc").glob("[0-9]*"):
        for place in (process / "ns/net", process / "ns/mnt", *(process / "fd").glob("*")):
            try:
                target = str(place.readlink())
            except OSError:
                continue
            if re.match(r"(net|mnt):", target):
                yield target


def _addresses() -> Iterator[str]:
    for link in _json("ip", "-j", "address", "show"):
        yield from (f"{link['ifname']} {address['local']}" for address in link["addr_info"])


def _rows() -> list[str]:
    """Return every row of the Open vSwitch database."""
    done = subprocess.run(
        ["ovsdb-client", "-f", "json", "dump", OVSDB, "Open_vSwitch"], capture_output=True, text=True, check=True
    )
    rows = []
    for line in done.stdout.splitlines():
        table = json.loads(line)
        kept = [index for index, name in enumerate(table["headings"]) if name not in COUNTS]
        rows += [f"{table['caption']} {[row[index] for index in kept]}" for row in table["data"]]
    return sorted(rows)


def _processes() -> Iterator[str]:
    """Yield every process but the kernel's threads and this one's; zombies too. Ids are left out: daemons restart."""
    for process in Path("/proc").glob("[0-9]*"):
        stat = _text(process / "stat")
        words = _text(process / "cmdline").replace("\0", " ").strip()
        if stat.rpartition(")")[2].split()[:1] == ["Z"]:
            yield f"zombie of {stat}"
        elif words and int(process.name) != os.getpid():
            yield words


def _mounts() -> list[str]:
    return [line.split(" - ")[0].split(" ", 3)[3] for line in _text(Path("/proc/self/mountinfo")).splitlines()]


def _sysctls() -> Iterator[tuple[str, str]]:
    root = Path("/proc/sys")
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_file() and os.access(path, os.R_OK) and not name.startswith(RESTLESS):
            yield name, _text(path)


def _listeners() -> Iterator[str]:
    for line in _text(Path("/proc/net/tcp")).splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        if state == "0A":
            yield local


def _files(except_below: Path) -> Iterator[str]:
    """Yield every file of the usual places; a daemon's process id in a name is left out."""
    for place in PLACES:
        for directory, _, names in os.walk(place):
            if not Path(directory).is_relative_to(except_below):
                yield from (re.sub(r"\.\d+\.ctl$", ".PID.ctl", f"{directory}/{name}") for name in ["", *names])
