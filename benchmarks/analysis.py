"""How long the analysis of a long run takes: ``python -m benchmarks.analysis``.

An hour of 32 flows sampled every 50 ms (2.3 million rows), synthetic, is summarised and plotted, each in a process of
its own on one core. The budget for the summary is 2 s of processor time: what else the machine does doesn't count.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lab.record import EVENTS, FLOWS, QUEUES, Run

FLOW_COUNT = 32
DURATION_S = 3600
SAMPLE_S = 0.05
BUDGET_S = 2.0
CCAS = ("ndm_tcp", "cubic", "reno", "bbr")


def record(path: Path, duration_s: float = DURATION_S) -> Run:
    """Record a run of noisy rates: every column has values that no encoding makes trivial."""
    rng = np.random.default_rng(1)
    t_s = np.round(np.arange(0, duration_s + 1e-9, SAMPLE_S), 6) + rng.uniform(
        0, 1e-6, round(duration_s / SAMPLE_S) + 1
    )
    flows: list[dict[str, Any]] = [
        {"flow_id": f"{CCAS[i % 4]}-{i // 4 + 1}", "cca": CCAS[i % 4], "start_s": 0.0} for i in range(FLOW_COUNT)
    ]
    frames = [_flow(flow["flow_id"], flow["cca"], t_s, rng) for flow in flows]
    queue = {"rate_mbit": 100.0, "buffer_bytes": 500_000, "aqm": "fifo", "bottleneck": True}
    path_info = {"base_rtt_ms": 40.0, "bottleneck": "s1->s2", "rate_mbit": 100.0, "fair_share_mbit": 100 / FLOW_COUNT}
    scenario = {"name": "long", "flows": flows, "duration_s": duration_s, "warmup_s": 5.0, "seed": 1, "sample_ms": 50}
    run = Run.create(path)
    run.write_info(
        {
            "scenario": scenario,
            "paths": {flow["flow_id"]: path_info for flow in flows},
            "queues": {"s1->s2": queue},
            "verdict": {"status": "valid", "reasons": []},
            "outcome": {"status": "complete"},
        }
    )
    run.write_tables(pl.concat(frames), _queue(t_s, rng), EVENTS.schema.to_frame())
    return run


def _flow(flow_id: str, cca: str, t_s: np.ndarray, rng: np.random.Generator) -> pl.DataFrame:
    segments = np.cumsum(rng.poisson(100 / FLOW_COUNT * SAMPLE_S * 1e6 / 8 / 1448, t_s.size))
    again = np.cumsum(rng.poisson(0.1, t_s.size))
    columns = {
        "t_s": t_s,
        "flow_id": [flow_id] * t_s.size,
        "cca": [cca] * t_s.size,
        "cwnd_segments": rng.integers(2, 60, t_s.size),
        "ssthresh_segments": rng.integers(2, 60, t_s.size),
        "srtt_ms": 60 + 20 * rng.random(t_s.size),
        "bytes_received": segments * 1448,
        "bytes_acked": segments * 1448,
        "bytes_sent": (segments + again) * 1448,
        "bytes_retrans": again * 1448,
        "data_segs_out": segments + again,
        "retrans_segments": again,
        "delivery_rate_mbit": rng.random(t_s.size),
    }
    return _filled(pl.DataFrame(columns), FLOWS.schema)


def _queue(t_s: np.ndarray, rng: np.random.Generator) -> pl.DataFrame:
    columns = {
        "t_s": t_s,
        "queue_id": ["s1->s2"] * t_s.size,
        "backlog_bytes": rng.integers(0, 500_000, t_s.size),
        "drops": np.cumsum(rng.poisson(1, t_s.size)),
        "sent_bytes": np.cumsum(np.full(t_s.size, round(SAMPLE_S * 100e6 / 8))),
    }
    return _filled(pl.DataFrame(columns), QUEUES.schema)


def _filled(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in frame.columns]
    return frame.with_columns(missing).select(schema.names()).cast(schema)


def _summarise(run: Path, _: Path) -> None:
    from analysis import summarise

    summarise(Run.open(run))


def _plot(run: Path, scratch: Path) -> None:
    from analysis.figures import save_all

    save_all(Run.open(run), scratch / "figures")


def _report(run: Path, scratch: Path) -> None:
    from analysis.report import write_report

    write_report([Run.open(run)], scratch / "report.html")


JOBS: dict[str, Callable[[Path, Path], None]] = {"summary": _summarise, "plots": _plot, "report": _report}


def measure(job: str, run: Path, scratch: Path) -> dict[str, float]:
    """Return the seconds of a job in a fresh process on one core, imports apart, and its peak memory in MB."""
    command = [sys.executable, "-m", "benchmarks.analysis", "--job", job, str(run), str(scratch)]
    environment = os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _job(job: str, run: Path, scratch: Path) -> None:
    """Do one job in this process, on one core, and print what it took."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import analysis.figures
    import analysis.report  # noqa: F401 - imports are not what is measured

    began, began_cpu = time.perf_counter(), time.process_time()
    JOBS[job](run, scratch)
    figures = {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - began_cpu}
    print(json.dumps(figures | {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def main() -> int:
    """Record, measure, print; the status is 1 when the summary takes longer than its budget."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        run = record(scratch / "run")
        print(f"analysis of {FLOW_COUNT} flows, {DURATION_S} s, {run.flows.height:,} rows")
        taken = {job: measure(job, run.path, scratch) for job in JOBS}
        for job, figures in taken.items():
            cpu_s, wall_s = figures["cpu_s"], figures["wall_s"]
            print(
                f"  {job:8} {cpu_s:6.2f} s of one core, {wall_s:6.2f} s by the clock, peak {figures['peak_mb']:.0f} MB"
            )
        page_mb = (scratch / "report.html").stat().st_size / 1e6
        share = taken["summary"]["cpu_s"] / BUDGET_S
        print(f"  the page has {page_mb:.1f} MB (limit 10); the summary takes {share:.0%} of its {BUDGET_S:g} s")
    return int(share > 1 or page_mb > 10)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        _job(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
        sys.exit(0)
    sys.exit(main())
