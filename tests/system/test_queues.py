"""Queue policies in the lab kernel: who gets what, seen from both sides, through changes and faults."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from analysis import Run, summarise
from lab.execute import Where, execute
from lab.scenario import Scenario, make_flows, make_scenario
from topologies.errors import FairbedError

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

CCAS = ["ndm_tcp", "cubic", "reno", "bbr"]
WEIGHTED = "weighted:ndm_tcp=1,cubic=2,reno=3,bbr=2"
SHORT = ("--duration", "12s", "--warmup", "2s")

Dumbbell = Callable[..., Run]


def scenario(rate_mbit: float, policy: str, **changes: Any) -> Scenario:
    """Return a dumbbell of 40 ms with a delay that varies and packets that are lost on the hosts' own links."""
    rough = [
        {"t_s": 0.0, "edge": f"{host}->{switch}", "jitter_ms": 1.0, "loss_pct": 0.0005}
        for number in range(1, 5)
        for host, switch in ((f"snd{number}", "s1"), (f"rcv{number}", "s2"))
    ]
    fields: dict[str, Any] = {
        "name": "shares",
        "topology": "dumbbell",
        "params": {"pairs": 4, "rate_mbit": rate_mbit, "rtt_ms": 40.0, "buffer": "2bdp"},
        "flows": make_flows(CCAS),
        "events": rough,
        "queues": policy,
        "duration_s": 25.0,
        "warmup_s": 10.0,
        "seed": 1,
    }
    return make_scenario(**(fields | changes))


def shares(run: Run) -> dict[str, float]:
    return {flow.cca: flow.share or 0.0 for flow in summarise(run).flows}


def controller_events(run: Run, kind: str) -> pl.DataFrame:
    return run.events.filter(pl.col("source") == "controller", pl.col("kind") == kind)


@pytest.mark.parametrize("rate_mbit", [10.0, 50.0, 200.0])
@pytest.mark.parametrize(
    ("policy", "asked"),
    [
        (WEIGHTED, {"ndm_tcp": 0.125, "cubic": 0.25, "reno": 0.375, "bbr": 0.25}),
        ("per_cca", dict.fromkeys(CCAS, 0.25)),
        ("per_flow", dict.fromkeys(CCAS, 0.25)),
    ],
)
def test_shares_are_what_was_asked_within_three_percent(
    tmp_path: Path, rate_mbit: float, policy: str, asked: dict[str, float]
) -> None:
    """What each queue sent of all, with delay, jitter and loss on the way, and the delay intact.

    Counted while every queue has something to send: BBR empties its own for 0.2 s in every 10 s to probe the RTT.
    """
    run = execute(scenario(rate_mbit, policy), tmp_path / "run", Where("lab"))
    assert run.verdict["status"] == "valid", run.verdict
    sent = sent_while_all_want(run, 10.0)
    for number, cca in enumerate(CCAS):
        assert sent[number] / sum(sent) == pytest.approx(asked[cca], rel=0.03)
    assert sum(sent_mbit(run, 10.0, 25.0)[f"s1->s2/{q}"] for q in range(4)) == pytest.approx(rate_mbit, rel=0.01)
    for rtt_ms in run.info["environment"]["idle_rtt_ms"].values():
        assert rtt_ms == pytest.approx(40.0, rel=0.01)


def sent_while_all_want(run: Run, start_s: float) -> list[float]:
    """Return the bytes that each queue sent between samples at which no queue was empty."""
    frames = [run.queues.filter(pl.col("queue_id") == f"s1->s2/{q}", pl.col("t_s") >= start_s) for q in range(4)]
    waiting = np.all([frame.sort("t_s")["backlog_bytes"].to_numpy() > 0 for frame in frames], axis=0)
    steps = np.diff([frame.sort("t_s")["sent_bytes"].to_numpy().astype(float) for frame in frames], axis=1)
    both = np.logical_and(waiting[1:], waiting[:-1])
    assert both.mean() > 0.7
    return [float(total) for total in steps[:, both].sum(axis=1)]


def sent_mbit(run: Run, start_s: float, end_s: float) -> dict[str, float]:
    """Return what each queue sent in a time, in Mbit/s of Ethernet frames."""
    rates = {}
    for (name,), frame in run.queues.filter(pl.col("t_s").is_between(start_s, end_s + 0.001)).group_by("queue_id"):
        counted = frame.sort("t_s")
        sent = counted["sent_bytes"][-1] - counted["sent_bytes"][0]
        rates[str(name)] = sent * 8 / 1e6 / (counted["t_s"][-1] - counted["t_s"][0])
    return rates


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_a_queue_for_each_flow_makes_them_fair(dumbbell: Dumbbell, seed: int) -> None:
    run = dumbbell("--queues", "per_flow", "--duration", "30s", "--seed", seed)
    assert run.verdict == {"status": "valid", "reasons": []}
    assert (summarise(run).jain or 0) >= 0.99


def test_both_sides_count_the_same(dumbbell: Dumbbell) -> None:
    """OpenFlow's counters and the kernel's own, queue by queue; and rules count what goes into their queue."""
    run = dumbbell("--queues", "per_cca", *SHORT)
    told = run.events.filter(pl.col("kind") == "counters", pl.col("subject") == "1")
    assert told["source"].unique().to_list() == ["sampler"]
    assert told.height == 11  # each second within the run
    for t_s, detail in told.select("t_s", "detail").iter_rows():
        counted = json.loads(detail)
        for name, (packets, size, drops) in counted["queues"].items():
            before, after = around(run, name, t_s)
            assert before["sent_packets"] <= packets <= after["sent_packets"]
            assert before["sent_bytes"] <= size <= after["sent_bytes"]
            assert before["drops"] <= drops <= after["drops"]
        # A port counts, when it leaves, what its queues together have sent
        assert counted["ports"]["s1->s2"][1] == pytest.approx(
            sum(queue[1] for queue in counted["queues"].values()), abs=20 * 1514
        )
    last = json.loads(told["detail"][-1])
    for number, flow_id in enumerate(f"{cca}-1" for cca in CCAS):
        _, sent, drops = last["queues"][f"s1->s2/{number}"]
        # A rule's counters are up to half a second old, of 5 Mbit/s
        assert last["flows"][flow_id][1] == pytest.approx(sent + drops * 1514, abs=0.6 * 5e6 / 8 + 30_000)


def around(run: Run, queue_id: str, t_s: float) -> tuple[dict[str, int], dict[str, int]]:
    """Return the samples of a queue before and after a time."""
    frame = run.queues.filter(pl.col("queue_id") == queue_id).sort("t_s")
    index = int(np.searchsorted(frame["t_s"].to_numpy(), t_s))
    return frame.row(index - 1, named=True), frame.row(min(index, frame.height - 1), named=True)


def test_a_ports_row_is_the_sum_of_its_queues(dumbbell: Dumbbell) -> None:
    run = dumbbell("--queues", "per_flow", *SHORT)
    columns = ("backlog_bytes", "backlog_packets", "drops", "sent_bytes")
    parts = run.queues.filter(pl.col("queue_id").str.starts_with("s1->s2/"))
    summed = parts.group_by("t_s").agg(pl.col(*columns).sum()).sort("t_s")
    whole = run.queues.filter(pl.col("queue_id") == "s1->s2").sort("t_s")
    assert whole.select(columns).cast(pl.Int64).equals(summed.select(columns).cast(pl.Int64))
    settings = run.queue_settings
    assert sum(settings[f"s1->s2/{q}"]["buffer_bytes"] for q in range(4)) == settings["s1->s2"]["buffer_bytes"]
    assert [settings[f"s1->s2/{q}"]["flows"] for q in range(4)] == [[f"{cca}-1"] for cca in CCAS]


def test_adaptive_raises_jain_and_says_why(dumbbell: Dumbbell) -> None:
    run = dumbbell("--queues", "adaptive", "--duration", "40s")
    decisions = controller_events(run, "decision")
    assert decisions.height >= 1
    first = json.loads(decisions["detail"][0])
    assert first["reason"].startswith("Jain 0.")
    assert set(first["rates_mbit"]) == {f"{cca}-1" for cca in CCAS}
    assert sum(first["guaranteed_mbit"].values()) == pytest.approx(20.0, abs=0.1)
    shared = dumbbell("--queues", "shared", "--duration", "40s")
    before, after = summarise(shared).jain_windowed_mean, summarise(run).jain_windowed_mean
    assert (after or 0) > (before or 1) + 0.2
    assert (summarise(run).jain or 0) > 0.95


def test_meters_hold_a_flow_at_its_rate(dumbbell: Dumbbell) -> None:
    run = dumbbell("--queues", "police:bbr=3mbit", "--duration", "20s")
    bbr = next(flow for flow in summarise(run).flows if flow.cca == "bbr")
    assert 0.85 * 3 <= (bbr.goodput_mbit or 0) * 1514 / 1448 <= 3.05


def test_priority_comes_first(dumbbell: Dumbbell) -> None:
    run = dumbbell("--queues", "priority:ndm_tcp", "--duration", "20s")
    assert shares(run)["ndm_tcp"] > 0.6


def test_a_change_of_policy_during_the_run_loses_nothing_that_waits(dumbbell: Dumbbell) -> None:
    """From shared, unfair, to per_cca: fair from then on; every packet that was queued leaves."""
    run = dumbbell("--queues-at", "15s=per_cca", "--duration", "40s")
    assert run.verdict == {"status": "valid", "reasons": []}
    changed = controller_events(run, "policy")
    assert changed["subject"].to_list() == ["per_cca"]
    t_s = changed["t_s"][0]
    assert 15.0 <= t_s < 15.01
    waiting, _ = around(run, "s1->s2", t_s)
    assert waiting["backlog_packets"] > 30
    missing = unaccounted(run)
    assert missing(20.0, 40.0) == pytest.approx(missing(5.0, 15.0), abs=10)
    per_second = sent_mbit(run, 20.0, 40.0)
    assert [round(per_second[f"s1->s2/{q}"]) for q in range(4)] == [5, 5, 5, 5]


def unaccounted(run: Run) -> Callable[[float, float], float]:
    """Return how many packets, on average over a time, were sent by hosts but neither left, wait, nor were dropped.

    These are on the hosts' own links, of 20 ms; were packets lost at the port uncounted, it would be more ever after.
    """
    sent = run.flows.group_by("t_s").agg(pl.col("segs_out").sum(), pl.len()).filter(pl.col("len") == 4)
    port = run.queues.filter(pl.col("queue_id") == "s1->s2").with_columns(
        (pl.col("sent_packets") + pl.col("drops") + pl.col("backlog_packets")).cast(pl.Int64).alias("counted")
    )
    both = sent.join(port, on="t_s").with_columns((pl.col("segs_out").cast(pl.Int64) - pl.col("counted")).alias("gap"))
    assert both.height > 700
    return lambda start_s, end_s: float(both.filter(pl.col("t_s").is_between(start_s, end_s))["gap"].mean())  # type: ignore[arg-type]


@pytest.mark.parametrize("aqm", ["fq_codel", "pie"])
def test_a_change_of_policy_keeps_the_aqm(dumbbell: Dumbbell, aqm: str) -> None:
    run = dumbbell("--queues-at", "5s=per_flow", "--aqm", aqm, "--buffer", "4bdp", *SHORT)
    assert run.verdict["status"] == "valid", run.verdict
    text = json.loads((run.raw / "tc.json").read_text())[""]
    leaves = [qdisc for qdisc in json.loads(text) if qdisc.get("parent", "").startswith("1:")]
    assert {qdisc["kind"] for qdisc in leaves} == {aqm}
    assert len(leaves) == 5  # four, and one on the way back


@pytest.mark.parametrize("policy", ["per_flow", "adaptive", "police"])
def test_the_same_seed_gives_the_same_record(dumbbell: Dumbbell, policy: str) -> None:
    options = ("--queues", policy, "--queues-at", "6s=weighted:cubic=2", *SHORT)
    assert dumbbell(*options).digest() == dumbbell(*options).digest()


@pytest.mark.parametrize("framework", ["ryu", "os-ken"])
def test_no_packet_asks_the_controller_and_none_is_lost_to_set_up(dumbbell: Dumbbell, framework: str) -> None:
    """Rules are there before the first packet: every flow's handshake takes one RTT, no SYN is sent twice."""
    run = dumbbell("--queues", "per_flow", "--framework", framework, *SHORT)
    assert json.loads(controller_events(run, "stopped")["detail"][0])["packet_ins"] == 0
    assert controller_events(run, "openflow_error").height == 0
    for _, flow in run.flows.group_by("flow_id"):
        early = flow.filter(pl.col("t_s") < 0.2).sort("t_s")
        assert early["bytes_acked"].max() > 0  # type: ignore[operator]  # a lost SYN would cost 1 s
        assert early["retrans_segments"].max() == 0


def test_forwarding_goes_on_without_the_controller_and_a_new_one_takes_over(dumbbell: Dumbbell) -> None:
    faults = ("--fault", "4s=kill-controller", "--fault", "8s=restart-controller")
    options = ("--queues", "per_cca", "--queues-at", "2s=per_flow", *SHORT)
    run, whole = dumbbell(*options, *faults), dumbbell(*options)
    assert run.verdict == {
        "status": "suspect",
        "reasons": ["the controller ended during the run (signal 9); forwarding went on as it was"],
    }
    lab = run.events.filter(pl.col("source") == "lab")
    assert [(round(t), kind) for t, kind in lab.select("t_s", "kind").iter_rows()] == [
        (4, "fault"),
        (4, "controller_ended"),
        (8, "fault"),
    ]
    starts = controller_events(run, "started")["t_s"].to_list()
    assert len(starts) == 2
    assert 8.0 <= starts[1] < 8.1
    assert controller_events(run, "policy").height == 1  # the second begins with the policy of its time
    assert [flow.share for flow in summarise(run).flows] == pytest.approx(
        [flow.share for flow in summarise(whole).flows], abs=0.02
    )


def test_without_openvswitch_the_run_has_crashed(tmp_path: Path) -> None:
    made = scenario(20.0, "per_cca", duration_s=10.0, warmup_s=2.0, faults=[{"at_s": 4.0, "what": "kill-vswitchd"}])
    with pytest.raises(FairbedError, match="ovs-vswitchd, ended during the run"):
        execute(made, tmp_path / "run", Where("lab"))
    run = Run.open(tmp_path / "run")
    assert run.outcome["status"] == "crashed"
    assert "ovs-vswitchd" in run.outcome["message"]
    assert run.flows["t_s"].max() == pytest.approx(4.0, abs=0.06)  # what was recorded is kept


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--queues", "fair"], "unknown queue policy 'fair': choose from shared"),
        (["--queues", "weighted:cubic=0"], "weight of cubic must be a number above 0"),
        (["--queues", "isolate:vegas"], "names 'vegas', which has no flow"),
        (["--queues", "police:bbr=50mbit"], "above s1->s2's rate of 20 Mbit/s"),
        (["--queues", "per_flow", "--buffer", "2packets"], "too small for 4 queues"),
        (["--queues-at", "per_cca"], "not TIME=WORD, such as 30s=per_cca"),
        (["--queues-at", "90s=per_cca"], "queues_at 90 s is not below duration_s 60"),
        (["--fault", "1s=eat-cables"], "faults"),
        (["--controller", "/nonexistent.py"], "No such file"),
        (
            ["--controller", "examples/my_controller.py", "--framework", "os-ken"],
            "imports ryu: it is run by --framework",
        ),
        (["--controller", "examples/my_controller.py", "--queues", "adaptive"], "adaptive moves our own rules"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    command: Callable[..., Any], tmp_path: Path, options: list[str], words: str
) -> None:
    done = command("experiments.dumbbell", "--out", tmp_path / "run", *options)
    assert done.status == 2
    assert words in done.stderr
    assert done.stderr.count("\n") <= 2
    assert not (tmp_path / "run").exists()


def test_a_students_controller_takes_the_place_of_ours(dumbbell: Dumbbell) -> None:
    """The documentation's example: its own forwarding, and our queues in its hands."""
    run = dumbbell("--controller", "examples/my_controller.py", "--queues", "per_flow", "--duration", "15s")
    assert run.verdict == {"status": "valid", "reasons": []}
    assert (summarise(run).jain or 0) >= 0.99
    assert json.loads(controller_events(run, "stopped")["detail"][0])["packet_ins"] > 0
    assert (run.raw / "application.py").read_text() == Path("examples/my_controller.py").read_text()


def test_a_wrong_application_ends_with_its_error(command: Callable[..., Any], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import no_such_module\n")
    options = ("--kernel", "lab", "--controller", wrong, "--duration", "5s", "--warmup", "1s")
    done = command("experiments.dumbbell", "--out", tmp_path / "run", *options)
    assert done.status == 1
    assert "No module named 'no_such_module'" in done.stderr


def test_128_hosts_are_ready_in_time(dumbbell: Dumbbell) -> None:
    options = ("--flows", "cubic:64", "--rate", "100mbit", "--buffer", "2bdp", "--queues", "per_flow")
    run = dumbbell(*options, "--duration", "2s", "--warmup", "1s")
    ready, started = (controller_events(run, kind)["t_s"][0] for kind in ("ready", "started"))
    assert ready - started < 5.0
    assert run.outcome["wall_s"]["controller"] < 30


BY_HAND = """
python -m controller --plan plan.json --events events.jsonl &
controller=$!
python -m lab.up plan.json <<'END'
sh sleep 3
py 'reply from ' + snd1.cmd('python3 ping.py 10.0.0.1')
sh tc qdisc show dev s1-eth1
END
kill $controller
wait $controller
echo "status $?"
ovs-vsctl --bare --columns=_uuid list qos -- --columns=_uuid list queue
ip -o link show type veth
"""
PING = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
    raw.settimeout(3)
    raw.sendto(bytes.fromhex("0800f7fd00010001"), (sys.argv[1], 0))
    print("host", raw.recv(100)[12:16])
"""


def test_network_and_controller_by_hand(tmp_path: Path) -> None:
    """The documentation's three commands: a plan, its network with a prompt, its controller; nothing is left."""
    (tmp_path / "by-hand.sh").write_text(BY_HAND)
    (tmp_path / "ping.py").write_text(PING)
    python = [sys.executable, "-m"]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    explained = subprocess.run(
        [*python, "experiments.dumbbell", "--queues", "per_cca", "--explain"], capture_output=True, check=True
    )
    (tmp_path / "plan.json").write_bytes(explained.stdout)
    inside = [*python, "lab", "run", "--openvswitch", "--clock", "virtual", "--", "sh", "by-hand.sh"]
    done = subprocess.run(inside, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert r"reply from host b'\n\x00\x00\x01'" in done.stderr  # where Mininet's prompt writes
    assert done.stdout.count("qdisc bfifo") == 4
    assert done.stdout.rstrip().endswith("status 0")  # and no QoS, no queue, no pair of interfaces after it
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert "ready" in kinds
    assert kinds[-1] == "stopped"
