"""What policies mean for Open vSwitch, for `tc` and for the switches, over the time of a run.

A run has one policy, or several one after the other. All queues that any of them uses exist from the beginning, so
that a change of policy moves rates, buffers and flows, but never removes a queue in which packets wait.

The buffer of a port is split in proportion to the queues' guaranteed rates, so that every queue drains in the time
in which the whole buffer would at the whole rate, and queueing delays can be compared. What a meter lets pass at once
is split in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import networkx as nx

from controller.forwarding import PRIORITY_FLOW, rule
from controller.plan import Adaptive, Meter, PortSetting, Rule, Step, Watched, leaf_line
from controller.policies import POLICIES, Edge, QueueFlow, QueuePlan, bottleneck_edges, decide, parse_policy
from controller.shaping import QueueShare, burst_bytes, port_setting
from topologies.errors import UsageError
from topologies.graph import edge_id, next_hops
from topologies.ports import Port
from topologies.units import PACKET_BYTES

__all__ = [
    "POLICIES",
    "Change",
    "Network",
    "QueueFlow",
    "QueuePlan",
    "QueueShare",
    "bottleneck_edges",
    "buffers",
    "burst_bytes",
    "classid",
    "decide",
    "parse_policy",
    "queue_id",
    "queue_rows",
    "queue_settings",
    "steps",
    "timeline",
    "watched",
]

IP_PROTO_TCP = 6
Leaf = Callable[[Edge, int], str]
"""(edge, buffer in bytes) -> a leaf qdisc as tc's arguments."""


class Change(NamedTuple):
    """A policy and when it begins, in s since the run began."""

    at_s: float
    policy: str
    plan: QueuePlan


def timeline(policies: Sequence[tuple[float, str]], graph: nx.DiGraph, flows: Sequence[QueueFlow]) -> list[Change]:
    """Return what the policies decide, each with all queues that any of them uses.

    Parameters
    ----------
    policies : sequence of (float, str)
        When each begins, in s, the first at 0, and its text.
    graph, flows
        The network.
    """
    _check_times([at_s for at_s, _ in policies])
    decided = [Change(at_s, text, decide(text, graph, flows)) for at_s, text in policies]
    numbers: dict[Edge, set[int]] = {}
    for change in decided:
        for edge, shares in change.plan.shares.items():
            numbers.setdefault(edge, set()).update(shares)
    return [change._replace(plan=_with_queues(change.plan, numbers)) for change in decided]


def _check_times(times: Sequence[float]) -> None:
    for before, after in pairwise(times):
        if after <= before:
            raise UsageError(
                f"queue policies must change at rising times above 0 s: {after:g} s is not after {before:g} s"
            )


def _with_queues(plan: QueuePlan, numbers: Mapping[Edge, Iterable[int]]) -> QueuePlan:
    """Return the plan with idle queues where others have one that it doesn't use."""
    idle = QueueShare(0.0)
    shares = {edge: {q: own.get(q, idle) for q in sorted(numbers[edge])} for edge, own in plan.shares.items()}
    return plan._replace(shares=shares)


class Network(NamedTuple):
    """What a graph's names are on the wire."""

    graph: nx.DiGraph
    ports: Mapping[Edge, Port]
    addresses: Mapping[str, str]
    dpids: Mapping[str, int]


def steps(changes: Sequence[Change], flows: Sequence[QueueFlow], network: Network, leaf: Leaf) -> list[Step]:
    """Return for each change what is to be set: queues, leaves, meters and rules."""
    made: list[Step] = []
    for index, change in enumerate(changes):
        later = changes[index:] if index == 0 else [change]
        made.append(
            {
                "at_s": change.at_s,
                "policy": change.policy,
                "queues": queue_settings(network.graph, change.plan, network.ports),
                "leaves": _leaves(later, network, leaf),
                "meters": _meters(change.plan, network, index),
                "rules": _flow_rules(change.plan, flows, network, index),
                "adaptive": _adaptive(change.plan, flows, network, leaf),
            }
        )
    return made


def queue_settings(graph: nx.DiGraph, plan: QueuePlan, ports: Mapping[Edge, Port]) -> list[PortSetting]:
    """Return the plan as settings of switch ports; edge rates in Mbit/s become bit/s."""
    return [
        port_setting(round(graph.edges[edge]["rate_mbit"] * 1e6), ports[edge].interface, shares)
        for edge, shares in plan.shares.items()
    ]


def buffers(graph: nx.DiGraph, edge: Edge, plan: QueuePlan) -> dict[int, int]:
    """Return the buffer of each queue that is used, in bytes: its part of the port's, as of the guaranteed rates."""
    whole = graph.edges[edge]["buffer_bytes"]
    used = {number: share.guaranteed for number, share in plan.shares[edge].items() if share.guaranteed}
    total = math.fsum(used.values())
    parts = {number: int(whole * (part / total)) for number, part in used.items()}
    if len(parts) > 1 and min(parts.values()) < PACKET_BYTES:
        raise UsageError(
            f"the buffer of {edge_id(*edge)}, {whole} bytes, is too small for {len(parts)} queues: one would have "
            f"{min(parts.values())} bytes, less than a frame of {PACKET_BYTES}. "
            "A larger buffer or fewer queues would do"
        )
    return parts


def queue_id(edge: Edge, number: int | None = None) -> str:
    """Return how a port is written, "u->v", or one of its queues, "u->v/2"."""
    return edge_id(*edge) if number is None else f"{edge_id(*edge)}/{number}"


def classid(number: int) -> int:
    """Return the number of a queue's HTB class, 1:(q + 1), as the kernel writes it."""
    return (1 << 16) | (number + 1)


def queue_rows(changes: Sequence[Change], graph: nx.DiGraph, edge: Edge) -> dict[str, dict[str, Any]]:
    """Return for each queue of a port with several what it is given: name -> guaranteed rate, buffer, flows.

    Rate and members are of the policy that first uses the queue; the buffer is the largest it ever has.
    """
    numbers = sorted(changes[0].plan.shares[edge])
    if len(numbers) == 1:
        return {}
    rows = {}
    for number in numbers:
        using = [change.plan for change in changes if change.plan.shares[edge][number].guaranteed] or [changes[0].plan]
        part = using[0].shares[edge][number].guaranteed
        rows[queue_id(edge, number)] = {
            "rate_mbit": graph.edges[edge]["rate_mbit"] * part or None,
            "buffer_bytes": max(
                (buffers(graph, edge, plan).get(number, 0) for plan in using), default=0
            ) or graph.edges[edge]["buffer_bytes"],
            "aqm": graph.edges[edge]["aqm"],
            "bottleneck": False,
            "port": queue_id(edge),
            "flows": [flow_id for (where, flow_id), q in using[0].members.items() if (where, q) == (edge, number)],
        }  # fmt: skip
    return rows


def watched(plan: QueuePlan, flows: Sequence[QueueFlow], network: Network) -> Watched:
    """Return the ports and flows whose counters the controller reads."""
    return {
        "ports": [
            {
                "edge": edge_id(*edge),
                "port": network.ports[edge].interface,
                "dpid": network.dpids[edge[0]],
                "number": network.ports[edge].number,
            }
            for edge in plan.shares
        ],
        "flows": [flow.flow_id for flow in flows],
    }


def _leaves(changes: Sequence[Change], network: Network, leaf: Leaf) -> list[str]:
    """Return tc's lines for the leaves of the queues used, each as the first of the changes that uses it asks."""
    lines = []
    for edge in changes[0].plan.shares:
        sizes: dict[int, int] = {}
        for change in changes:
            sizes = _all_buffers(network.graph, edge, change.plan) | sizes
        interface = network.ports[edge].interface
        lines += [leaf_line(interface, number, leaf(edge, size)) for number, size in sorted(sizes.items())]
    return lines


def _all_buffers(graph: nx.DiGraph, edge: Edge, plan: QueuePlan) -> dict[int, int]:
    """Return the buffers, an adaptive policy's spare queues having the whole."""
    found = buffers(graph, edge, plan)
    if plan.interval_s is not None:
        found = {number: graph.edges[edge]["buffer_bytes"] for number in plan.shares[edge]} | found
    return found


def _meters(plan: QueuePlan, network: Network, index: int) -> list[Meter]:
    """Return a meter for each flow that has a limit; its burst is that rate's part of the port's buffer."""
    return [
        {
            "dpid": network.dpids[edge[0]],
            "meter": _meter_number(index, position),
            "rate_kbit": max(1, round(limit * 1e3)),
            "burst_kbit": math.ceil(8 * max(PACKET_BYTES, _part(network.graph, edge, limit)) / 1e3),
        }
        for position, ((edge, _), limit) in enumerate(plan.limits_mbit.items())
    ]


def _part(graph: nx.DiGraph, edge: Edge, rate_mbit: float) -> float:
    """Return a rate's part of an edge's buffer, in bytes."""
    return float(graph.edges[edge]["buffer_bytes"] * rate_mbit / graph.edges[edge]["rate_mbit"])


def _meter_number(index: int, position: int) -> int:
    """Return a number that no meter of another step has."""
    return 1 + index * 0x1000 + position


def _flow_rules(plan: QueuePlan, flows: Sequence[QueueFlow], network: Network, index: int) -> list[Rule]:
    """Return each flow's rules: where it has a queue, so that it is counted, and where its path is its own."""
    meters = {key: _meter_number(index, position) for position, key in enumerate(plan.limits_mbit)}
    hops = {flow.dst: next_hops(network.graph, flow.dst) for flow in flows}
    rules = []
    for number, flow in enumerate(flows):
        for edge in pairwise(flow.nodes[1:]):
            shaped = edge in plan.shares
            if shaped or hops[flow.dst].get(edge[0]) != edge[1]:
                made = rule(
                    network.dpids[edge[0]],
                    PRIORITY_FLOW,
                    _flow_match(flow, network.addresses),
                    network.ports[edge].number,
                    plan.members.get((edge, flow.flow_id), 0) if shaped else None,
                    meters.get((edge, flow.flow_id)),
                )
                rules.append({**made, "flow": number} if shaped else made)
    return rules


def _flow_match(flow: QueueFlow, addresses: Mapping[str, str]) -> dict[str, int | str]:
    """Return what a flow's data packets match; acknowledgements go the usual way."""
    return {
        "ip_proto": IP_PROTO_TCP,
        "ipv4_src": addresses[flow.src],
        "ipv4_dst": addresses[flow.dst],
        "tcp_dst": flow.tcp_port,
    }


def _adaptive(plan: QueuePlan, flows: Sequence[QueueFlow], network: Network, leaf: Leaf) -> Adaptive | None:
    """Return what the controller needs to decide by itself, None where the plan leaves nothing to decide."""
    if plan.interval_s is None:
        return None
    adaptive: Adaptive = {"interval_s": plan.interval_s, "ports": []}
    for edge in bottleneck_edges(network.graph):
        groups: dict[str, list[str]] = {}
        for flow in flows:
            if flow.crosses(edge):
                groups.setdefault(flow.cca, []).append(flow.flow_id)
        count = sum(map(len, groups.values()))
        whole = network.graph.edges[edge]["buffer_bytes"]
        adaptive["ports"].append(
            {
                "edge": edge_id(*edge),
                "port": network.ports[edge].interface,
                "dpid": network.dpids[edge[0]],
                "rate_bit": round(network.graph.edges[edge]["rate_mbit"] * 1e6),
                "queues": sorted(plan.shares[edge]),
                "groups": groups,
                "leaves": [leaf(edge, max(PACKET_BYTES, whole * k // count)) for k in range(1, count + 1)],
            }
        )
    return adaptive
