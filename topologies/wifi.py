"""A chain of radio hops: loss in bursts, delay that varies, rates that wander, packets in bunches."""

import math
import random
from collections.abc import Sequence

import networkx as nx

from topologies.errors import UsageError
from topologies.events import LinkEvent, on_both_ways
from topologies.graph import link, validate
from topologies.parts import attach_pair, both_ways, count, queue
from topologies.units import MAX_TIME_MS, Buffer, check_range

__all__ = ["wifi", "wifi_events"]

MAX_HOPS = 100
MAX_PAIRS = 1000


def wifi(
    pairs: int = 2,
    hops: int = 2,
    rate_mbit: float = 40.0,
    delay_ms: float = 3.0,
    jitter_ms: float = 1.0,
    reorder: bool = False,
    loss_pct: float = 0.5,
    burst_packets: float = 4.0,
    slot_ms: float = 0.0,
    access_delay_ms: float = 10.0,
    buffer: str | Buffer = "1bdp",
    aqm: str = "fifo",
) -> nx.DiGraph:
    r"""Return a chain of lossy hops between servers and users.

    ::

        snd1 --.                                      .-- rcv1
        ...     --- ap1 ))) ((( ap2 ))) ((( ap3 -----     ...
        sndN --'                                      '-- rcvN

    Parameters
    ----------
    pairs : int
        Number of servers, and of users, 1 to 1000.
    hops : int
        Number of radio hops, 1 to 100. They do not share air time: each direction of a hop has a rate of its own.
    rate_mbit : float
        Rate of each hop in both directions, 10⁶ bit/s; `wifi_events` lets it wander.
    delay_ms, jitter_ms : float
        One-way delay of each hop and how far it varies to both sides, evenly.
    reorder : bool
        Whether packets overtake one another, or late ones hold back those behind.
    loss_pct : float
        Mean loss of each hop in each direction, below 50 %; in bursts (`topologies.schema.GilbertElliott`).
    burst_packets : float
        Mean length of a burst, at least 1.
    slot_ms : float
        Packets leave each hop in bunches this far apart, as aggregated frames do; 0 for one by one.
    access_delay_ms : float
        One-way delay of each host's egress.
    buffer : str or Buffer
        Queue of each hop in each direction. A BDP is that of the base RTT.
    aqm : str
        How these queues are managed, one of `topologies.graph.AQMS`.

    Returns
    -------
    networkx.DiGraph
        Switches ap1..ap(hops + 1); pair k is sndk at ap1 and rcvk at the last. ap1->ap2 is the bottleneck: all hops
        have the same rate, so the queue is before the first.

    Examples
    --------
    >>> wifi().edges["ap1", "ap2"]["gemodel"]["r_pct"]
    25.0
    """
    pairs, hops = count("pairs", pairs, 1, MAX_PAIRS), count("hops", hops, 1, MAX_HOPS)
    for name, value in (("delay_ms", delay_ms), ("jitter_ms", jitter_ms), ("access_delay_ms", access_delay_ms)):
        check_range(name, value, 0, MAX_TIME_MS, " ms")
    check_range("slot_ms", slot_ms, 0, 1000, " ms")
    air = queue(rate_mbit, 2 * (access_delay_ms + hops * delay_ms), buffer, aqm)
    air |= {"delay_ms": float(delay_ms), "jitter_ms": float(jitter_ms), "reorder": bool(reorder and jitter_ms)}
    air |= {"gemodel": _burst_loss(loss_pct, burst_packets)}
    air |= {"slot": {"min_ms": float(slot_ms)} if slot_ms else None}
    graph = nx.DiGraph()
    graph.add_nodes_from((f"ap{number}" for number in range(1, hops + 2)), role="switch")
    for hop in range(1, hops + 1):
        link(graph, f"ap{hop}", f"ap{hop + 1}", *both_ways(air, bottleneck=hop == 1))
    for number in range(1, pairs + 1):
        attach_pair(graph, number, ("ap1", f"ap{hops + 1}"), float(access_delay_ms))
    validate(graph)
    return graph


def _burst_loss(loss_pct: float, burst_packets: float) -> dict[str, float] | None:
    """Return the Gilbert model of a mean loss and burst length: r = 1 / burst, and loss = p / (p + r)."""
    check_range("loss_pct", loss_pct, 0, 50, " %")
    check_range("burst_packets", burst_packets, 1, 1000)
    if not loss_pct:
        return None
    r_pct = 100 / burst_packets
    return {"p_pct": r_pct * loss_pct / (100 - loss_pct), "r_pct": r_pct}


def wifi_events(
    duration_s: float,
    seed: int,
    hops: int = 2,
    rate_mbit: float = 40.0,
    interval_s: float = 1.0,
    spread: Sequence[float] = (0.5, 1.5),
) -> tuple[LinkEvent, ...]:
    """Return a rate that wanders: each hop draws a new one for both directions every `interval_s`.

    Parameters
    ----------
    duration_s : float
        Length of the run; no event lies at or after its end.
    seed : int
        Of the draws.
    hops : int
        As for `wifi`.
    rate_mbit : float
        What the drawn factor multiplies.
    interval_s : float
        Time between two draws, 10 ms or more.
    spread : pair of float
        Least and largest factor, drawn evenly.
    """
    check_range("interval_s", interval_s, 0.01, 3600, " s")
    if len(spread) != 2 or not 0 < spread[0] <= spread[1] <= 1000:
        raise UsageError(f"spread must be two factors above 0, the least and the largest, not {spread}")
    draw = random.Random(seed)  # noqa: S311 - a model, not a secret
    return tuple(
        event
        for number in range(1, math.ceil(duration_s / interval_s))
        for hop in range(1, count("hops", hops, 1, MAX_HOPS) + 1)
        for event in on_both_ways(
            round(number * interval_s, 6),
            f"ap{hop}",
            f"ap{hop + 1}",
            rate_mbit=round(rate_mbit * draw.uniform(*spread), 3),
        )
    )
