"""Graph rules: every refusal names its node or edge, and routes are the same every time."""

import math
from types import SimpleNamespace
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import graph as rules
from topologies.dumbbell import dumbbell
from topologies.errors import UsageError

SHAPED = {"rate_mbit": 20.0, "buffer_bytes": 100_000}


def flow(src: str = "snd1", dst: str = "rcv1", flow_id: str = "cubic-1") -> SimpleNamespace:
    """Return a flow as far as a graph sees it."""
    return SimpleNamespace(flow_id=flow_id, src=src, dst=dst)


def network(*links: tuple[str, str, float, float | None]) -> nx.DiGraph:
    """Return a graph of links (u, v, delay_ms, rate_mbit), names telling the roles."""
    graph = nx.DiGraph()
    for u, v, delay_ms, rate_mbit in links:
        for node in (u, v):
            graph.add_node(node, role={"snd": "sender", "rcv": "receiver"}.get(node[:3], "switch"))
        attributes = {"delay_ms": delay_ms, "rate_mbit": rate_mbit}
        attributes |= {"buffer_bytes": 100_000} if rate_mbit else {}
        rules.link(graph, u, v, attributes, attributes)
    return graph


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"buffer_bytes": 700}, "edge s1->s2: buffer_bytes 700 is below one packet (1514)"),
        ({"rate_mbit": 0.0}, "edge s1->s2: rate_mbit 0.0 must be at least 0.001"),
        ({"rate_mbit": -5}, "edge s1->s2: rate_mbit -5 must be at least 0.001"),
        ({"rate_mbit": 1e6}, "edge s1->s2: rate_mbit 1000000.0 must be at most 100000"),
        ({"rate_mbit": math.nan}, "edge s1->s2: rate_mbit nan must be a finite number"),
        ({"rate_mbit": "20mbit"}, "edge s1->s2: rate_mbit '20mbit' must be a number"),
        ({"delay_ms": -1}, "edge s1->s2: delay_ms -1 must be at least 0"),
        ({"delay_ms": math.inf}, "edge s1->s2: delay_ms inf must be a finite number"),
        ({"jitter_ms": 1.0}, "edge s1->s2: jitter_ms 1.0 is above delay_ms 0.0"),
        ({"loss_pct": 100}, "edge s1->s2: loss_pct 100 must be below 100"),
        ({"loss_pct": -0.1}, "edge s1->s2: loss_pct -0.1 must be at least 0"),
        ({"buffer_bytes": 2000.5}, "edge s1->s2: buffer_bytes 2000.5 must be a whole number"),
        ({"buffer_bytes": 2**32}, "edge s1->s2: buffer_bytes 4294967296 must be at most 4294967295"),
        ({"buffer_bytes": None}, "edge s1->s2: a fifo at rate_mbit 20.0 needs its buffer_bytes"),
        ({"rate_mbit": None}, "edge s1->s2: buffer_bytes 100000 needs a rate_mbit"),
        ({"buffer_bytes": None, "aqm": "pie"}, "edge s1->s2: a pie at rate_mbit 20.0 needs its buffer_bytes"),
        ({"ecn": True}, "edge s1->s2: ecn needs an aqm that can mark, one of cake, codel"),
        (
            {"aqm_params": {"target_ms": 5.0}},
            "edge s1->s2: aqm_params target_ms is not a parameter of fifo: there are none",
        ),
        (
            {"aqm": "codel", "aqm_params": {"limit": 5.0}},
            "edge s1->s2: aqm_params limit is not a parameter of codel: there are target_ms, interval_ms",
        ),
        (
            {"aqm": "codel", "aqm_params": {"target_ms": "5ms; reboot"}},
            "edge s1->s2: aqm_params.target_ms '5ms; reboot'",
        ),
        ({"reorder": True, "delay_ms": 5.0}, "edge s1->s2: reorder needs a jitter_ms"),
        ({"distribution": "normal"}, "edge s1->s2: distribution normal needs a jitter_ms"),
        ({"distribution": "cauchy"}, "edge s1->s2: distribution 'cauchy' must be 'uniform', 'normal', 'pareto'"),
        ({"gemodel": {"p_pct": 1.0}}, "edge s1->s2: gemodel.r_pct is missing"),
        ({"gemodel": {"p_pct": 101.0, "r_pct": 5.0}}, "edge s1->s2: gemodel.p_pct 101.0 must be at most 100"),
        (
            {"loss_pct": 1.0, "gemodel": {"p_pct": 1.0, "r_pct": 5.0}},
            "edge s1->s2: loss_pct 1.0 and a gemodel are both",
        ),
        ({"slot": {"min_ms": 5.0, "max_ms": 2.0}}, "edge s1->s2: slot: max_ms 2.0 is below min_ms 5.0"),
        ({"slot": {"min_ms": 0.0}}, "edge s1->s2: slot.min_ms 0.0 must be above 0"),
        ({"aqm": "blue"}, "edge s1->s2: aqm 'blue' must be 'fifo', 'fq_codel', 'codel', 'pie', 'fq_pie'"),
        ({"bottleneck": "yes"}, "edge s1->s2: bottleneck 'yes' must be true or false"),
        ({"bandwidth": 5}, "edge s1->s2: bandwidth is not a known field: there are rate_mbit, delay_ms"),
    ],
)
def test_refused_edges(changes: dict[str, Any], words: str) -> None:
    """An edge's problem is told in the same words when it is linked and when it is validated."""
    graph = dumbbell()
    with pytest.raises(UsageError) as linked:
        rules.link(graph, "s1", "s2", {**SHAPED, **changes}, SHAPED)
    graph.edges["s1", "s2"].update({"bottleneck": False, **changes})
    with pytest.raises(UsageError) as validated:
        rules.validate(graph)
    assert str(linked.value).startswith(words)
    assert str(validated.value).startswith(words)


def test_bottleneck_needs_a_rate() -> None:
    """Queueing is measured where something shapes."""
    with pytest.raises(UsageError, match="s1->s2: a bottleneck needs a rate_mbit"):
        rules.link(nx.DiGraph(), "s1", "s2", {"bottleneck": True}, {})


def test_link_changes_nothing_when_refused() -> None:
    """A refusal of the way back leaves no way there behind."""
    graph = nx.DiGraph()
    with pytest.raises(UsageError, match="edge b->a"):
        rules.link(graph, "a", "b", {}, {"delay_ms": -1})
    assert graph.number_of_edges() == 0


def test_link_fills_in_defaults() -> None:
    """Both directions carry every attribute."""
    graph = network(("snd1", "s1", 5.0, None))
    assert graph.edges["s1", "snd1"] == rules.Edge(delay_ms=5.0).model_dump()
    assert rules.edge(graph, "snd1", "s1") == rules.Edge(delay_ms=5.0)
    with pytest.raises(UsageError, match="no edge snd1->s9"):
        rules.edge(graph, "snd1", "s9")


@pytest.mark.parametrize("aqm", rules.AQMS)
def test_known_aqms(aqm: str) -> None:
    """Every queue management by name is accepted."""
    assert rules.Edge.model_validate({**SHAPED, "aqm": aqm}).aqm == aqm


@pytest.mark.parametrize("name", ["", "1s", "a-b", "a b", "a/b", "x" * 11, "é1", "s1\n", "lo", "all", 7])
def test_refused_names(name: object) -> None:
    """A name that is no safe interface name is refused."""
    graph = dumbbell()
    graph.add_node(name, role="switch")
    assert f"node {name!r}: a name is a letter" in rules.problems(graph)[0]


def test_interface_names_fit() -> None:
    """NAME-ethN has 15 characters at most: ten for the name with one digit, nine with two."""

    def star(switch: str, hosts: int) -> nx.DiGraph:
        ends = [f"rcv{k}" for k in range(1, hosts)] + ["snd1"]
        graph = nx.DiGraph([(u, v) for host in ends for u, v in ((host, switch), (switch, host))])
        nx.set_node_attributes(
            graph, {n: {"snd": "sender", "rcv": "receiver"}.get(n[:3], "switch") for n in graph}, "role"
        )
        return graph

    assert rules.problems(star("switch7890", 9)) == []
    assert rules.problems(star("switch789", 99)) == []
    assert rules.problems(star("switch7890", 10)) == [
        "node switch7890: its interface switch7890-eth10 would have over 15 characters"
    ]


def test_all_problems_are_listed() -> None:
    """One message holds everything that is wrong."""
    graph = dumbbell()
    graph.edges["s1", "s2"]["rate_mbit"] = -1
    graph.nodes["s2"]["role"] = "router"
    graph.remove_edge("s1", "snd1")
    graph.add_edge("s1", "s1")
    with pytest.raises(UsageError) as raised:
        rules.validate(graph)
    lines = str(raised.value).splitlines()
    assert lines[0] == "node s2: role 'router' must be one of sender, receiver, switch"
    assert sorted(lines[1:]) == [
        "edge s1->s1: a link needs two ends",
        "edge s1->s2: rate_mbit -1 must be at least 0.001",
        "edge snd1->s1: its way back s1->snd1 is missing",
    ]


def test_disconnected_graph() -> None:
    """The parts are named."""
    graph = network(("snd1", "s1", 0, None), ("rcv1", "s2", 0, None))
    assert rules.problems(graph) == ["the graph is in 2 parts: rcv1 s2 | s1 snd1"]


def test_roles_and_links_of_hosts() -> None:
    """Each role exists, and a host has one link."""
    assert rules.problems(nx.DiGraph()) == ["the graph has no sender", "the graph has no receiver"]
    graph = network(("snd1", "s1", 0, None), ("snd1", "s2", 0, None), ("rcv1", "s2", 0, None))
    assert "node snd1: a sender has one link, not 2" in rules.problems(graph)
    assert rules.problems(nx.Graph()) == ["a topology is a networkx.DiGraph, not a Graph"]
    assert rules.problems(nx.MultiDiGraph()) == ["a topology is a networkx.DiGraph, not a MultiDiGraph"]


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (flow(src="snd9"), "flow cubic-1: src snd9 does not exist: the senders are snd1, snd2, snd3, snd4"),
        (flow(src="rcv1"), "flow cubic-1: src rcv1 is a receiver, not a sender"),
        (flow(dst="s1"), "flow cubic-1: dst s1 is a switch, not a receiver"),
        (flow(dst="rcv9"), "flow cubic-1: dst rcv9 does not exist: the receivers are rcv1"),
    ],
)
def test_refused_flow_ends(one: SimpleNamespace, words: str) -> None:
    """A flow runs from a sender to a receiver that exist."""
    with pytest.raises(UsageError) as raised:
        rules.check_flows(dumbbell(), [one])
    assert str(raised.value).startswith(words)


def test_refused_sets_of_flows() -> None:
    """No flows, and two of one name."""
    with pytest.raises(UsageError, match="there are no flows"):
        rules.check_flows(dumbbell(), [])
    with pytest.raises(UsageError, match="flow cubic-1: 2 flows have this name"):
        rules.check_flows(dumbbell(), [flow(), flow(src="snd2")])


def test_a_path_needs_a_rate_on_the_way_there() -> None:
    """An unshaped path has infinite bandwidth; a rate on the way back does not help."""
    graph = network(("snd1", "s1", 1, None), ("s1", "rcv1", 1, None))
    with pytest.raises(UsageError, match="cubic-1: no edge on its path snd1 s1 rcv1 has a rate_mbit"):
        rules.check_flows(graph, [flow()])
    graph.edges["s1", "snd1"].update(SHAPED)
    with pytest.raises(UsageError, match="no edge on its path"):
        rules.check_flows(graph, [flow()])
    graph.edges["s1", "rcv1"].update(SHAPED)
    rules.check_flows(graph, [flow()])


def test_no_path_even_through_a_host() -> None:
    """Hosts do not forward, so a host in between joins nothing."""
    graph = network(("snd1", "s1", 1, 20.0), ("s1", "snd2", 1, 20.0), ("snd2", "s2", 1, 20.0))
    graph = nx.compose(graph, network(("s2", "rcv1", 1, 20.0)))
    with pytest.raises(UsageError, match="there is no path from snd1 to rcv1"):
        rules.check_flows(graph, [flow()])


def test_no_way_back() -> None:
    """Acknowledgements need a path too."""
    graph = network(("snd1", "s1", 1, 20.0), ("s1", "s2", 1, 20.0), ("s2", "rcv1", 1, 20.0))
    graph.remove_edge("s2", "s1")
    with pytest.raises(UsageError, match="there is no path from rcv1 to snd1"):
        rules.check_flows(graph, [flow()])


def test_route_prefers_delay_then_hops_then_names() -> None:
    """Three steps of one decision, each on its own."""
    ends = [("snd1", "s1", 0, 20.0), ("rcv1", "s4", 0, 20.0)]
    long_way = [("s1", "s3", 1, 20.0), ("s3", "s5", 1, 20.0), ("s5", "s4", 1, 20.0)]
    by_delay = network(*ends, *long_way, ("s1", "s4", 3.001, 20.0))
    assert rules.route(by_delay, "snd1", "rcv1") == ("snd1", "s1", "s3", "s5", "s4", "rcv1")
    by_hops = network(*ends, *long_way, ("s1", "s4", 3, 20.0))
    assert rules.route(by_hops, "snd1", "rcv1") == ("snd1", "s1", "s4", "rcv1")
    by_name = network(*ends, *((u, v, 1, 20.0) for s in ("s3", "s2") for u, v in (("s1", s), (s, "s4"))))
    assert rules.route(by_name, "snd1", "rcv1") == ("snd1", "s1", "s2", "s4", "rcv1")


@st.composite
def meshes(draw: st.DrawFn) -> nx.DiGraph:
    """Draw a connected mesh of switches with one sender and one receiver, delays often equal."""
    count = draw(st.integers(2, 7))
    pairs = [(u, v) for v in range(count) for u in range(v)]
    extra = draw(st.lists(st.sampled_from(pairs), unique=True))
    tree = [(draw(st.integers(0, v - 1)), v) for v in range(1, count)]
    links = sorted({*tree, *extra})
    delays = [draw(st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0])) for _ in links]
    core = [(f"s{u}", f"s{v}", delay, 20.0) for (u, v), delay in zip(links, delays, strict=True)]
    return network(*core, ("snd1", "s0", 1.0, None), ("rcv1", f"s{count - 1}", 1.0, None))


@given(meshes(), st.randoms(use_true_random=False))
def test_route_is_shortest_and_independent_of_order(graph: nx.DiGraph, random: Any) -> None:
    """The route's delay is networkx's shortest, and the order in which a graph was built does not matter."""
    path = rules.route(graph, "snd1", "rcv1")
    delay_ms = nx.path_weight(graph, path, "delay_ms")
    assert delay_ms == pytest.approx(nx.shortest_path_length(graph, "snd1", "rcv1", weight="delay_ms"))
    edges = list(graph.edges(data=True))
    random.shuffle(edges)
    shuffled = nx.DiGraph(edges)
    shuffled.add_nodes_from(graph.nodes(data=True))
    assert rules.route(shuffled, "snd1", "rcv1") == path


@given(meshes())
def test_next_hops_form_the_routes(graph: nx.DiGraph) -> None:
    """A table by destination leads from every node along that node's own route, without loops."""
    hops = rules.next_hops(graph, "rcv1")
    assert set(hops) == set(graph) - {"rcv1"}
    for node in hops:
        path = rules.route(graph, node, "rcv1")
        assert len(set(path)) == len(path)
        assert rules.route(graph, path[1], "rcv1") == path[1:]
