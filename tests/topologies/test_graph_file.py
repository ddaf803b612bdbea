"""Graphs from files: the Topology Zoo's way of writing, our own, and what is refused."""

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from topologies.dumbbell import dumbbell
from topologies.errors import UsageError
from topologies.graph import problems, route
from topologies.graph_file import graph_file
from topologies.layout import layout
from topologies.satellite import satellite

ZOO = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="Latitude" attr.type="double" for="node" id="d1" />
  <key attr.name="Longitude" attr.type="double" for="node" id="d2" />
  <key attr.name="label" attr.type="string" for="node" id="d3" />
  <key attr.name="hyperedge" attr.type="int" for="node" id="d4" />
  <key attr.name="LinkLabel" attr.type="string" for="edge" id="d5" />
  <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d6" />
  <graph edgedefault="undirected">
    <node id="0"><data key="d1">52.37</data><data key="d2">4.90</data><data key="d3">Amsterdam</data></node>
    <node id="1"><data key="d1">51.51</data><data key="d2">-0.13</data><data key="d3">London</data></node>
    <node id="2"><data key="d1">48.86</data><data key="d2">2.35</data><data key="d3">Paris</data></node>
    <edge source="0" target="1"><data key="d5">10 Gbit/s</data><data key="d6">10000000000.0</data></edge>
    <edge source="0" target="1"><data key="d5">a second one</data></edge>
    <edge source="1" target="2" />
  </graph>
</graphml>
"""


def write(tmp_path: Path, text: str, name: str = "net.graphml") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def node_link(graph: nx.Graph) -> str:
    return json.dumps(nx.node_link_data(graph, edges="edges"))


def test_zoo(tmp_path: Path) -> None:
    """358 km are 1.79 ms in glass; foreign attributes are ignored, two parallel links are one."""
    graph = graph_file(write(tmp_path, ZOO), pairs=[["Amsterdam", "Paris"]], rate_mbit=50.0)
    assert problems(graph) == []
    assert route(graph, "snd1", "rcv1") == ("snd1", "n0", "n1", "n2", "rcv1")
    first = graph.edges["n0", "n1"]
    assert first["delay_ms"] == pytest.approx(358.0 / 199.86, abs=0.01)
    assert (first["rate_mbit"], first["bottleneck"], graph.edges["n1", "n2"]["bottleneck"]) == (50.0, True, False)
    rtt_ms = 2 * (1.0 / 2 + first["delay_ms"] + graph.edges["n1", "n2"]["delay_ms"])
    assert first["buffer_bytes"] == pytest.approx(50e6 / 8 * (rtt_ms + 0.0) / 1e3, rel=0.2)
    assert graph.nodes["n1"]["label"] == "London"
    places = layout(graph)
    assert places["n1"][0] < places["n2"][0] < places["n0"][0]  # west to east
    assert len(set(places.values())) == len(graph)


def test_pairs_are_drawn_from_the_seed(tmp_path: Path) -> None:
    """The same seed attaches the same hosts."""
    path = write(tmp_path, ZOO)
    edges = [sorted(graph_file(path, pairs=5, seed=seed).edges) for seed in (1, 1, 2)]
    assert edges[0] == edges[1] != edges[2]


def test_gml_by_id(tmp_path: Path) -> None:
    """Labels may repeat; ids are the names."""
    text = 'graph [ node [ id 0 label "A" ] node [ id 1 label "A" ] edge [ source 0 target 1 delay_ms 7.5 ] ]'
    graph = graph_file(write(tmp_path, text, "net.gml"), pairs=[["0", "1"]])
    assert graph.edges["n1", "n0"]["delay_ms"] == 7.5
    with pytest.raises(UsageError, match="2 nodes are called 'A'"):
        graph_file(write(tmp_path, text, "net.gml"), pairs=[["A", "1"]])


@pytest.mark.parametrize("graph", [dumbbell(pairs=3, rtt_ms=[10, 20, 30]), satellite(loss_pct=2.0)])
@pytest.mark.parametrize("form", ["json", "graphml"])
def test_our_own_graphs_come_back(tmp_path: Path, graph: nx.DiGraph, form: str) -> None:
    """A whole graph, roles and all, is taken as it is."""
    if form == "json":
        path = write(tmp_path, node_link(graph), "own.json")
    else:
        bare = nx.DiGraph()
        bare.add_nodes_from(graph.nodes(data=True))
        for u, v, data in graph.edges(data=True):
            bare.add_edge(u, v, **{key: value for key, value in data.items() if value not in (None, {})})
        nx.write_graphml(bare, tmp_path / "own.graphml")
        path = str(tmp_path / "own.graphml")
    found = graph_file(path)
    assert dict(found.nodes(data=True)) == dict(graph.nodes(data=True))
    assert dict(found.edges) == dict(graph.edges)


def simple(*edges: tuple[Any, Any, dict[str, Any]], **nodes: Any) -> nx.Graph:
    graph = nx.Graph()
    graph.add_edges_from(edges)
    return graph


@pytest.mark.parametrize(
    ("graph", "params", "words"),
    [
        (simple(("a", "b", {"bandwith": 5})), {"delay_ms": 1.0}, "edge a->b: bandwith is not a known field"),
        (simple(("a", "b", {})), {}, "edge a->b: node a has no Latitude and Longitude: give a delay_ms"),
        (simple(("a", "b", {"loss_pct": 100})), {"delay_ms": 1.0}, "edge a->b: loss_pct 100 must be below 100"),
        (
            simple(("a", "b", {"rate_mbit": "fast"})),
            {"delay_ms": 1.0},
            "rate_mbit must be a number of Mbit/s, not 'fast'",
        ),
        (simple(("a; reboot", "b", {})), {"delay_ms": 1.0}, "node 'a; reboot': a name is a whole number, or a letter"),
        (simple(("averylongnameindeed", "b", {})), {"delay_ms": 1.0}, "node 'averylongnameindeed': a name"),
        (
            simple(("a", "b", {}), ("c", "d", {})),
            {"delay_ms": 1.0, "pairs": [["a", "c"]]},
            "there is no path from snd1",
        ),
        (simple(("a", "b", {}), ("c", "d", {})), {"delay_ms": 1.0, "pairs": [["a", "b"]]}, "the graph is in 2 parts"),
        (simple(("a", "b", {})), {"delay_ms": 1.0, "pairs": [["a", "x"]]}, "no nodes are called 'x'"),
        (simple(("a", "b", {})), {"delay_ms": 1.0, "pairs": ["ab"]}, "pairs must be a number, or pairs of nodes"),
        (simple(("a", "b", {})), {"delay_ms": 1.0, "pairs": 0}, "pairs must be from 1 to 1000, not 0"),
        (simple(("a", "b", {})), {"delay_ms": -1.0}, "edge a->b: delay_ms -1.0 must be at least 0"),
        (simple(("a", "a", {})), {"delay_ms": 1.0}, "there are no links"),
    ],
)
def test_refusals(tmp_path: Path, graph: nx.Graph, params: dict[str, Any], words: str) -> None:
    """Each names the file and the node or the edge."""
    path = write(tmp_path, node_link(graph), "net.json")
    with pytest.raises(UsageError) as raised:
        graph_file(path, **params)
    assert str(raised.value).startswith(f"{path}: ")
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("net.txt", "", "must end in .graphml, .gml, .json"),
        ("net.json", "{", "is not JSON"),
        ("net.json", "[]", "is not JSON"),
        ("net.gml", "graph [", "is not GML"),
        ("net.graphml", "<xml", "is not GRAPHML"),
        ("net.json", '{"nodes": [], "edges": []}', "has no nodes"),
    ],
)
def test_files_that_are_no_graph(tmp_path: Path, name: str, text: str, words: str) -> None:
    """The message names the file and what it should be."""
    with pytest.raises(UsageError, match=words):
        graph_file(write(tmp_path, text, name))


def test_a_missing_file() -> None:
    """So does one that is not there."""
    with pytest.raises(UsageError, match=r"nowhere.gml cannot be read"):
        graph_file("nowhere.gml")
