"""The plan of a dumbbell, against what design and recipes ask of it."""

import json
from typing import Any

import pytest

from lab.plan import make_plan
from lab.scenario import Scenario, make_flows, make_scenario
from topologies.errors import UsageError


def scenario(**changes: Any) -> Scenario:
    fields: dict[str, Any] = {
        "name": "dumbbell",
        "topology": "dumbbell",
        "params": {"pairs": 2, "rate_mbit": 20.0, "rtt_ms": 40.0, "buffer": "1bdp"},
        "flows": make_flows(["ndm_tcp", "cubic"]),
        "duration_s": 10.0,
        "warmup_s": 2.0,
        "seed": 1,
    }
    return make_scenario(**(fields | changes))


@pytest.fixture(scope="module")
def plan() -> dict[str, Any]:
    return make_plan(scenario())


def test_it_is_plain_data(plan: dict[str, Any]) -> None:
    assert json.loads(json.dumps(plan["scenario"])) == plan["scenario"]
    json.dumps(plan)


def test_every_sender_has_a_delay_element_before_the_bottleneck(plan: dict[str, Any]) -> None:
    for node in ("snd1", "snd2"):
        assert plan["nodes"][node]["tc"] == [
            f"qdisc add dev {node}-eth0 root handle 1: netem delay 20000us limit 10067"
        ]


def test_a_sender_without_delay_still_releases_packets() -> None:
    made = make_plan(scenario(params={"pairs": 2, "rate_mbit": 20.0, "rtt_ms": 0.0, "buffer": "64KiB"}))
    assert "netem delay 1us " in made["nodes"]["snd1"]["tc"][0]
    assert made["nodes"]["rcv1"]["tc"] == []


def test_hosts_whose_own_way_draws_lots_send_single_segments(plan: dict[str, Any]) -> None:
    params = {"pairs": 2, "rate_mbit": 20.0, "rtt_ms": 40.0, "loss_pct": 0.5}
    lossy = make_plan(scenario(params=params))
    for node in ("snd1", "rcv1"):
        line = f"link set dev {node}-eth0 gso_max_segs 1"
        assert line in lossy["nodes"][node]["ip"] and line not in plan["nodes"][node]["ip"]


def test_the_bottlenecks_buffer_is_an_explicit_leaf_of_the_controllers_class(plan: dict[str, Any]) -> None:
    assert plan["controller"]["leaves"][0].endswith("parent 1:1 handle 10: bfifo limit 100000")  # 20 Mbit/s x 40 ms
    assert [port["max_rate_bit"] for port in plan["controller"]["queues"]] == [20_000_000, 20_000_000]


def test_every_link_is_made_once_and_every_switch_port_is_brought_up(plan: dict[str, Any]) -> None:
    added = [line for line in plan["links"] if line.startswith("link add")]
    brought_up = [line for line in plan["links"] if line.startswith("link set")]
    assert len(added) == 5  # 4 hosts and the core
    assert len(brought_up) == 6  # 3 ports on each switch


def test_peers_know_each_other_without_asking(plan: dict[str, Any]) -> None:
    neighbours = [line for line in plan["nodes"]["snd1"]["ip"] if line.startswith("neigh")]
    assert len(neighbours) == 1 and neighbours[0].endswith("nud permanent")


def test_each_flow_has_ports_of_its_own(plan: dict[str, Any]) -> None:
    ends = [tuple(flow[end]) for flow in plan["flows"] for end in ("src_address", "dst_address")]
    assert len({port for _, port in ends}) == 4


def test_telemetry_asks_both_ends_and_the_shaped_queues(plan: dict[str, Any]) -> None:
    sides = [(probe["flow_id"], probe["side"]) for probe in plan["probes"] if "socket" in probe]
    assert sides == [("ndm_tcp-1", "sender"), ("ndm_tcp-1", "receiver"), ("cubic-1", "sender"), ("cubic-1", "receiver")]
    assert [probe["queue_id"] for probe in plan["probes"] if "qdisc" in probe] == ["s1->s2", "s2->s1"]


def test_the_same_scenario_gives_the_same_plan(plan: dict[str, Any]) -> None:
    assert make_plan(scenario()) == plan


def test_a_policy_that_comes_later_has_the_rate_that_its_link_has_by_then() -> None:
    """20 Mbit/s, 10 from 3 s on; halves of that at 5 s; halves of 5 from 7 s on."""
    events = [{"t_s": t_s, "edge": "s1->s2", "rate_mbit": rate} for t_s, rate in ((3.0, 10.0), (7.0, 5.0))]
    made = make_plan(scenario(events=events, queues_at=[{"at_s": 5.0, "queues": "per_flow"}]))
    (later,) = made["controller"]["later"]
    there, back = later["queues"]
    assert (there["max_rate_bit"], back["max_rate_bit"]) == (10_000_000, 20_000_000)
    assert [queue["min_rate_bit"] for queue in there["queues"].values()] == [5_000_000, 5_000_000]
    ports = [event["rate"]["port"] for event in made["events"]]
    assert [port["max_rate_bit"] for port in ports] == [10_000_000, 5_000_000]
    assert [queue["min_rate_bit"] for queue in ports[1]["queues"].values()] == [2_500_000, 2_500_000]


@pytest.mark.parametrize("queues", [{"queues": "adaptive"}, {"queues_at": [{"at_s": 5.0, "queues": "adaptive"}]}])
def test_adaptive_queues_and_rates_that_change_are_refused(queues: dict[str, Any]) -> None:
    events = [{"t_s": 3.0, "edge": "s1->s2", "rate_mbit": 10.0}]
    with pytest.raises(UsageError, match="events that change a rate go with every queue policy but adaptive"):
        make_plan(scenario(events=events, **queues))


@pytest.mark.parametrize("aqm", ["red", "sfq"])
@pytest.mark.parametrize("queues", [{"queues": "adaptive"}, {"queues_at": [{"at_s": 5.0, "queues": "per_flow"}]}])
def test_a_queue_that_would_lose_its_packets_is_not_changed(aqm: str, queues: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"the queue of s1->s2 can't change during the run: {aqm}"):
        make_plan(scenario(aqm=aqm, **queues))
    assert make_plan(scenario(aqm=aqm, queues="per_flow"))["leaves"] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topology": "ring"}, "ring"),
        ({"queues": "chaos"}, "unknown queue policy 'chaos'"),
        ({"params": {"pairs": 1, "rate_mbit": 20.0, "rtt_ms": 40.0}}, "snd2"),
        ({"params": {"pairs": 2, "rate_mbit": -1.0}}, "rate_mbit"),
        ({"params": {"pairs": 2, "rate_mbit": 20.0, "buffer": "1000B"}}, "1514"),
    ],
)
def test_what_cant_be_made_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_plan(scenario(**changes))
