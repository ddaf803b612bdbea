"""netem's settings, and the netlink messages that change a link in place; without networkx, for the running lab.

A change at run time is one message, with the seed in it, which iproute2 before 6.6 can't say. Layouts:
linux/pkt_sched.h (``struct tc_netem_*``, ``struct tc_htb_opt``), net/sched/sch_netem.c and sch_htb.c.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.netlink import TCA_KIND, TCA_OPTIONS, attribute, tc_header

IN_ORDER_RATE_BYTES = 125_000_000_000
"""netem keeps packets in order only where it has a rate: one of 1 Tbit/s takes 12 ns for a full frame."""

JITTER_REACH = 4
"""netem's tables of distributions end at four deviations (iproute2's normal.dist: 32767/8192)."""

ROOT = 0xFFFFFFFF
"""The parent of a root qdisc (TC_H_ROOT)."""
HANDLE = 1 << 16
"""The handle of every root qdisc here, 1:."""
HTB_CLASS = HANDLE | 1
"""The class of queue 0 in every HTB tree here, 1:1, as Open vSwitch numbers it."""
HTB_QUANTUM = 1514

TCA_NETEM_LOSS, TCA_NETEM_RATE, TCA_NETEM_RATE64 = 5, 6, 8
TCA_NETEM_LATENCY64, TCA_NETEM_JITTER64, TCA_NETEM_SLOT, TCA_NETEM_PRNG_SEED = 10, 11, 12, 14
NETEM_LOSS_GE = 2
TCA_HTB_PARMS, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 6, 7
TC_LINKLAYER_ETHERNET = 1
TICK_NS = 64
"""The scheduler's unit of time (PSCHED_SHIFT is 6)."""


@dataclass(frozen=True)
class Netem:
    """What netem does on one edge.

    Attributes
    ----------
    delay_us, jitter_us
        As tc writes times, in µs; ``distribution`` says what the jitter means.
    loss_pct
        Random loss, 0 to 100.
    gemodel
        (p, r, 1-h, 1-k) in percent, in place of ``loss_pct``.
    slot
        (least ns, largest ns, packets, bytes).
    in_order
        Whether packets never overtake.
    limit
        In packets; never reached.
    """

    delay_us: float
    limit: int
    jitter_us: float = 0.0
    distribution: str = "uniform"
    loss_pct: float = 0.0
    gemodel: tuple[float, float, float, float] | None = None
    slot: tuple[int, int, int, int] | None = None
    in_order: bool = False

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Netem:
        """Return it from the plan's plain data, the opposite of ``dataclasses.asdict``."""
        lists = {name: None if data[name] is None else tuple(data[name]) for name in ("gemodel", "slot")}
        return cls(**{**data, **lists})

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers, and so needs a seed."""
        return bool(self.jitter_us or 0 < self.loss_pct < 100 or self.gemodel or (self.slot and self.slot[1]))

    @property
    def loses(self) -> bool:
        """Whether it ever loses a packet."""
        return bool(self.loss_pct or self.gemodel)

    def loss_share(self, packets: int) -> tuple[float, float]:
        """Return the share of so many packets that it loses on average, and the standard deviation of that share.

        Independent losses are binomial. Of the two states of `gemodel` the bad one has the share p / (p + r) of the
        time; a chain that remembers 1 - p - r of its state from packet to packet varies (2 - p - r) / (p + r) times as
        much as one that remembers nothing.
        """
        if not self.gemodel:
            share, memory = self.loss_pct / 100, 1.0
        else:
            p, r, bad, good = (value / 100 for value in self.gemodel)
            share, memory = (p * bad + r * good) / (p + r), max(1.0, (2 - p - r) / (p + r))
        return share, math.sqrt(share * (1 - share) * memory / max(1, packets))

    @property
    def varies_ms(self) -> tuple[float, float]:
        """How much less and how much more than its delay it may take."""
        jitter_ms = self.jitter_us / 1e3 * (1 if self.distribution == "uniform" else JITTER_REACH)
        return jitter_ms, jitter_ms + (max(self.slot[:2]) / 1e6 if self.slot else 0.0)

    def words(self) -> str:
        """Return it as tc's arguments.

        Examples
        --------
        >>> Netem(20_000, 10_067, jitter_us=2000, distribution="normal", loss_pct=1).words()
        'netem delay 20000us 2000us distribution normal limit 10067 loss 1%'
        """
        words = [f"netem delay {self.delay_us:.10g}us"]
        if self.jitter_us:
            words.append(f"{self.jitter_us:.10g}us")
            words += [f"distribution {self.distribution}"] if self.distribution != "uniform" else []
        words.append(f"limit {self.limit}")
        if self.gemodel:
            words.append("loss gemodel " + " ".join(f"{share:.10g}%" for share in self.gemodel))
        elif self.loss_pct:
            words.append(f"loss {self.loss_pct:.10g}%")
        if self.slot:
            least, largest, packets, size = self.slot
            words.append(f"slot {least}ns {largest or least}ns packets {packets} bytes {size}")
        if self.in_order:
            words.append(f"rate {IN_ORDER_RATE_BYTES * 8}bit")
        return " ".join(words)


def _share(percent: float) -> int:
    """Return a percentage as the kernel counts it, in 1/(2³² - 1)."""
    return round(percent / 100 * 0xFFFFFFFF)


def netem_body(ifindex: int, change: Netem, seed: int) -> bytes:
    """Return the body of an RTM_NEWQDISC that changes the root netem of an interface in place.

    The table of a distribution is not in it: the kernel keeps the one it has.
    """
    options = struct.pack("=IIIIII", 0, change.limit, _share(change.loss_pct), 0, 0, 0)
    options += attribute(TCA_NETEM_LATENCY64, struct.pack("=q", round(change.delay_us * 1e3)))
    options += attribute(TCA_NETEM_JITTER64, struct.pack("=q", round(change.jitter_us * 1e3)))
    if change.gemodel:
        p, r, loss_bad, loss_good = change.gemodel
        model = struct.pack("=IIII", _share(p), _share(r), _share(100 - loss_bad), _share(loss_good))
        options += attribute(TCA_NETEM_LOSS, attribute(NETEM_LOSS_GE, model))
    rate = IN_ORDER_RATE_BYTES if change.in_order else 0
    options += attribute(TCA_NETEM_RATE, struct.pack("=IiIi", 0xFFFFFFFF if rate else 0, 0, 0, 0))
    options += attribute(TCA_NETEM_RATE64, struct.pack("=Q", rate)) if rate else b""
    if change.slot:
        least, largest, packets, size = change.slot
        options += attribute(TCA_NETEM_SLOT, struct.pack("=qqiiqq", least, largest or least, packets, size, 0, 0))
    options += attribute(TCA_NETEM_PRNG_SEED, struct.pack("=Q", seed))
    header = tc_header(ifindex, HANDLE, ROOT)
    return header + attribute(TCA_KIND, b"netem\0") + attribute(TCA_OPTIONS, options)


def htb_body(ifindex: int, rate_mbit: float, burst_bytes: int) -> bytes:
    """Return the body of an RTM_NEWTCLASS that gives class 1:1 of an interface another rate, its queue untouched."""
    rate_bit = round(rate_mbit * 1e6)
    rate = rate_bit // 8
    ticks = round(burst_bytes / (rate_bit / 8) * 1e9 / TICK_NS)
    spec = struct.pack("=BBHhHI", 0, TC_LINKLAYER_ETHERNET, 0, -1, 0, min(rate, 0xFFFFFFFF))
    parameters = spec + spec + struct.pack("=IIIII", ticks, ticks, HTB_QUANTUM, 0, 0)
    options = attribute(TCA_HTB_PARMS, parameters)
    if rate > 0xFFFFFFFF:
        options += attribute(TCA_HTB_RATE64, struct.pack("=Q", rate))
        options += attribute(TCA_HTB_CEIL64, struct.pack("=Q", rate))
    header = tc_header(ifindex, HTB_CLASS, HANDLE)
    return header + attribute(TCA_KIND, b"htb\0") + attribute(TCA_OPTIONS, options)
