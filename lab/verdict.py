"""Is the run to be trusted? What the network did is held against what it was to do."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl

from lab.netem import Netem
from lab.record import Run
from topologies.units import PACKET_BYTES

Status = Literal["valid", "suspect", "invalid"]

RTT_TOLERANCE = 0.01
"""Relative difference of idle and configured RTT, plus `RTT_SLACK_MS`, that is still right."""
RTT_SLACK_MS = 0.2
"""Transmission of a ping at the bottleneck, and a switch's work on a real clock."""

PING_BYTES = 98
"""An echo as queues count it: 56 bytes, and the headers of ICMP, IP and Ethernet."""

LOSS_DEVIATIONS = 5
"""By chance alone one link in 1.7 million would lie further off."""

RATE_TOLERANCE = 0.01
"""Relative difference of a bottleneck's measured and configured rate that is still right."""

BUSY_SHARE = 0.95
"""A run on a real clock is suspect when the machine's processors were busy for more than this share of it."""

TORN_SHARE = 0.02
"""Of a queue's samples; with segmentation offloads on nearly all have packets above the MTU."""

SUSPENDED_S = 0.1
"""A machine that slept for longer than this during a run on a real clock makes the run suspect."""

LATE_NS = 5_000_000
LATE_SHARE = 0.01
"""A run is suspect when more than this share of its samples was more than LATE_NS late."""

STOPPED_NS = 200_000_000
"""A run is suspect when one sample was later than this: the whole machine, or the run, had stopped."""


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
    invalid += rtt_problems(plan["paths"], facts.get("idle_rtt_ms", {}), variation_ms(plan))
    invalid += backlog_problems(plan["queues"], run.queues)
    invalid += drop_problems(plan, run)
    invalid += flow_problems(plan, run)
    invalid += size_problems(run.queues)
    suspect = [*faults, *lateness_problems(lateness_ns), *rate_problems(plan, facts.get("rate_mbit", {}))]
    suspect += cpu_problems(run)
    if invalid:
        return "invalid", invalid + suspect
    return ("suspect", suspect) if suspect else ("valid", [])


def rtt_problems(
    paths: Mapping[str, Any], idle_rtt_ms: Mapping[str, float], varies_ms: Mapping[str, tuple[float, float]]
) -> list[str]:
    """Return the flows whose idle round-trip time isn't the configured one, as far as it doesn't vary by itself."""
    found = []
    for flow_id, measured in idle_rtt_ms.items():
        base = paths[flow_id]["base_rtt_ms"]
        less, more = varies_ms.get(flow_id, (0.0, 0.0))
        slack = RTT_TOLERANCE * base + RTT_SLACK_MS
        if not base - less - slack <= measured <= base + more + slack:
            found.append(f"flow {flow_id}: idle RTT {measured:.3f} ms, configured {base:.3f} ms")
    return found


def variation_ms(plan: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return for each flow how much less and more than its base RTT jitter, slots and slow links may make of a ping."""
    edges = {entry["edge"]: Netem.from_data(entry["settings"]).varies_ms for entry in plan.get("seeds", ())}
    found = {}
    for flow_id, path in plan["paths"].items():
        nodes = path.get("nodes", ())
        names = [f"{a}->{b}" for u, v in itertools.pairwise(nodes) for a, b in ((u, v), (v, u))]
        less, more = (sum(edges[name][side] for name in names if name in edges) for side in (0, 1))
        rates = [plan["queues"][name]["rate_mbit"] for name in names if name in plan["queues"]]
        found[flow_id] = (less, more + sum(PING_BYTES * 8e-3 / rate for rate in rates))
    return found


def backlog_problems(queues: Mapping[str, Any], table: pl.DataFrame) -> list[str]:
    """Return the queues that once held more than their buffer; of a port with several, each for itself.

    While a policy changes, the port as a whole may hold more: what waits in the old queues, and the new ones.
    """
    several = {queue.get("port") for queue in queues.values()}
    largest = dict(table.group_by("queue_id").agg(pl.col("backlog_bytes").max()).iter_rows())
    return [
        f"queue {name}: backlog {largest[name]} bytes, above its buffer of {queue['buffer_bytes']}"
        for name, queue in queues.items()
        if name not in several and queue["aqm"] == "fifo" and largest.get(name, 0) > queue["buffer_bytes"]
    ]


def drop_problems(plan: Mapping[str, Any], run: Run) -> list[str]:
    """Return the netems that dropped what they should not have, by the last look at all qdiscs.

    One that is to lose packets must have lost its share of them, unless that changed during the run.
    """
    path = run.raw / "tc.json"
    if not path.exists():
        return []
    lossy = {entry["interface"]: Netem.from_data(entry["settings"]) for entry in plan.get("seeds", ())}
    changed = {event["netem"]["interface"] for event in plan.get("events", ()) if "netem" in event}
    found = []
    for text in json.loads(path.read_text()).values():
        for qdisc in json.loads(text):
            if qdisc["kind"] != "netem" or qdisc["dev"] in changed:
                continue
            name, drops = qdisc["dev"], qdisc.get("drops", 0)
            settings = lossy.get(name)
            if settings is None or not settings.loses:
                found += [f"netem on {name} dropped {drops} packets"] if drops else []
            elif problem := loss_problem(settings, drops, qdisc["packets"] + drops):
                found.append(f"netem on {name} {problem}")
    return found


def loss_problem(settings: Netem, drops: int, packets: int) -> str | None:
    """Return what is wrong with so many drops among so many packets: more than five deviations from the mean."""
    share, deviation = settings.loss_share(packets)
    if abs(drops - share * packets) <= LOSS_DEVIATIONS * deviation * packets + 1:
        return None
    return f"lost {drops} of {packets} packets, {drops / max(1, packets):.3%} where {share:.3%} is configured"


def rate_problems(plan: Mapping[str, Any], measured_mbit: Mapping[str, float]) -> list[str]:
    """Return the bottlenecks whose rate before the flows isn't the configured one, where nothing on the way varies."""
    varying = {entry["edge"] for entry in plan.get("seeds", ())}
    steady = {
        path.get("bottleneck")
        for path in plan["paths"].values()
        if not varying & {f"{u}->{v}" for u, v in itertools.pairwise(path.get("nodes", ()))}
    }
    return [
        f"bottleneck {edge}: {measured:.3f} Mbit/s before the flows, configured {plan['queues'][edge]['rate_mbit']:.3f}"
        for edge, measured in measured_mbit.items()
        if edge in steady and abs(measured / plan["queues"][edge]["rate_mbit"] - 1) > RATE_TOLERANCE
    ]


def size_problems(table: pl.DataFrame) -> list[str]:
    """Return the queues that held packets above the MTU: offloads were on, and a place in the queue is no packet.

    A few samples prove nothing: on a real clock a packet may come or go while the kernel reads one counter after the
    other.
    """
    waiting = table.filter(pl.col("backlog_bytes") > 0, pl.col("backlog_packets").is_not_null())
    large = pl.col("backlog_bytes") > PACKET_BYTES * pl.col("backlog_packets")
    shares = waiting.group_by("queue_id", maintain_order=True).agg(large.mean())
    return [
        f"queue {name}: packets above the MTU in {share:.0%} of the samples with any"
        for name, share in shares.iter_rows()
        if share > TORN_SHARE
    ]


def cpu_problems(run: Run) -> list[str]:
    """Return a reason when a real clock ran on while the processors had no time left."""
    path = run.raw / "cpu.json"
    if not path.exists() or run.info["environment"]["clock"] != "real":
        return []
    before, after = json.loads(path.read_text())
    spent = [late - early for early, late in zip(before, after, strict=True)]
    idle = spent[3] + spent[4]
    busy = 1 - idle / max(1, sum(spent))
    return [f"the processors were busy for {busy:.0%} of the run"] if busy > BUSY_SHARE else []


def sleep_problems(clock: str, slept_s: float) -> list[str]:
    """Return a reason when the machine was suspended while a real clock should have run."""
    if clock != "real" or slept_s <= SUSPENDED_S:
        return []
    return [f"this machine was suspended for {slept_s:.1f} s during the run"]


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
    worst_ns = max(lateness_ns, default=0)
    if late <= LATE_SHARE * len(lateness_ns) and worst_ns <= STOPPED_NS:
        return []
    worst_ms = worst_ns / 1e6
    return [f"{late} of {len(lateness_ns)} samples were more than {LATE_NS / 1e6:g} ms late, at most {worst_ms:.1f} ms"]
