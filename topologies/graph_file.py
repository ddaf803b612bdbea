"""Any network from a file: GraphML, GML or JSON, the Internet Topology Zoo's files among them."""

import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx

from topologies.errors import UsageError
from topologies.graph import RESERVED_NAMES, edge, edge_id, route, shaped_edges, validate
from topologies.parts import attach_pair, count, natural_flows, queue
from topologies.schema import NODE_PATTERN, Edge
from topologies.units import MAX_TIME_MS, Buffer, check_range

__all__ = ["distance_km", "graph_file", "read"]

MAX_PAIRS = 1000

EARTH_KM = 6371.0088
"""The Earth's mean radius R1 (IUGG)."""
FIBRE_KM_PER_MS = 299.792458 * 2 / 3
"""Light in glass: two thirds of its speed in vacuum."""

ZOO_EDGE = frozenset(
    {
        "LinkLabel",
        "LinkNote",
        "LinkSpeed",
        "LinkSpeedRaw",
        "LinkSpeedUnits",
        "LinkStatus",
        "LinkType",
        "Network",
        "Year",
    }
    | {"dateadded", "datemodified", "id", "key", "length", "type", "zorder", "dateend", "datestart"}
)
"""What the Topology Zoo says of its links: known, and of no use here."""

QUEUE_FIELDS = frozenset({"rate_mbit", "buffer_bytes", "aqm", "aqm_params", "ecn", "bottleneck"})
"""What belongs together and is checked when the queues are whole."""


def graph_file(
    path: str,
    pairs: int | Sequence[Sequence[str]] = 4,
    rate_mbit: float = 100.0,
    delay_ms: float | None = None,
    access_delay_ms: float = 0.5,
    seed: int = 1,
    buffer: str | Buffer = "1bdp",
    aqm: str = "fifo",
) -> nx.DiGraph:
    """Return the network in a file, with hosts attached to its nodes.

    A file of a whole Fairbed graph, whose nodes have roles, is taken as it is. In any other, every node is a switch,
    and an undirected link has the same attributes in both directions. An edge may have the fields of
    `topologies.schema.Edge`; the Topology Zoo's own attributes are ignored, and any other is refused.

    Parameters
    ----------
    path : str
        Ends in .graphml, .gml or .json (node-link data, as networkx writes it).
    pairs : int or sequence of (node, node)
        Where to attach senders and receivers: pair k is sndk at the first and rcvk at the second node. A number draws
        that many pairs of different nodes from the seed. Nodes are named as in the file or by their label.
    rate_mbit : float
        Rate of each link that has none in the file, 10⁶ bit/s, in both directions.
    delay_ms : float or None
        One-way delay of each link that has none in the file. None takes the great-circle distance between its nodes'
        Latitude and Longitude at two thirds of the speed of light.
    access_delay_ms : float
        One-way delay of each host's egress.
    seed : int
        Of the drawn pairs.
    buffer : str or Buffer
        Queue of each link that has none in the file. A BDP is that of the pairs' longest base RTT.
    aqm : str
        How queues are managed where the file does not say, one of `topologies.graph.AQMS`.

    Returns
    -------
    networkx.DiGraph
        Nodes whose names are whole numbers are called n0, n1, …, all others as in the file; their label, Latitude
        and Longitude are kept as node attributes. On each pair's path the first of the slowest edges is marked as a
        bottleneck, where the file marks none.

    Raises
    ------
    UsageError
        Naming the file, and the node or the edge.
    """
    file = Path(path)
    found = read(file)
    try:
        graph = _complete(found) if any("role" in data for _, data in found.nodes(data=True)) else None
        if graph is None:
            check_range("access_delay_ms", access_delay_ms, 0, MAX_TIME_MS, " ms")
            graph = _switches(found, delay_ms)
            ends = _ends(graph, pairs, seed)
            for number, pair in enumerate(ends, start=1):
                attach_pair(graph, number, pair, float(access_delay_ms))
            _add_queues(graph, ends, rate_mbit, buffer, aqm)
        validate(graph)
        _mark_bottlenecks(graph)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return graph


def read(path: Path) -> nx.Graph:
    """Return the graph in a file as networkx reads it; parallel links become one."""
    readers = {".graphml": nx.parse_graphml, ".gml": _parse_gml, ".json": _parse_json}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"{path} must end in {', '.join(readers)}")
    try:
        found = reader(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # each format's reader raises whatever its parser does
        raise UsageError(f"{path} is not {path.suffix[1:].upper()}: {type(error).__name__}: {error}") from error
    if not len(found):
        raise UsageError(f"{path} has no nodes")
    if found.is_multigraph():
        found = nx.DiGraph(found) if found.is_directed() else nx.Graph(found)
    return found


def _parse_gml(text: str) -> nx.Graph:
    """Return a GML graph by its nodes' ids: labels may repeat."""
    return nx.parse_gml(text, label="id")


def _parse_json(text: str) -> nx.Graph:
    """Return a node-link graph, its edges called "edges" or, as older versions wrote, "links"."""
    data = json.loads(text)
    return nx.node_link_graph(data, edges="links" if "links" in data else "edges")


def _name(node: object) -> str:
    """Return a node's name here, or raise that it can't have one."""
    name = f"n{node}" if re.fullmatch("[0-9]{1,6}", str(node)) else str(node)
    if not re.fullmatch(NODE_PATTERN, name) or name in RESERVED_NAMES:
        raise UsageError(
            f"node {node!r}: a name is a whole number, or a letter and up to 9 letters, digits or _ after it"
        )
    return name


def _complete(found: nx.Graph) -> nx.DiGraph:
    """Return a graph whose nodes have roles, its edges' defaults filled in."""
    graph = nx.DiGraph()
    for node, data in found.nodes(data=True):
        graph.add_node(_name(node), **data)
    for (u, v), attributes in _directions(found):
        graph.add_edge(u, v, **_checked(u, v, attributes))
    return graph


def _directions(found: nx.Graph) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Yield each direction of each link with what the file says of it."""
    for u, v, data in found.edges(data=True):
        attributes = {name: _plain(value) for name, value in data.items() if name not in ZOO_EDGE}
        yield (_name(u), _name(v)), attributes
        if not found.is_directed():
            yield (_name(v), _name(u)), attributes


def _plain(value: Any) -> Any:
    """Return a model that GraphML, which has no tables, holds as JSON text."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _checked(u: str, v: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return an edge's attributes with defaults, after their validation."""
    one_way = nx.DiGraph()
    one_way.add_edge(u, v, **attributes)
    return edge(one_way, u, v).model_dump()


def _switches(found: nx.Graph, delay_ms: float | None) -> nx.DiGraph:
    """Return a network of switches with the file's attributes, and delays; queues come later."""
    graph = nx.DiGraph()
    for node, data in found.nodes(data=True):
        kept = {name: data[name] for name in ("label", "Latitude", "Longitude") if name in data}
        graph.add_node(_name(node), role="switch", **kept)
    for (u, v), attributes in _directions(found):
        if u == v:
            continue  # a few of the Zoo's nodes are joined to themselves
        unknown = attributes.keys() - Edge.model_fields.keys()
        if unknown:
            known = ", ".join(Edge.model_fields)
            raise UsageError(
                f"edge {edge_id(u, v)}: {', '.join(sorted(unknown))} is not a known field: there are {known}"
            )
        if "delay_ms" not in attributes:
            attributes = attributes | {"delay_ms": _delay_ms(graph, u, v) if delay_ms is None else float(delay_ms)}
        _checked(u, v, {name: value for name, value in attributes.items() if name not in QUEUE_FIELDS})
        graph.add_edge(u, v, **attributes)
    if not graph.number_of_edges():
        raise UsageError("there are no links")
    return graph


def _delay_ms(graph: nx.DiGraph, u: str, v: str) -> float:
    """Return the one-way delay between two places, to the µs."""
    places = []
    for node in (u, v):
        data = graph.nodes[node]
        if "Latitude" not in data or "Longitude" not in data:
            raise UsageError(f"edge {edge_id(u, v)}: node {node} has no Latitude and Longitude: give a delay_ms")
        places.append((float(data["Latitude"]), float(data["Longitude"])))
    return round(distance_km(*places) / FIBRE_KM_PER_MS, 3)


def distance_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the great-circle distance of two (latitude, longitude) in degrees, by the haversine formula.

    Examples
    --------
    >>> round(distance_km((52.37, 4.90), (51.51, -0.13)))  # Amsterdam to London
    358
    """
    (lat_a, lon_a), (lat_b, lon_b) = (tuple(map(math.radians, place)) for place in (a, b))
    chord = math.sin((lat_b - lat_a) / 2) ** 2
    chord += math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    return 2 * EARTH_KM * math.asin(math.sqrt(min(1.0, chord)))


def _ends(graph: nx.DiGraph, pairs: int | Sequence[Sequence[str]], seed: int) -> list[tuple[str, str]]:
    """Return the two switches of each pair."""
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        names = list(graph)
        if len(names) < 2:
            raise UsageError("pairs need two nodes")
        draw = random.Random(seed)  # noqa: S311 - a choice, not a secret
        return [(a, b) for _ in range(count("pairs", pairs, 1, MAX_PAIRS)) for a, b in [draw.sample(names, 2)]]
    if not pairs or any(isinstance(pair, str) or len(pair) != 2 for pair in pairs):
        raise UsageError(f"pairs must be a number, or pairs of nodes, not {pairs!r}")
    return [(_find(graph, a), _find(graph, b)) for a, b in pairs]


def _find(graph: nx.DiGraph, wanted: str) -> str:
    """Return the node of a name, a number or a label."""
    if wanted in graph:
        return wanted
    found: list[str] = [
        node for node, data in graph.nodes(data=True) if wanted in (node.removeprefix("n"), data.get("label"))
    ]
    if len(found) != 1:
        raise UsageError(f"{len(found) or 'no'} nodes are called {wanted!r}")
    return found[0]


def _add_queues(
    graph: nx.DiGraph, ends: Sequence[tuple[str, str]], rate_mbit: float, buffer: str | Buffer, aqm: str
) -> None:
    """Give every edge between switches the rate and queue that the file leaves open, and check it."""
    core = [(u, v) for u, v in graph.edges if graph.nodes[u]["role"] == graph.nodes[v]["role"] == "switch"]
    for pair in core:
        graph.edges[pair].setdefault("rate_mbit", float(rate_mbit))
    rtt_ms = max(_delay_of_route(graph, f"snd{k}", f"rcv{k}") for k in range(1, len(ends) + 1))
    for u, v in core:
        own = graph.edges[u, v]
        if own["rate_mbit"] is not None:
            size = f"{own['buffer_bytes']}B" if own.get("buffer_bytes") else buffer
            own |= queue(own["rate_mbit"], rtt_ms, size, aqm) | own
        graph.edges[u, v].update(_checked(u, v, own))


def _delay_of_route(graph: nx.DiGraph, src: str, dst: str) -> float:
    """Return the base RTT between two hosts in ms."""
    there, back = route(graph, src, dst), route(graph, dst, src)
    return math.fsum(graph.edges[pair]["delay_ms"] for way in (there, back) for pair in nx.utils.pairwise(way))


def _mark_bottlenecks(graph: nx.DiGraph) -> None:
    """Mark the first of the slowest edges on each pair's path, unless some are marked."""
    if any(marked for _, _, marked in graph.edges(data="bottleneck")):
        return
    for src, dst in natural_flows(graph):
        rates = shaped_edges(graph, route(graph, src, dst))
        if rates:
            graph.edges[min(rates, key=lambda pair: rates[pair])]["bottleneck"] = True
