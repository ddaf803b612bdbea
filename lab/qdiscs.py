"""Qdiscs as tc's arguments: pure functions from what an edge asks for to text.

The owner of each queue is in ``design`` terms: propagation delay and loss are netem's, at a host's egress; rate is the
controller's HTB class at the bottleneck; the buffer is the explicit leaf below that class.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from topologies.errors import UsageError
from topologies.units import PACKET_BYTES

NETEM_MARGIN_PACKETS = 10_000
"""Beyond twice what a delay holds at the path's rate: netem must never drop by its limit, bursts included."""

RED_MAX_BYTES = 1 << 25
RED_MAX_RATE_BIT = 34_000_000_000
"""The largest threshold and bandwidth that tc can say for RED."""

RELEASE_DELAY_US = 1
"""The least delay before a bottleneck: any netem releases the sender's small-queue budget, as a network card does."""


def netem(delay_ms: float, rate_mbit: float) -> str:
    """Return netem's arguments for a delay on a path of a rate; its limit is computed, never the default 1000."""
    delay_us = max(RELEASE_DELAY_US, round(delay_ms * 1000))
    held = rate_mbit * 1e6 / 8 * delay_us / 1e6 / PACKET_BYTES
    return f"netem delay {delay_us}us limit {math.ceil(2 * held) + NETEM_MARGIN_PACKETS}"


def _packets(buffer_bytes: int) -> int:
    return max(1, buffer_bytes // PACKET_BYTES)


def _red(size: int) -> str:
    """Return RED's arguments: its thresholds are a twelfth and a quarter of the buffer."""
    largest = min(max(size // 4, 6000), RED_MAX_BYTES)
    least, step = max(largest // 3, 2000), red_step_bytes(size)
    return f"red limit {size} avpkt {step} min {least} max {largest} burst {red_burst(least, step)}"


def red_step_bytes(size: int) -> int:
    """Return RED's avpkt: the kernel has 32 bits for the mean with its fraction, so large buffers need coarser ones."""
    return max(1000, size // 250)


def red_burst(least_bytes: float, step_bytes: float) -> int:
    """Return the burst, in packets, that tc-red(8) gives for its thresholds, of which ours are as 1 to 3."""
    return int(least_bytes * 5 // 3 // step_bytes) + 1


LEAVES: dict[str, Callable[[int], str]] = {
    "fifo": lambda size: f"bfifo limit {size}",
    "codel": lambda size: f"codel limit {_packets(size)}",
    "fq_codel": lambda size: f"fq_codel limit {_packets(size)} memory_limit {2 * size}",
    "pie": lambda size: f"pie limit {_packets(size)}",
    "fq_pie": lambda size: f"fq_pie limit {_packets(size)}",
    # In a namespace's packets fq would find their senders' sockets, and make TCP leave its pacing to it.
    "fq": lambda size: f"fq limit {_packets(size)} flow_limit {_packets(size)} nopacing",
    "sfq": lambda size: f"sfq limit {_packets(size)}",
    "cake": lambda size: f"cake unlimited besteffort memlimit {2 * size}",
    "red": _red,
    "dualpi2": lambda size: f"dualpi2 limit {_packets(size)}",
}
"""AQM name -> a leaf with room for ``size`` bytes. A new AQM is one entry. Memory limits count the kernel's own
overhead, about as much again as the packet."""


NEVER_CHANGED = frozenset({"red", "sfq"})
"""Those that can't be changed in place: red throws away what waits in it, sfq refuses (net/sched/sch_red.c, sch_sfq.c,
Linux 7.2)."""


def leaf(aqm: str, buffer_bytes: int) -> str:
    """Return the leaf's arguments, or raise a UsageError that lists the known AQMs."""
    if aqm not in LEAVES:
        raise UsageError(f"unknown aqm {aqm!r}: choose from {', '.join(LEAVES)}")
    return LEAVES[aqm](buffer_bytes)
