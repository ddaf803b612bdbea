"""The parking lot: bottlenecks in a row, which long flows cross all and others one each."""

import networkx as nx

from topologies.graph import link, validate
from topologies.parts import attach_pair, both_ways, count, queue
from topologies.units import MAX_TIME_MS, Buffer, check_range

__all__ = ["parking_lot", "parking_lot_flows"]

MAX_HOPS = 100
MAX_PAIRS = 1000


def parking_lot(
    hops: int = 3,
    long: int = 1,
    cross: int = 1,
    rate_mbit: float = 20.0,
    hop_delay_ms: float = 5.0,
    access_delay_ms: float = 5.0,
    buffer: str | Buffer = "1bdp",
    aqm: str = "fifo",
) -> nx.DiGraph:
    r"""Return a parking lot: `hops` bottlenecks in a row, with `long` flows over all and `cross` flows over each.

    ::

        long senders                                  long receivers
                 \                                      /
                  s1 ======= s2 ======= s3 ======= s4
                 /          /  \       /  \          \
              cross in   out  in    out  in         out

    Parameters
    ----------
    hops : int
        Number of bottlenecks, 1 to 100.
    long, cross : int
        Number of flows over all bottlenecks, at least 1, and over each single one, at least 0.
    rate_mbit : float
        Rate of each core link in both directions, 10⁶ bit/s.
    hop_delay_ms : float
        One-way delay of each core link.
    access_delay_ms : float
        One-way delay of each host's egress. So a long flow's base RTT is 2 (access + hops * hop) and a cross
        flow's 2 (access + hop).
    buffer : str or Buffer
        Queue of each core link in each direction. A BDP is that of a long flow's RTT.
    aqm : str
        How these queues are managed, one of `topologies.graph.AQMS`.

    Returns
    -------
    networkx.DiGraph
        Switches s1..s(hops + 1). Pairs are numbered with the long ones first, then those of each hop; pair k is
        sndk and rcvk. Each s{i}->s{i+1} is a bottleneck.

    Examples
    --------
    >>> graph = parking_lot(hops=2)
    >>> [node for node in graph.successors("s2")]
    ['s1', 's3', 'rcv2', 'snd3']
    """
    hops, long, cross = (
        count("hops", hops, 1, MAX_HOPS),
        count("long", long, 1, MAX_PAIRS),
        count("cross", cross, 0, 100),
    )
    check_range("hop_delay_ms", hop_delay_ms, 0, MAX_TIME_MS, " ms")
    check_range("access_delay_ms", access_delay_ms, 0, MAX_TIME_MS, " ms")
    core = queue(rate_mbit, 2 * (access_delay_ms + hops * hop_delay_ms), buffer, aqm)
    graph = nx.DiGraph()
    graph.add_nodes_from((f"s{number}" for number in range(1, hops + 2)), role="switch")
    for hop in range(1, hops + 1):
        attributes = core | {"delay_ms": float(hop_delay_ms)}
        link(graph, f"s{hop}", f"s{hop + 1}", *both_ways(attributes, bottleneck=True))
    for number in range(1, long + 1):
        attach_pair(graph, number, ("s1", f"s{hops + 1}"), float(access_delay_ms))
    for index in range(hops * cross):
        hop = index // cross + 1
        attach_pair(graph, long + index + 1, (f"s{hop}", f"s{hop + 1}"), float(access_delay_ms))
    validate(graph)
    return graph


def parking_lot_flows(hops: int, long: int, cross: int) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return (sender, receiver) of the flows: "long", and "cross", `cross` for each hop in order.

    Examples
    --------
    >>> parking_lot_flows(hops=2, long=1, cross=1)
    {'long': (('snd1', 'rcv1'),), 'cross': (('snd2', 'rcv2'), ('snd3', 'rcv3'))}
    """
    pairs = tuple((f"snd{number}", f"rcv{number}") for number in range(1, long + hops * cross + 1))
    return {"long": pairs[:long], "cross": pairs[long:]}
