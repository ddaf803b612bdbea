"""Every topology in the lab kernel: a lone flow fills the bottleneck's buffer, and packets are lost only there."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis import Run, summarise
from analysis.settings import settings

pytestmark = pytest.mark.system

FRAME_BYTES = 1514
OWN = {
    "directed": True,
    "nodes": [{"id": "snd1", "role": "sender"}, {"id": "rcv1", "role": "receiver"}, {"id": "s1", "role": "switch"}],
    "edges": [
        {"source": "snd1", "target": "s1", "rate_mbit": 20.0, "buffer_bytes": 100_000, "delay_ms": 10.0},
        {"source": "s1", "target": "snd1", "delay_ms": 5.0},
        {"source": "rcv1", "target": "s1", "delay_ms": 15.0},
        {"source": "s1", "target": "rcv1", "delay_ms": 10.0},
    ],
}
"""A rate and its queue at a host's own egress, and delays on both sides of a switch."""


@pytest.fixture
def experiment(command: Callable[..., Any], tmp_path: Path) -> Callable[..., Run]:
    """Return a function that runs an experiment in the lab kernel and gives its record."""

    def run(name: str, *options: object, out: str = "run") -> Run:
        done = command(f"experiments.{name}", *options, "--kernel", "lab", "--out", tmp_path / out, "--json")
        assert done.status == 0, done.stderr
        return Run.open(tmp_path / out)

    return run


def drops(run: Run) -> dict[tuple[str, str], int]:
    """Return the drops of every qdisc that dropped, by kind and interface, at the end."""
    state = json.loads((run.raw / "tc.json").read_text())
    return {
        (qdisc["kind"], qdisc["dev"]): qdisc["drops"]
        for text in state.values()
        for qdisc in json.loads(text)
        if qdisc.get("drops")
    }


@pytest.mark.parametrize(
    ("name", "options", "queue", "rate_mbit", "rtt_ms"),
    [
        ("parking_lot", ["--hops", 2, "--long", "cubic:1", "--cross", ""], "s1->s2", 20.0, 30.0),
        ("satellite", ["--flows", "cubic:1", "--down", "20mbit"], "gateway->terminal", 20.0, 510.0),
        (
            "wifi",
            ["--flows", "cubic:1", "--loss", 0, "--wander", "0s", "--jitter", "0s"],
            "ap1->ap2",
            40.0,
            32.0,
        ),
        ("graph", ["FILE", "--flows", "cubic:1"], "snd1->s1", 20.0, 40.0),
    ],
)
def test_a_lone_flow_fills_the_bottleneck_and_loses_only_there(
    experiment: Callable[..., Run],
    tmp_path: Path,
    name: str,
    options: list[object],
    queue: str,
    rate_mbit: float,
    rtt_ms: float,
) -> None:
    """The largest backlog is the buffer but for one packet, the rate within 1 %, the idle RTT within 0.1 ms."""
    (tmp_path / "own.json").write_text(json.dumps(OWN))
    options = [tmp_path / "own.json" if option == "FILE" else option for option in options]
    # every 5 ms, so that a sample meets the full queue
    run = experiment(name, *options, "--duration", "40s", "--warmup", "20s", "--sample", "5ms")
    assert run.verdict["status"] == "valid", run.verdict["reasons"]
    buffer_bytes = run.queue_settings[queue]["buffer_bytes"]
    samples = run.queues.filter(pl.col("queue_id") == queue)
    assert buffer_bytes - FRAME_BYTES <= max(samples["backlog_bytes"]) <= buffer_bytes
    busy = samples.filter(pl.col("t_s") > 20)
    sent_mbit = (busy["sent_bytes"][-1] - busy["sent_bytes"][0]) * 8e-6 / (busy["t_s"][-1] - busy["t_s"][0])
    assert abs(sent_mbit - rate_mbit) < 0.01 * rate_mbit
    (idle_ms,) = run.info["environment"]["idle_rtt_ms"].values()
    assert abs(idle_ms - rtt_ms) < 0.1
    assert max(samples["drops"]) > 0
    assert {kind for kind, _ in drops(run)} == {"bfifo", "htb"}
    assert len({interface for _, interface in drops(run)}) == 1


EACH = {
    "parking_lot": (
        {"hops": 2, "cross": 1, "hop_delay_ms": 10.0},
        {"s1->s2": ("snd2", "rcv2"), "s2->s3": ("snd3", "rcv3")},
    ),
    "leaf_spine": (
        {"pairs": 2, "leaves": 2, "spines": 2, "rate_mbit": 20.0, "hop_delay_ms": 10.0, "buffer": "1bdp"},
        {"leaf1->spine1": ("snd1", "rcv1"), "leaf2->spine2": ("snd2", "rcv2")},
    ),
}
"""Topology -> its parameters, and the lone flow of each bottleneck."""


@pytest.mark.parametrize("topology", EACH)
def test_each_bottleneck_is_filled_by_its_own_lone_flow(
    experiment: Callable[..., Run], tmp_path: Path, topology: str
) -> None:
    """Every drop is at a bottleneck, and nothing else is retransmitted: no packet overtook another."""
    params, flows = EACH[topology]
    scenario = {
        "name": topology, "topology": topology, "params": params, "duration_s": 12.0, "warmup_s": 5.0, "seed": 1,
        "sample_ms": 5,
        "flows": [
            {"flow_id": f"cubic-{k}", "cca": "cubic", "src": src, "dst": dst}
            for k, (src, dst) in enumerate(flows.values(), 1)
        ],
    }  # fmt: skip
    (tmp_path / "scenario.json").write_text(json.dumps(scenario))
    run = experiment("dumbbell", "--scenario", tmp_path / "scenario.json")
    assert run.verdict["status"] == "valid", run.verdict["reasons"]
    lost = {}
    for queue in flows:
        samples = run.queues.filter(pl.col("queue_id") == queue)
        buffer_bytes = run.queue_settings[queue]["buffer_bytes"]
        assert buffer_bytes - FRAME_BYTES <= max(samples["backlog_bytes"]) <= buffer_bytes
        lost[queue] = samples["drops"][-1]
    found = drops(run)
    assert sum(count for (kind, _), count in found.items() if kind == "bfifo") == sum(lost.values()) > 0
    assert {kind for kind, _ in found} == {"bfifo", "htb"}
    again = run.flows.group_by("flow_id").agg(pl.col("retrans_segments").max()).sort("flow_id")["retrans_segments"]
    for retransmitted, dropped in zip(again, lost.values(), strict=True):
        assert 0 <= dropped - retransmitted <= 2  # of the last drops the sender may not know yet


def test_handovers_happen_on_time_and_are_recorded(experiment: Callable[..., Run]) -> None:
    """Each event within 1 ms of its time, and after the first handover the new delay is what flows see."""
    options = ("--flows", "bbr:1", "--orbit", "leo", "--duration", "28s")
    run = experiment("satellite", *options)
    wanted = json.loads((run.raw / "plan.json").read_text())["events"]
    found = run.events.filter(pl.col("source") == "link")
    assert len(wanted) == len(found) == 4
    for event, row in zip(wanted, found.iter_rows(named=True), strict=True):
        assert 0 <= row["t_s"] - event["t_s"] < 1e-3
        assert (row["subject"], json.loads(row["detail"])) == (event["edge"], event["changes"])
    down, up = wanted[-2]["changes"]["delay_ms"], wanted[-1]["changes"]["delay_ms"]
    late = run.flows.filter(pl.col("t_s") > 27)
    assert min(late["srtt_ms"]) > down + up + 10  # the ground's 2 x 5 ms
    assert drops(run).keys() >= {("netem", "wire1v0")}


def test_rates_and_queue_policies_change_in_one_run(experiment: Callable[..., Run], tmp_path: Path) -> None:
    """20 Mbit/s in one queue, 10 from 3 s on; a queue for each flow from 5 s on; 5 Mbit/s from 8 s on."""
    (tmp_path / "events.csv").write_text("t_s,edge,rate_mbit\n3,s1->s2,10\n8,s1->s2,5\n")
    run = experiment(
        "dumbbell", "--flows", "cubic:1,bbr:1", "--events", tmp_path / "events.csv", "--queues-at", "5s=per_flow",
        "--duration", "11s", "--warmup", "1s",
    )  # fmt: skip
    whole, own = "s1->s2", "s1->s2/1"
    for queue, begin_s, end_s, rate_mbit in (
        (whole, 1.0, 2.9, 20.0), (whole, 3.5, 4.9, 10.0), (whole, 6.0, 7.9, 10.0), (own, 6.0, 7.9, 5.0),
        (whole, 8.5, 11.0, 5.0), (own, 8.5, 11.0, 2.5),
    ):  # fmt: skip
        part = run.queues.filter((pl.col("queue_id") == queue) & pl.col("t_s").is_between(begin_s, end_s))
        sent_mbit = (part["sent_bytes"][-1] - part["sent_bytes"][0]) * 8e-6 / (part["t_s"][-1] - part["t_s"][0])
        assert abs(sent_mbit / rate_mbit - 1) < (0.02 if queue == whole else 0.1), (queue, begin_s, sent_mbit)
    assert not [one for one in settings(run) if one.differs]


def test_lossy_runs_repeat_bit_for_bit(experiment: Callable[..., Run]) -> None:
    """Loss, jitter and wandering rates come from the seed."""
    options = ("--flows", "cubic:1,bbr:1", "--duration", "10s", "--warmup", "1s")
    first, second = (experiment("wifi", *options, out=out) for out in ("first", "second"))
    assert first.flows.equals(second.flows)
    assert first.queues.equals(second.queues)
    other = experiment("wifi", *options, "--seed", 2, out="other")
    assert not first.flows.equals(other.flows)


COMMANDS = """
import json, subprocess, sys
from pathlib import Path
from lab.network import Network
with Network(json.loads(Path(sys.argv[1]).read_text()), ("127.0.0.1", 6653)) as network:
    net = network.mininet
    said = [net["snd1"].cmd("ip -br addr show dev snd1-eth0; ls /sys/class/net"), net["s1"].cmd("echo shell of $0")]
    said.append(net["rcv2"].popen(["ip", "-br", "addr"], stdout=subprocess.PIPE).communicate()[0].decode())
    processes = [host.name for host in net.hosts if host._process is not None]
left = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True).stdout
bridges = subprocess.run(["ovs-vsctl", "list-br"], capture_output=True, text=True).stdout
json.dump([said, processes, left, bridges], sys.stdout)
"""


def test_mininets_hosts_answer_commands_and_leave_nothing_behind(command: Callable[..., Any], tmp_path: Path) -> None:
    """Shells and processes exist only for the nodes that were asked for them."""
    explained = command("experiments.dumbbell", "--flows", "cubic:2", "--kernel", "lab", "--explain")
    (tmp_path / "plan.json").write_text(explained.stdout)
    (tmp_path / "script.py").write_text(COMMANDS)
    inside = ("env", f"PYTHONPATH={Path(__file__).resolve().parents[2]}", sys.executable)
    done = command(
        "lab", "run", "--openvswitch", "--clock", "virtual", "--", *inside, tmp_path / "script.py",
        tmp_path / "plan.json",
    )  # fmt: skip
    assert done.status == 0, done.stderr
    (host, switch, other), processes, left, bridges = json.loads(done.stdout)
    assert "10.0." in host and "snd1-eth0" in host and "s1-eth" not in host
    assert "shell of" in switch and "rcv2-eth0" in other
    assert sorted(processes) == ["rcv2", "snd1"]
    assert "eth" not in left and bridges == ""


def test_sixty_four_pairs_build_and_run_in_time(experiment: Callable[..., Run]) -> None:
    """128 hosts, whose start once took longer than the watchdog waits."""
    run = experiment("dumbbell", "--flows", "cubic:64", "--rate", "100mbit", "--duration", "5s", "--warmup", "1s")
    assert run.verdict["status"] == "valid"
    assert run.outcome["wall_s"]["network"] < 60


DIAMOND = {
    "directed": False,
    "nodes": [
        {"id": "snd1", "role": "sender"},
        {"id": "rcv1", "role": "receiver"},
        *({"id": name, "role": "switch"} for name in ("s1", "s2", "s3", "s4")),
    ],
    "edges": [
        {"source": "snd1", "target": "s1", "delay_ms": 10.0},
        {"source": "rcv1", "target": "s4", "delay_ms": 10.0},
        {"source": "s1", "target": "s2", "rate_mbit": 20.0, "buffer_bytes": 100_000},
        {"source": "s2", "target": "s4"},
        {"source": "s1", "target": "s3", "rate_mbit": 5.0, "buffer_bytes": 50_000},
        {"source": "s3", "target": "s4"},
    ],
}
"""Two ways between the same hosts, of 20 and of 5 Mbit/s."""


def test_two_flows_between_the_same_hosts_take_different_paths(experiment: Callable[..., Run], tmp_path: Path) -> None:
    """Each gets its own way's rate, and each way's queue holds its own flow's packets."""
    (tmp_path / "diamond.json").write_text(json.dumps(DIAMOND))
    ends = {"src": "snd1", "dst": "rcv1"}
    scenario = {
        "name": "diamond", "topology": "graph_file", "params": {"path": str(tmp_path / "diamond.json")},
        "duration_s": 20.0, "warmup_s": 5.0, "seed": 1,
        "flows": [
            {"flow_id": "cubic-1", "cca": "cubic", **ends, "path": ["snd1", "s1", "s2", "s4", "rcv1"]},
            {"flow_id": "reno-1", "cca": "reno", **ends, "path": ["snd1", "s1", "s3", "s4", "rcv1"]},
        ],
    }  # fmt: skip
    (tmp_path / "diamond-scenario.json").write_text(json.dumps(scenario))
    run = experiment("dumbbell", "--scenario", tmp_path / "diamond-scenario.json")
    assert run.verdict["status"] == "valid", run.verdict
    goodputs = {flow.flow_id: flow.goodput_mbit for flow in summarise(run).flows}
    assert goodputs["cubic-1"] == pytest.approx(20 * 1448 / 1514, rel=0.03)
    assert goodputs["reno-1"] == pytest.approx(5 * 1448 / 1514, rel=0.03)
    assert {name: path["bottleneck"] for name, path in run.paths.items()} == {"cubic-1": "s1->s2", "reno-1": "s1->s3"}
