"""Queues' leaf qdiscs, set as tc's lines say: by tc, and by netlink where the kernel knows a kind before tc does.

dualpi2 is in Linux from 6.17 on; the iproute2 of Debian 12 and 13 and of Ubuntu 24.04 is older. It always goes by
netlink, so that it is the same on every machine. Layouts: ``linux/pkt_sched.h`` (``TCA_DUALPI2_*``).
"""

from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Iterable

from controller.netlink import (
    NETLINK_ROUTE,
    NLA_F_NESTED,
    NLM_F_CREATE,
    NLM_F_REPLACE,
    RTM_GETQDISC,
    RTM_NEWQDISC,
    TCA_KIND,
    TCA_OPTIONS,
    TCMSG_BYTES,
    attribute,
    attributes,
    change,
    message,
    messages,
    tc_header,
)
from topologies.errors import FairbedError

BY_NETLINK = {"dualpi2": {"limit": 1, "memory_limit": 2, "target": 3, "tupdate": 4}}
"""Kind -> word of tc -> attribute, all of 32 bits; times are in µs there."""

KIND, OPTIONS = 8, 9
"""Where a line, ``qdisc replace dev X parent 1:1 handle 10: KIND ...``, has its qdisc's kind and what follows."""


def set_leaves(lines: Iterable[str]) -> None:
    """Set leaf qdiscs; one that is there already, of the same kind, changes and keeps its packets.

    Parameters
    ----------
    lines
        As `plan.leaf_line` makes them.
    """
    lines = list(lines)
    ours = [line for line in lines if BY_NETLINK.keys() & line.split()[KIND:OPTIONS]]
    _by_tc([line for line in lines if line not in ours])
    _by_netlink([line.split() for line in ours])


def _by_tc(lines: list[str]) -> None:
    if not lines:
        return
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(["tc", "-batch", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FairbedError(f"tc could not set the queues' leaves: {done.stderr.strip()}")


def _by_netlink(lines: list[list[str]]) -> None:
    if not lines:
        return
    with _socket() as sock:
        for words in lines:
            what = f"the queue of {words[3]}: {' '.join(words[KIND:])}"
            change(sock, RTM_NEWQDISC, leaf_body(words), what, NLM_F_CREATE | NLM_F_REPLACE)


def _socket() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_ROUTE)


def leaf_body(words: list[str]) -> bytes:
    """Return the body of the RTM_NEWQDISC that does what a line, in words, says."""
    known = BY_NETLINK[words[KIND]]
    pairs = zip(words[OPTIONS::2], words[OPTIONS + 1 :: 2], strict=True)
    options = b"".join(attribute(known[name], struct.pack("=I", int(text.removesuffix("us")))) for name, text in pairs)
    header = tc_header(_index(words[3]), tc_number(words[7]), tc_number(words[5]))
    kind = attribute(TCA_KIND, words[KIND].encode() + b"\0")
    return header + kind + attribute(TCA_OPTIONS | NLA_F_NESTED, options)


def _index(interface: str) -> int:
    try:
        return socket.if_nametoindex(interface)
    except OSError as error:
        raise FairbedError(f"cannot set the queue of {interface}: there is no such interface") from error


def tc_number(text: str) -> int:
    """Return a handle or class as the kernel numbers it.

    Examples
    --------
    >>> hex(tc_number("1:10")), hex(tc_number("a0:"))
    ('0x10010', '0xa00000')
    """
    major, minor = text.split(":")
    return int(major, 16) << 16 | int(minor or "0", 16)


def read_back(kind: str, interface: str, parent: str) -> dict[str, int]:
    """Return the options of a leaf of a kind in `BY_NETLINK`, as the kernel has them, by tc's words; times in µs."""
    with _socket() as sock:
        sock.send(message(RTM_GETQDISC, tc_header(_index(interface), 0, tc_number(parent)), 1))
        _, _, body = next(messages(sock.recv(8192)))
    options = attributes(attributes(body, TCMSG_BYTES)[TCA_OPTIONS], 0)
    return {name: struct.unpack("=I", options[number])[0] for name, number in BY_NETLINK[kind].items()}
