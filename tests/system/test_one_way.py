"""Delay, loss and order in each direction by itself, on every family of topologies, in the lab kernel."""

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.plan import write as write_controller_plan
from lab.plan import make_plan
from lab.scenario import make_flows, make_scenario

pytestmark = pytest.mark.system

DATAGRAMS = 1000
SLACK_MS = 0.1

ASYMMETRIC = {
    "directed": True,
    "nodes": [
        {"id": "snd1", "role": "sender"},
        {"id": "rcv1", "role": "receiver"},
        {"id": "s1", "role": "switch"},
        {"id": "s2", "role": "switch"},
    ],
    "edges": [
        {"source": "snd1", "target": "s1", "rate_mbit": 20.0, "buffer_bytes": 100_000, "delay_ms": 10.0},
        {"source": "s1", "target": "s2", "delay_ms": 7.0, "loss_pct": 20.0},
        {"source": "s2", "target": "rcv1", "delay_ms": 1.0},
        {"source": "rcv1", "target": "s2", "delay_ms": 2.0},
        {"source": "s2", "target": "s1", "delay_ms": 30.0},
        {"source": "s1", "target": "snd1", "delay_ms": 5.0},
    ],
}
STILL = {"pairs": 1, "hops": 2, "loss_pct": 0.0}

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "dumbbell": ("dumbbell", {"pairs": 1, "rtt_ms": 40.0}),
    "parking_lot": ("parking_lot", {"hops": 2, "cross": 0, "hop_delay_ms": 4.0}),
    "satellite": ("satellite", {"pairs": 1}),
    "satellite_lossy": ("satellite", {"pairs": 1, "loss_pct": 10.0}),
    "wifi": ("wifi", STILL | {"jitter_ms": 0.0}),
    "wifi_late": ("wifi", STILL | {"jitter_ms": 2.0}),
    "wifi_overtaking": ("wifi", STILL | {"jitter_ms": 2.0, "reorder": True}),
    "leaf_spine": ("leaf_spine", {"pairs": 1, "hop_delay_ms": 2.0}),
    "asymmetric": ("graph_file", {}),
}

DELAYS_MS: dict[str, tuple[float, float]] = {
    "dumbbell": (20.0, 20.0),  # half the RTT at each host's egress
    "parking_lot": (13.0, 13.0),  # 5 + 2 * 4
    "satellite": (255.0, 255.0),  # 5 + 250
    "wifi": (16.0, 16.0),  # 10 + 2 * 3
    "leaf_spine": (4.1, 4.1),  # 0.1 + 2 * 2
    "asymmetric": (18.0, 37.0),  # 10 + 7 + 1, 2 + 30 + 5
}
"""One way, there and back, where nothing varies."""

LOSSES: dict[str, tuple[float, float]] = {"satellite_lossy": (0.1, 0.1), "asymmetric": (0.2, 0.0)}

Arrivals = dict[str, dict[str, list[tuple[int, float]]]]


@pytest.fixture(scope="module")
def arrivals(command: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Arrivals:
    """Return what arrived in each network, all of them built one after the other in one lab kernel."""
    place, runs = tmp_path_factory.mktemp("one-way"), tmp_path_factory.mktemp("networks")
    (place / "asymmetric.json").write_text(json.dumps(ASYMMETRIC))
    for name, (topology, params) in NETWORKS.items():
        path = {"path": str(place / "asymmetric.json")} if topology == "graph_file" else {}
        scenario = make_scenario(
            name=name, topology=topology, params=params | path, flows=make_flows(["cubic"]), duration_s=5.0,
            warmup_s=0.0, seed=1,
        )  # fmt: skip
        plan = make_plan(scenario) | {"framework": "ryu"}
        (runs / name / "raw").mkdir(parents=True)
        (runs / name / "raw" / "plan.json").write_text(json.dumps(plan))
        write_controller_plan(runs / name / "raw" / "controller.json", plan["controller"])
    inside = ("env", f"PYTHONPATH={Path(__file__).resolve().parents[2]}", sys.executable)
    probe = Path(__file__).with_name("one_way_probe.py")
    done = command("lab", "run", "--openvswitch", "--clock", "virtual", "--writable", runs, "--", *inside, probe, runs)
    assert done.status == 0, done.stderr
    found: Arrivals = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", DELAYS_MS)
def test_each_direction_has_its_own_delay(arrivals: Arrivals, name: str) -> None:
    for way, delay_ms in zip(("there", "back"), DELAYS_MS[name], strict=True):
        measured = [delay for _, delay in arrivals[name][way]]
        assert delay_ms <= min(measured) and max(measured[10:]) < delay_ms + SLACK_MS


@pytest.mark.parametrize("name", NETWORKS)
def test_each_direction_has_its_own_loss(arrivals: Arrivals, name: str) -> None:
    """Within four deviations where there is any, exactly none where there is none."""
    for way, share in zip(("there", "back"), LOSSES.get(name, (0.0, 0.0)), strict=True):
        lost = DATAGRAMS - len(arrivals[name][way])
        assert abs(lost - share * DATAGRAMS) <= 4 * (DATAGRAMS * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("name", NETWORKS)
def test_packets_keep_their_order_unless_they_may_overtake(arrivals: Arrivals, name: str) -> None:
    for way in ("there", "back"):
        numbers = [number for number, _ in arrivals[name][way]]
        overtaken = sum(later < earlier for earlier, later in itertools.pairwise(numbers))
        assert (overtaken > 50) if name == "wifi_overtaking" else (overtaken == 0)


def test_late_packets_are_as_late_as_the_jitter_says(arrivals: Arrivals) -> None:
    """Two hops of 3 ms, each 2 ms more or less: 12 to 20 ms with the host's 10, later only behind a later one."""
    delays = [delay for _, delay in arrivals["wifi_overtaking"]["there"]]
    assert 12.0 <= min(delays) < 13.0
    assert 19.0 < max(delays) < 20.0 + SLACK_MS
