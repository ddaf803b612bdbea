"""Boots the lab kernel and runs one command inside it.

This module, ``supervisor.py`` and ``kernel/uml`` are all of Fairbed that knows about user-mode Linux. Inside, the
command sees an ordinary Linux machine on which it is root.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

from topologies.errors import FairbedError, UsageError

Clock = Literal["virtual", "real"]

VIRTUAL_EPOCH_S = 1_700_000_000
"""What the guest's wall clock shows at boot on the virtual clock, so that dates repeat too."""

GUEST = Path("/run/fairbed")
"""Where the guest finds what is ours."""

PREFIX = "fairbed-"
"""Of the names of guests' temporary directories."""

ENTROPY_BYTES = 256
SUPERVISOR = Path(__file__).with_name("supervisor.py")


class GuestError(FairbedError):
    """The lab kernel could not be booted, or died."""


@dataclass(frozen=True)
class LabKernel:
    """A finished lab kernel: the directory that ``kernel/uml/build.sh`` made."""

    path: Path

    @property
    def modules(self) -> tuple[Path, ...]:
        """The kernel modules built for it, in the order of loading."""
        return tuple(sorted(self.path.glob("*.ko")))

    def missing(self) -> list[str]:
        """Return the names of needed files that are not there."""
        return [name for name in ("linux", "init", "seeded_random.so") if not (self.path / name).is_file()]


@dataclass(frozen=True)
class Bind:
    """A directory of the host, mounted at a place in the guest (the same path when none is given)."""

    host: Path
    guest: Path | None = None
    writable: bool = True


@dataclass(frozen=True)
class Job:
    """One command for the guest.

    ``binds`` are host directories that are mounted somewhere in the guest; what the command writes elsewhere is in
    the guest's memory. ``environment`` is the whole environment. ``tty`` hands the caller's terminal to the command.

    What must repeat bit for bit sees fixed paths only (below `GUEST`), however deep the host's own are: making a
    directory reads the clock, and reading the virtual clock moves it a little.
    """

    argv: Sequence[str]
    cwd: Path
    environment: dict[str, str] = field(default_factory=dict)
    binds: Sequence[Bind] = ()
    seed: int = 1
    clock: Clock = "virtual"
    memory_mb: int = 1024
    tty: bool = False


def entropy(seed: int) -> bytes:
    """Return the bytes that the guest's random generator is credited with: a function of the seed alone."""
    import random

    return random.Random(seed).randbytes(ENTROPY_BYTES)  # noqa: S311 - repeatable on purpose


def kernel_arguments(job: Job) -> list[str]:
    """Return the lab kernel's command line; the reason for each option is in ``kernel/README.md``.

    The kernel stirs this line into its random generator, so nothing in it may differ between two runs of one scenario:
    the kernel finds its files through its working directory, never by a path that is made up or the user's own.
    """
    arguments = [
        f"mem={job.memory_mb}M",
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "rw",
        "init=/proc/self/cwd/init",
        "quiet",
        "seccomp=on",
        "norandmaps",
        "thash_entries=2048",  # inet_diag walks the whole table; the default for 1 GB has 8192 buckets
        "con=null",
        "con0=null,fd:2",
        "con1=fd:0,fd:1" if job.tty else "con1=null,fd:1",
        "con2=null,fd:3",
    ]
    if job.clock == "virtual":
        arguments += ["time-travel=inf-cpu", f"time-travel-start={VIRTUAL_EPOCH_S}"]
    return arguments


def _nul_ended(entries: Sequence[object]) -> bytes:
    return b"".join(os.fsencode(str(entry)) + b"\0" for entry in entries)


def _bind_entry(bind: Bind) -> tuple[object, object, object]:
    return "w" if bind.writable else "r", bind.host, bind.guest or bind.host


def write_job(kernel: LabKernel, job: Job, directory: Path) -> None:
    """Write what ``kernel/uml/init.c`` reads."""
    directory.mkdir()
    binds = [Bind(directory, GUEST / "job"), Bind(kernel.path, GUEST / "kernel", writable=False), *job.binds]
    files: dict[str, bytes] = {
        "argv": _nul_ended(job.argv),
        "env": _nul_ended([f"{name}={value}" for name, value in job.environment.items()]),
        "cwd": os.fsencode(job.cwd),
        "binds": _nul_ended([part for bind in binds for part in _bind_entry(bind)]),
        "modules": _nul_ended([GUEST / "kernel" / module.name for module in kernel.modules]),
        "entropy": entropy(job.seed),
    }
    if job.tty:
        columns, rows = shutil.get_terminal_size()
        files["tty"] = f"{rows} {columns}".encode()
    for name, content in files.items():
        (directory / name).write_bytes(content)


def check_memory(memory_mb: int) -> None:
    """Refuse a guest that the machine has no memory for.

    Raises
    ------
    UsageError
        When less is available than the guest may come to use.
    """
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available_mb = int(meminfo["MemAvailable"].split()[0]) // 1024
    shm_mb = shutil.disk_usage("/dev/shm").free >> 20 if Path("/dev/shm").is_dir() else available_mb  # noqa: S108
    for what, amount in (("memory", available_mb), ("room in /dev/shm", shm_mb)):
        if amount < memory_mb:
            raise UsageError(
                f"the lab kernel needs {memory_mb} MB, but this machine has only {amount} MB of {what} available; "
                "close something, or ask for less with --memory"
            )


class Guest:
    """A running lab kernel with one command in it; a context manager.

    Leaving the context, and the death of this process however it comes, ends the guest and removes its files.

    Attributes
    ----------
    stdout, stderr
        The command's output as binary streams; None with ``tty``.
    console
        The kernel's own messages (nothing, unless it is in trouble).
    """

    def __init__(self, kernel: LabKernel, job: Job) -> None:
        if missing := kernel.missing():
            raise GuestError(f"the lab kernel in {kernel.path} lacks {', '.join(missing)}; run `make setup`")
        check_memory(job.memory_mb)
        self._kernel, self._job = kernel, job
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._lock = -1
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        self.console_path: Path | None = None

    def __enter__(self) -> Guest:
        # The short name matters: user-mode Linux puts a socket's path of at most 108 bytes below it.
        self._directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # the supervisor shares it: free when both are dead
        try:
            self._start(self._directory)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self, directory: Path) -> None:
        write_job(self._kernel, self._job, directory / "job")
        (directory / "init").symlink_to(self._kernel.path / "init")
        lifeline, self._lifeline = os.pipe()
        error_read, error_write = (-1, -1) if self._job.tty else os.pipe()
        environment = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        seeded = self._kernel.path / "seeded_random.so"
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-IS",
                    str(SUPERVISOR),
                    str(directory),
                    str(lifeline),
                    str(error_write),
                    str(seeded),
                    str(self._job.seed),
                    str(self._kernel.path / "linux"),
                    *kernel_arguments(self._job),
                ],
                stdin=None if self._job.tty else subprocess.DEVNULL,
                stdout=None if self._job.tty else subprocess.PIPE,
                pass_fds=[fd for fd in (lifeline, error_write, self._lock) if fd >= 0],
                env=environment,
                start_new_session=not self._job.tty,
            )
        finally:
            os.close(lifeline)
            if error_write >= 0:
                os.close(error_write)
        self.stdout = self._process.stdout
        self.stderr = None if error_read < 0 else os.fdopen(error_read, "rb")

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the command and return its exit status (128 + signal when it was killed).

        Raises
        ------
        GuestError
            When the kernel ended without the command's status: its own last words are the message.
        subprocess.TimeoutExpired
            When the command is still running after ``timeout_s`` of real time.
        """
        assert self._process is not None and self._directory is not None  # noqa: S101 - inside the context only
        self._process.wait(timeout_s)
        status = self._directory / "job" / "status"
        if status.is_file():
            return int(status.read_text())
        raise GuestError(f"the lab kernel died: {self.last_words()}")

    def last_words(self) -> str:
        """Return the kernel's last messages on one line, a panic's own line first when there is one."""
        assert self._directory is not None  # noqa: S101
        log = self._directory / "console"
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()] if log.exists() else []
        panics = [line for line in lines if "panic" in line.lower() or line.startswith("fairbed init:")]
        return panics[0] if panics else " | ".join(lines[-3:]) or "it said nothing"

    def kill(self) -> None:
        """End the guest at once."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if self._process is not None:
            self._process.wait()
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            os.close(self._lock)


def remove_remains() -> list[str]:
    """Remove what guests left of which every process was killed; return what was done, a line for each thing."""
    if (GUEST / "job").exists():
        return []  # in a guest: what is seen here is the host's, whose processes are not
    remains = [path for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if _is_abandoned(path)]
    for directory in remains:
        shutil.rmtree(directory)
    return [f"directory {directory}" for directory in remains]


def _is_abandoned(directory: Path) -> bool:
    """Say whether a directory is a guest's, ours to remove, and neither locked nor worked in by any process."""
    if directory.stat().st_uid != os.geteuid() or not (directory / "job" / "entropy").is_file():
        return False
    lock = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return not any(_works_in(process, directory) for process in Path("/proc").glob("[0-9]*"))


def _works_in(process: Path, directory: Path) -> bool:
    try:
        return (process / "cwd").samefile(directory)
    except OSError:
        return False  # it has ended, or is another user's


def guest_environment(virtual_environment: Path | None = None) -> dict[str, str]:
    """Return the environment of a command in the guest: nothing of the caller's, so that runs repeat everywhere."""
    programs = [f"{virtual_environment}/bin"] if virtual_environment else []
    return {
        "PATH": ":".join([*programs, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]),
        "HOME": str(GUEST),  # not /root: whether the caller may look into that is one more difference
        "USER": "root",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SETUPTOOLS_USE_DISTUTILS": "stdlib" if sys.version_info < (3, 12) else "local",  # Mininet imports distutils
    }


def signal_name(status: int) -> str:
    """Return "killed by SIGX" for an exit status above 128, "exit status N" otherwise."""
    try:
        return f"killed by {signal.Signals(status - 128).name}" if status > 128 else f"exit status {status}"
    except ValueError:
        return f"exit status {status}"
