"""Queue settings by hand, and the shape that policies fill."""

import networkx as nx
import pytest

from controller import queues
from controller.queues import QueueFlow, QueuePlan, QueueShare
from tests.controller.flow_table import FlowTable, packet
from tests.controller.small_graphs import dumbbell, graph_of, parking_lot
from topologies.errors import UsageError
from topologies.ports import addresses, dpids, ports

FLOWS = [
    QueueFlow("cubic-1", "cubic", "snd1", "rcv1", 5001, ("snd1", "s1", "s2", "rcv1")),
    QueueFlow("bbr-1", "bbr", "snd1", "rcv1", 5002, ("snd1", "s1", "s2", "rcv1")),
]


def test_shared_is_one_queue_at_full_rate() -> None:
    """20 Mbit/s on the dumbbell's one bottleneck."""
    graph = dumbbell()
    plan = queues.queue_plan("shared", graph, FLOWS)
    assert queues.queue_settings(graph, plan, ports(graph)) == [
        {
            "port": "s1-eth1",
            "type": "linux-htb",
            "max_rate_bit": 20_000_000,
            "queues": {0: {"min_rate_bit": 20_000_000, "max_rate_bit": 20_000_000, "burst_bytes": 1514}},
        }
    ]
    assert queues.queue_rules(plan, FLOWS, ports(graph), addresses(graph), dpids(graph)) == []


def test_every_bottleneck_gets_its_queues() -> None:
    """Three ports on the parking lot."""
    graph = parking_lot()
    settings = queues.queue_settings(graph, queues.queue_plan("shared", graph), ports(graph))
    expected = [ports(graph)[edge].interface for edge in (("s1", "s2"), ("s2", "s3"), ("s3", "s4"))]
    assert [setting["port"] for setting in settings] == expected


@pytest.mark.parametrize(
    ("rate_bit", "frames"),
    [
        (1, 1),
        (1_000_000, 1),
        (20_000_000, 1),
        (48_448_000, 1),  # 1514 B * 8 / 250 us
        (48_449_000, 2),
        (200_000_000, 5),  # 6250 B
        (1_000_000_000, 21),  # 31250 B
    ],
)
def test_burst_is_a_quarter_millisecond_in_whole_frames(rate_bit: int, frames: int) -> None:
    """By hand: rate / 8 * 250 us / 1514, rounded up."""
    assert queues.burst_bytes(rate_bit) == frames * 1514


def test_a_policy_of_one_function_steers_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two flows between the same hosts, in two queues of a quarter and three quarters."""

    def halves(graph: nx.DiGraph, flows: object) -> QueuePlan:
        edge = ("s1", "s2")
        shares = {edge: {0: QueueShare(0.25, 1.0), 7: QueueShare(0.75, 1.0)}}
        return QueuePlan(shares, {(edge, "cubic-1"): 0, (edge, "bbr-1"): 7})

    monkeypatch.setitem(queues.POLICIES, "halves", halves)
    graph = dumbbell()
    plan = queues.queue_plan("halves", graph, FLOWS)
    (setting,) = queues.queue_settings(graph, plan, ports(graph))
    assert {number: queue["min_rate_bit"] for number, queue in setting["queues"].items()} == {
        0: 5_000_000,
        7: 15_000_000,
    }
    address = addresses(graph)
    table = FlowTable(queues.queue_rules(plan, FLOWS, ports(graph), address, dpids(graph)))
    to_queue = packet(address["snd1"], address["rcv1"], ip_proto=6, tcp_dst=5002)
    assert table.actions(1, to_queue) == [["set_queue", 7], ["output", 1]]
    assert table.actions(1, {**to_queue, "tcp_dst": 5001}) == []
    assert table.actions(2, to_queue) == []


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    """As a user would mistype it."""
    with pytest.raises(UsageError, match=r"'share'.*shared"):
        queues.queue_plan("share", dumbbell())


def test_a_bottleneck_without_rate_is_refused() -> None:
    """A queue cannot form where nothing limits."""
    graph = graph_of("snd1-s1 s1-rcv1", "s1>rcv1")
    graph.edges["s1", "rcv1"]["rate_mbit"] = None
    with pytest.raises(UsageError, match="s1->rcv1 has no rate_mbit"):
        queues.bottleneck_edges(graph)


@pytest.mark.parametrize(
    ("shares", "reason"),
    [
        ({0: QueueShare(0.6, 1.0), 1: QueueShare(0.6, 1.0)}, "120%"),
        ({0: QueueShare(0.0, 1.0)}, "0 < guaranteed"),
        ({0: QueueShare(0.5, 0.4)}, "guaranteed <= ceiling"),
        ({0: QueueShare(0.5, 1.5)}, "ceiling <= 1"),
    ],
)
def test_shares_that_do_not_fit_are_refused(shares: dict[int, QueueShare], reason: str) -> None:
    """Before any switch hears of them."""
    graph = dumbbell()
    with pytest.raises(UsageError, match=reason):
        queues.queue_settings(graph, QueuePlan({("s1", "s2"): shares}, {}), ports(graph))
