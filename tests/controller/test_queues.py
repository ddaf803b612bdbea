"""Policies by hand-computed shares, and what they mean for Open vSwitch, tc and the switches."""

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import policies, queues
from controller.forwarding import forwarding_rules
from controller.plan import Step
from controller.policies import QueueFlow, QueuePlan, QueueShare
from controller.shaping import port_setting
from tests.controller.flow_table import FlowTable, packet
from tests.controller.small_graphs import dumbbell, graph_of, parking_lot
from topologies.errors import UsageError
from topologies.ports import addresses, dpids, ports

EDGE = ("s1", "s2")
WAY = ("s1", "s2")


def flow(flow_id: str, pair: int, port: int) -> QueueFlow:
    return QueueFlow(
        flow_id, flow_id.split("-")[0], f"snd{pair}", f"rcv{pair}", port, (f"snd{pair}", *WAY, f"rcv{pair}")
    )


FLOWS = [flow("cubic-1", 1, 5001), flow("bbr-1", 1, 5002), flow("cubic-2", 2, 5003), flow("ndm_tcp-1", 3, 5004)]


def network(graph: nx.DiGraph) -> queues.Network:
    return queues.Network(graph, ports(graph), addresses(graph), dpids(graph))


def with_buffers(graph: nx.DiGraph, size: int = 100_000) -> nx.DiGraph:
    for _, _, data in graph.edges(data=True):
        data.update(buffer_bytes=size, aqm="fifo")
    return graph


def steps(*texts: str, graph: nx.DiGraph | None = None) -> list[Step]:
    graph = graph or with_buffers(dumbbell())
    changes = queues.timeline([(10.0 * index, text) for index, text in enumerate(texts)], graph, FLOWS)
    return queues.steps(changes, FLOWS, network(graph), lambda _, size: f"bfifo limit {size}")


def shares(text: str) -> dict[int, float]:
    """Return the guaranteed part of each queue of the dumbbell's bottleneck."""
    return {q: share.guaranteed for q, share in queues.decide(text, dumbbell(), FLOWS).shares[EDGE].items()}


def members(text: str) -> dict[str, int]:
    plan = queues.decide(text, dumbbell(), FLOWS)
    return {each.flow_id: plan.members.get((EDGE, each.flow_id), 0) for each in FLOWS}


def test_shared_is_one_queue_at_full_rate() -> None:
    """20 Mbit/s on the dumbbell's one bottleneck."""
    (step,) = steps("shared")
    whole = {"min_rate_bit": 20_000_000, "max_rate_bit": 20_000_000, "burst_bytes": 1514, "priority": 0}
    assert step["queues"] == [
        {"port": "s1-eth1", "type": "linux-htb", "max_rate_bit": 20_000_000, "queues": {0: whole}}
    ]
    assert step["leaves"] == ["qdisc replace dev s1-eth1 parent 1:1 handle 10: bfifo limit 100000"]


def test_per_cca_gives_each_algorithm_a_third() -> None:
    assert shares("per_cca") == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3})
    assert members("per_cca") == {"cubic-1": 0, "bbr-1": 1, "cubic-2": 0, "ndm_tcp-1": 2}


def test_per_flow_gives_each_flow_a_quarter() -> None:
    assert shares("per_flow") == {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}
    assert members("per_flow") == {"cubic-1": 0, "bbr-1": 1, "cubic-2": 2, "ndm_tcp-1": 3}


def test_weights_are_proportions_and_one_where_none_is_given() -> None:
    """cubic 2, bbr 1, ndm_tcp 1: of 4."""
    assert shares("weighted:cubic=2,ndm_tcp=1") == {0: 0.5, 1: 0.25, 2: 0.25}
    assert shares("weighted:cubic=0.5,bbr=1.5,ndm_tcp=2") == {0: 0.125, 1: 0.375, 2: 0.5}


def test_isolate_parts_are_by_number_of_flows() -> None:
    """ndm_tcp is one flow of four; the others are in queue 0 wherever they come in the list."""
    assert shares("isolate:ndm_tcp") == {0: 0.75, 1: 0.25}
    assert members("isolate:cubic") == {"cubic-1": 1, "bbr-1": 0, "cubic-2": 1, "ndm_tcp-1": 0}
    assert shares("isolate:cubic") == {0: 0.5, 1: 0.5}


def test_priority_serves_in_the_order_named() -> None:
    def order(text: str) -> dict[int, int]:
        return {q: share.priority for q, share in queues.decide(text, dumbbell(), FLOWS).shares[EDGE].items()}

    assert order("priority") == {0: 0, 1: 1, 2: 2}
    assert order("priority:ndm_tcp") == {0: 1, 1: 1, 2: 0}
    assert sum(shares("priority").values()) == pytest.approx(0.01)


def test_police_meters_each_flow_and_keeps_one_queue() -> None:
    """5 Mbit/s each of 20; the burst a quarter of the buffer, 25 kB or 200 kbit."""
    (step,) = steps("police")
    assert [(meter["rate_kbit"], meter["burst_kbit"]) for meter in step["meters"]] == [(5000, 200)] * 4
    assert [rule["actions"] for rule in step["rules"]][1] == [["meter", 2], ["set_queue", 0], ["output", 1]]
    (named,) = steps("police:bbr=4mbit")
    assert [meter["rate_kbit"] for meter in named["meters"]] == [4000]
    assert [rule["actions"][0][0] for rule in named["rules"]] == ["set_queue", "meter", "set_queue", "set_queue"]


def test_adaptive_begins_in_one_queue_with_a_spare_one_for_each_algorithm() -> None:
    (step,) = steps("adaptive:interval=2s")
    assert {q: queue["min_rate_bit"] for q, queue in step["queues"][0]["queues"].items()} == {
        0: 20_000_000,
        1: 12_000,
        2: 12_000,
        3: 12_000,
    }
    assert step["adaptive"] is not None
    (port,) = step["adaptive"]["ports"]
    assert port["groups"] == {"cubic": ["cubic-1", "cubic-2"], "bbr": ["bbr-1"], "ndm_tcp": ["ndm_tcp-1"]}
    assert port["leaves"] == [f"bfifo limit {size}" for size in (25_000, 50_000, 75_000, 100_000)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("share", r"unknown queue policy 'share': choose from shared, per_cca.*adaptive"),
        ("shared:fast", "shared takes no arguments, not fast"),
        ("per_flow:2", "per_flow takes no arguments"),
        ("weighted", "needs algorithms: write it as weighted:ndm_tcp=2,cubic=1"),
        ("weighted:", "'' is not a word or word=value"),
        ("weighted:cubic=", "'cubic=' is not a word or word=value"),
        ("weighted:cubic", "weight of cubic must be a number above 0.*not ''"),
        ("weighted:cubic=0", "weight of cubic must be a number above 0.*not '0'"),
        ("weighted:cubic=-1", "not '-1'"),
        ("weighted:cubic=nan", "not 'nan'"),
        ("weighted:cubic=inf", "not 'inf'"),
        ("weighted:cubic=two", "not 'two'"),
        ("weighted:cubic=1,cubic=2", "names cubic twice"),
        ("weighted:vegas=1", "names 'vegas', which has no flow: the flows use cubic, bbr, ndm_tcp"),
        ("isolate:vegas", "names 'vegas', which has no flow"),
        ("isolate:cubic=2", "takes names only: write cubic, not cubic=2"),
        ("isolate", "write it as isolate:ndm_tcp"),
        ("priority:vegas", "names 'vegas', which has no flow"),
        ("police:vegas=1mbit", "names 'vegas', which has no flow"),
        ("police:bbr", "bbr needs a rate: write bbr=4mbit"),
        ("police:bbr=4", "no unit: write 4mbit"),
        ("police:bbr=4mbps", "ambiguous"),
        ("police:bbr=21mbit", "bbr=21mbit is above s1->s2's rate of 20 Mbit/s"),
        ("adaptive:speed=1", "unknown argument 'speed': write adaptive or adaptive:interval=1s"),
        ("adaptive:interval=0.1s", "adaptive: interval must be from 1 to 60 s"),
        ("adaptive:interval=1", "unit"),
    ],
)
def test_wrong_policies_are_refused_with_what_would_be_right(text: str, reason: str) -> None:
    """Before any switch hears of them."""
    with pytest.raises(UsageError, match=reason):
        queues.decide(text, dumbbell(), FLOWS)


@given(
    text=st.sampled_from(["per_cca", "per_flow", "weighted:cubic=3,bbr=0.5", "isolate:bbr", "priority", "shared"]),
    count=st.integers(1, 30),
    seed=st.randoms(use_true_random=False),
)
def test_whatever_the_flows_guarantees_fit_and_every_flow_has_a_queue(text: str, count: int, seed: object) -> None:
    """For random sets of algorithms, on every port."""
    ccas = ["cubic", "bbr", *(seed.choice(["cubic", "bbr", "reno"]) for _ in range(count))]  # type: ignore[attr-defined]
    flows = [flow(f"{cca}-{number}", 1, 5001 + number) for number, cca in enumerate(ccas)]
    plan = queues.decide(text, dumbbell(), flows)
    for edge, own in plan.shares.items():
        assert sum(share.guaranteed for share in own.values()) <= 1 + 1e-9
        assert {plan.members.get((edge, each.flow_id), 0) for each in flows} <= own.keys()
        port_setting(20_000_000, "s1-eth1", own)


def test_only_the_flows_that_cross_a_bottleneck_have_its_queues() -> None:
    """On the parking lot each port has two queues, and the long flow one at each."""
    graph = parking_lot()
    flows = [QueueFlow("cubic-1", "cubic", "snd0", "rcv0", 5001, ("snd0", "s1", "s2", "s3", "s4", "rcv0"))]
    flows += [
        QueueFlow(f"reno-{k}", "reno", f"snd{k}", f"rcv{k}", 5001 + k, (f"snd{k}", f"s{k}", f"s{k + 1}", f"rcv{k}"))
        for k in (1, 2, 3)
    ]
    plan = queues.decide("per_flow", graph, flows)
    assert {edge: len(own) for edge, own in plan.shares.items()} == {("s1", "s2"): 2, ("s2", "s3"): 2, ("s3", "s4"): 2}
    assert plan.members[("s2", "s3"), "cubic-1"] == 0
    assert plan.members[("s2", "s3"), "reno-2"] == 1


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


def test_buffers_follow_the_guaranteed_rates() -> None:
    """Every queue drains in the time of the whole: 100 kB in quarters and halves; equal where all are equal."""
    graph = with_buffers(dumbbell())
    assert queues.buffers(graph, EDGE, queues.decide("weighted:cubic=2", graph, FLOWS)) == {
        0: 50_000,
        1: 25_000,
        2: 25_000,
    }
    assert queues.buffers(graph, EDGE, queues.decide("priority", graph, FLOWS)) == {0: 33_333, 1: 33_333, 2: 33_333}
    assert queues.buffers(graph, EDGE, queues.decide("adaptive", graph, FLOWS)) == {0: 100_000}


def test_a_buffer_too_small_for_its_queues_is_refused() -> None:
    """Less than a frame would drop everything."""
    graph = with_buffers(dumbbell(), 6000)
    with pytest.raises(UsageError, match="6000 bytes, is too small for 4 queues: one would have 1500 bytes"):
        queues.buffers(graph, EDGE, queues.decide("per_flow", graph, FLOWS))


def test_flows_are_steered_by_port_and_counted_by_number() -> None:
    """Two flows between the same hosts in two queues; a flow's own rule carries its number."""
    graph = with_buffers(dumbbell())
    (step,) = steps("per_flow", graph=graph)
    address = addresses(graph)
    table = FlowTable(step["rules"])
    to_queue = packet(address["snd1"], address["rcv1"], ip_proto=6, tcp_dst=5002)
    assert table.actions(1, to_queue) == [["set_queue", 1], ["output", 1]]
    assert table.actions(1, {**to_queue, "tcp_dst": 5001}) == [["set_queue", 0], ["output", 1]]
    assert table.actions(2, to_queue) == []
    assert [rule.get("flow") for rule in step["rules"]] == [0, 1, 2, 3]


def test_flows_between_the_same_hosts_can_take_different_paths() -> None:
    """The upper way by default; a flow whose path is the lower one has rules of its own where it leaves it."""
    graph = with_buffers(graph_of("snd1-s1 s1-s2 s2-s4 s1-s3 s3-s4 s4-rcv1", "s1>s2 s1>s3"))
    ways = [("snd1", "s1", middle, "s4", "rcv1") for middle in ("s2", "s3")]
    flows = [QueueFlow(f"cubic-{k + 1}", "cubic", "snd1", "rcv1", 5001 + k, ways[k]) for k in (0, 1)]
    net = network(graph)
    changes = queues.timeline([(0.0, "shared")], graph, flows)
    (step,) = queues.steps(changes, flows, net, lambda _, size: f"bfifo limit {size}")
    table = FlowTable([*forwarding_rules(graph, net.ports, net.addresses, net.dpids), *step["rules"]])
    for each in flows:
        to_flow = packet(net.addresses["snd1"], net.addresses["rcv1"], ip_proto=6, tcp_dst=each.tcp_port)
        assert table.walk(to_flow, "snd1", net.ports, net.dpids) == list(each.nodes)


def test_all_queues_of_a_run_exist_from_its_beginning() -> None:
    """shared, then per_cca: three queues, of which two are idle at first, with the leaves they will have."""
    first, second = steps("shared", "per_cca")
    assert [sorted(step["queues"][0]["queues"]) for step in (first, second)] == [[0, 1, 2], [0, 1, 2]]
    assert [queue["min_rate_bit"] for queue in first["queues"][0]["queues"].values()] == [20_000_000, 12_000, 12_000]
    assert [line.split()[-1] for line in first["leaves"]] == ["100000", "33333", "33333"]
    assert [line.split()[-1] for line in second["leaves"]] == ["33333"] * 3
    assert [rule["match"] for rule in first["rules"]] == [rule["match"] for rule in second["rules"]]
    assert {rule["actions"][0][1] for rule in first["rules"]} == {0}
    assert second["at_s"] == 10.0


def test_a_queue_that_is_left_keeps_its_leaf() -> None:
    """Packets may wait in it: per_cca, then shared touches queue 0's buffer only."""
    _, second = steps("per_cca", "shared")
    assert [line.split()[5:] for line in second["leaves"]] == [["1:1", "handle", "10:", "bfifo", "limit", "100000"]]


def test_meters_of_later_steps_have_other_numbers() -> None:
    first, second = steps("police", "police:bbr=4mbit")
    assert not {meter["meter"] for meter in first["meters"]} & {meter["meter"] for meter in second["meters"]}


@pytest.mark.parametrize("times", [(0.0, 0.0), (0.0, 10.0, 10.0), (0.0, 20.0, 10.0)])
def test_changes_come_at_rising_times(times: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="rising times"):
        queues.timeline([(t, "shared") for t in times], dumbbell(), FLOWS)


def test_rows_name_each_queue_with_its_rate_buffer_and_flows() -> None:
    """What the record says of the queues; one queue needs no name of its own."""
    graph = with_buffers(dumbbell())
    assert queues.queue_rows(queues.timeline([(0.0, "shared")], graph, FLOWS), graph, EDGE) == {}
    rows = queues.queue_rows(queues.timeline([(0.0, "isolate:ndm_tcp")], graph, FLOWS), graph, EDGE)
    assert list(rows) == ["s1->s2/0", "s1->s2/1"]
    assert rows["s1->s2/1"] == {
        "rate_mbit": 5.0,
        "buffer_bytes": 25_000,
        "aqm": "fifo",
        "bottleneck": False,
        "port": "s1->s2",
        "flows": ["ndm_tcp-1"],
    }


def test_a_policy_of_one_function_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter and three quarters."""

    def halves(graph: nx.DiGraph, flows: object, arguments: object) -> QueuePlan:
        return QueuePlan({EDGE: {0: QueueShare(0.25), 7: QueueShare(0.75)}}, {(EDGE, "bbr-1"): 7})

    monkeypatch.setitem(policies.POLICIES, "halves", halves)
    (step,) = steps("halves")
    assert {q: queue["min_rate_bit"] for q, queue in step["queues"][0]["queues"].items()} == {
        0: 5_000_000,
        7: 15_000_000,
    }
    assert step["leaves"][1].split()[5:8] == ["1:8", "handle", "17:"]


def test_a_bottleneck_without_rate_is_refused() -> None:
    """A queue cannot form where nothing limits."""
    graph = graph_of("snd1-s1 s1-rcv1", "s1>rcv1")
    graph.edges["s1", "rcv1"]["rate_mbit"] = None
    with pytest.raises(UsageError, match="s1->rcv1 has no rate_mbit"):
        queues.bottleneck_edges(graph)


@pytest.mark.parametrize(
    ("given_shares", "reason"),
    [
        ({0: QueueShare(0.6), 1: QueueShare(0.6)}, "120%"),
        ({0: QueueShare(-0.1)}, "0 <= guaranteed"),
        ({0: QueueShare(0.5, 0.4)}, "guaranteed <= ceiling"),
        ({0: QueueShare(0.5, 1.5)}, "ceiling <= 1"),
        ({0: QueueShare(0.0, 0.0)}, "ceiling above 0"),
        (dict.fromkeys(range(0xF001), QueueShare(0.0)), "61441 queues, above 61440"),
    ],
)
def test_shares_that_do_not_fit_are_refused(given_shares: dict[int, QueueShare], reason: str) -> None:
    """Before any switch hears of them."""
    with pytest.raises(UsageError, match=reason):
        port_setting(20_000_000, "s1-eth1", given_shares)
