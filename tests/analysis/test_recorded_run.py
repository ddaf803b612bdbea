"""A recorded run of the lab (10 s, four flows joining one by one) against an independent calculation with numpy."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analysis import Run, first_difference, summarise

RUN = Path(__file__).parents[1] / "data" / "dumbbell-10s"
WARMUP_S, END_S = 2.0, 10.0
LATE_S = 1e-5  # the sample due at 10 s was taken 0.8 µs later


def columns(table: str, key: str, value: str) -> dict[str, np.ndarray]:
    """Return the columns of one flow or queue, read straight from the file, as floats."""
    frame = pl.read_parquet(RUN / f"{table}.parquet").filter(pl.col(key) == value)
    numbers = [name for name, dtype in frame.schema.items() if dtype.is_numeric()]
    return {name: frame[name].cast(pl.Float64).to_numpy() for name in numbers}


def grown(flow: dict[str, np.ndarray], column: str) -> float:
    """Return how much a counter grew from the sample due at 2 s to the last of all, 0 before its first."""
    before = flow["t_s"] <= WARMUP_S + LATE_S
    return float(flow[column][-1] - (flow[column][before][-1] if before.any() else 0.0))


def test_goodput_and_jain() -> None:
    """Bytes received at 10 s minus those at 2 s, over 8 s; Jain's index by its formula."""
    summary = summarise(Run.open(RUN))
    rates = []
    for flow in summary.flows:
        own = columns("flows", "flow_id", flow.flow_id)
        known = ~np.isnan(own["bytes_received"])
        received = np.interp([WARMUP_S, END_S], own["t_s"][known], own["bytes_received"][known], left=0.0)
        rates.append((received[1] - received[0]) * 8 / 1e6 / 8.0)
    assert [flow.goodput_mbit for flow in summary.flows] == pytest.approx(rates)
    assert summary.jain == pytest.approx(sum(rates) ** 2 / (4 * sum(rate * rate for rate in rates)))
    assert summary.jain == pytest.approx(0.509, abs=5e-4)
    assert sum(rates) == pytest.approx(20 * 1448 / 1514, rel=0.01)  # the bottleneck, less the headers


def test_retransmissions_and_delays() -> None:
    """Segments sent again over segments sent; percentiles of sRTT - 40 ms and of the backlog's delay."""
    summary = summarise(Run.open(RUN))
    for flow in summary.flows:
        own = columns("flows", "flow_id", flow.flow_id)
        assert flow.retransmission_rate == pytest.approx(grown(own, "retrans_segments") / grown(own, "data_segs_out"))
        measured = own["srtt_ms"][(own["t_s"] >= WARMUP_S) & (own["t_s"] <= END_S + LATE_S)]
        assert flow.rtt_inflation_p50_ms == pytest.approx(np.nanmedian(measured) - 40.0)
    (queue,) = summary.queues
    own = columns("queues", "queue_id", "s1->s2")
    after = (own["t_s"] >= WARMUP_S) & (own["t_s"] <= END_S + LATE_S)
    assert queue.delay_p95_ms == pytest.approx(np.percentile(own["backlog_bytes"][after] * 8 / 20e6 * 1e3, 95))
    assert queue.drops == grown(own, "drops")
    assert queue.utilisation == pytest.approx(1.0, abs=0.005)


def test_windowed_jain() -> None:
    """The window from 5 s to 6 s, by hand from the counters at its ends."""
    from analysis.series import RunSeries

    windows = RunSeries(Run.open(RUN)).windows
    (index,) = np.flatnonzero(np.isclose(windows.starts_s, 5.0))
    rates = []
    for flow in ("ndm_tcp-1", "cubic-1", "reno-1", "bbr-1"):
        own = columns("flows", "flow_id", flow)
        known = ~np.isnan(own["bytes_received"])
        ends = np.interp([5.0, 6.0], own["t_s"][known], own["bytes_received"][known])
        rates.append(ends[1] - ends[0])
    assert windows.jain[index] == pytest.approx(sum(rates) ** 2 / (4 * np.square(rates).sum()))


def test_an_unknown_rtt_is_unknown() -> None:
    """A socket without an RTT sample says 0: the record has null."""
    assert pl.read_parquet(RUN / "flows.parquet")["srtt_ms"].min() > 39.9  # type: ignore[operator]


def test_the_record_is_the_format_of_today() -> None:
    """It opens, is valid, and is identical to itself."""
    run = Run.open(RUN)
    assert run.verdict["status"] == "valid" and json.loads((RUN / "run.json").read_text())["format"] == 1
    assert first_difference(run, Run.open(RUN)) is None
