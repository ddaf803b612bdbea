"""Ports, addresses and Mininet's view: numbers that everybody derives alike."""

import ipaddress
import json
import random
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest

from topologies import ports as numbering
from topologies.dumbbell import dumbbell
from topologies.errors import UsageError


def shuffled(graph: nx.DiGraph) -> nx.DiGraph:
    """Return the same graph built in another order."""
    nodes, edges = list(graph.nodes(data=True)), list(graph.edges(data=True))
    generator = random.Random(7)  # noqa: S311, an order for a test
    generator.shuffle(nodes)
    generator.shuffle(edges)
    copy = nx.DiGraph()
    copy.add_nodes_from(nodes)
    copy.add_edges_from(edges)
    return copy


def test_ports_of_a_dumbbell() -> None:
    """Hosts have port 0, switches count from 1 in natural order: s2, then snd1, snd2, … snd10."""
    found = numbering.ports(dumbbell(pairs=10))
    assert found["snd10", "s1"] == ("snd10-eth0", 0)
    assert found["s1", "s2"] == ("s1-eth1", 1)
    assert found["s1", "snd2"] == ("s1-eth3", 3)
    assert found["s1", "snd10"] == ("s1-eth11", 11)
    assert found["s2", "rcv1"] == ("s2-eth1", 1)
    assert found["s2", "s1"] == ("s2-eth11", 11)
    assert len(found) == 42


def test_numbers_ignore_order() -> None:
    """However a graph was built, its numbers are the same."""
    graph = dumbbell(pairs=12)
    for function in (numbering.ports, numbering.addresses, numbering.macs, numbering.dpids):
        assert list(function(graph).items()) == list(function(shuffled(graph)).items())


def test_dpids() -> None:
    """Switches count from 1, whatever their names."""
    graph = nx.DiGraph()
    graph.add_nodes_from(["west", "s10", "s2"], role="switch")
    assert numbering.dpids(graph) == {"s2": 1, "s10": 2, "west": 3}


def test_addresses_are_distinct_hosts_of_one_network() -> None:
    """600 hosts reach into a third block, with no address that looks like a network's or a broadcast."""
    graph = dumbbell(pairs=300)
    found = list(numbering.addresses(graph).values())
    assert len(set(found)) == 600
    assert all(ipaddress.ip_address(a) in ipaddress.ip_network("10.0.0.0/16") for a in found)
    assert not [a for a in found if a.endswith((".0", ".255"))]
    assert found[253:255] == ["10.0.0.254", "10.0.1.1"]


def test_macs_are_local_unicast() -> None:
    """The first byte's low bits are 10: locally administered, not multicast (IEEE 802)."""
    found = list(numbering.macs(dumbbell(pairs=300)).values())
    assert len(set(found)) == 600
    assert {int(mac[:2], 16) & 0b11 for mac in found} == {0b10}
    assert found[254] == "02:00:0a:00:01:01"


def test_too_many_hosts() -> None:
    """The message states the bound."""
    graph = nx.DiGraph()
    graph.add_nodes_from((f"h{k}" for k in range(65025)), role="sender")
    with pytest.raises(UsageError, match=r"65025 hosts do not fit 10\.0\.0\.0/16: at most 65024"):
        numbering.addresses(graph)


@pytest.mark.parametrize("name", ["a1b2", "1", "s01", "x", "s10s", "1a"])
def test_natural_order_compares_all_names(name: str) -> None:
    """Any two names compare, and one with itself is equal."""
    keys = [numbering.natural(other) for other in ("s2", "s10", "a", "2b", name)]
    assert sorted(keys) == sorted(reversed(keys))


@pytest.mark.parametrize(
    ("modules", "left_out"),
    [
        ("topologies, topologies.dumbbell, topologies.paths, topologies.ports", "mininet"),
        ("topologies, topologies.schema, topologies.units, topologies.errors", "networkx"),
        ("lab.scenario", "networkx"),
        ("lab.scenario", "mininet"),
        ("topologies.mininet_topo", "networkx"),
    ],
)
def test_imports_stay_apart(modules: str, left_out: str) -> None:
    """Mininet is imported in one module only, and networkx, which takes long, only where a graph is."""
    if "mininet_topo" in modules:
        pytest.importorskip("mininet", reason="Mininet comes from the system's packages")
    program = f"import sys, {modules}; sys.exit({left_out!r} in sys.modules)"
    checkout = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=checkout)


class TestMininetTopo:
    """The graph as Mininet holds it, without starting anything."""

    def test_names_numbers_and_addresses(self) -> None:
        """What `topologies.ports` says is what Mininet is told, after a way through JSON too."""
        pytest.importorskip("mininet", reason="Mininet comes from the system's packages")
        from topologies.mininet_topo import FairbedTopo

        graph = dumbbell(pairs=11)
        topo = FairbedTopo(json.loads(json.dumps(numbering.mininet_data(graph))))
        assert topo.switches() == ["s1", "s2"]
        assert topo.hosts() == numbering.hosts(graph)
        assert topo.nodeInfo("s2")["dpid"] == "0000000000000002"
        assert topo.nodeInfo("rcv1") == {"ip": "10.0.0.1/16", "mac": "02:00:0a:00:00:01"}
        expected = numbering.ports(graph)
        links = topo.links(withInfo=True)
        assert len(links) == graph.number_of_edges() / 2
        for u, v, info in links:
            assert (info["intfName1"], info["port1"]) == expected[u, v]
            assert (info["intfName2"], info["port2"]) == expected[v, u]

    def test_invalid_graph(self) -> None:
        """A graph is validated before Mininet sees it."""
        graph = dumbbell()
        graph.edges["s1", "s2"]["buffer_bytes"] = 700
        with pytest.raises(UsageError, match="below one packet"):
            numbering.mininet_data(graph)
