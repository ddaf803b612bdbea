"""Netlink's messages as bytes: what requests and answers of any kind have in common.

Layouts: ``linux/netlink.h``, ``linux/rtnetlink.h`` (native byte order).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

from topologies.errors import FairbedError

NETLINK_ROUTE = 0
NLMSG_ERROR = 2
NLM_F_REQUEST, NLM_F_ACK, NLM_F_ECHO = 1, 4, 8
NLM_F_REPLACE, NLM_F_DUMP, NLM_F_CREATE = 0x100, 0x300, 0x400
NLA_F_NESTED = 0x8000
RTM_NEWQDISC, RTM_GETQDISC, RTM_NEWTCLASS, RTM_GETTCLASS = 36, 38, 40, 42
TCA_KIND, TCA_OPTIONS = 1, 2

_NLMSGHDR = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_TCMSG = struct.Struct("=BxxxiIII")
TCMSG_BYTES = _TCMSG.size


def align4(length: int) -> int:
    """Return ``length`` rounded up to netlink's alignment."""
    return (length + 3) & ~3


def message(kind: int, body: bytes, sequence: int, flags: int = NLM_F_ECHO) -> bytes:
    """Return one netlink request; without the echo flag a qdisc's answer goes to listeners only, not to who asked."""
    return _NLMSGHDR.pack(_NLMSGHDR.size + len(body), kind, NLM_F_REQUEST | flags, sequence, 0) + body


def messages(buffer: bytes) -> Iterator[tuple[int, int, memoryview]]:
    """Yield (kind, sequence, body) of each netlink message in ``buffer``; stop at a truncated one."""
    view, offset = memoryview(buffer), 0
    while offset + _NLMSGHDR.size <= len(view):
        length, kind, _flags, sequence, _pid = _NLMSGHDR.unpack_from(view, offset)
        if length < _NLMSGHDR.size or offset + length > len(view):
            return
        yield kind, sequence, view[offset + _NLMSGHDR.size : offset + length]
        offset += align4(length)


def attribute(kind: int, content: bytes) -> bytes:
    """Return one attribute, padded."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(content), kind) + content + bytes(align4(len(content)) - len(content))


def attributes(body: memoryview, offset: int) -> dict[int, memoryview]:
    """Return the attributes that follow ``offset`` bytes of fixed header, by kind (the nested flag removed)."""
    found: dict[int, memoryview] = {}
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        if length < _ATTRIBUTE.size:
            break
        found[kind & 0x3FFF] = body[offset + _ATTRIBUTE.size : offset + length]
        offset += align4(length)
    return found


def tc_header(ifindex: int, handle: int, parent: int) -> bytes:
    """Return the ``struct tcmsg`` of a qdisc or class."""
    return _TCMSG.pack(socket.AF_UNSPEC, ifindex, handle, parent, 0)


def change(sock: socket.socket, kind: int, body: bytes, what: str, flags: int = 0) -> None:
    """Send one request for a change and wait for the kernel's word on it.

    Raises
    ------
    FairbedError
        When the kernel refuses, with `what` was asked and its reason.
    """
    sock.send(message(kind, body, 1, NLM_F_ACK | flags))
    answered, _, content = next(messages(sock.recv(8192)))
    (code,) = struct.unpack_from("=i", content)
    if answered != NLMSG_ERROR or code:
        raise FairbedError(f"cannot change {what}: {os.strerror(-code)}")
