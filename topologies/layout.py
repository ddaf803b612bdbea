"""Where to draw the nodes of a graph."""

import math
from collections.abc import Mapping, Sequence

import networkx as nx

from topologies.graph import role
from topologies.ports import natural

__all__ = ["layout"]

Place = tuple[float, float]

HOST_DISTANCE = 0.8
"""From a switch to its hosts, where neighbouring switches are 1 apart."""
BELOW = math.radians(110)
"""Where hosts lie that have no room beside their switch: senders 20° left of straight down, receivers as far right."""
FAN = math.radians(100)
"""The angle over which a switch's senders, and its receivers, spread."""


def layout(graph: nx.DiGraph) -> dict[str, Place]:
    """Return a place (x, y) for each node: switches by geography or by distance, hosts around theirs.

    Switches that all have Longitude and Latitude lie there, neighbours about 1 apart. Otherwise x is the number of
    hops from the first switch, and y spreads those of equal x. Senders lie to the left of their switch, receivers to
    the right, or below it where another switch is on that side. The same graph has the same layout.

    Examples
    --------
    >>> from topologies.dumbbell import dumbbell
    >>> layout(dumbbell(pairs=1))
    {'s1': (0.0, 0.0), 's2': (1.0, 0.0), 'snd1': (-0.8, 0.0), 'rcv1': (1.8, 0.0)}
    """
    switches = sorted((node for node in graph if role(graph, node) == "switch"), key=natural)
    places = _geographic(graph, switches) or _layered(graph, switches)
    for switch in switches:
        for wanted, direction in _directions(graph, switch, places).items():
            hosts = sorted((node for node in graph.successors(switch) if role(graph, node) == wanted), key=natural)
            places |= dict(zip(hosts, _fan(places[switch], direction, len(hosts)), strict=True))
    return places


def _directions(graph: nx.DiGraph, switch: str, places: Mapping[str, Place]) -> dict[str, float]:
    """Return where a switch's senders and receivers lie: left and right, or below where another switch is."""
    others = [places[node][0] - places[switch][0] for node in graph.successors(switch) if node in places]
    left, right = any(x < 0 for x in others), any(x > 0 for x in others)
    return {
        "sender": -BELOW if left else math.pi,
        "receiver": BELOW - math.pi if right else 0.0,
    }


def _geographic(graph: nx.DiGraph, switches: Sequence[str]) -> dict[str, Place]:
    """Return the switches' places on an equirectangular map, or nothing where one has none."""
    found = {node: (graph.nodes[node].get("Longitude"), graph.nodes[node].get("Latitude")) for node in switches}
    if any(None in place for place in found.values()):
        return {}
    lengths = [
        math.dist(found[u], found[v]) for u, v in graph.subgraph(switches).edges if math.dist(found[u], found[v]) > 0
    ]
    scale = sorted(lengths)[len(lengths) // 2] if lengths else 1.0
    return {node: (round(x / scale, 6), round(y / scale, 6)) for node, (x, y) in found.items()}


def _layered(graph: nx.DiGraph, switches: Sequence[str]) -> dict[str, Place]:
    """Return the switches in columns by their distance in hops from the first."""
    between = graph.subgraph(switches)
    hops = nx.single_source_shortest_path_length(between, switches[0]) if switches else {}
    columns: dict[int, list[str]] = {}
    for node in switches:
        columns.setdefault(hops.get(node, 0), []).append(node)
    return {
        node: (float(column), (len(nodes) - 1) / 2 - index)
        for column, nodes in columns.items()
        for index, node in enumerate(nodes)
    }


def _fan(centre: Place, direction: float, number: int) -> list[Place]:
    """Return places on an arc around a centre, the first one on top."""
    steps = [index / (number - 1) - 0.5 if number > 1 else 0.0 for index in range(number)]
    sense = 1 if math.cos(direction) < 0 else -1
    angles = [direction + sense * step * FAN for step in steps]
    return [
        (
            round(centre[0] + HOST_DISTANCE * math.cos(angle), 6),
            round(centre[1] + HOST_DISTANCE * math.sin(angle), 6) + 0.0,
        )
        for angle in angles
    ]
