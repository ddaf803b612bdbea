"""The main job in the lab kernel: is what the network did what the scenario says?"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis import Run, summarise
from lab.record import FLOWS, QUEUES
from tests.system.conftest import CHECKOUT, KERNEL

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

RATE_MBIT = 20.0
PAYLOAD_SHARE = 1448 / 1514
"""Of a full frame as the shaper counts it: 1500 bytes of IP and 14 of Ethernet, 52 of them IP and TCP headers."""
AT_MOST = 1.03
"""Of the rate, in a few seconds: what came before them, behind a lost packet, may be acknowledged in them. That is at
most what the path and its buffer hold, 200 kB, of the 7.5 MB of three seconds."""
BUFFER_BYTES = 100_000  # 20 Mbit/s x 40 ms / 8
REAL = KERNEL == "host"
"""On a host's kernel and its real clock, which never is as exact, and which other processes disturb."""
RTT_TOLERANCE = 0.03 if REAL else 0.01
START_TOLERANCE_S = 0.05 if REAL else 0.002  # epoll rounds up to whole ms
TORN_SHARE = 0.02 if REAL else 0.0
"""Of the samples, in which a packet came or went between the kernel's readings of two counters."""
CCAS = {"ndm_tcp", "cubic", "reno", "bbr"}

Dumbbell = Callable[..., Run]


def trusted(run: Run) -> bool:
    """Say whether the verdict is what it has to be; a busy machine may make a run on a real clock suspect."""
    return run.verdict["status"] in ("valid", "suspect" if REAL else "valid")


def test_the_verdict_is_valid(main_job: Run) -> None:
    assert trusted(main_job), main_job.verdict
    assert main_job.outcome["status"] == "complete"


def test_every_flow_ran_its_own_algorithm_all_the_time(main_job: Run) -> None:
    assert set(main_job.flows["cca"]) == CCAS
    starts = main_job.events.filter(pl.col("source") == "flow", pl.col("kind") == "start")
    assert {json.loads(detail)["cca"] for detail in starts["detail"]} == CCAS  # as the kernel read it back
    for _, flow in main_job.flows.group_by("flow_id"):
        # 60 s every 50 ms; the first sample finds no socket yet, unless it is late
        assert 60 * 20 <= flow.height <= 60 * 20 + REAL


def test_the_algorithms_own_state_is_recorded(main_job: Run) -> None:
    bbr = main_job.flows.filter(pl.col("cca") == "bbr", pl.col("t_s") > 5)
    assert bbr["bbr_min_rtt_ms"].min() == pytest.approx(40.0, abs=2.0)
    assert bbr["bbr_bw_mbit"].max() <= 1.1 * RATE_MBIT  # type: ignore[operator]
    ndm = main_job.flows.filter(pl.col("cca") == "ndm_tcp")
    assert set(ndm["ndm_entropy"].drop_nulls()) <= {0, 1000}  # the published entropy has two values
    begun = ndm.filter(pl.col("t_s") > 0.09)  # with the first acknowledgement, a round trip after the start
    assert begun["ndm_plasticity"].is_between(100, 1000).all()
    reno = main_job.flows.filter(pl.col("cca") == "reno")
    assert reno["ndm_entropy"].null_count() == reno.height


def test_goodputs_add_up_to_the_bottleneck(main_job: Run) -> None:
    total = sum(flow.goodput_mbit or 0 for flow in summarise(main_job).flows)
    assert 0.92 <= total / (RATE_MBIT * PAYLOAD_SHARE) <= 1.0


def test_idle_rtt_is_the_configured_one(main_job: Run) -> None:
    measured = main_job.info["environment"]["idle_rtt_ms"]
    assert set(measured) == {path for path in main_job.paths}
    for rtt_ms in measured.values():
        assert rtt_ms == pytest.approx(40.0, rel=RTT_TOLERANCE)


def test_the_queue_fills_to_its_buffer_and_never_beyond(main_job: Run) -> None:
    largest = main_job.queues.filter(pl.col("queue_id") == "s1->s2")["backlog_bytes"].max()
    assert BUFFER_BYTES - 1514 < largest <= BUFFER_BYTES  # type: ignore[operator]


def test_queued_packets_have_the_wires_size(main_job: Run) -> None:
    full = main_job.queues.filter(pl.col("queue_id") == "s1->s2", pl.col("backlog_packets") > 20)
    per_packet = full["backlog_bytes"] / full["backlog_packets"]
    assert (per_packet > 1514).mean() <= TORN_SHARE  # type: ignore[operator]  # offloads are off


def test_the_bottleneck_is_where_all_drops_are(main_job: Run) -> None:
    state = json.loads((main_job.raw / "tc.json").read_text())
    qdiscs = [qdisc for text in state.values() for qdisc in json.loads(text)]
    assert {qdisc["kind"] for qdisc in qdiscs} >= {"netem", "htb", "bfifo"}
    dropping = {qdisc["dev"]: qdisc["drops"] for qdisc in qdiscs if qdisc["kind"] != "htb" and qdisc.get("drops")}
    bottleneck = next(
        probe["qdisc"]["interface"] for probe in plan(main_job)["probes"] if probe.get("queue_id") == "s1->s2"
    )
    assert set(dropping) == {bottleneck}
    lost = main_job.flows.group_by("flow_id").agg(pl.col("retrans_segments").max())["retrans_segments"].sum()
    # every retransmission repairs a drop, but for the last ones, which may not have been sent again yet
    assert lost == pytest.approx(dropping[bottleneck], rel=0.1)


def test_receivers_have_what_was_acknowledged_and_no_more_than_was_sent(main_job: Run) -> None:
    number = {name: main_job.flows[name].cast(pl.Int64) for name in main_job.flows.columns if name.startswith("bytes_")}
    new = number["bytes_sent"] - number["bytes_retrans"]
    assert (number["bytes_received"] - number["bytes_acked"]).min() == -1  # the kernel counts the SYN as a byte
    assert (new - number["bytes_received"]).min() >= 0  # type: ignore[operator]
    assert number["bytes_received"].max() > 1e7  # type: ignore[operator]


def test_no_packet_asked_the_controller(main_job: Run) -> None:
    stopped = main_job.events.filter(pl.col("source") == "controller", pl.col("kind") == "stopped")
    assert json.loads(stopped["detail"][0])["packet_ins"] == 0


def plan(run: Run) -> dict[str, Any]:
    return dict(json.loads((run.raw / "plan.json").read_text()))


def test_figures_and_tables_are_written(main_job: Run) -> None:
    figures = {path.name for path in (main_job.path / "figures").iterdir()}
    assert figures >= {
        f"{name}.{kind}" for name in ("goodput", "cwnd", "rtt", "backlog", "jain") for kind in ("png", "svg")
    }
    for name in ("flows", "queues", "events"):
        assert (main_job.path / f"{name}.parquet").stat().st_size > 0
    assert main_job.flows.schema == FLOWS.schema
    assert main_job.queues.schema == QUEUES.schema


@pytest.mark.virtual
def test_the_same_seed_gives_the_same_record_with_the_other_core_busy(main_job: Run, dumbbell: Dumbbell) -> None:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        again = dumbbell()
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert again.digest() == main_job.digest()


@pytest.mark.virtual
def test_another_checkout_gives_the_same_record(main_job: Run, tmp_path: Path) -> None:
    # what differs: how deep every path is, what else lies about, where temporary files are
    checkout = tmp_path / "an other" / "checkout é"
    skipped = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", ".hypothesis", "runs")
    shutil.copytree(CHECKOUT, checkout, symlinks=True, ignore=skipped)
    for number in range(5):
        (checkout / f"stray{number}").touch()
    (tmp_path / "temporary").mkdir()
    argv = [sys.executable, "-m", "experiments.dumbbell", "--kernel", "lab", "--out", str(checkout / "run"), "--json"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    done = subprocess.run(argv, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Run.open(checkout / "run").digest() == main_job.digest()


@pytest.mark.virtual
def test_another_seed_gives_another_record(main_job: Run, dumbbell: Dumbbell) -> None:
    assert dumbbell("--seed", 2).flows.drop("t_s").equals(main_job.flows.drop("t_s")) is False


def test_digest_prints_the_records_hash(main_job: Run, command: Callable[..., object]) -> None:
    done = command("analysis", "digest", main_job.path)
    assert done.stdout.split() == [main_job.digest(), str(main_job.path)]  # type: ignore[attr-defined]


@pytest.mark.virtual
def test_repeats_are_side_by_side_and_the_same_as_alone(
    command: Callable[..., object], dumbbell: Dumbbell, tmp_path: Path
) -> None:
    options = ("--flows", "cubic:1,bbr:1", "--duration", "5s", "--warmup", "1s")
    done = command("experiments.dumbbell", "--kernel", "lab", *options, "--repeats", 3, "--out", tmp_path / "repeats")
    assert done.status == 0, done.stderr  # type: ignore[attr-defined]
    digests = [Run.open(tmp_path / "repeats" / f"seed{seed}").digest() for seed in (1, 2, 3)]
    assert len(set(digests)) == 3
    assert dumbbell(*options, "--seed", 2).digest() == digests[1]


@pytest.mark.parametrize("aqm", ["fq_codel", "codel", "pie", "cake", "fq", "red"])
def test_each_aqm_carries_traffic_and_holds_its_bottleneck(dumbbell: Dumbbell, aqm: str) -> None:
    run = dumbbell("--flows", "cubic:2", "--duration", "6s", "--warmup", "2s", "--aqm", aqm, "--buffer", "4bdp")
    kinds = {
        qdisc["kind"] for text in json.loads((run.raw / "tc.json").read_text()).values() for qdisc in json.loads(text)
    }
    assert aqm in kinds
    assert trusted(run), run.verdict
    total = sum(flow.goodput_mbit or 0 for flow in summarise(run).flows)
    assert 0.6 <= total / (RATE_MBIT * PAYLOAD_SHARE) <= AT_MOST


def test_fq_codel_keeps_the_delay_that_a_fifo_lets_grow(dumbbell: Dumbbell) -> None:
    delays = {
        aqm: summarise(dumbbell("--flows", "cubic:2", "--duration", "10s", "--buffer", "4bdp", "--aqm", aqm)).queues[0]
        for aqm in ("fifo", "fq_codel")
    }
    assert delays["fq_codel"].delay_p95_ms < 0.5 * delays["fifo"].delay_p95_ms  # type: ignore[operator]


def test_an_aqm_tells_its_own_delay_and_marks(dumbbell: Dumbbell) -> None:
    run = dumbbell("--flows", "cubic:2", "--duration", "8s", "--warmup", "2s", "--aqm", "codel", "--buffer", "4bdp")
    (queue,) = summarise(run).queues
    # both look at one queue: bytes waiting ÷ rate at a sample, and what the packet dequeued last has waited
    assert queue.sojourn_p50_ms == pytest.approx(queue.delay_p50_ms, rel=0.5, abs=2.0)
    assert run.queues.filter(pl.col("queue_id") == "s1->s2")["ecn_marks"].max() == 0  # no flow asked for ECN


def test_flows_start_one_after_the_other(dumbbell: Dumbbell) -> None:
    run = dumbbell("--flows", "cubic:1,reno:1,bbr:1", "--start-gap", "2s", "--duration", "8s", "--warmup", "1s")
    starts = run.events.filter(pl.col("source") == "flow", pl.col("kind") == "start")
    assert starts["t_s"].to_list() == pytest.approx([0.0, 2.0, 4.0], abs=START_TOLERANCE_S)
    first_seen = {name: flow["t_s"].min() for (name,), flow in run.flows.group_by("flow_id")}
    assert first_seen["bbr-1"] == pytest.approx(4.05, abs=0.051)


def test_iperf3_as_the_generator(dumbbell: Dumbbell) -> None:
    run = dumbbell("--flows", "cubic:1,bbr:1", "--generator", "iperf3", "--duration", "8s", "--warmup", "2s")
    total = sum(flow.goodput_mbit or 0 for flow in summarise(run).flows)
    assert 0.92 <= total / (RATE_MBIT * PAYLOAD_SHARE) <= AT_MOST
    for flow_id in ("cubic-1", "bbr-1"):
        report = json.loads((run.raw / f"{flow_id}-iperf3-client.json").read_text())
        assert report["end"]["sender_tcp_congestion"] == flow_id.split("-")[0]


def test_os_ken_runs_the_same_controller(dumbbell: Dumbbell) -> None:
    options = ("--flows", "cubic:1", "--duration", "3s", "--warmup", "1s", "--framework", "os-ken")
    run = dumbbell(*options)
    started = run.events.filter(pl.col("source") == "controller", pl.col("kind") == "started")
    assert json.loads(started["detail"][0])["framework"] == "os-ken"
    assert trusted(run), run.verdict


def test_the_lab_on_the_real_clock(dumbbell: Dumbbell) -> None:
    run = dumbbell("--flows", "cubic:1", "--duration", "4s", "--warmup", "1s", "--clock", "real")
    assert run.info["environment"]["clock"] == "real"
    total = sum(flow.goodput_mbit or 0 for flow in summarise(run).flows)
    assert 0.8 <= total / (RATE_MBIT * PAYLOAD_SHARE) <= AT_MOST
