"""A satellite link: far and asymmetric (GEO), or near and always moving (LEO)."""

import random
from collections.abc import Sequence

import networkx as nx

from topologies.errors import UsageError
from topologies.events import LinkEvent, on_both_ways
from topologies.graph import link, validate
from topologies.parts import attach_pair, count, queue
from topologies.units import MAX_RATE_MBIT, MAX_TIME_MS, MIN_RATE_MBIT, Buffer, check_range

__all__ = ["ORBITS", "satellite", "satellite_events"]

MAX_PAIRS = 1000

ORBITS = {
    "geo": {"down_mbit": 50.0, "up_mbit": 5.0, "delay_ms": 250.0, "loss_pct": 0.0},
    "leo": {"down_mbit": 100.0, "up_mbit": 15.0, "delay_ms": 20.0, "loss_pct": 0.0},
}
"""What each orbit's link is when nothing else is said; delays are one way, over the ground station."""


def satellite(
    pairs: int = 2,
    orbit: str = "geo",
    down_mbit: float | None = None,
    up_mbit: float | None = None,
    delay_ms: float | None = None,
    loss_pct: float | None = None,
    ground_delay_ms: float = 5.0,
    buffer: str | Buffer | None = None,
    aqm: str = "fifo",
) -> nx.DiGraph:
    r"""Return servers on the ground and users behind one satellite link, data flowing down to the users.

    ::

        snd1 --.              down ->                 .-- rcv1
        ...     --- gateway ==== )) ((  ==== terminal ---     ...
        sndN --'               <- up                  '-- rcvN

    Parameters
    ----------
    pairs : int
        Number of servers, and of users, 1 to 1000.
    orbit : {"geo", "leo"}
        Where the following come from when they are None: 50 and 5 Mbit/s and 250 ms (geo), 100 and 15 Mbit/s
        and 20 ms (leo). `satellite_events` gives the handovers of a leo link.
    down_mbit, up_mbit : float or None
        Rate of gateway->terminal and of terminal->gateway, 10⁶ bit/s.
    delay_ms : float or None
        One-way delay of the satellite link in each direction.
    loss_pct : float or None
        Random loss on the satellite link in each direction.
    ground_delay_ms : float
        One-way delay of each host's egress.
    buffer : str or Buffer or None
        Queue of the satellite link in each direction; None means 2bdp for geo, whose modems are known for
        their deep buffers, and 1bdp for leo. A BDP is that of the base RTT.
    aqm : str
        How these queues are managed, one of `topologies.graph.AQMS`.

    Returns
    -------
    networkx.DiGraph
        Pair k is sndk at the switch gateway and rcvk at the switch terminal; gateway->terminal is the bottleneck.

    Examples
    --------
    >>> graph = satellite(orbit="geo")
    >>> graph.edges["gateway", "terminal"]["delay_ms"], graph.edges["terminal", "gateway"]["rate_mbit"]
    (250.0, 5.0)
    """
    if orbit not in ORBITS:
        raise UsageError(f"orbit {orbit!r} must be one of {', '.join(ORBITS)}")
    given = {"down_mbit": down_mbit, "up_mbit": up_mbit, "delay_ms": delay_ms, "loss_pct": loss_pct}
    link_is = ORBITS[orbit] | {name: value for name, value in given.items() if value is not None}
    pairs = count("pairs", pairs, 1, MAX_PAIRS)
    for name, value in (("delay_ms", link_is["delay_ms"]), ("ground_delay_ms", ground_delay_ms)):
        check_range(name, value, 0, MAX_TIME_MS, " ms")
    rtt_ms = 2 * (link_is["delay_ms"] + ground_delay_ms)
    size = buffer if buffer is not None else {"geo": "2bdp", "leo": "1bdp"}[orbit]
    space = {"delay_ms": float(link_is["delay_ms"]), "loss_pct": link_is["loss_pct"]}
    down = queue(link_is["down_mbit"], rtt_ms, size, aqm, "down_mbit") | space
    up = queue(link_is["up_mbit"], rtt_ms, size, aqm, "up_mbit") | space
    graph = nx.DiGraph()
    graph.add_nodes_from(["gateway", "terminal"], role="switch")
    link(graph, "gateway", "terminal", down | {"bottleneck": True}, up)
    for number in range(1, pairs + 1):
        attach_pair(graph, number, ("gateway", "terminal"), float(ground_delay_ms))
    validate(graph)
    return graph


def satellite_events(
    duration_s: float,
    seed: int,
    period_s: float = 15.0,
    delay_ms: Sequence[float] = (10.0, 30.0),
    down_mbit: Sequence[float] = (50.0, 150.0),
    outage_ms: Sequence[float] = (0.0, 100.0),
) -> tuple[LinkEvent, ...]:
    """Return the handovers of a low-orbit link: every `period_s` another satellite, at another distance.

    All terminals of the largest such network change satellites together every 15 s, and round-trip times jump then
    (Mohan et al., "A Multifaceted Look at Starlink Performance", WWW 2024). What follows is drawn evenly, and is a
    model, not a measurement.

    Parameters
    ----------
    duration_s : float
        Length of the run; no event lies at or after its end.
    seed : int
        Of the draws.
    period_s : float
        Time between handovers, 1 s or more.
    delay_ms, down_mbit, outage_ms : pair of float
        Least and largest one-way delay, downward rate, and time without a link at a handover.
    """
    check_range("duration_s", duration_s, 0, 3600, " s", above=True)
    check_range("period_s", period_s, 1, 3600, " s")
    bounds = {"delay_ms": (delay_ms, 0, MAX_TIME_MS), "down_mbit": (down_mbit, MIN_RATE_MBIT, MAX_RATE_MBIT)}
    for name, (values, low, high) in (bounds | {"outage_ms": (outage_ms, 0, period_s * 500)}).items():
        if len(values) != 2 or values[0] > values[1]:
            raise UsageError(f"{name} must be two numbers, the least and the largest, not {values}")
        for value in values:
            check_range(name, value, low, high)
    draw = random.Random(seed)  # noqa: S311 - a model, not a secret
    events: list[LinkEvent] = []
    for number in range(1, int(duration_s / period_s) + 1):
        start_s, outage_s = number * period_s, round(draw.uniform(*outage_ms), 3) / 1e3
        delay, rate = round(draw.uniform(*delay_ms), 3), round(draw.uniform(*down_mbit), 3)
        end_s = round(start_s + outage_s, 6)
        if outage_s:
            events += on_both_ways(start_s, "gateway", "terminal", up=False)
        down, up = on_both_ways(end_s, "gateway", "terminal", delay_ms=delay, **({"up": True} if outage_s else {}))
        events += [LinkEvent(**down.model_dump(), rate_mbit=rate), up]
    return tuple(event for event in events if event.t_s < duration_s)
