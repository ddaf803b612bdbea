"""The dumbbell: pairs of hosts that share one link."""

from collections.abc import Sequence

import networkx as nx

from topologies.errors import UsageError
from topologies.graph import link, validate
from topologies.parts import attach_pair, both_ways, count, queue
from topologies.units import MAX_TIME_MS, Buffer, check_range

__all__ = ["dumbbell"]

MAX_PAIRS = 1000


def dumbbell(
    pairs: int = 4,
    rate_mbit: float = 20.0,
    rtt_ms: float | Sequence[float] = 40.0,
    buffer: str | Buffer = "1bdp",
    aqm: str = "fifo",
    jitter_ms: float = 0.0,
    distribution: str = "uniform",
    reorder: bool = False,
    loss_pct: float = 0.0,
) -> nx.DiGraph:
    r"""Return a dumbbell graph: `pairs` senders and receivers on either side of one bottleneck.

    ::

        snd1 --.                    .-- rcv1
        snd2 ---\                  /--- rcv2
                 s1 ============ s2
        ...  ---/   bottleneck     \--- ...
        sndN --'                    '-- rcvN

    Parameters
    ----------
    pairs : int
        Number of senders, and of receivers, 1 to 1000.
    rate_mbit : float
        Rate of the core link in both directions, 10⁶ bit/s.
    rtt_ms : float or sequence of float
        Base round-trip time of every pair, or one for each.
    buffer : str or Buffer
        Queue of the core link in each direction, as `topologies.units.parse_buffer` reads it. A BDP is
        that of the longest RTT.
    aqm : str
        How the queue is managed, one of `topologies.graph.AQMS`.
    jitter_ms, distribution, reorder
        How the delay of each host's egress varies (`topologies.schema.Edge`): by at most half the shortest RTT.
    loss_pct : float
        Random loss on each host's egress: once on the way of the data, once on that of the acknowledgements.

    Returns
    -------
    networkx.DiGraph
        Nodes are snd1..sndN (role sender), rcv1..rcvN (receiver), s1 and s2 (switch). Half of pair k's RTT
        is the delay of sndk->s1, the other half of rcvk->s2: each on a host's own egress, before the
        bottleneck, where it releases the sender's small-queue budget as a network card would. All other
        delays are 0. Only s1->s2 and s2->s1 have a rate, and s1->s2 is the bottleneck.

    Raises
    ------
    UsageError
        Naming the bound that a parameter breaks.

    Examples
    --------
    >>> graph = dumbbell(pairs=2, rate_mbit=20, rtt_ms=[40, 80])
    >>> graph.edges["s1", "s2"]["buffer_bytes"], graph.edges["snd2", "s1"]["delay_ms"]
    (200000, 40.0)
    """
    rtts_ms = _rtts_ms(pairs, rtt_ms)
    core = queue(rate_mbit, max(rtts_ms), buffer, aqm)
    graph = nx.DiGraph()
    graph.add_nodes_from(["s1", "s2"], role="switch")
    link(graph, "s1", "s2", *both_ways(core, bottleneck=True))
    check_range("jitter_ms", jitter_ms, 0, MAX_TIME_MS, " ms")
    check_range("loss_pct", loss_pct, 0, 100, " %")
    varies = {"jitter_ms": float(jitter_ms), "distribution": distribution} if jitter_ms else {}
    air = varies | {"reorder": bool(reorder and jitter_ms), "loss_pct": float(loss_pct)}
    for number, pair_rtt_ms in enumerate(rtts_ms, start=1):
        attach_pair(graph, number, ("s1", "s2"), pair_rtt_ms / 2, **air)
    validate(graph)
    return graph


def _rtts_ms(pairs: int, rtt_ms: float | Sequence[float]) -> list[float]:
    """Return the base RTT of each pair in ms, checked."""
    pairs = count("pairs", pairs, 1, MAX_PAIRS)
    if isinstance(rtt_ms, str) or not isinstance(rtt_ms, Sequence):
        rtt_ms = [rtt_ms] * pairs
    if len(rtt_ms) != pairs:
        raise UsageError(f"rtt_ms has {len(rtt_ms)} values for {pairs} pairs: give one, or one for each")
    for value in rtt_ms:
        check_range("rtt_ms", value, 0, MAX_TIME_MS, " ms")
    return [float(value) for value in rtt_ms]
