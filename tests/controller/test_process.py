"""The controller process without a switch: plans, command line, messages, order of events."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller import plan
from controller.__main__ import loopback, parse
from controller.app import Events, Switches
from controller.forwarding import forwarding_rules, rule
from controller.start import command
from tests.controller.small_graphs import dumbbell
from topologies.errors import UsageError
from topologies.ports import addresses, dpids, ports

CHECKOUT = Path(__file__).parents[2]

SETTING: plan.PortSetting = {
    "port": "s1-eth5",
    "type": "linux-htb",
    "max_rate_bit": 20_000_000,
    "queues": {0: {"min_rate_bit": 1, "max_rate_bit": 20_000_000, "burst_bytes": 1514, "priority": 0}},
}

ENCODE = """
import sys
from controller import app, frameworks
framework = frameworks.load(sys.argv[1], lean=sys.argv[2] == "lean")
protocol = __import__(framework.parser.__name__.rsplit(".", 1)[0] + ".ofproto_protocol", fromlist=["x"])
datapath = protocol.ProtocolDesc(version=4)
rules = [
    {"dpid": 1, "priority": 100, "match": {"eth_type": 2048, "ipv4_dst": "10.0.0.1"},
     "actions": [["output", 2]]},
    {"dpid": 1, "priority": 300, "match": {"eth_type": 2048, "ip_proto": 6, "ipv4_src": "10.0.0.2",
     "ipv4_dst": "10.0.0.1", "tcp_dst": 5001}, "actions": [["set_queue", 7], ["output", 2]]},
]
for message in app.messages(framework, datapath, rules):
    message.set_xid(1)
    message.serialize()
    print(message.buf.hex())
print(len(sys.modules), file=sys.stderr)
"""

FLOW_MOD = "".join(
    [
        "040e0060 00000001",  # OpenFlow 1.3, flow-mod, 96 bytes, transaction 1
        "0000000000000000 0000000000000000",  # cookie, mask
        "00 00 0000 0000 0064 ffffffff",  # table 0, add, no timeouts, priority 100, no buffer
        "00000000 00000000 0000 0000",  # out port and group (of no meaning here), flags, padding
        "0001 0012 80000a02 0800 80001804 0a000001 000000000000",  # match of 18 bytes, padded to 24
        "0004 0018 00000000",  # apply actions, 24 bytes
        "0000 0010 00000002 ffe5 000000000000",  # output to port 2
    ]
).replace(" ", "")


@pytest.mark.parametrize("framework", ["ryu", "os-ken"])
def test_the_reduced_framework_writes_the_same_bytes(framework: str) -> None:
    """What is left out of Ryu and os-ken makes no difference on the wire, and it is most of them."""
    (lean, few), (full, many) = encode(framework, "lean"), encode(framework, "full")
    assert lean == full
    assert few < 0.8 * many
    assert [text[:4] for text in lean.split()] == ["040e", "040e", "0414"]


def encode(framework: str, extent: str) -> tuple[str, int]:
    """Return messages as a framework encodes them, and how many modules it loaded."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENCODE, framework, extent],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, int(done.stderr.splitlines()[-1])


def test_both_frameworks_write_the_same_bytes_as_the_standard_says() -> None:
    """One application, one network; the first message by hand from OpenFlow 1.3.5, section 7."""
    ryu, os_ken = (encode(framework, "lean")[0] for framework in ("ryu", "os-ken"))
    assert ryu == os_ken
    assert ryu.splitlines()[0] == FLOW_MOD


def test_the_process_loads_nothing_heavy() -> None:
    """Its start counts: none of the packages that decide is loaded with it."""
    heavy = {"networkx", "pydantic", "typer", "numpy", "polars", "ovs", "webob", "oslo_config", "asyncio"}
    code = f"import sys, controller.__main__ as m; m.frameworks.load('ryu'); print(*({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    """Written and read back it is the same, queue numbers included."""
    graph = dumbbell()
    rules = forwarding_rules(graph, ports(graph), addresses(graph), dpids(graph))
    content = plan.plan("run-1", dpids(graph), rules, [{**plan.no_step(), "queues": [SETTING]}])
    plan.write(tmp_path / "plan.json", content)
    assert plan.read(tmp_path / "plan.json") == content
    assert content["dpids"] == [1, 2]


def test_a_runs_plan_holds_the_controllers(tmp_path: Path) -> None:
    """What --explain prints serves the controller by hand."""
    content = plan.plan("run-1", {"s1": 1}, [])
    (tmp_path / "plan.json").write_text(json.dumps({"scenario": {}, "controller": content}))
    assert plan.read(tmp_path / "plan.json") == content


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 3}, "format 3 is not 2"),
        ({"tag": ""}, "non-empty text"),
        ({"dpids": [-1]}, "dpid -1 is not an integer from 0"),
        ({"dpids": [True]}, "dpid True"),
        ({"rules": [rule(9, 1, {}, 1)]}, "for switch 9, which is not among"),
        ({"rules": [rule(1, 65536, {}, 1)]}, "priority 65536"),
        ({"rules": [rule(1, 1, {"vlan": 3}, 1)]}, "unknown parts: vlan"),
        ({"rules": [{**rule(1, 1, {}, 1), "actions": [["flood", 1]]}]}, "unknown parts: flood"),
        ({"rules": [rule(1, 1, {}, -1)]}, "output -1"),
        ({"queues": [{**SETTING, "max_rate_bit": "fast"}]}, "max_rate_bit 'fast'"),
        ({"queues": [{"port": "s1-eth1"}]}, "not a plan: KeyError: 'type'"),
        ({"rules": 3}, "not a plan: TypeError"),
        ({"leaves": ["qdisc replace dev x\nqdisc del dev y"]}, "not one line for tc"),
        ({"counters_s": 0}, "counters_s 0 is not above 0"),
        ({"later": [{"at_s": 1.0}]}, "not a plan: KeyError: 'rules'"),
        ({"meters": [{"dpid": 1, "meter": 1, "rate_kbit": -1, "burst_kbit": 1}]}, "rate_kbit -1"),
    ],
)
def test_wrong_plans_are_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    """Before the process does anything, with the file's name."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan.plan("t", {"s1": 1}, []) | change))
    with pytest.raises(UsageError, match=reason) as caught:
        plan.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", [None, "", "{", "[]", "3"])
def test_what_is_no_plan_at_all_is_refused(tmp_path: Path, text: str | None) -> None:
    """No file, an empty one, half of one, something else."""
    path = tmp_path / "plan.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=r"plan\.json"):
        plan.read(path)


@pytest.mark.parametrize("listen", ["0.0.0.0:6653", "10.0.0.1:6653", "[::1]:1", ":6653", "127.0.0.1", "127.0.0.1:0"])
def test_only_loopback_is_listened_on(listen: str) -> None:
    """Nobody else on the network may speak to it."""
    with pytest.raises(UsageError, match="--listen"):
        loopback(listen)


def test_the_start_command_is_understood_by_the_process(tmp_path: Path) -> None:
    """The lab's side and the process's side agree on every option."""
    argv = command(tmp_path / "p", "127.0.0.2:7000", "os-ken", tmp_path / "e", 5, "unix:/x", 6, tmp_path / "a")
    assert argv[:3] == [sys.executable, "-m", "controller"]
    options = parse(argv[3:])
    assert vars(options) == {
        "plan": tmp_path / "p",
        "listen": "127.0.0.2:7000",
        "framework": "os-ken",
        "events": str(tmp_path / "e"),
        "ready_fd": 5,
        "begin_fd": 6,
        "application": str(tmp_path / "a"),
        "ovsdb": "unix:/x",
    }
    assert loopback(options.listen) == ("127.0.0.2", 7000)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--plan", "/nonexistent"], 2, "cannot read the plan /nonexistent"),
        (["--plan", "/dev/null", "--listen", "0.0.0.0:1"], 2, "only loopback"),
    ],
)
def test_errors_are_one_line_and_a_status(options: list[str], status: int, message: str) -> None:
    """As the lab sees them."""
    done = subprocess.run([sys.executable, "-m", "controller", *options], cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == status
    assert done.stderr.startswith("controller: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("attempt", range(3))
@pytest.mark.parametrize("framework", ["ryu", "os-ken"])
def test_a_signal_is_heard_at_any_time(tmp_path: Path, framework: str, attempt: int) -> None:
    """At the moment when it starts to listen, its main thread is between running and waiting."""
    plan.write(tmp_path / "plan.json", plan.plan("t", {"s1": 1}, []))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address: tuple[str, int] = probe.getsockname()
    listen = f"{address[0]}:{address[1]}"
    with subprocess.Popen(command(tmp_path / "plan.json", listen, framework), cwd=CHECKOUT) as process:
        try:
            wait_until_listening(address)
            process.terminate()
            assert process.wait(timeout=5) == 0
        finally:
            process.kill()


def wait_until_listening(address: tuple[str, int]) -> None:
    """Return as soon as a connection is taken."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(address) == 0:
                return
        time.sleep(0.001)
    raise AssertionError(f"nothing listens on {address}")


class Story:
    """A `Switches` for two switches that notes what it does."""

    def __init__(self, path: Path) -> None:
        """Wait for switches 1 and 2."""
        self.path = path / "events"
        self.read_end, write_end = os.pipe()
        self.did: list[Any] = []
        events = Events(str(self.path), write_end)
        self.switches = Switches(
            [1, 2],
            events,
            lambda: self.did.append("begin"),
            lambda datapath: self.did.append(datapath.id),
            events.ready,
        )

    def kinds(self) -> list[str]:
        """Return the kinds of the events written."""
        return [json.loads(line)["kind"] for line in self.path.read_text().splitlines()]


def datapath(dpid: int) -> Any:
    """Return a stand-in for a connected switch."""
    return SimpleNamespace(id=dpid)


def test_nothing_is_installed_before_all_switches_are_there(tmp_path: Path) -> None:
    """Then the queues first, and the rules of each switch once."""
    story = Story(tmp_path)
    story.switches.connected(datapath(2))
    assert story.did == []
    story.switches.connected(datapath(1))
    assert story.did == ["begin", 1, 2]


def test_ready_is_said_once_when_every_switch_has_confirmed(tmp_path: Path) -> None:
    """On the descriptor and in the events."""
    story = Story(tmp_path)
    for dpid in (1, 2):
        story.switches.connected(datapath(dpid))
    story.switches.confirmed(2, 0)
    assert "ready" not in story.kinds()
    story.switches.confirmed(1, 0)
    story.switches.confirmed(1, 0)
    assert story.kinds().count("ready") == 1
    assert os.read(story.read_end, 100) == b"ready\n"
    assert os.read(story.read_end, 100) == b""


def test_a_switch_that_comes_back_gets_its_rules_again(tmp_path: Path) -> None:
    """Without touching the queues, and without a word about the connection it replaces."""
    story, old, new = Story(tmp_path), datapath(1), datapath(1)
    for each in (old, datapath(2), new):
        story.switches.connected(each)
    assert story.did == ["begin", 1, 2, 1]
    story.switches.lost(old)
    assert "switch_lost" not in story.kinds()
    story.switches.lost(new)
    assert story.kinds()[-1] == "switch_lost"


def test_a_switch_that_is_not_in_the_plan_gets_nothing(tmp_path: Path) -> None:
    """It is noted, no more."""
    story = Story(tmp_path)
    for dpid in (1, 7, 2):
        story.switches.connected(datapath(dpid))
    assert story.did == ["begin", 1, 2]
    story.switches.lost(datapath(7))
    assert story.kinds() == ["switch_connected"] * 3


def test_barriers_are_answered_in_the_order_in_which_they_were_sent(tmp_path: Path) -> None:
    """One connection keeps its order; a new connection forgets the old one's."""
    story, done = Story(tmp_path), list[str]()
    story.switches.connected(datapath(1))
    story.switches.after_barrier(1, lambda: done.append("first"))
    story.switches.after_barrier(1, lambda: done.append("second"))
    story.switches.barrier(1)
    assert done == ["first"]
    story.switches.connected(datapath(1))
    story.switches.barrier(1)
    assert done == ["first"]


def test_a_meter_that_is_there_already_is_no_error(tmp_path: Path) -> None:
    """It is added and then modified, because we can't know; any other refusal is told."""
    story = Story(tmp_path)
    for kind, code in ((12, 1), (4, 3)):
        story.switches.refused(SimpleNamespace(datapath=datapath(1), type=kind, code=code, data=b""))
    assert story.kinds() == ["openflow_error"]


def test_packet_ins_are_counted_and_the_first_is_told(tmp_path: Path) -> None:
    """A flood of them may not become a flood of events."""
    story = Story(tmp_path)
    for _ in range(5):
        story.switches.packet_in(datapath(1))
    assert story.switches.packet_ins == 5
    assert story.kinds() == ["packet_in"]
