"""What the network does before any flow is there, measured against the graph."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from lab.netlink import Namespaces
from topologies.errors import FairbedError

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
