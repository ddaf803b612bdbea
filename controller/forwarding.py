"""Forwarding as OpenFlow rules, from a graph alone.

A switch forwards by IPv4 destination along `topologies.graph.next_hops`; a path that is given for a pair of
hosts gets rules of its own, of higher priority, where it leaves that way. Nothing is flooded and what matches
no rule is dropped (OpenFlow 1.3's default), so loops in the graph do no harm. Hosts are given each other's
Ethernet addresses, so there is no ARP to forward.

    priority 300  src, dst, TCP port -> queue, port    a flow where it has a queue, or a path of its own (`queues`)
    priority 200  src, dst           -> port           a pair of hosts with a path of its own
    priority 100  dst                -> port           everything else
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import networkx as nx

from controller.plan import Rule
from topologies.errors import UsageError
from topologies.graph import check_path, next_hops
from topologies.ports import Port

__all__ = ["PRIORITY_DESTINATION", "PRIORITY_FLOW", "PRIORITY_PAIR", "check_path", "forwarding_rules", "rule"]

ETH_TYPE_IPV4 = 0x0800
PRIORITY_DESTINATION = 100
PRIORITY_PAIR = 200
PRIORITY_FLOW = 300


def forwarding_rules(
    graph: nx.DiGraph,
    ports: Mapping[tuple[str, str], Port],
    addresses: Mapping[str, str],
    dpids: Mapping[str, int],
    paths: Mapping[tuple[str, str], Sequence[str]] | None = None,
) -> list[Rule]:
    """Return the rules by which every host reaches every other, in order of switch and falling priority.

    Parameters
    ----------
    graph : networkx.DiGraph
        The topology.
    ports : mapping
        Edge (u, v) -> port on u that leads to v.
    addresses : mapping
        Host -> IPv4 address.
    dpids : mapping
        Switch -> datapath id.
    paths : mapping, optional
        (source, destination) -> nodes from one to the other, where it shall not be the usual way.

    Examples
    --------
    >>> from topologies import build, ports
    >>> graph = build("dumbbell", pairs=1)
    >>> rules = forwarding_rules(graph, ports.ports(graph), ports.addresses(graph), ports.dpids(graph))
    >>> rules[0]["match"], rules[0]["actions"]
    ({'eth_type': 2048, 'ipv4_dst': '10.0.0.1'}, [['output', 1]])
    """
    hops = {host: next_hops(graph, host) for host in addresses}
    for destination, following in hops.items():
        _check_reached(addresses, destination, following)
    rules = [
        rule(dpids[switch], PRIORITY_DESTINATION, {"ipv4_dst": addresses[host]}, ports[switch, hop].number)
        for host, following in hops.items()
        for switch, hop in following.items()
        if switch in dpids
    ]
    for (source, destination), nodes in (paths or {}).items():
        check_path(graph, source, destination, nodes)
        match = {"ipv4_src": addresses[source], "ipv4_dst": addresses[destination]}
        rules += [
            rule(dpids[switch], PRIORITY_PAIR, match, ports[switch, hop].number)
            for switch, hop in _steps(nodes)
            if hops[destination].get(switch) != hop
        ]
    return sorted(rules, key=_order)


def rule(
    dpid: int,
    priority: int,
    match: Mapping[str, int | str],
    port: int,
    queue: int | None = None,
    meter: int | None = None,
) -> Rule:
    """Return the rule that sends matching IPv4 packets out of a port, by way of a meter and a queue if given."""
    on_the_way: tuple[tuple[str, int | None], ...] = (("meter", meter), ("set_queue", queue))
    steer: list[list[str | int]] = [[name, number] for name, number in on_the_way if number is not None]
    return {
        "dpid": dpid,
        "priority": priority,
        "match": {"eth_type": ETH_TYPE_IPV4, **match},
        "actions": [*steer, ["output", port]],
    }


def _steps(nodes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each switch of a path with the node after it."""
    return pairwise(nodes[1:])


def _check_reached(hosts: Mapping[str, str], destination: str, following: Mapping[str, str]) -> None:
    """Raise a UsageError for the first host from which there is no way to the destination."""
    for host in hosts:
        if host != destination and host not in following:
            raise UsageError(f"there is no path from {host} to {destination}")


def _order(item: Rule) -> tuple[int, int, list[str]]:
    return item["dpid"], -item["priority"], [f"{key}={item['match'][key]}" for key in sorted(item["match"])]
