"""The controller's process, watched while a run goes on; and what is broken on purpose.

A controller that ends early is a fault, not the end of the run: switches forward as they did. Open vSwitch itself
ending is the end: nobody would notice what it no longer does.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from controller.ovsdb import LOCAL, remove_queues
from controller.start import command
from lab.claim import VSWITCHD_PID
from lab.event_line import event_line
from topologies.errors import FairbedError

DEADLINE_S = 30.0

Tell = Callable[[str], None]


class Controller:
    """The controller process; a context manager, inside which rules and queues are in place.

    Parameters
    ----------
    plan
        See ``plan.py``: its ``framework``, ``application`` and the controller's own part.
    raw
        The run's directory of raw data.
    listen
        Address and port to listen on.
    tell
        Called with the words for a fault.
    """

    def __init__(self, plan: Mapping[str, Any], raw: Path, listen: tuple[str, int], tell: Tell) -> None:
        self._plan, self._raw, self._listen, self._tell = plan, raw, listen, tell
        self._t0_ns: int | None = None
        self._begin_fd = -1
        self._ending = False
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Controller:
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def start(self) -> None:
        """Start the process and wait until the network is ready."""
        ready, ready_write = os.pipe()
        begin, self._begin_fd = os.pipe()
        if self._t0_ns is not None:
            self.begin(self._t0_ns)
        application = self._plan.get("application")
        argv = command(
            self._raw / "controller.json",
            ":".join(map(str, self._listen)),
            framework=self._plan["framework"],
            events=self._raw / "controller.jsonl",
            ready_fd=ready_write,
            begin_fd=begin,
            application=self._raw / application if application else None,
        )
        log_path = self._raw / "controller.log"
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(argv, pass_fds=[ready_write, begin], stdout=log, stderr=log)
        os.close(ready_write)
        os.close(begin)
        if read_line(ready, DEADLINE_S) != b"ready\n":
            words = log_path.read_text().strip() or "it said nothing"
            raise FairbedError(f"the controller did not get the network ready: {words}")
        self._watcher = threading.Thread(target=self._watch, args=(self._process,), daemon=True)
        self._watcher.start()

    def begin(self, t0_ns: int) -> None:
        """Tell it when the run begins."""
        self._t0_ns = t0_ns
        os.write(self._begin_fd, t0_ns.to_bytes(8, "little"))
        os.close(self._begin_fd)
        self._begin_fd = -1

    def kill(self) -> None:
        """Kill it, as a crash would end it."""
        if self._process is not None and self._watcher is not None:
            self._process.kill()
            self._watcher.join()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the process's end, and report it when it isn't ours to make."""
        status = process.wait()
        if not self._ending:
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            self._tell(f"the controller ended during the run ({how}); forwarding went on as it was")
            report(self._raw, "controller_ended", how)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        if self._begin_fd >= 0:
            os.close(self._begin_fd)
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        remove_queues(LOCAL, self._plan["controller"]["tag"], wait=False)  # what a killed one has left


def read_line(fd: int, deadline_s: float) -> bytes:
    """Return what comes from ``fd`` within the deadline: nothing when it ends or is late."""
    ready, _, _ = select.select([fd], [], [], deadline_s)
    line = os.read(fd, 64) if ready else b""
    os.close(fd)
    return line


def report(raw: Path, kind: str, subject: str = "") -> None:
    """Record an event of the lab itself."""
    with (raw / "lab.jsonl").open("ab") as file:
        file.write(event_line(kind, subject))


@contextmanager
def guarded_switches(raw: Path) -> Iterator[None]:
    """Raise a FairbedError in the main thread, whatever it waits for, when Open vSwitch's daemon ends."""
    try:
        pidfd = os.pidfd_open(int(VSWITCHD_PID.read_text()))
    except (OSError, ValueError):
        raise FairbedError("Open vSwitch's daemon, ovs-vswitchd, is not running") from None
    leave_read, leave_write = os.pipe()

    def watch() -> None:
        ready, _, _ = select.select([pidfd, leave_read], [], [])
        if leave_read not in ready:
            report(raw, "vswitchd_ended")
            os.kill(os.getpid(), signal.SIGUSR1)

    def end(*_: object) -> None:
        raise FairbedError("Open vSwitch's daemon, ovs-vswitchd, ended during the run")

    before = signal.signal(signal.SIGUSR1, end)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        os.close(leave_write)
        watcher.join()
        signal.signal(signal.SIGUSR1, before)
        os.close(leave_read)
        os.close(pidfd)


def break_on_time(faults: Sequence[Mapping[str, Any]], made: Controller, t0_ns: int, raw: Path) -> None:
    """Do what the scenario wants broken, each at its time, in a thread that ends with the process."""
    actions: dict[str, Callable[[], None]] = {
        "kill-controller": made.kill,
        "restart-controller": made.start,
        "kill-vswitchd": lambda: os.kill(int(VSWITCHD_PID.read_text()), signal.SIGKILL),
    }

    def work() -> None:
        for fault in faults:
            time.sleep(max(0, t0_ns + round(fault["at_s"] * 1e9) - time.monotonic_ns()) / 1e9)
            report(raw, "fault", fault["what"])
            try:
                actions[fault["what"]]()
            except FairbedError as error:
                print(error, file=sys.stderr)

    if faults:
        threading.Thread(target=work, daemon=True).start()
