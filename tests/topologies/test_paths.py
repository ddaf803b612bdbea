"""Paths and fair shares: worked examples from hand, and what max-min fairness means as a property."""

import math
from types import SimpleNamespace

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.dumbbell import dumbbell
from topologies.errors import UsageError
from topologies.graph import link
from topologies.paths import FlowPath, flow_paths, max_min_shares


def flow(flow_id: str, src: str, dst: str) -> SimpleNamespace:
    """Return a flow as far as a graph sees it."""
    return SimpleNamespace(flow_id=flow_id, src=src, dst=dst)


def parking_lot(*rates_mbit: float) -> nx.DiGraph:
    """Return switches s0, s1, … in a row, a sender and a receiver at each; the rates are rightwards."""
    graph = nx.DiGraph()
    for k in range(len(rates_mbit) + 1):
        graph.add_node(f"s{k}", role="switch")
        for host, role in ((f"snd{k}", "sender"), (f"rcv{k}", "receiver")):
            graph.add_node(host, role=role)
            link(graph, host, f"s{k}", {"delay_ms": 1.0}, {})
    for k, rate_mbit in enumerate(rates_mbit):
        forward = {"rate_mbit": rate_mbit, "buffer_bytes": 20_000, "delay_ms": 3.0}
        link(graph, f"s{k}", f"s{k + 1}", forward, {"delay_ms": 5.0})
    return graph


def test_dumbbell() -> None:
    """Four flows on 20 Mbit/s get 5 each; the pair with 80 ms has twice the BDP."""
    flows = [flow(f"cubic-{k}", f"snd{k}", f"rcv{k}") for k in range(1, 5)]
    paths = flow_paths(dumbbell(rtt_ms=[40, 40, 40, 80]), flows)
    assert list(paths) == ["cubic-1", "cubic-2", "cubic-3", "cubic-4"]
    assert paths["cubic-1"] == FlowPath(("snd1", "s1", "s2", "rcv1"), 40.0, "s1->s2", 20.0, 100_000, 5.0)
    assert paths["cubic-4"] == FlowPath(("snd4", "s1", "s2", "rcv4"), 80.0, "s1->s2", 20.0, 200_000, 5.0)


def test_parking_lot() -> None:
    """One flow over three links of 10, 6 and 20 Mbit/s, and one more on each.

    The middle link fills first, at 3: the long flow has 3. The others take what it leaves: 7, 3, 17.
    """
    flows = [flow("long", "snd0", "rcv3"), *(flow(f"x{k}", f"snd{k}", f"rcv{k + 1}") for k in range(3))]
    paths = flow_paths(parking_lot(10, 6, 20), flows)
    assert {name: path.fair_share_mbit for name, path in paths.items()} == {
        "long": 3.0,
        "x0": 7.0,
        "x1": 3.0,
        "x2": 17.0,
    }
    assert paths["long"].bottleneck == "s1->s2"
    assert paths["long"].rate_mbit == 6.0
    # There: 1 at the sender and 3 x 3 on the way; back: 1 at the receiver and 3 x 5.
    assert paths["long"].base_rtt_ms == 26.0
    assert paths["long"].bdp_bytes == 19_500  # 6e6 / 8 * 0.026
    assert paths["x2"].bottleneck == "s2->s3"


def test_first_of_equal_rates_is_the_bottleneck() -> None:
    """The queue builds at the first: the second receives no more than it sends."""
    paths = flow_paths(parking_lot(10, 5, 5), [flow("one", "snd0", "rcv3")])
    assert paths["one"].bottleneck == "s1->s2"


def test_impossible_flows_are_refused() -> None:
    """What a graph can't carry has no path; this one runs against the rates."""
    with pytest.raises(UsageError, match="flow back: no edge on its path snd1 s1 s0 rcv0 has a rate_mbit"):
        flow_paths(parking_lot(10), [flow("back", "snd1", "rcv0")])


@pytest.mark.parametrize(
    ("capacities", "paths", "shares"),
    [
        ({"a": 9}, {"1": "a", "2": "a", "3": "a"}, {"1": 3, "2": 3, "3": 3}),
        ({"a": 9, "b": 1}, {"1": "ab"}, {"1": 1}),
        # Bertsekas and Gallager's way: a fills at 1/3 with three flows, which leaves 2/3 of b to the fourth,
        # while c has a flow of its own.
        (
            {"a": 1, "b": 1, "c": 1},
            {"1": "a", "2": "a", "3": "ab", "4": "b", "5": "c"},
            {"1": 1 / 3, "2": 1 / 3, "3": 1 / 3, "4": 2 / 3, "5": 1},
        ),
        # Fixed in three rounds: x at 1, then y at 2 for each of two, then z with what both leave.
        (
            {"x": 2, "y": 5, "z": 10},
            {"1": "x", "2": "xy", "3": "yz", "4": "yz", "5": "z"},
            {"1": 1, "2": 1, "3": 2, "4": 2, "5": 6},
        ),
        ({"a": 5, "unused": 1}, {"1": "a"}, {"1": 5}),
        ({}, {}, {}),
    ],
)
def test_shares_by_hand(capacities: dict[str, float], paths: dict[str, str], shares: dict[str, float]) -> None:
    """Progressive filling, worked on paper."""
    assert max_min_shares(capacities, paths) == pytest.approx(shares)


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[str, float], dict[str, list[str]]]:
    """Draw edges with capacities and flows that each cross some of them."""
    edges = [f"e{k}" for k in range(draw(st.integers(1, 6)))]
    capacities = {edge: draw(st.floats(0.1, 1000)) for edge in edges}
    crossed = st.lists(st.sampled_from(edges), min_size=1, unique=True)
    return capacities, {f"f{k}": draw(crossed) for k in range(draw(st.integers(1, 8)))}


@given(problems())
def test_shares_are_max_min(problem: tuple[dict[str, float], dict[str, list[str]]]) -> None:
    """No edge carries too much, and each flow has a full edge on which no flow has more.

    That is the definition's equivalent: a flow could only gain by taking from one that has no more.
    """
    capacities, paths = problem
    shares = max_min_shares(capacities, paths)
    load = {edge: math.fsum(shares[f] for f in paths if edge in paths[f]) for edge in capacities}
    assert all(load[edge] <= capacities[edge] * (1 + 1e-9) for edge in capacities)
    assert all(share > 0 for share in shares.values())
    for name, path in paths.items():
        full = [edge for edge in path if load[edge] == pytest.approx(capacities[edge], rel=1e-9)]
        most = [max(shares[f] for f in paths if edge in paths[f]) for edge in full]
        assert any(shares[name] >= top * (1 - 1e-9) for top in most)


@given(problems(), st.floats(0.1, 10))
def test_shares_scale_and_ignore_order(problem: tuple[dict[str, float], dict[str, list[str]]], factor: float) -> None:
    """Twice the capacities give twice the shares, and neither order nor names matter."""
    capacities, paths = problem
    shares = max_min_shares(capacities, paths)
    scaled = max_min_shares({edge: c * factor for edge, c in capacities.items()}, paths)
    assert scaled == pytest.approx({name: share * factor for name, share in shares.items()})
    turned = max_min_shares(dict(reversed(capacities.items())), dict(reversed(paths.items())))
    assert turned == pytest.approx(shares)


def test_a_flow_may_ask_for_a_path_of_its_own() -> None:
    """On a ring of four switches the long way round has its own delay and bottleneck."""
    graph = nx.DiGraph()
    graph.add_nodes_from(["s1", "s2", "s3", "s4"], role="switch")
    for host, role, switch in (("snd1", "sender", "s1"), ("rcv1", "receiver", "s2")):
        graph.add_node(host, role=role)
        link(graph, host, switch, {"delay_ms": 1.0}, {})
    for (u, v), rate in {("s1", "s2"): 20.0, ("s1", "s4"): 5.0, ("s4", "s3"): 30.0, ("s3", "s2"): 40.0}.items():
        shaped = {"rate_mbit": rate, "buffer_bytes": 50_000, "delay_ms": 2.0}
        link(graph, u, v, shaped, shaped)
    own = ("snd1", "s1", "s4", "s3", "s2", "rcv1")
    flows = [
        SimpleNamespace(flow_id="short", src="snd1", dst="rcv1", path=None),
        SimpleNamespace(flow_id="long", src="snd1", dst="rcv1", path=own),
    ]
    paths = flow_paths(graph, flows)
    assert (paths["short"].bottleneck, paths["short"].base_rtt_ms) == ("s1->s2", 1 + 2 + 1 + 2)
    # three links there, and the usual way back: 1 + 3 * 2, and 1 + 2
    assert (paths["long"].nodes, paths["long"].bottleneck, paths["long"].base_rtt_ms) == (own, "s1->s4", 7 + 3)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("snd1", "s1", "rcv1"), "there is no edge s1->rcv1"),
        (("snd1", "s1"), "does not lead from snd1 to rcv1"),
        (("snd1", "s1", "s2", "s1", "s2", "rcv1"), "passes a node twice"),
    ],
)
def test_a_path_that_does_not_exist_is_refused(path: tuple[str, ...], words: str) -> None:
    """By the flow's name and what is wrong with it."""
    flow = SimpleNamespace(flow_id="cubic-1", src="snd1", dst="rcv1", path=path)
    with pytest.raises(UsageError, match=f"flow cubic-1: .*{words}"):
        flow_paths(dumbbell(pairs=1), [flow])
