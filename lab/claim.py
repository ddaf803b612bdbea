"""One run at a time has a kernel: the claim on it says whose it is, and what there will be to take away.

The claim is a file that its run keeps locked; however the run ends, the kernel gives the lock back. What the run will
make and change is written there before the first thing is made. A claim without a lock is a killed run's: the next run,
or ``python -m lab clean``, takes down what it names and nothing else. What could be someone else's by now must carry
our mark too: interfaces our group, rows of Open vSwitch our tag, processes the run's id in their environment.

Imported in the lab kernel, so it imports little.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from controller.ovsdb import LOCAL, bridges, remove_queues
from topologies.errors import FairbedError

CLAIM = Path("/run/fairbed.json")
RUN_TAG = "run"
"""Value of external_ids:fairbed in every row of Open vSwitch that a run makes."""

GROUP = 0x66616972
"""Every interface of ours is in this group, from its making on (ip-link(8)); it spells "fair"."""

RUN_ID = "FAIRBED_RUN"
"""In the environment of every program that a run starts."""

SYSCTLS = {
    "net.core.netdev_max_backlog": 5000,  # packets between two veths of one CPU; beyond them the kernel drops
    "net.core.rmem_max": 16 << 20,  # bytes
    "net.core.wmem_max": 16 << 20,
}
"""What a run needs of the whole machine at least; put back at its end."""

MODULES = (
    *("sch_netem", "sch_htb", "sch_ingress", "cls_matchall", "act_mirred", "tcp_diag", "inet_diag"),
    "nfnetlink_cttimeout",  # Open vSwitch's daemon asks for it with its first bridge
)
"""What the kernel loads by itself for every run, those that use others first. Each counts its users, so that none that
is in use can go; veth does not, and would take everyone's pairs along: it stays. So does nfnetlink, which the daemon of
Open vSwitch uses from its first bridge on."""

DATAPATH = "ovs-system"
"""The kernel's part of all bridges; the daemon makes it with the first and deletes it with the last."""

VSWITCHD_PID = Path("/var/run/openvswitch/ovs-vswitchd.pid")
FLOCK = struct.Struct("hhqqi4x")
"""struct flock of fcntl(2): type, whence, start, length, pid."""

END_DEADLINE_S = 30.0
"""For a run to take its network down when it is told to end."""
UNLOAD_DEADLINE_S = 3.0
"""A module is used until the kernel has swept the namespaces that used it, which it does in the background."""
OVSDB_DEADLINE_S = 10

Claim = dict[str, Any]


@contextmanager
def claimed(plan: Mapping[str, Any]) -> Iterator[None]:
    """Have this kernel for a run of the plan; at the end everything of the run is gone and the kernel is as before.

    Raises
    ------
    FairbedError
        When another run has the kernel, when names of the plan are taken already, or when what a killed run left
        can't be taken down.
    """
    with _locked() as file:
        _discharge(file)
        _refuse_taken_names(plan)
        claim = _new_claim(plan)
        os.pwrite(file, json.dumps(claim).encode(), 0)
        os.environ[RUN_ID] = claim["run"]
        try:
            for name, (_, ours) in claim["sysctls"].items():
                _sysctl(name).write_text(ours)
            yield
        finally:
            _discharge(file)


def clean() -> list[str]:
    """Take down what a killed run left on this kernel; return what was done, a line for each thing.

    Raises
    ------
    FairbedError
        When a run that someone waits for is going on: it is left alone. When something could not be taken down.
    """
    if CLAIM.exists():
        _end_orphan()
    elif not _rows_left():  # rows outlive the machine's restart, which removes all else
        return []
    with _locked() as file:
        return _discharge(file) + _remove_rows(RUN_TAG)


def _discharge(file: int) -> list[str]:
    """Take down what the claim in a file names, and empty the file; return what was done."""
    claim = _read(file)
    done = take_down(claim) if claim else []
    os.ftruncate(file, 0)
    return done


def take_down(claim: Claim) -> list[str]:
    """Take down what a claim names and what bears its marks; return what was done, a line for each thing."""
    done: list[str] = []
    steps: list[tuple[Callable[[Any], list[str]], Any]] = [
        (_kill_processes, claim["run"]),
        (_remove_rows, RUN_TAG),
        (_remove_claimed_interfaces, claim["interfaces"]),
        (_put_back, claim["sysctls"]),
        (_unload, claim["modules"]),
    ]
    with ExitStack() as stack:  # what one step raises does not keep the others from being taken
        for step, what in reversed(steps):
            stack.callback(lambda step, what: done.extend(step(what)), step, what)
    return done


def interfaces(plan: Mapping[str, Any]) -> list[str]:
    """Return the interfaces that a plan's network has outside its hosts, those of switches and of wires."""
    own = [name for node in plan["topo"]["switches"] for name in plan["nodes"][node]["interfaces"]]
    return [*own, *plan["wires"]]


def modules(plan: Mapping[str, Any]) -> list[str]:
    """Return the modules that the kernel may load by itself for a plan, those that use others first."""
    ccas = [f"tcp_{flow['kernel_cca']}" for flow in plan["flows"]]
    aqms = [f"sch_{queue['aqm']}" for queue in plan["queues"].values()]
    return list(dict.fromkeys([*ccas, *aqms, *MODULES]))


def remove_interfaces(names: Iterable[str]) -> list[str]:
    """Delete those of the interfaces that there are and that are in our group; return their names."""
    groups = {name: _text(Path("/sys/class/net", name, "netdev_group")).strip() for name in names}
    ours = [name for name, group in groups.items() if group == str(GROUP)]
    if ours:  # the second end of a pair goes with the first, so not all of them will be found
        lines = "".join(f"link del dev {name}\n" for name in ours)
        subprocess.run(["ip", "-force", "-batch", "-"], input=lines.encode(), capture_output=True, check=False)
    return ours


def vswitchd_runs() -> bool:
    """Say whether Open vSwitch's daemon is there to carry out what its database says."""
    try:
        os.kill(int(VSWITCHD_PID.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def delete_bridges(names: Sequence[str]) -> None:
    """Delete bridges of ours, in place of Open vSwitch's daemon too when that is dead."""
    words = [word for name in names for word in ("--", "--if-exists", "del-br", name)]
    alive = vswitchd_runs()
    patience = [f"--timeout={OVSDB_DEADLINE_S}", *([] if alive else ["--no-wait"])]
    if words:
        subprocess.run(["ovs-vsctl", *patience, *words], capture_output=True, check=False)
    if not alive:
        _delete_remains(names)


def _delete_remains(names: Iterable[str]) -> None:
    """Delete what a dead daemon has left of bridges; without any bridge left its successor would not do it."""
    commands = [["del-if", DATAPATH, name] for name in names] if bridges(LOCAL) else [["del-dp", DATAPATH]]
    for command in commands:
        subprocess.run(["ovs-dpctl", *command], capture_output=True, check=False)
    for name in names:
        for kind in ("mgmt", "snoop"):
            VSWITCHD_PID.with_name(f"{name}.{kind}").unlink(missing_ok=True)


# ---- the lock


@contextmanager
def _locked() -> Iterator[int]:
    """Give the claim's file, locked by this process; its forks don't have the lock, so it goes with this process.

    A claim that names nothing is removed at the end.
    """
    file = _lock()
    try:
        yield file
    finally:
        if _read(file) is None:
            CLAIM.unlink(missing_ok=True)
        os.close(file)


def _lock() -> int:
    while True:
        file = _open()
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            words = f"this machine's kernel is in use: {_who(file)}. Wait for its end, or use --kernel lab"
            os.close(file)
            raise FairbedError(words) from None
        if _is_current(file):
            return file
        os.close(file)  # a run that ended just now has removed it


def _open() -> int:
    try:
        return os.open(CLAIM, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise FairbedError(f"cannot claim this machine's kernel ({CLAIM}): {error.strerror}; use sudo") from error


def _is_current(file: int) -> bool:
    try:
        return os.fstat(file).st_ino == CLAIM.stat().st_ino
    except FileNotFoundError:
        return False


def _read(file: int) -> Claim | None:
    """Return the claim in a file; None when its run was killed before it had made anything."""
    try:
        return dict(json.loads(os.pread(file, os.fstat(file).st_size, 0)))
    except ValueError:
        return None


def _holder(file: int) -> int:
    """Return the process that has the file locked, 0 when there is none."""
    asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return 0 if kind == fcntl.F_UNLCK else pid


def _who(file: int) -> str:
    claim = _read(file) or {}
    return f"process {_holder(file)} has a run of {claim.get('scenario', 'something')} on it"


def _end_orphan() -> None:
    """Have a run end that nobody waits for any more, and wait for that; leave one alone that has its caller."""
    file = _open()
    try:
        holder, claim = _holder(file), _read(file)
        if not holder or claim is None:
            return
        pid, start = claim["caller"]
        if start_ticks(pid) == start:
            raise FairbedError(f"nothing is removed: {_who(file)}, which is going on")
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(holder)
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)  # or a stopped one would not hear of it
            if not select.select([pidfd], [], [], END_DEADLINE_S)[0]:
                raise FairbedError(f"process {holder}, a run that nobody waits for, does not end: kill -9 it")
            os.close(pidfd)
    finally:
        os.close(file)


# ---- what the claim names


def _new_claim(plan: Mapping[str, Any]) -> Claim:
    present = _loaded()
    caller = os.getppid()
    return {
        "run": f"{os.getpid()}-{start_ticks(os.getpid())}",
        "scenario": plan["scenario"]["name"],
        "caller": [caller, start_ticks(caller)],
        "interfaces": interfaces(plan),
        "sysctls": {
            name: [before, f"{least}\n"]
            for name, least in SYSCTLS.items()
            if (before := _text(_sysctl(name))) and int(before) < least
        },
        "modules": [name for name in modules(plan) if name not in present],
    }


def start_ticks(pid: int) -> int:
    """Return when a process started, in ticks since boot, 0 when it isn't there: with its id this names it for good."""
    text = _text(Path(f"/proc/{pid}/stat"))
    return int(text.rpartition(")")[2].split()[19]) if text else 0  # field 22 of proc(5), the third is at 0


def _refuse_taken_names(plan: Mapping[str, Any]) -> None:
    """Raise a FairbedError when there is an interface or a bridge already that the plan is going to make."""
    _remove_rows(RUN_TAG)  # a bridge of ours without a run is a killed run's
    taken = set(bridges(LOCAL)) | {path.name for path in Path("/sys/class/net").iterdir()}
    if names := [name for name in (*plan["topo"]["switches"], *interfaces(plan)) if name in taken]:
        raise FairbedError(
            f"this machine has {', '.join(names[:5])} already, not made by Fairbed, and the run would make it: "
            "end what uses it (another Mininet?), or use --kernel lab"
        )


def _sysctl(name: str) -> Path:
    return Path("/proc/sys", name.replace(".", "/"))


def _text(path: Path) -> str:
    """Return a file's text, nothing when it isn't there."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _kill_processes(run: str) -> list[str]:
    """Kill the processes that have the run's id in their environment, and wait for their end."""
    mark = f"{RUN_ID}={run}".encode()
    killed = []
    for pid in [int(path.name) for path in Path("/proc").glob("[0-9]*")] if run else []:
        try:
            pidfd = os.pidfd_open(pid)  # before it is looked at: an id may come to be another's
        except OSError:
            continue
        try:
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") and pid != os.getpid():
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                select.select([pidfd], [], [], END_DEADLINE_S)
                killed.append(f"process {pid}")
        except OSError:
            continue  # it has ended, or is none that root may look at, and so none of ours
        finally:
            os.close(pidfd)
    return killed


def _rows_left() -> list[str]:
    """Return the bridges with our tag, none where there is no Open vSwitch."""
    return bridges(LOCAL, RUN_TAG) if Path(LOCAL.removeprefix("unix:")).exists() else []


def _remove_rows(tag: str) -> list[str]:
    """Remove Open vSwitch's rows with a tag."""
    names = bridges(LOCAL, tag)
    delete_bridges(names)
    count = remove_queues(LOCAL, tag, wait=False)
    return [f"bridge {name}" for name in names] + ([f"{count} rows of queues"] if count else [])


def _remove_claimed_interfaces(names: Iterable[str]) -> list[str]:
    return [f"interface {name}" for name in remove_interfaces(names)]


def _put_back(sysctls: Mapping[str, Sequence[str]]) -> list[str]:
    """Set sysctls back to what they were, but for those that someone else has set since."""
    ours = {name: before for name, (before, value) in sysctls.items() if _text(_sysctl(name)) == value}
    for name, before in ours.items():
        _sysctl(name).write_text(before)
    return [f"sysctl {name} back at {before.strip()}" for name, before in ours.items()]


def _loaded() -> set[str]:
    return {line.split()[0] for line in _text(Path("/proc/modules")).splitlines()}


def _unload(names: Iterable[str]) -> list[str]:
    """Unload those of the modules that are loaded and that nothing uses."""
    ours = left = [name for name in names if name in _loaded()]
    deadline = time.monotonic() + UNLOAD_DEADLINE_S
    while left and time.monotonic() < deadline:
        for name in left:
            subprocess.run(["modprobe", "-rq", name], capture_output=True, check=False)
        if left := [name for name in left if name in _loaded()]:
            time.sleep(UNLOAD_DEADLINE_S / 10)
    return [f"module {name}" for name in ours if name not in left]
