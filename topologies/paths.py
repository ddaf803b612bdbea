"""What follows from a graph and its flows: path, base RTT, bottleneck, BDP and max-min fair share."""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import networkx as nx

from topologies.graph import FlowEnds, check_flows, edge_id, flow_route, route, shaped_edges
from topologies.units import bdp_bytes

__all__ = ["FlowPath", "flow_paths", "max_min_shares"]

E = TypeVar("E", bound=Hashable)


@dataclass(frozen=True)
class FlowPath:
    """A flow's way through a graph.

    Attributes
    ----------
    nodes : tuple of str
        From sender to receiver.
    base_rtt_ms : float
        Sum of the one-way delays there and back: the RTT with empty queues, without transmission times.
    bottleneck : str
        Edge of the lowest rate on the way there, the first of equals.
    rate_mbit : float
        The bottleneck's rate.
    bdp_bytes : int
        Bottleneck rate times base RTT.
    fair_share_mbit : float
        Max-min fair share with all flows active.
    """

    nodes: tuple[str, ...]
    base_rtt_ms: float
    bottleneck: str
    rate_mbit: float
    bdp_bytes: int
    fair_share_mbit: float


def flow_paths(graph: nx.DiGraph, flows: Iterable[FlowEnds]) -> dict[str, FlowPath]:
    """Return each flow's path, after checking that the graph can carry it.

    Examples
    --------
    >>> from types import SimpleNamespace as Flow
    >>> from topologies.dumbbell import dumbbell
    >>> flows = [Flow(flow_id=f"cubic-{k}", src=f"snd{k}", dst=f"rcv{k}") for k in (1, 2)]
    >>> path = flow_paths(dumbbell(), flows)["cubic-2"]
    >>> path.bottleneck, path.base_rtt_ms, path.bdp_bytes, path.fair_share_mbit
    ('s1->s2', 40.0, 100000, 10.0)
    """
    flows = list(flows)
    check_flows(graph, flows)
    routes = {flow.flow_id: flow_route(graph, flow) for flow in flows}
    rates = {name: shaped_edges(graph, nodes) for name, nodes in routes.items()}
    capacities = {pair: rate for shaped in rates.values() for pair, rate in shaped.items()}
    shares = max_min_shares(capacities, rates)
    return {name: _flow_path(graph, nodes, rates[name], shares[name]) for name, nodes in routes.items()}


def _flow_path(
    graph: nx.DiGraph, nodes: tuple[str, ...], rates: Mapping[tuple[str, str], float], share_mbit: float
) -> FlowPath:
    """Return the path along the nodes there and the route back."""
    back = route(graph, nodes[-1], nodes[0])
    base_rtt_ms = math.fsum([*_delays_ms(graph, nodes), *_delays_ms(graph, back)])
    bottleneck = min(rates, key=lambda pair: rates[pair])
    rate_mbit = rates[bottleneck]
    return FlowPath(
        nodes=nodes,
        base_rtt_ms=base_rtt_ms,
        bottleneck=edge_id(*bottleneck),
        rate_mbit=rate_mbit,
        bdp_bytes=round(bdp_bytes(rate_mbit, base_rtt_ms)),
        fair_share_mbit=share_mbit,
    )


def _delays_ms(graph: nx.DiGraph, nodes: Iterable[str]) -> list[float]:
    """Return the one-way delay of each edge along a path."""
    return [graph.edges[pair]["delay_ms"] for pair in nx.utils.pairwise(nodes)]


def max_min_shares(capacities: Mapping[E, float], paths: Mapping[str, Iterable[E]]) -> dict[str, float]:
    """Return each flow's max-min fair rate, in the unit of the capacities.

    Progressive filling: all rates grow together until an edge is full, which fixes the flows across it; the
    others go on (Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2).

    Parameters
    ----------
    capacities : mapping of edge to float
        Above 0.
    paths : mapping of flow to edges
        The edges that each flow crosses, at least one, all of them in `capacities`.

    Examples
    --------
    Two links in a row, one flow over both and one more on each:

    >>> max_min_shares({"a": 10, "b": 20}, {"long": "ab", "short a": "a", "short b": "b"})
    {'long': 5.0, 'short a': 5.0, 'short b': 15.0}
    """
    crossing = {edge: {name for name, path in paths.items() if edge in path} for edge in capacities}
    shares: dict[str, float] = {}
    while len(shares) < len(paths):
        levels = {
            edge: _level(capacities[edge], flows, shares)
            for edge, flows in crossing.items()
            if not flows <= shares.keys()
        }
        fullest = min(levels, key=lambda edge: levels[edge])
        shares |= dict.fromkeys(crossing[fullest] - shares.keys(), levels[fullest])
    return {name: shares[name] for name in paths}


def _level(capacity: float, flows: set[str], shares: Mapping[str, float]) -> float:
    """Return the rate at which an edge is full, when the flows without a share yet all reach it."""
    fixed = math.fsum(shares[name] for name in flows & shares.keys())
    return max(0.0, capacity - fixed) / len(flows - shares.keys())
