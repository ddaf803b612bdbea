"""From a port's rate and its queues' shares to what Open vSwitch is told; with nothing but the standard library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from controller.plan import PortSetting, QueueSetting
from topologies.errors import UsageError
from topologies.units import PACKET_BYTES

__all__ = ["QueueShare", "burst_bytes", "port_setting"]

WAKE_UP_S = 250e-6
"""How late the shaper's timer may be without costing rate: some five wake-ups of an idle core."""
IDLE_RATE_BIT = 12_000
"""Guarantee of a queue that no flow is in, bit/s: the least that Open vSwitch gives (1500 bytes/s)."""
MAX_QUEUES = 0xF000
"""Queues that Open vSwitch can number on a linux-htb port (ovs-vswitchd.conf.db(5): 0 to 61439)."""


class QueueShare(NamedTuple):
    """A queue's part of its port's rate.

    Attributes
    ----------
    guaranteed : float
        What it is sure of, in (0, 1]; 0 for a queue that no flow is in.
    ceiling : float
        What it may borrow up to, in (0, 1].
    priority : int
        Among queues that want more than their guarantee, the lowest is served first.
    """

    guaranteed: float
    ceiling: float = 1.0
    priority: int = 0


def burst_bytes(rate_bit: int) -> int:
    """Return an HTB class's burst: what the rate delivers in `WAKE_UP_S`, in whole frames, at least one.

    Tokens beyond the burst are lost while the shaper's timer is late, so the burst must cover the lateness
    (tc-tbf(8): at least rate / HZ, where the timer is the tick; HTB's is a high-resolution timer). More only
    lets packets leave in clumps faster than the link. One frame is enough up to 48 Mbit/s. OVS itself raises
    a burst to at least the MTU and 64 bytes.

    Parameters
    ----------
    rate_bit : int
        Rate in bit/s, above 0.

    Examples
    --------
    >>> burst_bytes(20_000_000), burst_bytes(1_000_000_000)
    (1514, 31794)
    """
    return PACKET_BYTES * max(1, math.ceil(rate_bit / 8 * WAKE_UP_S / PACKET_BYTES))


def port_setting(rate_bit: int, interface: str, shares: Mapping[int, QueueShare]) -> PortSetting:
    """Return one port's setting, after checking that its queues' guarantees fit its rate."""
    guaranteed = math.fsum(share.guaranteed for share in shares.values())
    if guaranteed > 1 + 1e-9:
        raise UsageError(f"the queues of {interface} are guaranteed {guaranteed:.0%} of its rate, above 100%")
    if len(shares) > MAX_QUEUES:
        raise UsageError(f"{interface} would have {len(shares)} queues, above {MAX_QUEUES}")
    return {
        "port": interface,
        "type": "linux-htb",
        "max_rate_bit": rate_bit,
        "queues": {number: _queue_setting(rate_bit, share) for number, share in sorted(shares.items())},
    }


def _queue_setting(rate_bit: int, share: QueueShare) -> QueueSetting:
    """Return one queue's setting; its burst serves the fastest it may send."""
    if not 0 <= share.guaranteed <= share.ceiling <= 1 or not share.ceiling:
        raise UsageError(f"a queue's share must satisfy 0 <= guaranteed <= ceiling <= 1, ceiling above 0, not {share}")
    ceiling_bit = round(rate_bit * share.ceiling)
    return {
        "min_rate_bit": max(IDLE_RATE_BIT, round(rate_bit * share.guaranteed)) if share.guaranteed < 1 else rate_bit,
        "max_rate_bit": ceiling_bit,
        "burst_bytes": burst_bytes(ceiling_bit),
        "priority": share.priority,
    }
