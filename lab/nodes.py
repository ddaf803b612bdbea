"""Mininet's nodes without what makes large networks slow to start: a shell for each, and a process for each host.

A host is a network namespace that the lab's own process holds open; its process, and any node's shell, are started by
the first who asks for them, so that ``net["snd1"].cmd("ip addr")`` and ``popen`` do what they do in any Mininet.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Sequence
from typing import Any, NoReturn

from mininet.node import Host, OVSSwitch

from controller.ovsdb import TAG
from lab.claim import RUN_TAG, delete_bridges
from lab.netlink import CLONE_NEWNET, enter_namespace
from lab.process import end_with_parent

CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(status: int, what: str) -> None:
    if status:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def new_namespace() -> int:
    """Return a descriptor of a new network namespace, which lives until the last descriptor of it is closed."""
    path, flags = "/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC
    own = os.open(path, flags)
    try:
        _checked(_libc.unshare(CLONE_NEWNET), "unshare")
        made = os.open(path, flags)
        enter_namespace(own)
    finally:
        os.close(own)
    return made


def _be_inside(namespace: int) -> NoReturn:
    """Be a process in a namespace, with its own /sys as mnexec makes it, until killed or left alone."""
    try:
        end_with_parent()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        enter_namespace(namespace)
        _checked(_libc.unshare(CLONE_NEWNS), "unshare")
        _checked(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount")
        _checked(_libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None), "mount")
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))  # the last: who waits for our ready pipe's end may go on
        while True:
            signal.pause()
    finally:
        os._exit(1)


def process_in(namespace: int) -> int:
    """Return the id of a new child process that stays in a namespace and does nothing."""
    ready, ready_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_inside(namespace)
    os.close(ready_write)
    os.read(ready, 1)  # nothing comes: its end is what we wait for
    os.close(ready)
    return pid


class _ShellOnDemand:
    """A node whose shell starts with its first command."""

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802 - Mininet's name
        """Do nothing yet."""

    def _need_shell(self) -> None:
        if not self.shell:  # type: ignore[attr-defined]
            self._begin_shell()

    def _begin_shell(self) -> None:
        super().startShell()  # type: ignore[misc]

    def cmd(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command in the node's shell and return its output."""
        self._need_shell()
        return super().cmd(*args, **kwargs)  # type: ignore[misc]

    def sendCmd(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - Mininet's name
        """Start a command in the node's shell."""
        self._need_shell()
        return super().sendCmd(*args, **kwargs)  # type: ignore[misc]


class LightHost(_ShellOnDemand, Host):  # type: ignore[misc]
    """A host that is no more than a network namespace until someone wants its process or its shell.

    Attributes
    ----------
    namespace : int
        A descriptor of it.
    """

    def __init__(self, name: str, inNamespace: bool = True, **params: Any) -> None:  # noqa: N803 - Mininet's name
        self.namespace = new_namespace()
        self._process: int | None = None
        super().__init__(name, inNamespace, **params)

    @property
    def pid(self) -> int:
        """A process in its namespace, which is started when it is asked for first."""
        if self._process is None:
            self._process = process_in(self.namespace)
        return self._process

    @pid.setter
    def pid(self, value: int | None) -> None:
        """Keep the process: Mininet sets this to None first, and to its shell later."""

    def _begin_shell(self) -> None:
        self.inNamespace = False  # or Mininet would have one made
        try:
            Host.startShell(self, f"-cda{self.pid}")
        finally:
            self.inNamespace = True

    def config(self, **_: object) -> dict[str, object]:
        """Do nothing: the network's batches do."""
        return {}

    def terminate(self) -> None:
        """End its shell and its process, and with its last descriptor its namespace and the interfaces there."""
        super().terminate()
        if self._process is not None:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
            self._process = None
        if self.namespace >= 0:
            os.close(self.namespace)
            self.namespace = -1


class LightSwitch(_ShellOnDemand, OVSSwitch):  # type: ignore[misc]
    """A switch without a shell until a command is given to it; it needs none to start or to stop."""

    def bridgeOpts(self) -> str:  # noqa: N802 - Mininet's name
        """Return the options of its bridge, our tag among them."""
        return f"{super().bridgeOpts()} external_ids:{TAG}={RUN_TAG}"

    @classmethod
    def batchShutdown(cls, switches: Sequence[LightSwitch], **_: object) -> Sequence[LightSwitch]:  # noqa: N802
        """Delete all bridges with one command, which does not wait for a daemon that is dead."""
        delete_bridges([switch.name for switch in switches])
        for switch in switches:
            switch.terminate()
        return switches
