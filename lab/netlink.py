"""The few netlink messages that telemetry needs, as bytes.

A sample must cost little, because it is taken many times a second for every socket and queue: requests are built
once, several go into one datagram, and the kernel's answers are stored as they come and decoded after the run.
Layouts: ``linux/inet_diag.h`` (native byte order except addresses); the rest is in ``controller/netlink.py``.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from controller.netlink import RTM_GETQDISC, message, tc_header

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
CLONE_NEWNET = 0x40000000

INET_DIAG_INFO, INET_DIAG_VEGASINFO, INET_DIAG_CONG, INET_DIAG_BBRINFO = 2, 3, 4, 16
_DIAG_REQUEST = struct.Struct("=BBBxI")
_DIAG_SOCKET = struct.Struct("!HH4s12x4s12x")

_libc = ctypes.CDLL(None, use_errno=True)


def socket_request(local: tuple[str, int], remote: tuple[str, int], sequence: int) -> bytes:
    """Return the request for one TCP socket by its addresses and ports, with its tcp_info and algorithm's state."""
    extensions = sum(1 << (kind - 1) for kind in (INET_DIAG_INFO, INET_DIAG_VEGASINFO, INET_DIAG_CONG))
    body = _DIAG_REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, extensions, 0xFFFFFFFF)
    body += _DIAG_SOCKET.pack(local[1], remote[1], socket.inet_aton(local[0]), socket.inet_aton(remote[0]))
    body += struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # any interface, INET_DIAG_NOCOOKIE
    return message(SOCK_DIAG_BY_FAMILY, body, sequence)


def qdisc_request(ifindex: int, parent: int, sequence: int) -> bytes:
    """Return the request for the qdisc below ``parent`` (0xFFFFFFFF: the root) of an interface, with its counters."""
    return message(RTM_GETQDISC, tc_header(ifindex, 0, parent), sequence)


def enter_namespace(fd: int) -> None:
    """Move this thread into the network namespace of descriptor ``fd``."""
    if _libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")


class Namespaces:
    """Network namespaces by node name, entered for a moment.

    A socket belongs to the namespace where it was made for ever, so entering is needed only to make it.

    Parameters
    ----------
    descriptors
        An open descriptor of each node's namespace.
    """

    def __init__(self, descriptors: Mapping[str, int]) -> None:
        self._own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._descriptors = descriptors

    @contextmanager
    def inside(self, node: str | None) -> Iterator[None]:
        """Be in the namespace of ``node`` (None or a switch: where this process runs) inside the context.

        So are the processes that are started there.
        """
        if node is None or node not in self._descriptors:
            yield
            return
        enter_namespace(self._descriptors[node])
        try:
            yield
        finally:
            enter_namespace(self._own)

    def socket(self, node: str | None, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Return a new socket in the namespace of ``node``."""
        with self.inside(node):
            return socket.socket(family, kind, protocol)

    def sysctl(self, node: str, name: str, value: str) -> None:
        """Set a sysctl of the network in the namespace of ``node``: /proc/sys/net is the reader's own."""
        with self.inside(node):
            Path("/proc/sys", name.replace(".", "/")).write_text(value)
