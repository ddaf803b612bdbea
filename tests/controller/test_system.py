"""The controller process with a real Open vSwitch, under both frameworks."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from controller import ovsdb, plan, queues
from controller.forwarding import forwarding_rules
from controller.start import command
from tests.controller.ovs_sandbox import LISTEN, Controller, Sandbox, missing, sandbox, wait_for
from tests.controller.small_graphs import ring
from topologies.errors import FairbedError
from topologies.ports import addresses, dpids, ports

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(bool(missing()), reason=missing() or "all is there"),
]

FRAMEWORKS = ["ryu", "os-ken"]


def network() -> nx.DiGraph:
    """Return a ring of five switches with one bottleneck."""
    graph = ring()
    graph.edges["s2", "s3"].update(rate_mbit=20.0, bottleneck=True)
    return graph


def plan_of(graph: nx.DiGraph, tag: str) -> plan.Plan:
    """Return a graph's plan with one shared queue at its bottlenecks."""
    rules = forwarding_rules(graph, ports(graph), addresses(graph), dpids(graph))
    settings = queues.queue_settings(graph, queues.decide("shared", graph), ports(graph))
    return plan.plan(tag, dpids(graph), rules, [{**plan.no_step(), "queues": settings}])


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Give a sandbox with the ring built, and a QoS row of someone else on one of its ports."""
    with sandbox(tmp_path_factory.mktemp("ovs")) as made:
        made.build(network())
        foreign = "--id=@q create qos type=linux-htb other-config:max-rate=1000 external_ids:owner=someone"
        made.vsctl(*foreign.split(), "--", "set", "port", "s4-eth1", "qos=@q")
        yield made


@contextmanager
def controller(inside: Sandbox, path: Path, content: plan.Plan, framework: str) -> Iterator[Controller]:
    """Start a controller and end it at the latest at the end of the block."""
    plan.write(path / "plan.json", content)
    ready, ready_fd = os.pipe()
    argv = command(path / "plan.json", LISTEN, framework, path / "events", ready_fd, inside.database)
    started = Controller(inside, argv, ready, ready_fd)
    try:
        yield started
    finally:
        started.close()


def events(path: Path) -> list[dict[str, Any]]:
    """Return the events that a controller wrote."""
    return [json.loads(line) for line in (path / "events").read_text().splitlines()]


def details(path: Path, kind: str) -> list[dict[str, Any]]:
    """Return the details of the events of one kind."""
    return [json.loads(event["detail"]) for event in events(path) if event["kind"] == kind]


def foreign_rows(inside: Sandbox) -> str:
    """Return the QoS row that isn't ours and the port that uses it."""
    row = inside.vsctl("--bare", "find", "qos", "external_ids:owner=someone")
    return row + inside.vsctl("get", "port", "s4-eth1", "qos")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_plan_becomes_a_working_network(inside: Sandbox, tmp_path: Path, framework: str) -> None:
    """Rules as planned, packets through a ring, queues set, read back and removed, nothing asked of us."""
    graph, before = network(), foreign_rows(inside)
    content = plan_of(graph, f"run-{framework}")
    with controller(inside, tmp_path, content, framework) as started:
        assert started.signal_word() == b"ready\n"
        for switch, dpid in dpids(graph).items():
            assert installed(inside, switch) == planned(content, dpid)
        assert ovsdb.read_queues(inside.database, content["tag"]) == content["queues"]
        assert inside.pings("snd1", addresses(graph)["snd3"])
        assert inside.pings("rcv5", addresses(graph)["snd2"])
        assert foreign_rows(inside) == before
        assert started.stop() == (0, "")
    assert ovsdb.read_queues(inside.database, content["tag"]) == []
    assert inside.vsctl("--bare", "--columns=_uuid", "list", "queue") == ""
    assert foreign_rows(inside) == before
    kinds = [event["kind"] for event in events(tmp_path)]
    assert kinds[0] == "started"
    assert kinds.index("queues_set") < kinds.index("switch_ready") < kinds.index("ready")
    assert kinds.count("switch_ready") == 5
    assert details(tmp_path, "stopped") == [{"packet_ins": 0, "status": 0, "message": ""}]
    assert "openflow_error" not in kinds


def installed(inside: Sandbox, switch: str) -> set[str]:
    """Return a switch's rules as "priority destination port"."""
    found = re.findall(r"priority=(\d+),ip,nw_dst=(\S+) actions=output:\D*(\S+)", inside.flows(switch))
    lines = [line for line in inside.flows(switch).splitlines() if "actions=" in line]
    assert len(found) == len(lines), lines
    numbers = {name: number for _, name, number in interface_numbers(inside)}
    return {f"{priority} {dst} {numbers.get(port.strip(chr(34)), port)}" for priority, dst, port in found}


def interface_numbers(inside: Sandbox) -> list[tuple[str, str, str]]:
    """Return every interface's name and OpenFlow port number."""
    table = inside.vsctl("--format=csv", "--no-headings", "--columns=name,ofport", "list", "interface")
    return [("", name.strip('"'), number) for name, number in (row.split(",") for row in table.splitlines())]


def planned(content: plan.Plan, dpid: int) -> set[str]:
    """Return a switch's planned rules in the form of `installed`."""
    return {
        f"{rule['priority']} {rule['match']['ipv4_dst']} {rule['actions'][0][1]}"
        for rule in content["rules"]
        if rule["dpid"] == dpid
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_forwarding_survives_the_controller(inside: Sandbox, tmp_path: Path, framework: str) -> None:
    """Killed, it leaves the network as it is; its successor takes over and cleans up at the end."""
    graph = network()
    content = plan_of(graph, f"killed-{framework}")
    with controller(inside, tmp_path, content, framework) as first:
        assert first.signal_word() == b"ready\n"
    assert inside.pings("snd1", addresses(graph)["snd3"])
    assert ovsdb.read_queues(inside.database, content["tag"]) == content["queues"]
    with controller(inside, tmp_path, content, framework) as second:
        assert second.signal_word() == b"ready\n"
        assert second.stop() == (0, "")
    assert ovsdb.read_queues(inside.database, content["tag"]) == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_idle_controller_sleeps(inside: Sandbox, tmp_path: Path, framework: str) -> None:
    """Whatever polls would keep the virtual clock from jumping: at most a keep-alive in two seconds."""
    with controller(inside, tmp_path, plan_of(network(), f"idle-{framework}"), framework) as started:
        assert started.signal_word() == b"ready\n"
        time.sleep(0.5)
        before = wake_ups(started.pid())
        time.sleep(2)
        # A switch that heard nothing for 5 s asks whether we live: 5 switches may do so in these 2 s,
        # each a wake-up of the reader, the handler and the writer.
        assert wake_ups(started.pid()) - before <= 5 * 4
        assert started.stop() == (0, "")


def wake_ups(pid: int) -> int:
    """Return how often a process's threads have gone to sleep so far."""
    status = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status"))
    return sum(int(re.findall(r"\bvoluntary_ctxt_switches:\s*(\d+)", text)[0]) for text in status)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_port_that_is_not_there_ends_it_with_the_reason(inside: Sandbox, tmp_path: Path, framework: str) -> None:
    """No ready, no rows left, the port's name in the message."""
    content = plan_of(network(), f"wrong-{framework}")
    content["queues"][0]["port"] = "s9-eth9"
    with controller(inside, tmp_path, content, framework) as started:
        assert started.signal_word() == b""
        status, errors = started.result()
    assert status == 1
    assert errors == "controller: cannot set queues on s9-eth9: Open vSwitch has no such port\n"
    assert ovsdb.read_queues(inside.database, content["tag"]) == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_refused_rule_is_reported(inside: Sandbox, tmp_path: Path, framework: str) -> None:
    """A TCP port without its protocol breaks OpenFlow's rules; the switch's answer is recorded."""
    content = plan_of(network(), f"refused-{framework}")
    content["rules"][0]["match"] = {"eth_type": 0x0800, "tcp_dst": 80}
    with controller(inside, tmp_path, content, framework) as started:
        assert started.signal_word() == b"ready\n"
        wait_for(lambda: "openflow_error" in (tmp_path / "events").read_text(), "the switch's error")
        assert started.stop() == (0, "")


def test_a_taken_address_is_refused(inside: Sandbox, tmp_path: Path) -> None:
    """Two controllers on one address would share the switches without a word."""
    content = plan_of(network(), "taken")
    with controller(inside, tmp_path, content, "ryu") as first:
        assert first.signal_word() == b"ready\n"
        argv = command(tmp_path / "plan.json", LISTEN, ovsdb=inside.database)
        second = inside.popen(argv, stderr=subprocess.PIPE)
        assert second.communicate(timeout=20)[1] == (f"controller: cannot listen on {LISTEN}: Address already in use\n")
        assert second.returncode == 1
        assert first.stop() == (0, "")


def test_rows_of_others_are_never_touched(inside: Sandbox) -> None:
    """A port with a foreign row is refused, whole; another tag's rows survive a removal."""
    before = foreign_rows(inside)
    one, two = (setting_of(port) for port in ("s1-eth1", "s1-eth2"))
    ovsdb.apply_queues(inside.database, "one", [one])
    ovsdb.apply_queues(inside.database, "two", [two])
    with pytest.raises(FairbedError, match="s4-eth1: it has a QoS row of someone else"):
        ovsdb.apply_queues(inside.database, "one", [one, setting_of("s4-eth1")])
    with pytest.raises(FairbedError, match="s1-eth2: it has a QoS row of someone else"):
        ovsdb.apply_queues(inside.database, "one", [two])
    assert ovsdb.read_queues(inside.database, "one") == [one]
    assert ovsdb.remove_queues(inside.database, "one") == 3  # a QoS row and two queues
    assert ovsdb.remove_queues(inside.database, "one") == 0
    assert ovsdb.read_queues(inside.database, "two") == [two]
    assert ovsdb.remove_queues(inside.database, "two") == 3
    assert foreign_rows(inside) == before


def test_queues_are_replaced_in_place(inside: Sandbox) -> None:
    """The same tag again is a change, not an addition."""
    first, second = setting_of("s1-eth1", 10_000_000), setting_of("s1-eth1", 30_000_000)
    ovsdb.apply_queues(inside.database, "again", [first, setting_of("s1-eth2")])
    ovsdb.apply_queues(inside.database, "again", [second])
    assert ovsdb.read_queues(inside.database, "again") == [second]
    assert inside.vsctl("get", "port", "s1-eth2", "qos") == "[]"
    assert ovsdb.remove_queues(inside.database, "again") == 3


def setting_of(port: str, rate_bit: int = 20_000_000) -> plan.PortSetting:
    """Return a port's setting with two queues of half the rate."""
    half: plan.QueueSetting = {
        "min_rate_bit": rate_bit // 2,
        "max_rate_bit": rate_bit,
        "burst_bytes": queues.burst_bytes(rate_bit),
        "priority": 0,
    }
    return {"port": port, "type": "linux-htb", "max_rate_bit": rate_bit, "queues": {0: half, 1: half}}
