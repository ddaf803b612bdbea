"""Parking lot, satellite, wifi, leaf-spine: invariants by formula, refusals, natural flows, layout."""

import math
from types import SimpleNamespace
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topologies
from topologies.errors import UsageError
from topologies.graph import problems, role, route
from topologies.layout import layout
from topologies.leaf_spine import leaf_spine
from topologies.parking_lot import parking_lot, parking_lot_flows
from topologies.parts import natural_flows
from topologies.paths import flow_paths
from topologies.satellite import satellite, satellite_events
from topologies.schema import GilbertElliott
from topologies.wifi import wifi, wifi_events

FAMILIES = [name for name in topologies.NAMES if name != "graph_file"]


def bottlenecks(graph: nx.DiGraph) -> list[str]:
    return [f"{u}->{v}" for u, v, marked in graph.edges(data="bottleneck") if marked]


def paths(graph: nx.DiGraph) -> dict[str, Any]:
    flows = natural_flows(graph)
    return flow_paths(graph, [SimpleNamespace(flow_id=f"{src}", src=src, dst=dst) for src, dst in flows])


@pytest.mark.parametrize("name", FAMILIES)
def test_natural_flows_join_every_sender_to_a_receiver(name: str) -> None:
    """Pair k is sndk and rcvk, and nobody is left over; each path crosses a bottleneck."""
    graph = topologies.build(name)
    flows = natural_flows(graph)
    assert sorted(flow[0] for flow in flows) == sorted(n for n in graph if role(graph, n) == "sender")
    assert sorted(flow[1] for flow in flows) == sorted(n for n in graph if role(graph, n) == "receiver")
    assert {path.bottleneck for path in paths(graph).values()} <= set(bottlenecks(graph))


@pytest.mark.parametrize("name", FAMILIES)
def test_layout_gives_each_node_a_place_of_its_own(name: str) -> None:
    """No two nodes lie on one another, and the same graph lies the same."""
    graph = topologies.build(name)
    places = layout(graph)
    assert places.keys() == set(graph)
    assert len(set(places.values())) == len(graph)
    assert layout(topologies.build(name)) == places


@pytest.mark.parametrize("name", FAMILIES)
def test_buffer_and_aqm_reach_every_bottleneck(name: str) -> None:
    """Each family takes both."""
    graph = topologies.build(name, aqm="codel", buffer="64KiB")
    marked = [data for _, _, data in graph.edges(data=True) if data["bottleneck"]]
    assert {(data["aqm"], data["buffer_bytes"]) for data in marked} == {("codel", 65536)}


class TestParkingLot:
    """k bottlenecks in a row."""

    @given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 3))
    def test_invariants(self, hops: int, long: int, cross: int) -> None:
        """k + 1 switches, L + kC pairs, k bottlenecks."""
        graph = parking_lot(hops, long, cross)
        pairs = long + hops * cross
        assert (graph.number_of_nodes(), graph.number_of_edges()) == (hops + 1 + 2 * pairs, 2 * hops + 4 * pairs)
        assert bottlenecks(graph) == [f"s{k}->s{k + 1}" for k in range(1, hops + 1)]
        assert problems(graph) == []
        wanted = parking_lot_flows(hops, long, cross)
        assert wanted["long"] + wanted["cross"] == natural_flows(graph)
        assert (len(wanted["long"]), len(wanted["cross"])) == (long, hops * cross)

    def test_round_trips_and_shares(self) -> None:
        """Long: 2 (5 + 3 x 10) = 70 ms; cross: 2 (5 + 10) = 30 ms; each gets half of 20 Mbit/s."""
        found = paths(parking_lot(hops=3, long=1, cross=1, hop_delay_ms=10.0))
        assert [path.base_rtt_ms for path in found.values()] == [70.0, 30.0, 30.0, 30.0]
        assert [path.fair_share_mbit for path in found.values()] == [10.0] * 4
        assert [path.bottleneck for path in found.values()] == ["s1->s2", "s1->s2", "s2->s3", "s3->s4"]
        assert parking_lot(hops=3, hop_delay_ms=10.0).edges["s2", "s3"]["buffer_bytes"] == 175_000  # 70 ms


class TestSatellite:
    """One far link."""

    def test_geo(self) -> None:
        """250 ms one way, 50 and 5 Mbit/s, two BDP of 510 ms."""
        graph = satellite()
        down, up = graph.edges["gateway", "terminal"], graph.edges["terminal", "gateway"]
        assert (down["rate_mbit"], up["rate_mbit"], down["delay_ms"], up["delay_ms"]) == (50.0, 5.0, 250.0, 250.0)
        assert (down["buffer_bytes"], up["buffer_bytes"]) == (6_375_000, 637_500)
        assert bottlenecks(graph) == ["gateway->terminal"]
        assert {path.base_rtt_ms for path in paths(graph).values()} == {510.0}

    def test_what_is_given_replaces_the_orbits_own(self) -> None:
        """None of the orbit's numbers is left."""
        graph = satellite(1, "leo", 7.0, 2.0, 33.0, 1.5, buffer="10packets")
        down = graph.edges["gateway", "terminal"]
        assert (down["rate_mbit"], down["delay_ms"], down["loss_pct"], down["buffer_bytes"]) == (7.0, 33.0, 1.5, 15_140)

    def test_handovers(self) -> None:
        """Every 15 s: down, then up within 100 ms at another delay and rate, inside the bounds."""
        events = satellite_events(60.0, seed=1)
        assert sorted({event.t_s for event in events if event.up is False}) == [15.0, 30.0, 45.0]
        for event in events:
            if event.delay_ms is not None:
                assert 0 <= event.t_s % 15 <= 0.1
                assert 10 <= event.delay_ms <= 30
            if event.rate_mbit is not None:
                assert event.edge == "gateway->terminal"
                assert 50 <= event.rate_mbit <= 150
        assert len(events) == 3 * 4
        assert satellite_events(60.0, seed=1) == events != satellite_events(60.0, seed=2)

    def test_a_handover_without_an_outage(self) -> None:
        """Delay and rate jump, nothing goes down."""
        events = satellite_events(31.0, seed=1, outage_ms=(0.0, 0.0))
        assert [event.t_s for event in events] == [15.0, 15.0, 30.0, 30.0]
        assert not any(event.up is not None for event in events)


class TestWifi:
    """Lossy hops."""

    def test_loss_model(self) -> None:
        """Mean loss and mean burst come out as asked for."""
        graph = wifi(hops=3, loss_pct=2.0, burst_packets=5.0)
        for hop in range(1, 4):
            for pair in ((f"ap{hop}", f"ap{hop + 1}"), (f"ap{hop + 1}", f"ap{hop}")):
                model = GilbertElliott(**graph.edges[pair]["gemodel"])
                assert math.isclose(model.mean_loss_pct, 2.0)
                assert math.isclose(100 / model.r_pct, 5.0)
        assert bottlenecks(graph) == ["ap1->ap2"]

    def test_nothing_of_it(self) -> None:
        """Without loss, jitter and slots it is a plain chain."""
        data = wifi(loss_pct=0.0, jitter_ms=0.0, reorder=True).edges["ap1", "ap2"]
        assert (data["gemodel"], data["slot"], data["reorder"]) == (None, None, False)
        assert wifi(slot_ms=4.0).edges["ap1", "ap2"]["slot"]["min_ms"] == 4.0

    def test_wandering_rates(self) -> None:
        """Both directions of each hop, every interval, before the end."""
        events = wifi_events(3.0, seed=1, hops=2, rate_mbit=10.0, interval_s=1.0)
        assert [event.t_s for event in events] == [1.0] * 4 + [2.0] * 4
        assert all(event.rate_mbit and 5 <= event.rate_mbit <= 15 for event in events)
        assert wifi_events(3.0, seed=1, hops=2, rate_mbit=10.0) == events
        assert len(wifi_events(0.5, seed=1, interval_s=0.1)) == 4 * 4


class TestLeafSpine:
    """Every leaf joined to every spine."""

    @given(st.integers(1, 8), st.integers(2, 5), st.integers(1, 4))
    def test_invariants(self, pairs: int, leaves: int, spines: int) -> None:
        """L x S links, each pair between two leaves."""
        graph = leaf_spine(pairs, leaves, spines)
        assert graph.number_of_edges() == 2 * leaves * spines + 4 * pairs
        assert len(bottlenecks(graph)) == leaves * spines
        for number, (src, dst) in enumerate(natural_flows(graph)):
            nodes = route(graph, src, dst)
            assert (len(nodes), nodes[1], nodes[3]) == (
                5,
                f"leaf{number % leaves + 1}",
                f"leaf{(number + 1) % leaves + 1}",
            )

    def test_spines_take_turns(self) -> None:
        """Pair k uses spine k, both ways, in a circle."""
        graph = leaf_spine(pairs=6, leaves=3, spines=3)
        for number, (src, dst) in enumerate(natural_flows(graph)):
            assert route(graph, src, dst)[2] == route(graph, dst, src)[2] == f"spine{number % 3 + 1}"


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("parking_lot", {"hops": 0}, "hops must be from 1 to 100, not 0"),
        ("parking_lot", {"long": 0}, "long must be from 1 to 1000, not 0"),
        ("parking_lot", {"hop_delay_ms": math.nan}, "hop_delay_ms must be from 0 to 3600000 ms, not nan"),
        ("parking_lot", {"rate_mbit": 0}, "rate_mbit must be from 0.001 to 100000 Mbit/s, not 0"),
        ("satellite", {"orbit": "meo"}, "orbit 'meo' must be one of geo, leo"),
        ("satellite", {"up_mbit": -1}, "up_mbit must be from 0.001"),
        ("satellite", {"loss_pct": 100}, "edge gateway->terminal: loss_pct 100 must be below 100"),
        ("wifi", {"loss_pct": 60}, "loss_pct must be from 0 to 50 %, not 60"),
        ("wifi", {"burst_packets": 0.5}, "burst_packets must be from 1 to 1000, not 0.5"),
        ("wifi", {"jitter_ms": 9.0}, "edge ap1->ap2: jitter_ms 9.0 is above delay_ms 3.0"),
        ("leaf_spine", {"leaves": 1}, "leaves must be from 2 to 64, not 1"),
        ("leaf_spine", {"aqm": "blue"}, "aqm 'blue' must be one of"),
        ("leaf_spine", {"buffer": "1bdp"}, ""),
    ],
)
def test_refusals(name: str, params: dict[str, Any], words: str) -> None:
    """Each names the bound or the edge."""
    if not words:
        assert problems(topologies.build(name, **params)) == []
        return
    with pytest.raises(UsageError) as raised:
        topologies.build(name, **params)
    assert str(raised.value).startswith(words)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: satellite_events(60.0, 1, delay_ms=(30.0, 10.0)), "delay_ms must be two numbers"),
        (lambda: satellite_events(60.0, 1, period_s=0.5), "period_s must be from 1"),
        (lambda: satellite_events(60.0, 1, outage_ms=(0.0, 9e3)), "outage_ms must be from 0 to 7500"),
        (lambda: wifi_events(60.0, 1, interval_s=0.0), "interval_s must be from 0.01"),
        (lambda: wifi_events(60.0, 1, spread=(0.0, 1.0)), "spread must be two factors above 0"),
    ],
)
def test_refused_events(call: Any, words: str) -> None:
    """Timelines check their bounds."""
    with pytest.raises(UsageError, match=words.replace("(", r"\(")):
        call()
