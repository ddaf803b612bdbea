"""Queue policies: who shares a queue with whom at each bottleneck.

A policy is a pure function from the graph, the flows and its arguments to a `QueuePlan`. To add one, write it and
enter it in `POLICIES`; what a plan means for OVSDB, for `tc` and for the switches is the same for all (`queues`).
In text a policy is `name` or `name:argument,argument`, an argument being a word or `word=value`.

    shared                       one queue for all
    per_cca                      one queue for each algorithm, equal parts
    per_flow                     one queue for each flow, equal parts
    weighted:ndm_tcp=2,cubic=1   one queue for each algorithm, parts as 2 to 1; an algorithm not named has weight 1
    priority:ndm_tcp,cubic       one queue for each algorithm, the first served first; those not named come last
    isolate:ndm_tcp              a queue for the algorithm named, one for all others, parts by number of flows
    police:bbr=4mbit             one queue for all; a meter for each bbr flow drops what is above 4 Mbit/s
    adaptive:interval=1s         begins as `shared`; the controller moves flows and weights by what it measures

Parts are guarantees: what a queue doesn't use, others may borrow, up to the whole rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import networkx as nx

from controller.shaping import QueueShare
from topologies.errors import UsageError
from topologies.graph import edge_id
from topologies.units import check_range, parse_rate_mbit, parse_time_s

__all__ = ["POLICIES", "Edge", "QueueFlow", "QueuePlan", "QueueShare", "bottleneck_edges", "decide", "parse_policy"]

Edge = tuple[str, str]
Arguments = Mapping[str, str]

WHOLE_FLOOR = 0.01
"""Part of the rate that `priority` guarantees to all queues together, so that none is cut off."""
MAX_WEIGHT = 1e6
ADAPTIVE_INTERVAL_S = 1.0
MIN_INTERVAL_S = 1.0
"""Open vSwitch brings its rules' counters up to date every 0.5 s (ovs-vswitchd.conf.db(5), max-revalidator)."""


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

    def crosses(self, edge: Edge) -> bool:
        """Say whether the flow's path has this edge."""
        return edge in pairwise(self.nodes)


class QueuePlan(NamedTuple):
    """A policy's decision.

    Attributes
    ----------
    shares : mapping
        Bottleneck edge -> queue number -> share.
    members : mapping
        (edge, flow_id) -> queue number; a flow that isn't named is in queue 0.
    limits_mbit : mapping
        (edge, flow_id) -> rate above which a meter drops.
    interval_s : float or None
        How often the controller is to decide anew, None for never.
    """

    shares: Mapping[Edge, Mapping[int, QueueShare]]
    members: Mapping[tuple[Edge, str], int]
    limits_mbit: Mapping[tuple[Edge, str], float] = {}
    interval_s: float | None = None


Policy = Callable[[nx.DiGraph, Sequence[QueueFlow], Arguments], QueuePlan]
Key = Callable[[QueueFlow], str]
Group = tuple[str, list[QueueFlow]]


def shared(graph: nx.DiGraph, flows: Sequence[QueueFlow], arguments: Arguments) -> QueuePlan:
    """Return one queue for all flows at every bottleneck, the network as it is without a policy."""
    _no_arguments("shared", arguments)
    return QueuePlan({edge: {0: QueueShare(1.0)} for edge in bottleneck_edges(graph)}, {})


def per_cca(graph: nx.DiGraph, flows: Sequence[QueueFlow], arguments: Arguments) -> QueuePlan:
    """Return one queue for each algorithm, with equal parts."""
    _no_arguments("per_cca", arguments)
    return _grouped(graph, flows, _cca, lambda groups: [QueueShare(1 / len(groups))] * len(groups))


def per_flow(graph: nx.DiGraph, flows: Sequence[QueueFlow], arguments: Arguments) -> QueuePlan:
    """Return one queue for each flow, with equal parts."""
    _no_arguments("per_flow", arguments)
    return _grouped(graph, flows, lambda flow: flow.flow_id, lambda groups: [QueueShare(1 / len(groups))] * len(groups))


def weighted(graph: nx.DiGraph, flows: Sequence[QueueFlow], arguments: Arguments) -> QueuePlan:
    """Return one queue for each algorithm, with parts in proportion to weights."""
    _check_algorithms("weighted", arguments, flows, "weighted:ndm_tcp=2,cubic=1")
    weights = {cca: _weight(cca, text) for cca, text in arguments.items()}

    def shares(groups: list[Group]) -> list[QueueShare]:
        own = [weights.get(name, 1.0) for name, _ in groups]
        return [QueueShare(weight / math.fsum(own)) for weight in own]

    return _grouped(graph, flows, _cca, shares)


def priority(graph: nx.DiGraph, flows: Sequence[QueueFlow], arguments: Arguments) -> QueuePlan:
    """Return one queue for each algorithm, served in the order named; without names in the flows' order."""
    _check_bare("priority", arguments)
    _check_known("priority", arguments, flows)
    order = list(arguments)

    def shares(groups: list[Group]) -> list[QueueShare]:
        ranks = [
            order.index(name) if name in order else len(order) if order else index
            for index, (name, _) in enumerate(groups)
        ]
        return [QueueShare(WHOLE_FLOOR / len(groups), priority=rank) for rank in ranks]

    return _grouped(graph, flows, _cca, shares)


def isolate(graph: nx.DiGraph, flows: Sequence[QueueFlow], arguments: Arguments) -> QueuePlan:
    """Return a queue for each algorithm named and one, queue 0, for all others, with parts by number of flows."""
    _check_algorithms("isolate", arguments, flows, "isolate:ndm_tcp")
    _check_bare("isolate", arguments)

    def shares(groups: list[Group]) -> list[QueueShare]:
        count = sum(len(members) for _, members in groups)
        return [QueueShare(len(members) / count) for _, members in groups]

    return _grouped(graph, flows, lambda flow: flow.cca if flow.cca in arguments else "", shares, first="")


def police(graph: nx.DiGraph, flows: Sequence[QueueFlow], arguments: Arguments) -> QueuePlan:
    """Return one queue for all, and a meter for each flow: at the rate named for its algorithm, or an equal part."""
    _check_known("police", arguments, flows)
    limits = {cca: _rate_mbit(cca, text) for cca, text in arguments.items()}
    asked: dict[tuple[Edge, str], float] = {}
    for edge in bottleneck_edges(graph):
        crossing = [flow for flow in flows if flow.crosses(edge)]
        rate_mbit = graph.edges[edge]["rate_mbit"]
        for cca, limit in limits.items():
            if limit > rate_mbit:
                raise UsageError(
                    f"police: {cca}={limit:g}mbit is above {edge_id(*edge)}'s rate of {rate_mbit:g} Mbit/s"
                )
        named = limits or {flow.cca: rate_mbit / len(crossing) for flow in crossing}
        asked |= {(edge, flow.flow_id): named[flow.cca] for flow in crossing if flow.cca in named}
    return shared(graph, flows, {})._replace(limits_mbit=asked)


def adaptive(graph: nx.DiGraph, flows: Sequence[QueueFlow], arguments: Arguments) -> QueuePlan:
    """Return one queue for all to begin with, and a spare one for each algorithm, by which the controller acts."""
    unknown = [name for name in arguments if name != "interval"]
    if unknown:
        raise UsageError(f"adaptive: unknown argument {unknown[0]!r}: write adaptive or adaptive:interval=1s")
    interval_s = parse_time_s(arguments["interval"]) if arguments else ADAPTIVE_INTERVAL_S
    check_range("adaptive: interval", interval_s, MIN_INTERVAL_S, 60.0, " s")
    shares: dict[Edge, dict[int, QueueShare]] = {}
    for edge in bottleneck_edges(graph):
        groups = _groups([flow for flow in flows if flow.crosses(edge)], _cca)
        shares[edge] = {0: QueueShare(1.0)} | {number: QueueShare(0.0) for number in range(1, len(groups) + 1)}
    return QueuePlan(shares, {}, interval_s=interval_s)


POLICIES: dict[str, Policy] = {
    "shared": shared,
    "per_cca": per_cca,
    "per_flow": per_flow,
    "weighted": weighted,
    "priority": priority,
    "isolate": isolate,
    "police": police,
    "adaptive": adaptive,
}


def parse_policy(text: str) -> tuple[str, dict[str, str]]:
    """Return a policy's name and its arguments, a word without a value having "".

    Examples
    --------
    >>> parse_policy("weighted:ndm_tcp=2,cubic=1")
    ('weighted', {'ndm_tcp': '2', 'cubic': '1'})
    >>> parse_policy("isolate:ndm_tcp")
    ('isolate', {'ndm_tcp': ''})
    """
    name, colon, rest = text.strip().partition(":")
    if name not in POLICIES:
        raise UsageError(f"unknown queue policy {name!r}: choose from {', '.join(POLICIES)}")
    items = [item.strip() for item in rest.split(",")] if colon else []
    arguments: dict[str, str] = {}
    for item in items:
        word, equals, value = (part.strip() for part in item.partition("="))
        if not word or (equals and not value):
            raise UsageError(f"queue policy {text!r}: {item!r} is not a word or word=value")
        if word in arguments:
            raise UsageError(f"queue policy {text!r} names {word} twice")
        arguments[word] = value
    return name, arguments


def decide(text: str, graph: nx.DiGraph, flows: Sequence[QueueFlow] = ()) -> QueuePlan:
    """Return what the policy of this text decides, for every shaped edge, or raise a UsageError with the reason."""
    name, arguments = parse_policy(text)
    decided = POLICIES[name](graph, flows, arguments)
    whole: dict[Edge, Mapping[int, QueueShare]] = {edge: {0: QueueShare(1.0)} for edge in switch_edges(graph)}
    return decided._replace(shares={**whole, **decided.shares})


def switch_edges(graph: nx.DiGraph) -> list[Edge]:
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


def _cca(flow: QueueFlow) -> str:
    return flow.cca


def _grouped(
    graph: nx.DiGraph,
    flows: Sequence[QueueFlow],
    key: Key,
    shares: Callable[[list[Group]], list[QueueShare]],
    first: str | None = None,
) -> QueuePlan:
    """Return a queue for each group of flows that a bottleneck carries, numbered from 0 in the flows' order.

    `first` names a group that is queue 0 wherever the others are.
    """
    given: dict[Edge, dict[int, QueueShare]] = {}
    members: dict[tuple[Edge, str], int] = {}
    for edge in bottleneck_edges(graph):
        groups = _groups([flow for flow in flows if flow.crosses(edge)], key)
        groups.sort(key=lambda group: group[0] != first)
        given[edge] = dict(enumerate(shares(groups))) if groups else {0: QueueShare(1.0)}
        members |= {(edge, flow.flow_id): number for number, (_, own) in enumerate(groups) for flow in own}
    return QueuePlan(given, members)


def _groups(flows: Iterable[QueueFlow], key: Key) -> list[Group]:
    """Return the flows by key, in the order in which keys first appear."""
    found: dict[str, list[QueueFlow]] = {}
    for flow in flows:
        found.setdefault(key(flow), []).append(flow)
    return list(found.items())


def _no_arguments(policy: str, arguments: Arguments) -> None:
    if arguments:
        raise UsageError(f"queue policy {policy} takes no arguments, not {', '.join(arguments)}")


def _check_algorithms(policy: str, arguments: Arguments, flows: Sequence[QueueFlow], example: str) -> None:
    """Raise a UsageError unless there are arguments, each an algorithm that has a flow."""
    if not arguments:
        raise UsageError(f"queue policy {policy} needs algorithms: write it as {example}")
    _check_known(policy, arguments, flows)


def _check_known(policy: str, arguments: Arguments, flows: Sequence[QueueFlow]) -> None:
    known = list(dict.fromkeys(flow.cca for flow in flows))
    for cca in arguments:
        if cca not in known:
            raise UsageError(
                f"queue policy {policy} names {cca!r}, which has no flow: the flows use {', '.join(known)}"
            )


def _check_bare(policy: str, arguments: Arguments) -> None:
    for word, value in arguments.items():
        if value:
            raise UsageError(f"queue policy {policy} takes names only: write {word}, not {word}={value}")


def _weight(cca: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight <= MAX_WEIGHT:
        raise UsageError(f"weighted: the weight of {cca} must be a number above 0, up to {MAX_WEIGHT:g}, not {text!r}")
    return weight


def _rate_mbit(cca: str, text: str) -> float:
    if not text:
        raise UsageError(f"police: {cca} needs a rate: write {cca}=4mbit")
    return parse_rate_mbit(text)
