"""What the network does before any flow is there, measured against the graph."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from controller.shaping import burst_bytes
from lab.netlink import Namespaces
from topologies.errors import FairbedError
from topologies.units import PACKET_BYTES

UDP_PAYLOAD_BYTES = PACKET_BYTES - 42
"""What UDP carries in a full frame: less the headers of Ethernet (14), IP (20) and UDP (8)."""
TRAIN_FRAMES, LEAST_FRAMES = 50, 4
SO_TIMESTAMPNS = 35
"""The kernel's own time of arrival (socket(7)): when this process looks does not matter."""

ECHO_REQUEST, ECHO_REPLY = 8, 0
ECHOES = 3
"""The first may find cold caches in the switches, so the least of a few counts."""
PAYLOAD = bytes(56)
ATTEMPTS = 30
"""With 31 % lost in each direction, the chance that all are lost is 4 in 10⁹."""
DEADLINE_S = 10.0
LATER_DEADLINE_S = 3.0
"""For an echo after one that was lost."""


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def echo_request(identifier: int, sequence: int) -> bytes:
    """Return an ICMP echo request (RFC 792)."""
    header = struct.pack("!BBHHH", ECHO_REQUEST, 0, 0, identifier, sequence)
    value = checksum(header + PAYLOAD)
    return struct.pack("!BBHHH", ECHO_REQUEST, 0, value, identifier, sequence) + PAYLOAD


def _echo_ms(sock: socket.socket, address: str, identifier: int, sequence: int, deadline_s: float) -> float:
    """Return the round-trip time of one echo in ms, infinite when none comes back in time."""
    began = time.monotonic_ns()
    sock.sendto(echo_request(identifier, sequence), (address, 0))
    while True:
        sock.settimeout(max(1e-6, deadline_s - (time.monotonic_ns() - began) / 1e9))
        try:
            answer = sock.recv(2048)
        except TimeoutError:
            return float("inf")
        kind, _, _, got_identifier, got_sequence = struct.unpack_from("!BBHHH", answer, 4 * (answer[0] & 15))
        if (kind, got_identifier, got_sequence) == (ECHO_REPLY, identifier, sequence):
            return (time.monotonic_ns() - began) / 1e6


def _echoes_ms(sock: socket.socket, address: str, identifier: int) -> list[float]:
    """Return the times of `ECHOES` echoes that came back, of at most `ATTEMPTS`."""
    times: list[float] = []
    deadline_s = DEADLINE_S
    for sequence in range(ATTEMPTS):
        took_ms = _echo_ms(sock, address, identifier, sequence, deadline_s)
        if took_ms == float("inf"):
            deadline_s = LATER_DEADLINE_S
        else:
            times.append(took_ms)
        if len(times) == ECHOES:
            break
    return times


def idle_rtt_ms(namespaces: Namespaces, flows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return each flow's measured round-trip time in ms on the idle network, by flow_id.

    Raises
    ------
    FairbedError
        When nothing comes back from a receiver.
    """
    measured = {}
    for number, flow in enumerate(flows):
        if flow.get("path"):
            continue  # only its own data goes that way
        sock = namespaces.socket(flow["src"], socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        with sock:
            identifier = (os.getpid() + number) & 0xFFFF
            times = _echoes_ms(sock, flow["dst_address"][0], identifier)
        if not times:
            raise FairbedError(
                f"flow {flow['flow_id']}: no answer from {flow['dst']} to {ATTEMPTS} pings of {flow['src']}"
            )
        measured[flow["flow_id"]] = round(min(times), 6)
    return measured


def trains(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the packet trains that measure the bottlenecks: one for each bottleneck that has one queue.

    A train is as long as the buffer lets it be, `TRAIN_FRAMES` at most beyond what a shaper lets through at once; a
    bottleneck whose buffer holds no useful train has none. Nor has RED, whose mean would remember it: below HTB its
    idle time never begins, and it would drop the first flow's SYN.
    """
    divided = {queue["port"] for queue in plan["queues"].values() if "port" in queue}
    found: dict[str, dict[str, Any]] = {}
    for flow in plan["flows"]:
        path = plan["paths"][flow["flow_id"]]
        edge = path["bottleneck"]
        skipped = burst_bytes(round(path["rate_mbit"] * 1e6)) // PACKET_BYTES + 1
        frames = min(skipped + TRAIN_FRAMES, plan["queues"][edge]["buffer_bytes"] // PACKET_BYTES - 1)
        measurable = edge not in divided and plan["queues"][edge]["aqm"] != "red" and frames - skipped >= LEAST_FRAMES
        if not flow.get("path") and edge not in found and measurable:
            found[edge] = {"edge": edge, "flow": flow, "frames": frames, "skipped": skipped}
    return list(found.values())


def bottleneck_rates_mbit(namespaces: Namespaces, plan: Mapping[str, Any]) -> dict[str, float]:
    """Return each bottleneck's measured rate in Mbit/s, by edge: how far apart a train's packets arrive behind it."""
    return {
        train["edge"]: rate
        for train in trains(plan)
        if (rate := train_rate_mbit(_arrivals_ns(namespaces, train), train["skipped"])) is not None
    }


def train_rate_mbit(arrivals_ns: Sequence[int], skipped: int) -> float | None:
    """Return the rate at which full frames arrived after the first ones, None when too few did."""
    counted = arrivals_ns[skipped:]
    if len(counted) < LEAST_FRAMES or counted[-1] == counted[0]:
        return None
    return round((len(counted) - 1) * PACKET_BYTES * 8e3 / (counted[-1] - counted[0]), 6)


def _arrivals_ns(namespaces: Namespaces, train: Mapping[str, Any]) -> list[int]:
    """Send a train of full frames along a flow's path and return when the kernel got each one."""
    flow = train["flow"]
    receiver = namespaces.socket(flow["dst"], socket.AF_INET, socket.SOCK_DGRAM)
    sender = namespaces.socket(flow["src"], socket.AF_INET, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        receiver.bind(tuple(flow["dst_address"]))
        for _ in range(train["frames"]):
            sender.sendto(bytes(UDP_PAYLOAD_BYTES), tuple(flow["dst_address"]))
        arrivals: list[int] = []
        receiver.settimeout(DEADLINE_S)
        try:
            while len(arrivals) < train["frames"]:
                _, ancillary, _, _ = receiver.recvmsg(2048, 64)
                seconds, nanoseconds = struct.unpack("=qq", ancillary[0][2])
                arrivals.append(seconds * 1_000_000_000 + nanoseconds)
                receiver.settimeout(LATER_DEADLINE_S)
        except TimeoutError:
            pass  # some were lost on a lossy path
    return arrivals
