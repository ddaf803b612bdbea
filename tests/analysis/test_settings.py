"""Settings asked for and read back: what is compared with what, and what counts as different."""

import json
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.settings import Setting, settings
from lab.record import Run
from tests.analysis.synthetic_runs import MakeRun

PORT = {
    "port": "s1-eth2",
    "queues": {"0": {"min_rate_bit": 20_000_000, "max_rate_bit": 20_000_000, "burst_bytes": 1514}},
}
PLAN: dict[str, Any] = {
    "topo": {
        "links": [
            {"node1": "s1", "node2": "snd1", "intfName1": "s1-eth1", "intfName2": "snd1-eth0"},
            {"node1": "s1", "node2": "s2", "intfName1": "s1-eth2", "intfName2": "s2-eth1"},
        ]
    },
    "links": ["link add name s1-eth2 type veth peer name wire1u0", "link add name s2-eth1 type veth peer name wire1v0"],
    "nodes": {
        "snd1": {"tc": ["qdisc add dev snd1-eth0 root handle 1: netem delay 20000us limit 10067"]},
        "s1": {"tc": ["qdisc add dev wire1v0 root handle 1: netem delay 5000us limit 10017 loss 1%"]},
    },
    "seeds": [{"interface": "wire1v0", "settings": {"delay_us": 5000.0, "loss_pct": 1.0}}],
    "events": [],
    "leaves": [],
    "controller": {
        "at_s": 0.0,
        "queues": [PORT],
        "leaves": ["qdisc replace dev s1-eth2 parent 1:1 handle 10: codel limit 66 target 2500us ecn"],
        "adaptive": None,
        "later": [],
    },
}
NETEM = {"delay": {"delay": 0.02, "jitter": 0}}
LOSSY = {"delay": {"delay": 0.005, "jitter": 0}, "loss-random": {"loss": 0.01}}
CODEL = {"limit": 66, "target": 2499, "interval": 99_999, "ecn": True}


def record(run: Run, plan: dict[str, Any] = PLAN, codel: dict[str, Any] = CODEL, rate_bit: int = 20_000_000) -> Run:
    """Give a run what its plan was and what the kernel said."""
    switches = [
        {"kind": "codel", "dev": "s1-eth2", "parent": "1:1", "options": codel},
        {"kind": "netem", "dev": "wire1v0", "root": True, "options": LOSSY},
    ]
    host = [{"kind": "netem", "dev": "snd1-eth0", "root": True, "options": NETEM}]
    classes = {"s1-eth2": {"1:1": {"rate_bit": rate_bit, "ceil_bit": rate_bit, "burst_bytes": 1564}}}
    said = {"plan": plan, "tc": {"": json.dumps(switches), "snd1": json.dumps(host)}, "classes": classes}
    for name, content in said.items():
        (run.raw / f"{name}.json").write_text(json.dumps(content))
    return run


def test_each_value_is_beside_what_the_kernel_said(make_run: MakeRun) -> None:
    assert settings(record(make_run({"cubic-1": 1.0}))) == [
        Setting("s1->s2", "s1-eth2", "1:1 htb rate", 20.0, 20.0, "Mbit/s"),
        Setting("s1->s2", "s1-eth2", "1:1 htb ceil", 20.0, 20.0, "Mbit/s"),
        Setting("s1->s2", "s1-eth2", "1:1 htb burst", 1514, 1564, "B"),
        Setting("s1->s2", "s1-eth2", "1:1 codel limit", 66.0, 66.0, ""),
        Setting("s1->s2", "s1-eth2", "1:1 codel target", 2500.0, 2499.0, "us"),
        Setting("s1->s2", "s1-eth2", "1:1 codel ecn", 1.0, 1.0, ""),
        Setting("s1->s2", "wire1v0", "netem delay", 5.0, 5.0, "ms"),
        Setting("s1->s2", "wire1v0", "netem loss", 1.0, 1.0, "%"),
        Setting("snd1->s1", "snd1-eth0", "netem delay", 20.0, 20.0, "ms"),
    ]


def test_the_last_change_is_what_counts(make_run: MakeRun) -> None:
    """An event's rate and delay, a later policy's leaf."""
    slower = {"min_rate_bit": 5_000_000, "max_rate_bit": 5_000_000, "burst_bytes": 1514}
    events = [
        {"t_s": 9.0, "rate": {"port": PORT | {"queues": {"0": slower}}}},
        {"t_s": 9.0, "netem": {"interface": "wire1v0", "settings": {"delay_us": 7000.0}}},
    ]
    leaf = "qdisc replace dev s1-eth2 parent 1:1 handle 10: codel limit 33 target 2500us ecn"
    later = [{"at_s": 5.0, "queues": [PORT], "leaves": [leaf], "adaptive": None}]
    plan = PLAN | {"events": events, "controller": PLAN["controller"] | {"later": later}}
    found = {(one.interface, one.name): one for one in settings(record(make_run({"cubic-1": 1.0}), plan))}
    assert found["s1-eth2", "1:1 htb rate"].asked == 5.0
    assert found["s1-eth2", "1:1 codel limit"].asked == 33.0
    assert found["wire1v0", "netem delay"].asked == 7.0
    assert all(found[key].differs for key in found if found[key].asked in (5.0, 33.0, 7.0))
    plan["controller"]["later"][0]["at_s"] = 10.0
    found = {(one.interface, one.name): one for one in settings(record(make_run({"cubic-1": 1.0}, name="b"), plan))}
    assert found["s1-eth2", "1:1 htb rate"].asked == 20.0


@pytest.mark.parametrize(
    ("codel", "rate_bit", "name"),
    [
        (CODEL | {"limit": 60}, 20_000_000, "1:1 codel limit"),
        (CODEL | {"target": 5000}, 20_000_000, "1:1 codel target"),
        ({"limit": 66, "target": 2499}, 20_000_000, "1:1 codel ecn"),
    ],
)
def test_what_differs_is_marked(make_run: MakeRun, codel: dict[str, Any], rate_bit: int, name: str) -> None:
    run = record(make_run({"cubic-1": 1.0}), codel=codel, rate_bit=rate_bit)
    assert [one.name for one in settings(run) if one.differs] == [name]


def test_what_the_controller_decides_is_not_asked_for(make_run: MakeRun) -> None:
    adaptive = {"ports": [{"port": "s1-eth2"}]}
    plan = PLAN | {"controller": PLAN["controller"] | {"adaptive": adaptive}}
    found = settings(record(make_run({"cubic-1": 1.0}), plan, rate_bit=1_000_000))
    assert {one.asked for one in found if one.interface == "s1-eth2"} == {None}
    assert not any(one.differs for one in found)


def test_the_command_prints_a_table_and_how_many_differ(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = record(make_run({"cubic-1": 1.0}), codel=CODEL | {"limit": 60})
    assert main(["explain", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert "differs" in shown and "1 of 9 values differ from what was asked for" in shown


def test_a_run_without_the_kernels_words_is_refused(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = record(make_run({"cubic-1": 1.0}))
    (run.raw / "classes.json").unlink()
    assert main(["explain", str(run.path)]) != 0
    assert "raw/classes.json can't be read" in capsys.readouterr().err
