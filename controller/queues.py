"""Queue policies: who shares a queue with whom at each bottleneck, as OVSDB settings and OpenFlow rules.

A policy is a pure function from the graph and the flows to a `QueuePlan`. To add one, write it and enter it
in `POLICIES`; what a plan means for OVSDB and for the switches is the same for all.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import networkx as nx

from controller.forwarding import PRIORITY_FLOW, rule
from controller.plan import PortSetting, QueueSetting, Rule
from topologies.errors import UsageError
from topologies.graph import edge_id
from topologies.ports import Port

__all__ = [
    "POLICIES",
    "QueueFlow",
    "QueuePlan",
    "QueueShare",
    "bottleneck_edges",
    "burst_bytes",
    "queue_plan",
]
__all__ += ["queue_rules", "queue_settings"]

Edge = tuple[str, str]

IP_PROTO_TCP = 6
FRAME_BYTES = 1514
"""A full Ethernet frame as the shaper counts it: 1500 of IP and 14 of header."""
WAKE_UP_S = 250e-6
"""How late the shaper's timer may be without costing rate: some five wake-ups of an idle core."""


class QueueFlow(NamedTuple):
    """What a policy may know of a flow.

    Attributes
    ----------
    flow_id, cca, src, dst : str
        As in the scenario.
    tcp_port : int
        The receiver's port, by which switches know the flow.
    nodes : tuple of str
        Its path.
    """

    flow_id: str
    cca: str
    src: str
    dst: str
    tcp_port: int
    nodes: tuple[str, ...]


class QueueShare(NamedTuple):
    """A queue's part of its port's rate: what it is sure of and what it may borrow up to, both in (0, 1]."""

    guaranteed: float
    ceiling: float


class QueuePlan(NamedTuple):
    """A policy's decision.

    Attributes
    ----------
    shares : mapping
        Bottleneck edge -> queue number -> share.
    members : mapping
        (edge, flow_id) -> queue number; a flow that isn't named is in queue 0.
    """

    shares: Mapping[Edge, Mapping[int, QueueShare]]
    members: Mapping[tuple[Edge, str], int]


Policy = Callable[[nx.DiGraph, Sequence[QueueFlow]], QueuePlan]


def shared(graph: nx.DiGraph, flows: Sequence[QueueFlow]) -> QueuePlan:
    """Return one queue for all flows at every bottleneck, the network as it is without a policy."""
    return QueuePlan({edge: {0: QueueShare(1.0, 1.0)} for edge in bottleneck_edges(graph)}, {})


POLICIES: dict[str, Policy] = {"shared": shared}


def queue_plan(policy: str, graph: nx.DiGraph, flows: Sequence[QueueFlow] = ()) -> QueuePlan:
    """Return what the policy of this name decides, or raise a UsageError that lists the known ones."""
    if policy not in POLICIES:
        raise UsageError(f"unknown queue policy {policy!r}: choose from {', '.join(POLICIES)}")
    decided = POLICIES[policy](graph, flows)
    whole = {edge: {0: QueueShare(1.0, 1.0)} for edge in shaped_edges(graph)}
    return decided._replace(shares={**whole, **decided.shares})


def shaped_edges(graph: nx.DiGraph) -> list[Edge]:
    """Return the edges out of switches that have a rate, in order of name: each is shaped, bottleneck or not."""
    return sorted(
        (u, v)
        for u, v, rate in graph.edges(data="rate_mbit")
        if rate is not None and graph.nodes[u]["role"] == "switch"
    )


def bottleneck_edges(graph: nx.DiGraph) -> list[Edge]:
    """Return the edges out of switches that are marked as bottlenecks, in order of name."""
    found = sorted(edge for edge, marked in nx.get_edge_attributes(graph, "bottleneck").items() if marked)
    for u, v in found:
        if graph.edges[u, v]["rate_mbit"] is None:
            raise UsageError(f"the bottleneck {edge_id(u, v)} has no rate_mbit")
    return [(u, v) for u, v in found if graph.nodes[u]["role"] == "switch"]


def queue_settings(graph: nx.DiGraph, plan: QueuePlan, ports: Mapping[Edge, Port]) -> list[PortSetting]:
    """Return the plan as settings of switch ports; edge rates in Mbit/s become bit/s."""
    return [
        _port_setting(round(graph.edges[edge]["rate_mbit"] * 1e6), ports[edge].interface, shares)
        for edge, shares in plan.shares.items()
    ]


def queue_rules(
    plan: QueuePlan,
    flows: Sequence[QueueFlow],
    ports: Mapping[Edge, Port],
    addresses: Mapping[str, str],
    dpids: Mapping[str, int],
) -> list[Rule]:
    """Return the rules that put flows in queues; those of queue 0 need none."""
    by_id = {flow.flow_id: flow for flow in flows}
    return [
        rule(dpids[edge[0]], PRIORITY_FLOW, _flow_match(by_id[flow_id], addresses), ports[edge].number, queue)
        for (edge, flow_id), queue in plan.members.items()
        if queue != 0
    ]


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
    return FRAME_BYTES * max(1, math.ceil(rate_bit / 8 * WAKE_UP_S / FRAME_BYTES))


def _port_setting(rate_bit: int, interface: str, shares: Mapping[int, QueueShare]) -> PortSetting:
    """Return one port's setting, after checking that its queues' guarantees fit its rate."""
    guaranteed = math.fsum(share.guaranteed for share in shares.values())
    if guaranteed > 1 + 1e-9:
        raise UsageError(f"the queues of {interface} are guaranteed {guaranteed:.0%} of its rate, above 100%")
    return {
        "port": interface,
        "type": "linux-htb",
        "max_rate_bit": rate_bit,
        "queues": {number: _queue_setting(rate_bit, share) for number, share in sorted(shares.items())},
    }


def _queue_setting(rate_bit: int, share: QueueShare) -> QueueSetting:
    """Return one queue's setting; its burst serves the fastest it may send."""
    if not 0 < share.guaranteed <= share.ceiling <= 1:
        raise UsageError(f"a queue's share must satisfy 0 < guaranteed <= ceiling <= 1, not {share}")
    ceiling_bit = round(rate_bit * share.ceiling)
    return {
        "min_rate_bit": round(rate_bit * share.guaranteed),
        "max_rate_bit": ceiling_bit,
        "burst_bytes": burst_bytes(ceiling_bit),
    }


def _flow_match(flow: QueueFlow, addresses: Mapping[str, str]) -> dict[str, int | str]:
    """Return what a flow's data packets match; acknowledgements go the usual way."""
    return {
        "ip_proto": IP_PROTO_TCP,
        "ipv4_src": addresses[flow.src],
        "ipv4_dst": addresses[flow.dst],
        "tcp_dst": flow.tcp_port,
    }
