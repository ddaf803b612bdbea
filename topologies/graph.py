"""A topology graph's rules: what nodes and edges say, and what is refused.

Nodes have a `role`: sender, receiver or switch. Each direction of a link is an edge of its own, written
"s1->s2", with the fields of `Edge` as attributes. Hosts have one link and do not forward.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

import networkx as nx
from pydantic import ValidationError

from topologies.errors import UsageError
from topologies.kept import kept
from topologies.problems import problem_lines
from topologies.schema import AQMS, NODE_PATTERN, ROLES, Edge

__all__ = [
    "AQMS",
    "Edge",
    "FlowEnds",
    "check_flows",
    "check_path",
    "edge",
    "edge_id",
    "flow_route",
    "link",
    "next_hops",
    "problems",
    "role",
    "route",
    "shaped_edges",
    "validate",
]

RESERVED_NAMES = frozenset({"all", "default", "lo"})
"""Names that the kernel has given away among interfaces and in /proc/sys/net/ipv4/conf."""
MAX_INTERFACE_NAME = 15
"""Linux's IFNAMSIZ is 16, with the closing NUL."""


class FlowEnds(Protocol):
    """What a topology needs to know of a flow."""

    @property
    def flow_id(self) -> str:
        """Name of the flow."""

    @property
    def src(self) -> str:
        """Sending node."""

    @property
    def dst(self) -> str:
        """Receiving node."""


def edge_id(u: str, v: str) -> str:
    """Return how an edge is written: "u->v"."""
    return f"{u}->{v}"


def edge(graph: nx.DiGraph, u: str, v: str) -> Edge:
    """Return the validated attributes of one direction of a link."""
    if not graph.has_edge(u, v):
        raise UsageError(f"there is no edge {edge_id(u, v)}")
    return _edge(u, v, graph.edges[u, v])


def _edge(u: str, v: str, attributes: Mapping[str, Any]) -> Edge:
    """Return an edge's attributes validated, or raise all that is wrong with them."""
    try:
        return Edge.model_validate(dict(attributes))
    except ValidationError as error:
        lines = problem_lines(error, lambda _: Edge.model_fields)
        raise UsageError(f"edge {edge_id(u, v)}: {'; '.join(lines)}") from error


def link(graph: nx.DiGraph, u: str, v: str, forward: Mapping[str, Any], backward: Mapping[str, Any]) -> None:
    """Join two nodes by u->v with the attributes `forward` and v->u with `backward`, filling in defaults."""
    both = {(u, v): _edge(u, v, forward), (v, u): _edge(v, u, backward)}
    for (a, b), attributes in both.items():
        graph.add_edge(a, b, **attributes.model_dump())


def role(graph: nx.DiGraph, node: str) -> str:
    """Return a node's role: sender, receiver or switch."""
    return str(graph.nodes[node].get("role"))


def shaped_edges(graph: nx.DiGraph, nodes: Iterable[str]) -> dict[tuple[str, str], float]:
    """Return the edges along a path that have a rate, in order, with it in Mbit/s."""
    rates = {pair: graph.edges[pair].get("rate_mbit") for pair in nx.utils.pairwise(nodes)}
    return {pair: rate for pair, rate in rates.items() if rate is not None}


def validate(graph: nx.DiGraph) -> None:
    """Raise a UsageError that lists everything wrong with a graph, one line each."""
    found = problems(graph)
    if found:
        raise UsageError("\n".join(found))


def problems(graph: nx.DiGraph) -> list[str]:
    """Return everything wrong with a graph, each line naming the node or the edge; nothing means valid."""
    if graph.is_multigraph() or not graph.is_directed():
        return [f"a topology is a networkx.DiGraph, not a {type(graph).__name__}"]
    found = [*_node_problems(graph), *_edge_problems(graph)]
    return found or [*_role_problems(graph), *_connection_problems(graph)]


def _node_problems(graph: nx.DiGraph) -> Iterator[str]:
    """Yield what is wrong with nodes by themselves."""
    for node in graph:
        if not isinstance(node, str) or not re.fullmatch(NODE_PATTERN, node) or node in RESERVED_NAMES:
            yield (
                f"node {node!r}: a name is a letter and up to 9 letters, digits or _ after it, "
                f"and none of {', '.join(sorted(RESERVED_NAMES))}"
            )
        elif role(graph, node) not in ROLES:
            yield f"node {node}: role {graph.nodes[node].get('role')!r} must be one of {', '.join(ROLES)}"


def _edge_problems(graph: nx.DiGraph) -> Iterator[str]:
    """Yield what is wrong with edges by themselves."""
    for u, v, attributes in graph.edges(data=True):
        if u == v:
            yield f"edge {edge_id(u, v)}: a link needs two ends"
        elif not graph.has_edge(v, u):
            yield f"edge {edge_id(u, v)}: its way back {edge_id(v, u)} is missing"
        try:
            _edge(u, v, attributes)
        except UsageError as error:
            yield str(error)


def _role_problems(graph: nx.DiGraph) -> Iterator[str]:
    """Yield what is wrong with how many nodes there are of a role, and with their links."""
    counts = Counter(role(graph, node) for node in graph)
    for needed in ("sender", "receiver"):
        if not counts[needed]:
            yield f"the graph has no {needed}"
    for node, links in graph.out_degree():
        if role(graph, node) != "switch" and links != 1:
            yield f"node {node}: a {role(graph, node)} has one link, not {links}"
        last = f"{node}-eth{links}"
        if role(graph, node) == "switch" and len(last) > MAX_INTERFACE_NAME:
            yield f"node {node}: its interface {last} would have over {MAX_INTERFACE_NAME} characters"


def _connection_problems(graph: nx.DiGraph) -> Iterator[str]:
    """Yield the parts that a graph falls into, when it is not one."""
    parts = sorted(sorted(part) for part in nx.weakly_connected_components(graph))
    if len(parts) > 1:
        yield f"the graph is in {len(parts)} parts: {' | '.join(' '.join(part) for part in parts)}"


@kept
def next_hops(graph: nx.DiGraph, dst: str) -> dict[str, str]:
    """Return from every node that reaches `dst` the next node on its way there.

    The way is the one of the smallest delay, then of the fewest hops. Among equals, the destination's number takes
    turns at each step: the first node name for rcv1, the second for rcv2, …, so that parallel paths share the load.
    It depends on the destination only, so that a forwarding table can hold it. Hosts do not forward.
    """
    scale = len(graph) + 1  # above any number of hops, so that one integer orders delay first and hops second

    def cost(u: str, v: str) -> int:
        delay_ns = round(float(graph.edges[u, v]["delay_ms"]) * 1e6)
        return delay_ns * scale + 1

    def backwards(v: str, u: str, _: object) -> int | None:
        return cost(u, v) if v == dst or role(graph, v) == "switch" else None

    left = nx.single_source_dijkstra_path_length(graph.reverse(copy=False), dst, weight=backwards)
    number = re.search(r"\d+$", dst)
    turn = int(number[0]) - 1 if number else 0

    def best(u: str) -> str:
        equals: list[str] = sorted(
            v
            for v in graph.successors(u)
            if v in left and (v == dst or role(graph, v) == "switch") and cost(u, v) + left[v] == left[u]
        )
        return equals[turn % len(equals)]

    return {u: best(u) for u in left if u != dst}


def route(graph: nx.DiGraph, src: str, dst: str) -> tuple[str, ...]:
    """Return the nodes from `src` to `dst` along `next_hops`, or raise that there is no path.

    Examples
    --------
    >>> from topologies.dumbbell import dumbbell
    >>> route(dumbbell(), "snd1", "rcv1")
    ('snd1', 's1', 's2', 'rcv1')
    """
    following = next_hops(graph, dst)
    nodes = [src]
    while nodes[-1] != dst:
        if nodes[-1] not in following:
            raise UsageError(f"there is no path from {src} to {dst}")
        nodes.append(following[nodes[-1]])
    return tuple(nodes)


def check_path(graph: nx.DiGraph, source: str, destination: str, nodes: Sequence[str]) -> None:
    """Raise a UsageError if packets cannot go from source to destination along these nodes."""
    name = f"path {' '.join(nodes)}"
    if len(nodes) < 2 or (nodes[0], nodes[-1]) != (source, destination):
        raise UsageError(f"{name} does not lead from {source} to {destination}")
    if len(set(nodes)) < len(nodes):
        raise UsageError(f"{name} passes a node twice")
    for u, v in pairwise(nodes):
        if not graph.has_edge(u, v):
            raise UsageError(f"{name}: there is no edge {u}->{v}")
    for node in nodes[1:-1]:
        if role(graph, node) != "switch":
            raise UsageError(f"{name} passes {node}, which is not a switch")


def flow_route(graph: nx.DiGraph, flow: FlowEnds) -> tuple[str, ...]:
    """Return the nodes that a flow's data crosses: the path it asks for, or the usual route."""
    path: tuple[str, ...] | None = getattr(flow, "path", None)
    if path is None:
        return route(graph, flow.src, flow.dst)
    check_path(graph, flow.src, flow.dst, path)
    return tuple(path)


def check_flows(graph: nx.DiGraph, flows: Iterable[FlowEnds]) -> None:
    """Raise a UsageError that lists the flows which cannot run on a graph, one line each."""
    flows = list(flows)
    found = [f"flow {flow.flow_id}: {problem}" for flow in flows for problem in _flow_problems(graph, flow)]
    counts = Counter(flow.flow_id for flow in flows)
    found += [f"flow {name}: {count} flows have this name" for name, count in counts.items() if count > 1]
    if not flows:
        found = ["there are no flows"]
    if found:
        raise UsageError("\n".join(found))


def _flow_problems(graph: nx.DiGraph, flow: FlowEnds) -> Iterator[str]:
    """Yield why a flow cannot run on a graph."""
    wrong_ends = [
        *_end_problems(graph, "src", flow.src, "sender"),
        *_end_problems(graph, "dst", flow.dst, "receiver"),
    ]
    yield from wrong_ends
    if wrong_ends:
        return
    try:
        there, _ = flow_route(graph, flow), route(graph, flow.dst, flow.src)
    except UsageError as error:
        yield str(error)
        return
    if not shaped_edges(graph, there):
        # In virtual time computing costs nothing: over infinite bandwidth the first second never ends.
        yield f"no edge on its path {' '.join(there)} has a rate_mbit"


def _end_problems(graph: nx.DiGraph, field: str, node: str, wanted: str) -> Iterator[str]:
    """Yield why a node cannot be an end of a flow."""
    if node not in graph:
        choices = sorted(other for other in graph if role(graph, other) == wanted)
        yield f"{field} {node} does not exist: the {wanted}s are {', '.join(choices)}"
    elif role(graph, node) != wanted:
        yield f"{field} {node} is a {role(graph, node)}, not a {wanted}"
