"""A network's links without any flow, for the calibration: ``python -m lab.overload RUN``, in the lab kernel.

Reads RUN/raw/plan.json, builds its network, and writes RUN/raw/overload.json: the idle RTT of the first flow's path;
the rate and the largest backlog of its bottleneck, which frames are put into until it refuses one; and how many of many
datagrams arrive, there and back. On the virtual clock nothing leaves a queue while it is being filled or looked at, so
these figures don't depend on when they are taken.
"""

from __future__ import annotations

import errno
import json
import math
import socket
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from controller.netlink import NETLINK_ROUTE, TCMSG_BYTES, attributes, messages
from lab.calibration import idle_rtt_ms
from lab.claim import claimed
from lab.control import Controller
from lab.netlink import Namespaces, qdisc_request
from lab.network import Network
from lab.process import exact_timers
from lab.runner import LISTEN
from topologies.units import PACKET_BYTES

ETHERTYPE = 0x88B5
"""For local experiments (IEEE 802): no switch has a rule for it, so it goes no further than the link."""
FRAME = (bytes(12) + struct.pack("!H", ETHERTYPE)).ljust(PACKET_BYTES, b"\0")
FRAMES = 500
"""Frames from which a rate is taken: one more or less is a fifth of a percent."""
LEAST_S = 0.05

DATAGRAM = bytes(18)
DATAGRAM_FRAME_BYTES = 60
"""The least that Ethernet carries, with its header of 14 bytes and those of IP (20) and UDP (8)."""
DATAGRAMS = 30_000
AT_ONCE = 500
UNDER_WAY = 5_000
"""Datagrams between the hosts at a time: netem's limits are for full frames, such small ones would reach them."""
SETTLE_S = 2.0
BUFFER_BYTES = 1 << 30
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33


class Queue(NamedTuple):
    """A queue and how it may be asked: the interface, its class, and a socket for netlink."""

    interface: str
    parent: int
    netlink: socket.socket

    def counters(self) -> tuple[int, int]:
        """Return the bytes that it has sent, and those that wait in it."""
        self.netlink.send(qdisc_request(socket.if_nametoindex(self.interface), self.parent, 1))
        _, _, body = next(messages(self.netlink.recv(8192)))
        stats = attributes(attributes(body, TCMSG_BYTES)[7], 0)
        return struct.unpack_from("=Q", stats[1])[0], struct.unpack_from("=II", stats[3])[1]


def overload(queue: Queue, rate_mbit: float, buffer_bytes: int) -> dict[str, float]:
    """Keep a queue full for a while; return the rate at which it sent, in Mbit/s, and its largest backlog in bytes."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
        sock.bind((queue.interface, ETHERTYPE))
        fill(sock)
        began_ns = time.monotonic_ns()
        sent_before, largest = queue.counters()
        full_s = buffer_bytes * 8e-6 / rate_mbit
        lasts_s = max(LEAST_S, FRAMES * PACKET_BYTES * 8e-6 / rate_mbit)
        rounds = math.ceil(lasts_s / (full_s / 2))
        for _ in range(rounds):
            time.sleep(min(full_s / 2, lasts_s))
            fill(sock)
            sent, backlog = queue.counters()
            largest = max(largest, backlog)
        seconds = (time.monotonic_ns() - began_ns) / 1e9
    time.sleep(full_s + SETTLE_S)
    return {"rate_mbit": (sent - sent_before) * 8e-6 / seconds, "largest_backlog_bytes": largest}


def fill(sock: socket.socket) -> None:
    """Send until the queue refuses a frame."""
    try:
        while True:
            sock.send(FRAME)
    except OSError as error:
        if error.errno != errno.ENOBUFS:
            raise


def arrived(namespaces: Namespaces, source: str, target: tuple[str, str, int], gap_s: float, at_once: int) -> int:
    """Send `DATAGRAMS`, on average `gap_s` apart; return how many arrive at a (host, address, port)."""
    node, address, port = target
    receiver = namespaces.socket(node, socket.AF_INET, socket.SOCK_DGRAM)
    sender = namespaces.socket(source, socket.AF_INET, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        receiver.setblocking(False)
        receiver.bind((address, port))
        for number in range(DATAGRAMS):
            sender.sendto(DATAGRAM, (address, port))
            if number % at_once == 0:
                time.sleep(at_once * gap_s)
        time.sleep(SETTLE_S)
        return _waiting(receiver)


def _waiting(receiver: socket.socket) -> int:
    """Return how many datagrams a socket has."""
    count = 0
    try:
        while True:
            receiver.recv(64)
            count += 1
    except BlockingIOError:
        return count


def measure(network: Network, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a network does."""
    namespaces, flow = network.namespaces(), plan["flows"][0]
    edge = plan["paths"][flow["flow_id"]]["bottleneck"]
    settings = plan["queues"][edge]
    rate_mbit, buffer_bytes = settings["rate_mbit"], settings["buffer_bytes"]
    (probe,) = (probe["qdisc"] for probe in plan["probes"] if probe.get("queue_id") == edge)
    found: dict[str, Any] = {"idle_rtt_ms": idle_rtt_ms(namespaces, [flow])[flow["flow_id"]]}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE) as netlink:
        found |= overload(Queue(probe["interface"], probe["parent"], netlink), rate_mbit, buffer_bytes)
    if plan["seeds"]:
        gap_s = max(DATAGRAM_FRAME_BYTES * 8e-6 / rate_mbit, found["idle_rtt_ms"] / 1e3 / UNDER_WAY)
        at_once = max(1, min(AT_ONCE, buffer_bytes // DATAGRAM_FRAME_BYTES // 2))
        found["sent"] = DATAGRAMS
        for name, near, far in (("there", "src", "dst"), ("back", "dst", "src")):
            target = (flow[far], *flow[f"{far}_address"])
            found[f"arrived_{name}"] = arrived(namespaces, flow[near], target, gap_s, at_once)
    return found


def main(directory: str) -> int:
    """Measure the network of a run directory's plan."""
    raw = Path(directory, "raw")
    exact_timers()
    plan = json.loads((raw / "plan.json").read_text())
    with claimed(plan), Network(plan, LISTEN) as network, Controller(plan, raw, LISTEN, print):
        network.add_leaves()
        (raw / "overload.json").write_text(json.dumps(measure(network, plan)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
