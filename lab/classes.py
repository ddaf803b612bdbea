"""HTB's classes as the kernel has them, by netlink: tc has no JSON for them. Layout: linux/pkt_sched.h."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator

from controller.netlink import (
    NETLINK_ROUTE,
    NLM_F_DUMP,
    RTM_GETTCLASS,
    RTM_NEWTCLASS,
    TCA_KIND,
    TCA_OPTIONS,
    TCMSG_BYTES,
    attributes,
    message,
    messages,
    tc_header,
)
from lab.netem import TCA_HTB_CEIL64, TCA_HTB_PARMS, TCA_HTB_RATE64, TICK_NS

Class = dict[str, int]


def htb_classes(interfaces: Iterable[str]) -> dict[str, dict[str, Class]]:
    """Return for each interface its HTB classes, by number: rate_bit, ceil_bit and burst_bytes."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_ROUTE) as sock:
        return {name: dict(_classes(sock, socket.if_nametoindex(name))) for name in interfaces}


def _classes(sock: socket.socket, ifindex: int) -> Iterator[tuple[str, Class]]:
    """Yield each class of an interface; the kernel's answers end with a message of another kind."""
    sock.send(message(RTM_GETTCLASS, tc_header(ifindex, 0, 0), 1, NLM_F_DUMP))
    while True:
        for kind, _, body in messages(sock.recv(1 << 16)):
            if kind != RTM_NEWTCLASS:
                return
            (handle,) = struct.unpack_from("=I", body, 8)
            about = attributes(body, TCMSG_BYTES)
            if bytes(about[TCA_KIND]) == b"htb\0":  # the flows of an fq_codel below are classes too
                yield f"{handle >> 16:x}:{handle & 0xFFFF:x}", htb_class(attributes(about[TCA_OPTIONS], 0))


def htb_class(options: dict[int, memoryview]) -> Class:
    """Return what a class's options say: struct tc_htb_opt, and rates above 32 bits beside it."""
    parameters = options[TCA_HTB_PARMS]
    rate, ceil, ticks = (struct.unpack_from("=I", parameters, place)[0] for place in (8, 20, 24))
    rates = [
        struct.unpack("=Q", options[number])[0] if number in options else short
        for number, short in ((TCA_HTB_RATE64, rate), (TCA_HTB_CEIL64, ceil))
    ]
    return {"rate_bit": rates[0] * 8, "ceil_bit": rates[1] * 8, "burst_bytes": round(ticks * TICK_NS * rates[0] / 1e9)}
