"""Is the run to be trusted? What the network did is held against what it was to do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl

from lab.record import Run

Status = Literal["valid", "suspect", "invalid"]

RTT_TOLERANCE = 0.01
"""Relative difference of idle and configured RTT, plus `RTT_SLACK_MS`, that is still right."""
RTT_SLACK_MS = 0.2
"""Transmission of a ping at the bottleneck, and a switch's work on a real clock."""

LATE_NS = 5_000_000
LATE_SHARE = 0.01
"""A run is suspect when more than this share of its samples was more than LATE_NS late."""


def judge(
    plan: Mapping[str, Any],
    run: Run,
    facts: Mapping[str, Any],
    lateness_ns: Sequence[int],
    faults: Sequence[str],
    complete: bool,
) -> tuple[Status, list[str]]:
    """Return the verdict and its reasons: invalid outweighs suspect, suspect outweighs valid."""
    invalid = [] if complete else ["the run did not finish"]
    invalid += rtt_problems(plan["paths"], facts.get("idle_rtt_ms", {}))
    invalid += backlog_problems(plan["queues"], run.queues)
    invalid += drop_problems(run)
    invalid += flow_problems(plan, run)
    suspect = [*faults, *lateness_problems(lateness_ns)]
    if invalid:
        return "invalid", invalid + suspect
    return ("suspect", suspect) if suspect else ("valid", [])


def rtt_problems(paths: Mapping[str, Any], idle_rtt_ms: Mapping[str, float]) -> list[str]:
    """Return the flows whose idle round-trip time isn't the configured one."""
    return [
        f"flow {flow_id}: idle RTT {measured:.3f} ms, configured {paths[flow_id]['base_rtt_ms']:.3f} ms"
        for flow_id, measured in idle_rtt_ms.items()
        if abs(measured - paths[flow_id]["base_rtt_ms"]) > RTT_TOLERANCE * paths[flow_id]["base_rtt_ms"] + RTT_SLACK_MS
    ]


def backlog_problems(queues: Mapping[str, Any], table: pl.DataFrame) -> list[str]:
    """Return the queues that once held more than their buffer."""
    largest = dict(table.group_by("queue_id").agg(pl.col("backlog_bytes").max()).iter_rows())
    return [
        f"queue {name}: backlog {largest[name]} bytes, above its buffer of {queue['buffer_bytes']}"
        for name, queue in queues.items()
        if queue["aqm"] == "fifo" and largest.get(name, 0) > queue["buffer_bytes"]
    ]


def drop_problems(run: Run) -> list[str]:
    """Return the qdiscs other than the bottlenecks' leaves that dropped packets, by the last look at all of them."""
    path = run.raw / "tc.json"
    if not path.exists():
        return []
    return [
        f"{qdisc['kind']} on {qdisc['dev']} dropped {qdisc['drops']} packets"
        for text in json.loads(path.read_text()).values()
        for qdisc in json.loads(text)
        if qdisc["kind"] == "netem" and qdisc.get("drops")
    ]


def flow_problems(plan: Mapping[str, Any], run: Run) -> list[str]:
    """Return the flows that failed, or never sent anything."""
    failed = [
        f"flow {subject}: {detail}"
        for subject, detail in run.events.filter(pl.col("kind") == "error").select("subject", "detail").iter_rows()
    ]
    seen = set(run.flows["flow_id"])
    return failed + [f"flow {f['flow_id']} was never seen" for f in plan["flows"] if f["flow_id"] not in seen]


def lateness_problems(lateness_ns: Sequence[int]) -> list[str]:
    """Return a reason when sampling was late too often: late sampling is a fault, not noise."""
    late = sum(value > LATE_NS for value in lateness_ns)
    if not lateness_ns or late <= LATE_SHARE * len(lateness_ns):
        return []
    worst_ms = max(lateness_ns) / 1e6
    return [f"{late} of {len(lateness_ns)} samples were more than {LATE_NS / 1e6:g} ms late, at most {worst_ms:.1f} ms"]
