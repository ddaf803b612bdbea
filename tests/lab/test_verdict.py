"""The verdict: each fault alone must change it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lab import verdict
from lab.netem import Netem
from lab.record import EVENTS, FLOWS, QUEUES, Run

PLAN: dict[str, Any] = {
    "flows": [{"flow_id": "cubic-1"}],
    "paths": {"cubic-1": {"base_rtt_ms": 40.0}},
    "queues": {"s1->s2": {"buffer_bytes": 100_000, "aqm": "fifo"}},
}
FACTS = {"idle_rtt_ms": {"cubic-1": 40.02}}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create(tmp_path / "run")
    made.write_tables(
        flows=pl.DataFrame([{"t_s": 0.0, "flow_id": "cubic-1", "cca": "cubic"}], schema=dict(FLOWS.schema)),
        queues=pl.DataFrame([{"t_s": 0.0, "queue_id": "s1->s2", "backlog_bytes": 100_000}], schema=dict(QUEUES.schema)),
        events=pl.DataFrame([], schema=dict(EVENTS.schema)),
    )
    return made


def judge(run: Run, **changes: Any) -> tuple[str, list[str]]:
    given: dict[str, Any] = {
        "plan": PLAN,
        "facts": FACTS,
        "lateness_ns": [0] * 100,
        "faults": [],
        "complete": True,
    } | changes
    return verdict.judge(given["plan"], run, given["facts"], given["lateness_ns"], given["faults"], given["complete"])


def test_a_run_without_fault_is_valid(run: Run) -> None:
    assert judge(run) == ("valid", [])


def test_an_unfinished_run_is_invalid(run: Run) -> None:
    assert judge(run, complete=False) == ("invalid", ["the run did not finish"])


@pytest.mark.parametrize(("measured", "status"), [(40.59, "valid"), (40.7, "invalid"), (39.3, "invalid")])
def test_idle_rtt_must_be_the_configured_one(run: Run, measured: float, status: str) -> None:
    assert judge(run, facts={"idle_rtt_ms": {"cubic-1": measured}})[0] == status  # 1 % of 40 ms and 0.2 ms


def test_more_backlog_than_the_buffer_is_invalid(run: Run) -> None:
    plan = PLAN | {"queues": {"s1->s2": {"buffer_bytes": 99_999, "aqm": "fifo"}}}
    assert judge(run, plan=plan) == ("invalid", ["queue s1->s2: backlog 100000 bytes, above its buffer of 99999"])


def test_of_a_port_with_several_queues_each_has_its_own_buffer(run: Run) -> None:
    own = {"buffer_bytes": 50_000, "aqm": "fifo"}
    queues = {"s1->s2": own, "s1->s2/0": own | {"port": "s1->s2"}}
    assert judge(run, plan=PLAN | {"queues": queues}) == ("valid", [])


def test_a_drop_by_netem_is_invalid(run: Run) -> None:
    qdiscs = [{"kind": "netem", "dev": "snd1-eth0", "drops": 3}, {"kind": "bfifo", "dev": "s1-eth1", "drops": 900}]
    (run.raw / "tc.json").write_text(json.dumps({"snd1": json.dumps(qdiscs)}))
    assert judge(run) == ("invalid", ["netem on snd1-eth0 dropped 3 packets"])


def test_a_flow_that_was_never_seen_is_invalid(run: Run) -> None:
    plan = PLAN | {"flows": [{"flow_id": "cubic-1"}, {"flow_id": "bbr-1"}]}
    assert judge(run, plan=plan) == ("invalid", ["flow bbr-1 was never seen"])


def test_late_samples_make_a_run_suspect(run: Run) -> None:
    assert judge(run, lateness_ns=[6_000_000] + [0] * 99)[0] == "valid"  # one in a hundred may be
    status, reasons = judge(run, lateness_ns=[6_000_000, 7_500_000] + [0] * 98)
    assert (status, reasons) == ("suspect", ["2 of 100 samples were more than 5 ms late, at most 7.5 ms"])
    assert judge(run, lateness_ns=[300_000_000] + [0] * 999)[0] == "suspect"  # one, but it all had stopped


def test_invalid_outweighs_suspect_and_keeps_its_reasons(run: Run) -> None:
    status, reasons = judge(run, faults=["the controller ended"], complete=False)
    assert (status, reasons) == ("invalid", ["the run did not finish", "the controller ended"])


def lossy(**settings: Any) -> dict[str, Any]:
    netem = Netem(delay_us=10_000.0, limit=10_000, **settings)
    return {"edge": "s1->s2", "node": None, "interface": "wire1v0", "settings": asdict(netem), "seed": 1}


@pytest.mark.parametrize(
    ("settings", "drops", "status"),
    [
        ({"loss_pct": 1.0}, 1000, "valid"),
        ({"loss_pct": 1.0}, 1150, "valid"),  # five deviations are 157
        ({"loss_pct": 1.0}, 1170, "invalid"),
        ({"loss_pct": 1.0}, 0, "invalid"),
        ({"gemodel": (1.0, 19.0, 100.0, 0.0)}, 5000, "valid"),  # p / (p + r) = 5 %
        ({"gemodel": (1.0, 19.0, 100.0, 0.0)}, 5900, "valid"),  # five deviations are 1034
        ({"gemodel": (1.0, 19.0, 100.0, 0.0)}, 6100, "invalid"),
        ({"jitter_us": 5.0}, 1, "invalid"),
    ],
)
def test_a_link_that_is_to_lose_packets_must_lose_its_share(
    run: Run, settings: dict[str, Any], drops: int, status: str
) -> None:
    qdiscs = [{"kind": "netem", "dev": "wire1v0", "drops": drops, "packets": 100_000 - drops}]
    (run.raw / "tc.json").write_text(json.dumps({"": json.dumps(qdiscs)}))
    assert judge(run, plan=PLAN | {"seeds": [lossy(**settings)]})[0] == status


def test_a_link_whose_loss_changes_is_not_judged_by_its_drops(run: Run) -> None:
    (run.raw / "tc.json").write_text(json.dumps({"": json.dumps([{"kind": "netem", "dev": "wire1v0", "drops": 9}])}))
    assert judge(run, plan=PLAN | {"events": [{"netem": lossy(loss_pct=100.0)}]})[0] == "valid"


@pytest.mark.parametrize(
    ("settings", "measured", "status"),
    [
        ({"jitter_us": 2000.0}, 37.5, "valid"),
        ({"jitter_us": 2000.0}, 37.3, "invalid"),  # 40 - 2 - 0.6
        ({"jitter_us": 2000.0, "distribution": "normal"}, 31.5, "valid"),
        ({"slot": (5_000_000, 0, 0, 0)}, 45.5, "valid"),
        ({"slot": (5_000_000, 0, 0, 0)}, 39.0, "invalid"),
    ],
)
def test_idle_rtt_may_vary_as_its_links_do(run: Run, settings: dict[str, Any], measured: float, status: str) -> None:
    paths = {"cubic-1": {"base_rtt_ms": 40.0, "nodes": ["snd1", "s1", "s2", "rcv1"]}}
    queues = {"s1->s2": {"buffer_bytes": 100_000, "aqm": "fifo", "rate_mbit": 1000.0}}
    plan = PLAN | {"paths": paths, "queues": queues, "seeds": [lossy(**settings)]}
    assert judge(run, plan=plan, facts={"idle_rtt_ms": {"cubic-1": measured}})[0] == status


def test_a_slow_link_takes_time_for_a_ping(run: Run) -> None:
    paths = {"cubic-1": {"base_rtt_ms": 40.0, "nodes": ["snd1", "s1", "s2", "rcv1"]}}
    queues = {"s1->s2": {"buffer_bytes": 100_000, "aqm": "fifo", "rate_mbit": 0.1}}
    plan = PLAN | {"paths": paths, "queues": queues}
    assert judge(run, plan=plan, facts={"idle_rtt_ms": {"cubic-1": 47.84}})[0] == "valid"  # 98 bytes at 100 kbit/s


def test_a_rate_that_is_not_the_configured_one_makes_a_run_suspect(run: Run) -> None:
    queue = {"buffer_bytes": 100_000, "aqm": "fifo", "rate_mbit": 20.0}
    path = {"base_rtt_ms": 40.0, "bottleneck": "s1->s2", "nodes": ["snd1", "s1", "s2", "rcv1"]}
    plan = PLAN | {"queues": {"s1->s2": queue}, "paths": {"cubic-1": path}}
    assert judge(run, plan=plan, facts=FACTS | {"rate_mbit": {"s1->s2": 20.19}})[0] == "valid"
    status, reasons = judge(run, plan=plan, facts=FACTS | {"rate_mbit": {"s1->s2": 20.21}})
    assert (status, reasons) == ("suspect", ["bottleneck s1->s2: 20.210 Mbit/s before the flows, configured 20.000"])


@pytest.mark.parametrize(
    ("large", "status"),
    [(1, "valid"), (3, "invalid")],  # of 100 samples: the kernel reads one counter after the other
)
def test_packets_above_the_mtu_make_a_run_invalid(run: Run, large: int, status: str) -> None:
    row = {"t_s": 0.0, "queue_id": "s1->s2", "backlog_bytes": 1514 * 3, "backlog_packets": 3}
    rows = [row | ({"backlog_bytes": 2900, "backlog_packets": 1} if k < large else {}) for k in range(100)]
    run.write_tables(queues=pl.DataFrame(rows, schema=dict(QUEUES.schema)))
    reasons = ["queue s1->s2: packets above the MTU in 3% of the samples with any"] if status == "invalid" else []
    assert judge(run) == (status, reasons)


@pytest.mark.parametrize(
    ("idle", "clock", "status"), [(6, "real", "valid"), (4, "real", "suspect"), (0, "virtual", "valid")]
)
def test_busy_processors_make_a_real_clocks_run_suspect(run: Run, idle: int, clock: str, status: str) -> None:
    run.write_info({"environment": {"clock": clock}})
    (run.raw / "cpu.json").write_text(json.dumps([[0] * 8, [100 - idle, 0, 0, idle, 0, 0, 0, 0]]))
    assert judge(run)[0] == status


@pytest.mark.parametrize(
    ("clock", "slept_s", "found"),
    [
        ("real", 12.34, ["this machine was suspended for 12.3 s during the run"]),
        ("real", 0.0, []),
        ("virtual", 9.0, []),
    ],
)
def test_a_machine_that_slept_makes_a_real_clocks_run_suspect(clock: str, slept_s: float, found: list[str]) -> None:
    assert verdict.sleep_problems(clock, slept_s) == found
