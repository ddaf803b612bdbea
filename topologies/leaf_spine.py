"""Leaf and spine: a small data centre, every leaf joined to every spine."""

import networkx as nx

from topologies.graph import link, validate
from topologies.parts import attach_pair, both_ways, count, queue
from topologies.units import MAX_TIME_MS, Buffer, check_range

__all__ = ["leaf_spine"]

MAX_SWITCHES = 64
MAX_PAIRS = 1000


def leaf_spine(
    pairs: int = 4,
    leaves: int = 4,
    spines: int = 2,
    rate_mbit: float = 100.0,
    hop_delay_ms: float = 0.05,
    access_delay_ms: float = 0.1,
    buffer: str | Buffer = "100packets",
    aqm: str = "fifo",
) -> nx.DiGraph:
    r"""Return a leaf-spine network in which pair k sends from one leaf to the next.

    ::

             spine1      spine2
             /  |  \    /  |  \
            /   |   \  /   |   \
        leaf1     leaf2     leaf3 ...
        snd1 ..   rcv1 ..

    Parameters
    ----------
    pairs : int
        Number of senders, and of receivers, 1 to 1000; sndk is at leaf k, rcvk at the leaf after it, in a circle.
    leaves, spines : int
        Number of switches: 2 to 64, and 1 to 64.
    rate_mbit : float
        Rate of each link between a leaf and a spine in both directions, 10⁶ bit/s.
    hop_delay_ms, access_delay_ms : float
        One-way delay of these links, and of each host's egress.
    buffer : str or Buffer
        Queue of each of these links in each direction. A BDP is that of the base RTT over one spine.
    aqm : str
        How these queues are managed, one of `topologies.graph.AQMS`.

    Returns
    -------
    networkx.DiGraph
        Routes to different hosts take turns at the spines (`topologies.graph.next_hops`), both directions of a pair
        the same one. Every leaf->spine edge is a bottleneck: the queue is before the first slow link.

    Examples
    --------
    >>> from topologies.graph import route
    >>> graph = leaf_spine()
    >>> [route(graph, f"snd{k}", f"rcv{k}")[2] for k in (1, 2, 3)]
    ['spine1', 'spine2', 'spine1']
    """
    pairs = count("pairs", pairs, 1, MAX_PAIRS)
    leaves, spines = count("leaves", leaves, 2, MAX_SWITCHES), count("spines", spines, 1, MAX_SWITCHES)
    for name, value in (("hop_delay_ms", hop_delay_ms), ("access_delay_ms", access_delay_ms)):
        check_range(name, value, 0, MAX_TIME_MS, " ms")
    fabric = queue(rate_mbit, 2 * access_delay_ms + 4 * hop_delay_ms, buffer, aqm)
    graph = nx.DiGraph()
    graph.add_nodes_from((f"leaf{number}" for number in range(1, leaves + 1)), role="switch")
    graph.add_nodes_from((f"spine{number}" for number in range(1, spines + 1)), role="switch")
    for leaf in range(1, leaves + 1):
        for spine in range(1, spines + 1):
            attributes = fabric | {"delay_ms": float(hop_delay_ms)}
            link(graph, f"leaf{leaf}", f"spine{spine}", *both_ways(attributes, bottleneck=True))
    for number in range(1, pairs + 1):
        ends = (f"leaf{(number - 1) % leaves + 1}", f"leaf{number % leaves + 1}")
        attach_pair(graph, number, ends, float(access_delay_ms))
    validate(graph)
    return graph
