"""The sampler: what every socket and queue says, many times a second, written as it came.

A sample is one frame in ``raw/samples``: a header (``FRAME``) and the kernel's netlink messages one after the other.
A message's sequence number is the index of its probe in the plan; ``decode.py`` makes tables of them after the run.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from controller.netlink import NETLINK_ROUTE, align4
from lab.netlink import NETLINK_SOCK_DIAG, Namespaces, qdisc_request, socket_request

FRAME = struct.Struct("<qqI")
"""Header of a sample: its time and its lateness in ns, the length of what follows in bytes."""

SYNC_NS = 1_000_000_000
"""How often the samples are forced to disk: what a killed run loses at most."""

SOL_NETLINK, NETLINK_NO_ENOBUFS = 270, 5


class _Channel:
    """One netlink socket with all its requests in one datagram."""

    def __init__(self, sock: socket.socket, requests: list[bytes]) -> None:
        self._socket, self._count = sock, len(requests)
        self._datagram = b"".join(requests)
        sock.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sock.setblocking(False)  # the answers are there already: a missing one is an error, not a wait

    def ask(self, into: list[bytes]) -> None:
        """Append the answer to each request; the kernel answers before the sending call returns."""
        receive = self._socket.recv
        self._socket.send(self._datagram)
        for _ in range(self._count):
            answer = receive(8192)
            into.append(answer)
            if padding := align4(len(answer)) - len(answer):
                into.append(bytes(padding))


class Sampler:
    """Asks every probe of the plan at a fixed interval.

    Parameters
    ----------
    namespaces
        The hosts' namespaces.
    probes
        The plan's probes: ``{"socket": {"node", "local", "remote"}}`` or ``{"qdisc": {"interface", "parent"}}``.
    path
        The file of samples; must not exist.
    """

    def __init__(self, namespaces: Namespaces, probes: Iterable[Mapping[str, Any]], path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        by_node: dict[str | None, list[bytes]] = {}
        for sequence, probe in enumerate(probes):
            if "qdisc" in probe:
                queue = probe["qdisc"]
                index = socket.if_nametoindex(queue["interface"])
                by_node.setdefault(None, []).append(qdisc_request(index, queue["parent"], sequence))
            else:
                end = probe["socket"]
                request = socket_request(tuple(end["local"]), tuple(end["remote"]), sequence)
                by_node.setdefault(end["node"], []).append(request)
        self._channels = [
            _Channel(
                namespaces.socket(
                    node, socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG if node else NETLINK_ROUTE
                ),
                requests,
            )
            for node, requests in by_node.items()
        ]

    def sample(self, t0_ns: int, due_ns: int) -> None:
        """Take one sample that was due at ``due_ns``; its time is counted from ``t0_ns``."""
        now = time.monotonic_ns()
        answers: list[bytes] = [b""]
        for channel in self._channels:
            channel.ask(answers)
        answers[0] = FRAME.pack(now - t0_ns, now - due_ns, sum(map(len, answers)))
        os.write(self._file, b"".join(answers))

    def run(self, t0_ns: int, interval_ns: int, duration_ns: int, each_second: Callable[[float], None]) -> None:
        """Sample from ``t0_ns`` for ``duration_ns``, both ends included; call ``each_second`` with the seconds run."""
        synced = t0_ns
        for due in range(t0_ns, t0_ns + duration_ns + 1, interval_ns):
            wait = due - time.monotonic_ns()
            if wait > 0:
                time.sleep(wait / 1e9)
            self.sample(t0_ns, due)
            if due - synced >= SYNC_NS:
                os.fdatasync(self._file)
                synced = due
                each_second((due - t0_ns) / 1e9)

    def close(self) -> None:
        """Force what was sampled to disk."""
        os.fsync(self._file)
        os.close(self._file)
