"""Synthetic runs: constant rates, whose metrics are known by hand, and a fluid model that looks like TCP."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lab.record import EVENTS, FLOWS, QUEUES, Run

MSS_BYTES = 1448
FRAME_BYTES = 1514
RATE_MBIT = 20.0
BASE_RTT_MS = 40.0
BUFFER_BYTES = 100_000
QUEUE = "s1->s2"

MakeRun = Callable[..., Run]


def info(flows: list[dict[str, Any]], duration_s: float, warmup_s: float, seed: int, **changes: Any) -> dict[str, Any]:
    """Return a run.json as the lab writes it."""
    path = {
        "nodes": ["snd1", "s1", "s2", "rcv1"],
        "base_rtt_ms": BASE_RTT_MS,
        "bottleneck": QUEUE,
        "rate_mbit": RATE_MBIT,
        "bdp_bytes": 100_000,
        "fair_share_mbit": RATE_MBIT / max(1, len(flows)),
    }
    queue = {"rate_mbit": RATE_MBIT, "buffer_bytes": BUFFER_BYTES, "aqm": "fifo", "bottleneck": True}
    return {
        "created": "2026-01-01T00:00:00+00:00",
        "scenario": {
            "name": "dumbbell",
            "topology": "dumbbell",
            "flows": flows,
            "duration_s": duration_s,
            "warmup_s": warmup_s,
            "seed": seed,
            "sample_ms": 50,
        },
        "paths": {flow["flow_id"]: path for flow in flows},
        "queues": {QUEUE: queue, "s2->rcv1": queue | {"bottleneck": False}},
        "verdict": {"status": "valid", "reasons": []},
        "outcome": {"status": "complete", "message": "", "wall_s": {"flows": 3.2}},
        **changes,
    }


def constant_run(
    path: Path,
    goodputs_mbit: dict[str, float],
    duration_s: float = 20.0,
    warmup_s: float = 5.0,
    seed: int = 1,
    start_s: dict[str, float] | None = None,
    recorded_s: float | None = None,
    **changes: Any,
) -> Run:
    """Record a run in which every flow has a constant goodput while it is active.

    Each flow retransmits 1 of 100 segments and has a smoothed RTT of 60 ms; the bottleneck holds 50,000 bytes
    and drops one packet per second.
    """
    starts = start_s or {}
    flows = [
        {"flow_id": flow, "cca": flow.rpartition("-")[0], "start_s": starts.get(flow, 0.0)} for flow in goodputs_mbit
    ]
    t_s = np.round(np.arange(0, (duration_s if recorded_s is None else recorded_s) + 1e-9, 0.05), 9)
    frames = [constant_flow(flow, rate, t_s[t_s >= starts.get(flow, 0.0)]) for flow, rate in goodputs_mbit.items()]
    sent = sum(goodputs_mbit.values()) * 125_000 * t_s * FRAME_BYTES / MSS_BYTES
    queues = pl.DataFrame(
        {
            "t_s": t_s,
            "queue_id": [QUEUE] * t_s.size,
            "backlog_bytes": np.full(t_s.size, 50_000),
            "drops": np.floor(t_s + 1e-9).astype(int),
            "sent_bytes": sent.round().astype(int),
        }
    )
    run = Run.create(path)
    run.write_info(info(flows, duration_s, warmup_s, seed, **changes))
    run.write_tables(
        pl.concat([FLOWS.schema.to_frame(), *frames]),
        filled(queues, QUEUES.schema),
        EVENTS.schema.to_frame(),
    )
    return Run.open(run.path)


def filled(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return the frame with all columns of the schema, those it lacks null."""
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in frame.columns]
    return frame.with_columns(missing).select(schema.names()).cast(schema)


def constant_flow(flow_id: str, rate_mbit: float, t_s: np.ndarray) -> pl.DataFrame:
    """Return the samples of a flow of constant goodput."""
    start = t_s[0] if t_s.size else 0.0
    received = ((t_s - start) * rate_mbit * 125_000).round().astype(int)
    segments = received // 1000 * 100
    return filled(
        pl.DataFrame(
            {
                "t_s": t_s,
                "flow_id": [flow_id] * t_s.size,
                "cca": [flow_id.rpartition("-")[0]] * t_s.size,
                "cwnd_segments": np.full(t_s.size, 50),
                "srtt_ms": np.full(t_s.size, 60.0),
                "bytes_received": received,
                "bytes_sent": segments * 10,
                "bytes_retrans": segments // 5,
                "data_segs_out": segments,
                "retrans_segments": segments // 100,
            }
        ),
        FLOWS.schema,
    )


def sawtooth(
    path: Path,
    ccas: tuple[str, ...] = ("ndm_tcp", "cubic", "reno", "bbr"),
    duration_s: float = 60.0,
    seed: int = 1,
    gap_s: float = 0.0,
    mind: bool = True,
) -> Run:
    """Record a fluid model: windows grow until the buffer overflows, then some flows back off."""
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(ccas, 0)
    flow_ids = []
    for cca in ccas:
        counts[cca] += 1
        flow_ids.append(f"{cca}-{counts[cca]}")
    n, step_s = len(ccas), 0.01
    growth = np.array([{"cubic": 1.6, "bbr": 0.0}.get(cca, 1.0) for cca in ccas])
    back_off = np.array([{"cubic": 0.7, "bbr": 1.0}.get(cca, 0.5) for cca in ccas])
    cwnd, ssthresh = np.full(n, 10.0), np.full(n, np.inf)
    received, retransmitted = np.zeros(n), np.zeros(n)
    backlog = sent = 0.0
    drops, safe_s = 0, np.zeros(n)
    flow_rows: list[dict[str, Any]] = []
    queue_rows: list[dict[str, Any]] = []
    for tick in range(round(duration_s / step_s) + 1):
        t_s = tick * step_s
        active = t_s >= gap_s * np.arange(n)
        rtt_s = BASE_RTT_MS / 1e3 + backlog * 8e-6 / RATE_MBIT
        demand = np.where(active, cwnd * FRAME_BYTES / rtt_s, 0.0)
        backlog = max(0.0, backlog + (demand.sum() - RATE_MBIT * 125_000) * step_s)
        service = demand * min(1.0, RATE_MBIT * 125_000 / max(demand.sum(), 1.0))
        if tick % 5 == 0:
            for i, flow_id in enumerate(flow_ids):
                if not active[i]:
                    continue
                row = {
                    "t_s": round(t_s, 9),
                    "flow_id": flow_id,
                    "cca": ccas[i],
                    "cwnd_segments": int(cwnd[i]),
                    "ssthresh_segments": None if np.isinf(ssthresh[i]) else int(ssthresh[i]),
                    "srtt_ms": rtt_s * 1e3 + float(rng.uniform(0, 1)),
                    "bytes_received": int(received[i]),
                    "bytes_sent": int(received[i] + retransmitted[i] * MSS_BYTES),
                    "bytes_retrans": int(retransmitted[i] * MSS_BYTES),
                    "data_segs_out": int(received[i] / MSS_BYTES + retransmitted[i]),
                    "retrans_segments": int(retransmitted[i]),
                }
                if mind and ccas[i] in ("ndm_tcp", "ndm2"):
                    row |= {
                        "ndm_entropy": int(500 + 450 * np.sin(t_s / 3 + i)),
                        "ndm_flags": 1 | (2 if np.isinf(ssthresh[i]) else 0) | (4 if backlog > 60_000 else 0),
                        "ndm_plasticity": int(100 + 400 * np.exp(-(t_s % 5))),
                        "ndm_output": int(800 * np.sin(t_s)),
                    }
                flow_rows.append(row)
            queue_rows.append(
                {
                    "t_s": round(t_s, 9),
                    "queue_id": QUEUE,
                    "backlog_bytes": int(min(backlog, BUFFER_BYTES)),
                    "drops": drops,
                    "sent_bytes": int(sent),
                }
            )
        received += service * step_s * MSS_BYTES / FRAME_BYTES
        sent += service.sum() * step_s
        if backlog > BUFFER_BYTES:
            backlog = float(BUFFER_BYTES)
            hit = active & (rng.random(n) < 0.6) & (safe_s <= t_s)
            drops += int(hit.sum()) * 3
            retransmitted += hit * 3
            ssthresh = np.where(hit, np.maximum(2, cwnd * back_off), ssthresh)
            cwnd = np.where(hit, np.maximum(2, cwnd * back_off), cwnd)
            safe_s = np.where(hit, t_s + 2 * rtt_s, safe_s)
        slow_start = np.isinf(ssthresh)
        cwnd = cwnd + np.where(active, np.where(slow_start, cwnd, growth) * step_s / rtt_s, 0.0)
        bbr = np.array([cca == "bbr" for cca in ccas])
        cwnd = np.where(bbr & ~slow_start, 35 + 8 * np.sign(np.sin(2 * np.pi * t_s / 0.4)), cwnd)
    flows = [
        {"flow_id": f, "cca": c, "start_s": gap_s * i} for i, (f, c) in enumerate(zip(flow_ids, ccas, strict=True))
    ]
    run = Run.create(path)
    run.write_info(info(flows, duration_s, 5.0, seed))
    run.write_tables(
        pl.DataFrame(flow_rows, schema=FLOWS.schema),
        pl.DataFrame(queue_rows, schema=QUEUES.schema),
        pl.DataFrame(schema=EVENTS.schema),
    )
    return Run.open(path)
