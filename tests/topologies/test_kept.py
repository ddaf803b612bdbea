"""What is kept with a graph: only where it can't change, and with the same answer."""

import networkx as nx

from topologies import build
from topologies.graph import next_hops
from topologies.kept import kept


def test_a_frozen_graph_is_asked_once_for_each_argument() -> None:
    asked: list[str] = []

    @kept
    def first(graph: nx.DiGraph, name: str) -> str:
        asked.append(name)
        return str(min(graph))

    graph, other = (nx.freeze(nx.DiGraph([pair])) for pair in ("ab", "bc"))
    assert [first(graph, "x"), first(graph, "x"), first(graph, "y"), first(other, "x")] == ["a", "a", "a", "b"]
    assert asked == ["x", "y", "x"]


def test_a_graph_that_may_change_is_asked_anew() -> None:
    graph = build("dumbbell", pairs=1)
    before = next_hops(graph, "rcv1")
    graph.remove_edge("s1", "s2")
    assert before["snd1"] == "s1" and "snd1" not in next_hops(graph, "rcv1")


def test_a_kept_answer_is_the_graphs_own() -> None:
    graph, same = build("leaf_spine", pairs=4), nx.freeze(build("leaf_spine", pairs=4))
    for host in ("rcv1", "rcv4", "snd2"):
        assert next_hops(same, host) == next_hops(same, host) == next_hops(graph, host)
