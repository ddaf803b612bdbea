"""Congestion-control algorithms: which ones this kernel has, and how to get NDM-TCP into it.

NDM-TCP comes as a module (``ndm_tcp``, ``ndm2``) and as BPF programs (``bpf_ndm``, ``bpf_ndm2``) for kernels where
nobody may load a module. What can be done is decided by pure functions on a ``Machine``; ``kernel/ndm/Makefile`` does
it. Imported in the lab kernel, so it imports little.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lab.lack import Lack
from topologies.errors import FairbedError, UsageError

NDM = Path(__file__).resolve().parent.parent / "kernel" / "ndm"
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")

TWINS = {"ndm_tcp": "bpf_ndm", "ndm2": "bpf_ndm2"}
"""Algorithm -> its name where it is a BPF program; the arithmetic is the same."""

REMEDIES = dict.fromkeys(TWINS, "load it with `python -m lab cca load`, or use --kernel lab, which has it")
"""How to get an algorithm that no distribution ships."""

OLDEST_FOR_MODULE = (5, 19)  # tcp_snd_cwnd() and tcp_snd_cwnd_set()
OLDEST_FOR_BPF = (5, 13)  # struct_ops programs that call kernel functions
BPF_PROGRAMS = {"clang": "clang", "llvm-strip": "llvm", "bpftool": "bpftool"}
"""Program -> Debian package that has it."""

LOADING = {"module": "load", "bpf": "bpf-load"}
"""Way -> target of kernel/ndm/Makefile, in the order of trying."""


class LoadError(FairbedError):
    """NDM-TCP can't be loaded or unloaded: the message says why, and what would help."""


# ---- what the kernel has


def registered() -> list[str]:
    """Return the algorithms that the running kernel has registered, in its order; it may be able to load more."""
    return _text(AVAILABLE).split()


def is_available(cca: str) -> bool:
    """Say whether a socket can have the algorithm; asking loads its module where root may."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cca.encode())
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return False
    return True


def kernel_name(cca: str, has: Callable[[str], bool]) -> str | None:
    """Return the name under which a kernel has the algorithm: its own, else its BPF twin's; None when it lacks both.

    Examples
    --------
    >>> kernel_name("ndm2", {"cubic", "ndm2", "bpf_ndm2"}.__contains__)
    'ndm2'
    >>> kernel_name("ndm2", {"cubic", "bpf_ndm2"}.__contains__)
    'bpf_ndm2'
    >>> kernel_name("bbr", {"cubic", "bpf_ndm2"}.__contains__)
    """
    return next((name for name in (cca, TWINS.get(cca)) if name and has(name)), None)


def check_available(flows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return each algorithm of the flows with the name that this kernel knows it by.

    Raises
    ------
    UsageError
        Names every algorithm that this kernel lacks, what it has, and how to get the missing.
    """
    names = {cca: kernel_name(cca, is_available) for cca in dict.fromkeys(flow["kernel_cca"] for flow in flows)}
    missing = [cca for cca, name in names.items() if name is None]
    if missing:
        how = "; ".join(f"{cca}: {REMEDIES.get(cca, f'try `modprobe tcp_{cca}`')}" for cca in missing)
        raise UsageError(
            f"unknown algorithm {', '.join(missing)}: this kernel has {', '.join(sorted(registered()))}. {how}"
        )
    return {cca: name for cca, name in names.items() if name is not None}


# ---- how NDM-TCP can get into it


class Machine(NamedTuple):
    """What decides how NDM-TCP can be loaded.

    Attributes
    ----------
    root
        Whether this process may load anything.
    release
        The running kernel's, as ``uname -r`` says it.
    modules
        Whether the kernel can load modules.
    headers
        Whether the files to build a module against are there.
    signed_only
        Whether only signed modules are taken (lockdown, Secure Boot).
    btf
        Whether the kernel describes its types, as BPF programs need.
    lacking
        Packages that building a BPF program needs and this machine lacks.
    names
        The registered algorithms.
    """

    root: bool
    release: str
    modules: bool
    headers: bool
    signed_only: bool
    btf: bool
    lacking: tuple[str, ...]
    names: frozenset[str]


def survey(root: Path = Path("/")) -> Machine:
    """Return what this machine is; ``root`` is where /proc, /sys, /lib/modules and /usr/include are looked for."""
    release = platform.release()
    locked = _text(root / "sys/kernel/security/lockdown")
    enforced = _text(root / "sys/module/module/parameters/sig_enforce").strip() == "Y"
    lacking = [package for program, package in BPF_PROGRAMS.items() if not shutil.which(program)]
    if not (root / "usr/include/bpf/bpf_helpers.h").exists():
        lacking.append("libbpf-dev")
    return Machine(
        root=os.geteuid() == 0,
        release=release,
        modules=(root / "proc/modules").exists(),
        headers=(root / "lib/modules" / release / "build/Makefile").exists(),
        signed_only=enforced or bool(re.search(r"\[(integrity|confidentiality)\]", locked)),
        btf=(root / "sys/kernel/btf/vmlinux").exists(),
        lacking=tuple(lacking),
        names=frozenset(_text(root / AVAILABLE.relative_to("/")).split()),
    )


def _text(path: Path) -> str:
    """Return a file's text, nothing when there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _version(release: str) -> tuple[int, int]:
    """Return a kernel release's first two numbers.

    Examples
    --------
    >>> _version("6.12.113+deb12-amd64"), _version("7.0-rc1")
    ((6, 12), (7, 0))
    """
    numbers = [int(number) for number in re.findall(r"\d+", release)[:2]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)


def obstacles(machine: Machine) -> dict[str, str]:
    """Return, for each way to load NDM-TCP, what stands in it and the remedy; "" when nothing does."""
    return {way: "; ".join(map(str, found)) for way, found in lacks(machine).items()}


def lacks(machine: Machine) -> dict[str, list[Lack]]:
    """Return, for each way to load NDM-TCP, what the machine lacks."""
    return {"module": list(_module_lacks(machine)), "bpf": list(_bpf_lacks(machine))}


def _module_lacks(machine: Machine) -> Iterator[Lack]:
    if not machine.root:
        yield Lack("it needs root", "use sudo")
    if _version(machine.release) < OLDEST_FOR_MODULE:
        yield Lack(f"kernel {machine.release} is older than 5.19")
    if not machine.modules:
        yield Lack("this kernel can't load modules (CONFIG_MODULES)")
    elif machine.signed_only:
        yield Lack("this kernel takes signed modules only (lockdown, Secure Boot): sign ndm_tcp.ko and insmod it")
    if machine.modules and not machine.headers:
        yield Lack("there are no headers of this kernel", f"apt-get install linux-headers-{machine.release}")


def _bpf_lacks(machine: Machine) -> Iterator[Lack]:
    if not machine.root:
        yield Lack("it needs root", "use sudo")
    if _version(machine.release) < OLDEST_FOR_BPF:
        yield Lack(f"kernel {machine.release} is older than 5.13")
    if not machine.btf:
        yield Lack("this kernel has no BTF (CONFIG_DEBUG_INFO_BTF)")
    if machine.lacking:
        yield Lack(f"{', '.join(machine.lacking)} not found", f"apt-get install {' '.join(machine.lacking)}")


def loaded(names: Iterable[str]) -> list[str]:
    """Return the ways by which NDM-TCP is loaded now: "module", "bpf", both or none.

    Examples
    --------
    >>> loaded(["reno", "bpf_ndm", "bpf_ndm2"])
    ['bpf']
    """
    registered = set(names)
    return [way for way, ours in (("module", set(TWINS)), ("bpf", set(TWINS.values()))) if registered & ours]


def ways_to_load(machine: Machine, how: str) -> list[str]:
    """Return the ways to try, the best first; ``how`` is "auto", "module" or "bpf".

    Raises
    ------
    LoadError
        When no way is open: every obstacle, with its remedy.
    """
    wanted = list(LOADING) if how == "auto" else [how]
    blocked = obstacles(machine)
    open_ways = [way for way in wanted if not blocked[way]]
    if not open_ways:
        why = ". ".join(f"As {'a module' if way == 'module' else 'BPF'}: {blocked[way]}" for way in wanted)
        raise LoadError(f"NDM-TCP can't be loaded here. {why}. The lab kernel has it (--kernel lab)")
    return open_ways


def make(target: str, build: Path) -> None:
    """Run a target of kernel/ndm/Makefile.

    Raises
    ------
    LoadError
        With what it said.
    """
    command = ["make", "-s", "--no-print-directory", "-C", str(NDM), f"BUILD={build}", target]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise LoadError(_words(done.stdout) or f"`{' '.join(command)}` failed and said nothing")


def _words(output: str) -> str:
    """Return what went wrong from make's output: the lines that ndm.sh said, else the last ones."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("make")]
    said = [line.removeprefix("ndm: ") for line in lines if line.startswith("ndm: ")]
    return " ".join(said or lines[-5:])


def load(machine: Machine, build: Path, how: str = "auto") -> str:
    """Load NDM-TCP in the first way that works and return that way; nothing happens when it is loaded already.

    Raises
    ------
    LoadError
        When no way works; nothing is left registered then.
    """
    present = loaded(machine.names)
    if present and how in ("auto", *present):
        return present[0] if how == "auto" else how
    failures = []
    for way in ways_to_load(machine, how):
        try:
            make(LOADING[way], build)
        except LoadError as error:
            failures.append(f"as {way}: {error}")
        else:
            return way
    raise LoadError(f"NDM-TCP could not be loaded; {'; '.join(failures)}")


def unload(machine: Machine, build: Path) -> list[str]:
    """Unload NDM-TCP in every way it is loaded and return them.

    Raises
    ------
    LoadError
        When sockets still use it, or this is not root; what is still loaded works on.
    """
    ways = loaded(machine.names)
    for way in ways:
        make("unload" if way == "module" else "bpf-unload", build)
    return ways
