"""The traffic: every flow of a run, on schedule, from one process.

A bulk flow is one TCP connection whose sender always has data. Sockets are made inside their hosts' network
namespaces, so one event loop serves all hosts: no control connection that a full queue can starve, no process per
flow. Nothing here spins: in virtual time a loop that never waits never ends.

The process is a fork of the runner and writes what happens to ``raw/traffic.jsonl``, one JSON object a line.
"""

from __future__ import annotations

import errno
import heapq
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

from lab.event_line import event_line
from lab.netlink import Namespaces

CHUNK = memoryview(bytes(256 * 1024))
"""What a sender offers the kernel at a time, bytes."""

RECEIVE_WAKE_BYTES = 32 * 1024
"""A receiver wakes when this much waits, not for each packet: wake-ups are what a slow kernel pays for."""

SO_MAX_PACING_RATE = 47
"""Of socket(7), bytes per second; Python's socket module lacks it."""

GRACE_S = 5.0
"""How long a generator's own processes may take to finish after the run, s."""

DISCARD = socket.MSG_TRUNC | socket.MSG_DONTWAIT
"""TCP throws away what a receive with MSG_TRUNC asks for, without copying it (tcp(7))."""


PATIENT_SELECT = Path("/run/fairbed/kernel/patient_select.so")
"""In the lab kernel only: what keeps iperf3 from stopping virtual time (kernel/uml/patient_select.c)."""


def iperf3(*words: str) -> list[str]:
    """Return iperf3's command line for where this runs."""
    patient = ["env", f"LD_PRELOAD={PATIENT_SELECT}"] if PATIENT_SELECT.exists() else []
    return [*patient, "iperf3", *words]


class Schedule:
    """Callbacks at times of the monotonic clock, in order; equal times in the order of adding."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, t_ns: int, action: Callable[[], None]) -> None:
        """Call ``action`` at ``t_ns``."""
        heapq.heappush(self._heap, (t_ns, self._count, action))
        self._count += 1

    def run_due(self) -> float | None:
        """Call what is due; return seconds until the next, or None when nothing is left."""
        while self._heap and self._heap[0][0] <= time.monotonic_ns():
            heapq.heappop(self._heap)[2]()
        return (self._heap[0][0] - time.monotonic_ns()) / 1e9 if self._heap else None


class BulkFlow:
    """One bulk flow: a listener and a receiver at ``dst``, a sender at ``src``.

    ``flow`` is the plan's entry: flow_id, src, dst, cca, src_address, dst_address (address, port), start_s, stop_s,
    size_bytes, and pace_mbit where it has one.
    """

    def __init__(self, traffic: Traffic, flow: Mapping[str, Any]) -> None:
        self._traffic, self._flow = traffic, flow
        self._left: int | None = flow["size_bytes"]
        self._sender: socket.socket | None = None
        self._receiver: socket.socket | None = None
        self._listener = traffic.namespaces.socket(flow["dst"], socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.setblocking(False)
        self._listener.bind(tuple(flow["dst_address"]))
        self._listener.listen(1)
        traffic.watch(self._listener, selectors.EVENT_READ, self._accept)

    def start(self) -> None:
        """Connect, with the flow's algorithm set before the first packet and read back."""
        cca = self._flow["kernel_cca"].encode()
        self._sender = self._traffic.namespaces.socket(self._flow["src"], socket.AF_INET, socket.SOCK_STREAM)
        self._sender.setblocking(False)
        self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cca)
        got = self._sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
        if got != cca:
            raise RuntimeError(f"asked for {cca.decode()}, the kernel set {got.decode()}")
        if pace_mbit := self._flow.get("pace_mbit"):
            self._sender.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, round(pace_mbit * 1e6 / 8))
        self._sender.bind(tuple(self._flow["src_address"]))
        error = self._sender.connect_ex(tuple(self._flow["dst_address"]))
        if error != errno.EINPROGRESS:
            raise OSError(error, os.strerror(error))
        self._traffic.report("start", self._flow["flow_id"], cca=got.decode())
        self._traffic.watch(self._sender, selectors.EVENT_WRITE, self._send)

    def stop(self) -> None:
        """Send no more; what is queued is still delivered. The sockets stay, so that counters can be read."""
        if self._sender is None:
            return
        self._traffic.unwatch(self._sender)
        try:
            self._sender.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._traffic.report("error", self._flow["flow_id"], message=str(error))

    def _accept(self) -> None:
        self._receiver, _ = self._listener.accept()
        self._receiver.setblocking(False)
        self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, RECEIVE_WAKE_BYTES)
        self._traffic.unwatch(self._listener)
        self._listener.close()
        self._traffic.watch(self._receiver, selectors.EVENT_READ, self._receive)

    def _send(self) -> None:
        assert self._sender is not None  # noqa: S101 - watched only while there is one
        try:
            while True:
                chunk = CHUNK if self._left is None else CHUNK[: self._left]
                sent = self._sender.send(chunk)
                if self._left is not None:
                    self._left -= sent
                    if self._left == 0:
                        self.stop()
                        return
        except BlockingIOError:
            return
        except OSError as error:
            self._traffic.report("error", self._flow["flow_id"], message=str(error))
            self._traffic.unwatch(self._sender)

    def _receive(self) -> None:
        assert self._receiver is not None  # noqa: S101
        try:
            while n := self._receiver.recv_into(self._traffic.sink, 0, DISCARD):
                if n < len(self._traffic.sink):
                    return  # drained: the next wake-up comes with RECEIVE_WAKE_BYTES more
        except BlockingIOError:
            return
        except OSError as error:
            self._traffic.report("error", self._flow["flow_id"], message=str(error))
        self._traffic.unwatch(self._receiver)
        self._traffic.report("end", self._flow["flow_id"])


class Iperf3Flow:
    """One flow made by iperf3: a server that serves one test, and a client with fixed ports.

    iperf3 has a control connection through the same bottleneck, so its start is later than the schedule says. Its
    own reports are in ``raw`` for comparison; Fairbed's figures come from the sockets, as for every flow.
    """

    def __init__(self, traffic: Traffic, flow: Mapping[str, Any]) -> None:
        self._traffic, self._flow = traffic, flow
        self._server = traffic.popen(
            flow["dst"],
            iperf3("-s", "-1", "-p", str(flow["dst_address"][1]), "-J"),
            f"{flow['flow_id']}-iperf3-server.json",
        )
        self._client: Popen[bytes] | None = None

    def start(self) -> None:
        """Start the client for the flow's time."""
        flow = self._flow
        argv = [
            *iperf3(), "-c", flow["dst_address"][0], "-p", str(flow["dst_address"][1]), "-C", flow["kernel_cca"],
            "-B", flow["src_address"][0], "--cport", str(flow["src_address"][1]), "-J",
        ]  # fmt: skip
        argv += ["-n", str(flow["size_bytes"])] if flow["size_bytes"] else ["-t", str(flow["lasts_s"])]
        self._client = self._traffic.popen(flow["src"], argv, f"{flow['flow_id']}-iperf3-client.json")
        self._traffic.report("start", flow["flow_id"], cca=flow["kernel_cca"])

    def stop(self) -> None:
        """iperf3 ends by itself: it was told how long to run."""


GENERATORS: dict[str, Callable[[Traffic, Mapping[str, Any]], BulkFlow | Iperf3Flow]] = {
    "bulk": BulkFlow,
    "iperf3": Iperf3Flow,
}
"""How each generator makes a flow: a new one is one entry with a ``start`` and a ``stop``."""


class Traffic:
    """All flows of a run and their event loop."""

    def __init__(
        self, namespaces: Namespaces, raw: Path, popen: Callable[[str, list[str], Path], Popen[bytes]]
    ) -> None:
        self.namespaces = namespaces
        self.sink = bytearray(1 << 20)
        self._raw, self._popen = raw, popen
        self._processes: list[Popen[bytes]] = []
        self._events = os.open(raw / "traffic.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._selector = selectors.EpollSelector()

    def report(self, kind: str, flow_id: str, **detail: str) -> None:
        """Record one event."""
        os.write(self._events, event_line(kind, flow_id, detail))

    def popen(self, node: str, argv: list[str], output: str) -> Popen[bytes]:
        """Start a command on a host; what it prints goes to a file below ``raw``."""
        process = self._popen(node, argv, self._raw / output)
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End the started commands; those that are about to finish may."""
        deadline = time.monotonic() + GRACE_S
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except TimeoutExpired:
                process.kill()
                process.wait()

    def watch(self, sock: socket.socket, events: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever ``sock`` is ready."""
        self._selector.register(sock, events, callback)

    def unwatch(self, sock: socket.socket) -> None:
        """Stop watching ``sock``; fine when it isn't watched."""
        if sock.fileno() in self._selector.get_map():
            self._selector.unregister(sock)

    def run(self, flows: list[Mapping[str, Any]], start_fd: int, ready_fd: int) -> None:
        """Make every flow ready, say so, read the run's beginning, then run on schedule until killed."""
        made = [(flow, GENERATORS[flow["generator"]](self, flow)) for flow in flows]
        os.write(ready_fd, b"ready\n")
        os.close(ready_fd)
        t0_ns = int.from_bytes(os.read(start_fd, 8), sys.byteorder)
        schedule = Schedule()
        for flow, generator in made:
            schedule.at(t0_ns + round(flow["start_s"] * 1e9), generator.start)
            if flow["stop_s"] is not None:
                schedule.at(t0_ns + round(flow["stop_s"] * 1e9), generator.stop)
        while True:
            for key, _ in self._selector.select(schedule.run_due()):
                key.data()
