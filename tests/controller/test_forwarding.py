"""Where packets go: dumbbell, ring, parking lot, and paths of one's own."""

from itertools import permutations

import networkx as nx
import pytest

from controller.forwarding import check_path, forwarding_rules
from controller.plan import Rule
from tests.controller.flow_table import FlowTable, packet
from tests.controller.small_graphs import dumbbell, graph_of, parking_lot, ring
from topologies.errors import UsageError
from topologies.graph import route
from topologies.ports import addresses, dpids, ports


def rules_of(graph: nx.DiGraph, **options: object) -> list[Rule]:
    """Return a graph's forwarding rules with its own names and numbers."""
    return forwarding_rules(graph, ports(graph), addresses(graph), dpids(graph), **options)  # type: ignore[arg-type]


def walk(graph: nx.DiGraph, rules: list[Rule], src: str, dst: str) -> list[str]:
    """Return the nodes that a packet between two hosts passes."""
    address = addresses(graph)
    return FlowTable(rules).walk(packet(address[src], address[dst]), src, ports(graph), dpids(graph))


@pytest.mark.parametrize("graph", [dumbbell(), ring(), parking_lot()], ids=["dumbbell", "ring", "parking_lot"])
def test_every_pair_of_hosts_is_joined_by_its_route(graph: nx.DiGraph) -> None:
    """Packets both ways take the path that the rest of the program computes with."""
    rules = rules_of(graph)
    for src, dst in permutations(addresses(graph), 2):
        assert walk(graph, rules, src, dst) == list(route(graph, src, dst))


def test_dumbbell_ports_by_hand() -> None:
    """Ports count from 1 in order of neighbour names: s1 has s2, snd1, snd2; s2 has rcv1, rcv2, s1."""
    graph = dumbbell(2)
    table, address = FlowTable(rules_of(graph)), addresses(graph)
    assert address == {"rcv1": "10.0.0.1", "rcv2": "10.0.0.2", "snd1": "10.0.0.3", "snd2": "10.0.0.4"}
    towards_receiver = packet(address["snd1"], address["rcv1"])
    assert table.output(1, towards_receiver) == ports(graph)["s1", "s2"].number == 1
    assert table.output(2, towards_receiver) == ports(graph)["s2", "rcv1"].number == 1
    assert table.output(1, packet(address["rcv1"], address["snd2"])) == 3


def test_one_rule_per_switch_and_host() -> None:
    """Plain forwarding needs no more, and matches nothing but the destination."""
    rules = rules_of(dumbbell(4))
    assert len(rules) == 2 * 8
    assert {tuple(rule["match"]) for rule in rules} == {("eth_type", "ipv4_dst")}


def test_rules_are_the_same_whatever_order_the_graph_was_made_in() -> None:
    """The same network gives the same bytes."""
    forward, backward = ring(), nx.DiGraph()
    backward.add_nodes_from(reversed(list(forward.nodes(data=True))))
    backward.add_edges_from(reversed(list(forward.edges(data=True))))
    assert rules_of(forward) == rules_of(backward)


def test_unknown_destinations_and_broadcasts_are_dropped() -> None:
    """Nothing is flooded, which is why a ring is harmless."""
    graph = ring()
    table = FlowTable(rules_of(graph))
    for stray in (
        packet("10.0.0.1", "10.0.9.9"),
        packet("10.0.0.1", "10.0.255.255"),
        packet("10.0.0.1", "255.255.255.255"),
        {"eth_type": 0x0806},
    ):
        assert [table.output(dpid, stray) for dpid in dpids(graph).values()] == [None] * 5


def test_a_given_path_overrides_the_route_of_this_pair_only() -> None:
    """The long way round the ring, for one direction of one pair."""
    graph = ring()
    long_way = ["snd1", "s1", "s5", "s4", "s3", "snd3"]
    rules = rules_of(graph, paths={("snd1", "snd3"): long_way})
    assert walk(graph, rules, "snd1", "snd3") == long_way
    assert walk(graph, rules, "snd3", "snd1") == ["snd3", "s3", "s2", "s1", "snd1"]
    assert walk(graph, rules, "snd2", "snd3") == ["snd2", "s2", "s3", "snd3"]


def test_a_given_path_costs_rules_only_where_it_leaves_the_usual_way() -> None:
    """The usual path needs none, the long way one for each switch that would send packets elsewhere."""
    graph = ring()
    usual, long_way = list(route(graph, "snd1", "snd3")), ["snd1", "s1", "s5", "s4", "s3", "snd3"]
    plain = len(rules_of(graph))
    assert len(rules_of(graph, paths={("snd1", "snd3"): usual})) == plain
    # From s5 and s4 the usual way to snd3 is the path's already; only s1 would send it to s2.
    assert len(rules_of(graph, paths={("snd1", "snd3"): long_way})) == plain + 1


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (["snd1", "s1", "s3", "snd3"], "no edge s1->s3"),
        (["snd1", "s1", "s2", "snd2"], "does not lead from snd1 to snd3"),
        (["snd1", "s1", "s2", "s1", "s2", "s3", "snd3"], "passes a node twice"),
        (["snd1"], "does not lead"),
    ],
)
def test_impossible_paths_are_refused(nodes: list[str], reason: str) -> None:
    """A path is checked before any rule is made of it."""
    with pytest.raises(UsageError, match=reason):
        check_path(ring(), "snd1", "snd3", nodes)


def test_hosts_do_not_forward() -> None:
    """Neither a given path nor a route goes through one."""
    graph = graph_of("snd1-s1 s1-rcv1 rcv1-s2 s2-rcv2")
    with pytest.raises(UsageError, match="passes rcv1, which is not a switch"):
        check_path(graph, "snd1", "rcv2", ["snd1", "s1", "rcv1", "s2", "rcv2"])
    with pytest.raises(UsageError, match="no path from"):
        rules_of(graph)
