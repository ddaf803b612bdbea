"""Changes links while a run goes on: the plan's events, each at its time, in a process of its own.

netem and a host's HTB are changed by netlink, one message each; a switch port's rate by OVSDB, because its queues are
the controller's. Nothing is removed and added again, so no packet that waits is lost.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controller.netlink import NETLINK_ROUTE, RTM_NEWQDISC, RTM_NEWTCLASS, change
from controller.ovsdb import LOCAL, apply_queues
from controller.plan import PortSetting
from lab.event_line import event_line
from lab.netem import Netem, htb_body, netem_body
from lab.netlink import Namespaces
from lab.process import end_with_parent
from topologies.errors import FairbedError


class Links:
    """The links of a running network, to be changed.

    Parameters
    ----------
    plan
        See ``plan.py``.
    namespaces
        The hosts' namespaces.
    """

    def __init__(self, plan: Mapping[str, Any], namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._sockets: dict[str | None, socket.socket] = {}
        self._tag = plan["controller"]["tag"]
        self._ports = _by_name(plan["controller"]["queues"])
        self._later = list(plan["controller"]["later"])

    def seed(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Give netems their seeds, so that the same run draws the same numbers."""
        for entry in entries:
            self._change_netem(entry)

    def apply(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Carry out events that are due together."""
        for event in events:
            if "netem" in event:
                self._change_netem(event["netem"])
        rates = [event["rate"] for event in events if "rate" in event]
        for rate in rates:
            if "htb" in rate:
                self._change_htb(**rate["htb"])
        if ports := _by_name(rate["port"] for rate in rates if "port" in rate):
            while self._later and self._later[0]["at_s"] <= events[0]["t_s"]:
                self._ports |= _by_name(self._later.pop(0)["queues"])  # the controller's own doing meanwhile
            self._ports |= ports
            apply_queues(LOCAL, self._tag, list(self._ports.values()))

    def _change_htb(self, interface: str, rate_mbit: float, burst_bytes: int) -> None:
        body = htb_body(self._index(None, interface), rate_mbit, burst_bytes)
        self._ask(None, RTM_NEWTCLASS, body, f"the rate of {interface}")

    def _change_netem(self, entry: Mapping[str, Any]) -> None:
        node, interface = entry["node"], entry["interface"]
        settings = Netem.from_data(entry["settings"])
        body = netem_body(self._index(node, interface), settings, entry["seed"])
        self._ask(node, RTM_NEWQDISC, body, f"netem on {interface}")

    def _index(self, node: str | None, interface: str) -> int:
        with self._namespaces.inside(node):
            return socket.if_nametoindex(interface)

    def _ask(self, node: str | None, kind: int, body: bytes, what: str) -> None:
        """Send one request and wait for the kernel's word on it."""
        if node not in self._sockets:
            self._sockets[node] = self._namespaces.socket(
                node, socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_ROUTE
            )
        change(self._sockets[node], kind, body, what)


def _by_name(settings: Iterable[Mapping[str, Any]]) -> dict[str, PortSetting]:
    """Return ports' settings by port, with queue numbers as int: JSON has only text keys."""
    found: Any = {
        data["port"]: {**data, "queues": {int(number): queue for number, queue in data["queues"].items()}}
        for data in settings
    }
    return found  # type: ignore[no-any-return]


def follow(links: Links, events: Sequence[Mapping[str, Any]], t0_ns: int, path: Path) -> None:
    """Apply a timeline from ``t0_ns`` on; each event is written with the time at which it was in force."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    for t_s, group in itertools.groupby(events, key=lambda event: event["t_s"]):
        together = list(group)
        wait_ns = t0_ns + round(t_s * 1e9) - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
        links.apply(together)
        now = time.monotonic_ns()
        os.write(file, b"".join(event_line("change", event["edge"], event["changes"], now) for event in together))
    os.close(file)


@contextmanager
def timeline(plan: Mapping[str, Any], namespaces: Namespaces, t0_ns: int, raw: Path) -> Iterator[None]:
    """Apply the plan's events in a process of its own while inside the context.

    Raises
    ------
    FairbedError
        On leaving, when an event could not be carried out.
    """
    pid = os.fork()
    if pid == 0:
        _be_timeline(plan, namespaces, t0_ns, raw)
    try:
        yield
    finally:
        ended = os.waitpid(pid, os.WNOHANG)
        if not ended[0]:
            os.kill(pid, signal.SIGTERM)  # what is left lies beyond the run's end
            os.waitpid(pid, 0)
    if ended[0] and ended[1]:
        raise FairbedError(f"the links' timeline failed: {(raw / 'links.log').read_text().strip()}")


def _be_timeline(plan: Mapping[str, Any], namespaces: Namespaces, t0_ns: int, raw: Path) -> None:
    """Be the process of the timeline; never returns."""
    end_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    status = 1
    try:
        follow(Links(plan, namespaces), plan["events"], t0_ns, raw / "links.jsonl")
        status = 0
    except FairbedError as error:
        (raw / "links.log").write_text(str(error))
    except BaseException:
        (raw / "links.log").write_text(traceback.format_exc())
    finally:
        sys.stdout.flush()
        os._exit(status)
