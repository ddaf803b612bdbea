"""What a run says, as a few numbers: the same names whether iperf3 or Fairbed's own record tells them.

One flow: ``goodput_mbit`` (what the receiver got), ``sent_mbit`` (what the sender's socket took), ``retransmissions``
(segments), of them ``retransmissions_early`` and ``_late`` (first and second half), ``retransmission_rate`` (of the
segments sent), ``cwnd_final_bytes``, ``cwnd_max_bytes``, ``silent_s`` (seconds in which the sender's socket took
nothing, or, on a link, the receiver got nothing), ``dropped`` (packets, by the bottleneck or the loopback's qdiscs).
Series have a value per second, entropy five; `of_series` makes measures of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.record import Run

Result = dict[str, Any]

SETTLED_S = 3.0
"""When slow start and its overshoot are over in every trial, s."""
NOISE = 700
"""The articles' threshold: entropy from here on is taken for noise, not congestion."""


def of_seconds(retransmissions: Sequence[float]) -> dict[str, float]:
    """Return the retransmissions of a flow from those of each second: all, and those of each half.

    Examples
    --------
    >>> of_seconds([9, 5, 1, 1, 1, 1, 0, 2, 1, 0])["retransmissions_late"]
    4
    """
    half = len(retransmissions) // 2
    return {
        "retransmissions": sum(retransmissions),
        "retransmissions_early": sum(retransmissions[:half]),
        "retransmissions_late": sum(retransmissions[half:]),
    }


def of_series(series: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the retransmissions per megabyte: all, from `SETTLED_S` to the half, and after the half.

    Who sends less retransmits less; this is what is left when that is taken out. Absent where nothing was sent.

    Examples
    --------
    >>> found = of_series({"bytes": [2e6] * 10, "retransmissions": [9, 9, 9, 1, 3, 1, 1, 1, 1, 1]})
    >>> found["retransmissions_per_mb_settled"], found["retransmissions_per_mb_late"]
    (1.0, 0.5)
    """
    if not {"bytes", "retransmissions"} <= series.keys():
        return {}
    seconds = len(series["retransmissions"])
    parts = {"": (0, seconds), "_settled": (int(SETTLED_S), seconds // 2), "_late": (seconds // 2, seconds)}
    found = {}
    for name, (first, last) in parts.items():
        if megabytes := sum(series["bytes"][first:last]) / 1e6:
            found[f"retransmissions_per_mb{name}"] = sum(series["retransmissions"][first:last]) / megabytes
    return found


def of_iperf3(directory: Path) -> Result:
    """Return measures and series of a run of ``lab.loopback``.

    Raises
    ------
    ValueError
        When iperf3 reports an error, or no second: with its words.
    """
    report = json.loads((directory / "iperf3.json").read_text())
    if "error" in report:
        raise ValueError(f"iperf3: {report['error']}")
    seconds = [(each["sum"], each["streams"][0]) for each in report["intervals"]]
    if not seconds:
        raise ValueError("iperf3 reports no second")
    sent, received = report["end"]["sum_sent"], report["end"]["sum_received"]
    series = {
        "bytes": [total["bytes"] for total, _ in seconds],
        "retransmissions": [total["retransmits"] for total, _ in seconds],
        "cwnd_bytes": [stream["snd_cwnd"] for _, stream in seconds],
    }
    measures = {
        "goodput_mbit": received["bits_per_second"] / 1e6,
        "sent_mbit": sent["bits_per_second"] / 1e6,
        "received_bytes": received["bytes"],
        **of_seconds(series["retransmissions"]),
        "cwnd_final_bytes": series["cwnd_bytes"][-1],
        "cwnd_max_bytes": max(series["cwnd_bytes"]),
        "cwnd_per_sent_byte": series["cwnd_bytes"][0] / max(1, series["bytes"][0]),
        "silent_s": sum(count == 0 for count in series["bytes"]),
        **_of_kernel(directory),
    }
    return {"measures": measures, "series": series}


def _of_kernel(directory: Path) -> dict[str, float]:
    """Return what the kernel's counters and qdiscs add to iperf3's report."""
    counters = json.loads((directory / "counters.json").read_text())
    qdiscs = json.loads((directory / "qdiscs.json").read_text())
    named = {
        "timeouts": ("TCPTimeouts",),
        "unneeded": ("TCPDSACKRecv",),  # the receiver had the segment already (RFC 2883)
        "loss_probes": ("TCPLossProbes",),
        "dropped_by_receiver": ("TCPBacklogDrop", "TCPRcvQDrop", "RcvPruned"),
    }
    found = {name: sum(counters.get(counter, 0) for counter in summed) for name, summed in named.items()}
    return found | {"dropped": sum(qdisc["drops"] for qdisc in qdiscs)}


def of_run(run: Run) -> Result:
    """Return measures and series of a recorded run: of its flow, or, of several, who got what."""
    return _of_flow(run) if len(run.scenario["flows"]) == 1 else _of_mix(run)


def _of_flow(run: Run) -> Result:
    import numpy as np

    flow = run.flows.filter(run.flows["tcp_state"].is_not_null())
    duration_s, warmup_s = run.scenario["duration_s"], run.scenario["warmup_s"]
    at = np.arange(0.0, duration_s + 0.5)
    t_s = flow["t_s"].to_numpy()

    def each_second(name: str) -> list[float]:
        values = flow[name].fill_null(0).to_numpy().astype(float)
        return np.diff(np.interp(at, t_s, values, left=0.0)).round().tolist() if t_s.size else [0.0] * (at.size - 1)

    received, retransmissions = each_second("bytes_received"), each_second("retrans_segments")
    segments, after = sum(each_second("data_segs_out")), int(warmup_s)
    cwnd = (flow["cwnd_segments"] * flow["mss_bytes"]).fill_null(0).to_list() or [0]
    measures = {
        "goodput_mbit": sum(received[after:]) * 8e-6 / (duration_s - after),
        "sent_mbit": sum(each_second("bytes_acked")) * 8e-6 / duration_s,
        "received_bytes": sum(received),
        **of_seconds(retransmissions),
        "retransmission_rate": sum(retransmissions) / segments if segments else 0.0,
        "cwnd_final_bytes": cwnd[-1],
        "cwnd_max_bytes": max(cwnd),
        "silent_s": sum(count == 0 for count in received),
        "dropped": int(run.queues["drops"].max() or 0),  # type: ignore[arg-type]
    }
    series = {"bytes": received, "retransmissions": retransmissions}
    entropy = flow["ndm_entropy"].to_list()
    if any(value is not None for value in entropy):
        settled = [value for t, value in zip(t_s, entropy, strict=True) if t >= SETTLED_S and value is not None]
        measures["entropy"] = float(np.mean(settled))
        measures["noise_share"] = float(np.mean([value >= NOISE for value in settled]))
        series["entropy"] = [value or 0 for value in entropy[:: max(1, round(1000 / run.scenario["sample_ms"] / 5))]]
    return {"measures": measures, "series": series}


def _of_mix(run: Run) -> Result:
    from analysis import summarise

    summary = summarise(run)
    measures: dict[str, Any] = {"jain": summary.jain}
    for flow in summary.flows:
        measures[f"goodput_mbit {flow.flow_id}"] = flow.goodput_mbit
        measures[f"share {flow.flow_id}"] = flow.share
        measures[f"retransmission_rate {flow.flow_id}"] = flow.retransmission_rate
    return {"measures": measures, "series": {}}
