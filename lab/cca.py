"""Congestion-control algorithms: which ones this kernel has, and how to get the others."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from topologies.errors import UsageError

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")

REMEDIES = {
    "ndm_tcp": "build and load it with `make -C kernel/ndm load`, or use --kernel lab, which has it",
    "ndm2": "build and load it with `make -C kernel/ndm load`, or use --kernel lab, which has it",
}
"""How to get an algorithm that no distribution ships."""


def available() -> list[str]:
    """Return the algorithms that the running kernel offers, in its order."""
    return AVAILABLE.read_text().split()


def is_available(cca: str) -> bool:
    """Say whether a socket can have the algorithm; asking loads its module where root may."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cca.encode())
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return False
    return True


def check_available(flows: Iterable[Mapping[str, Any]]) -> None:
    """Raise a UsageError that names every algorithm this kernel lacks, what it has, and how to get the missing."""
    wanted = dict.fromkeys(flow["kernel_cca"] for flow in flows)
    missing = [cca for cca in wanted if not is_available(cca)]
    if missing:
        how = "; ".join(f"{cca}: {REMEDIES.get(cca, f'try `modprobe tcp_{cca}`')}" for cca in missing)
        raise UsageError(
            f"unknown algorithm {', '.join(missing)}: this kernel has {', '.join(sorted(available()))}. {how}"
        )
