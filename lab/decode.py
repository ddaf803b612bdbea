"""Raw samples -> the record's tables: what the kernel's structures mean, once.

Layouts are the kernel's user interface, which only grows at the end: ``struct tcp_info`` (linux/tcp.h),
``struct inet_diag_msg`` and the algorithms' own structures (linux/inet_diag.h), ``struct gnet_stats_*``
(linux/gen_stats.h).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from controller.netlink import RTM_NEWQDISC, TCA_KIND, TCMSG_BYTES, attributes, messages
from lab.netlink import INET_DIAG_BBRINFO, INET_DIAG_INFO, INET_DIAG_VEGASINFO, SOCK_DIAG_BY_FAMILY
from lab.record import EVENTS, FLOWS, QUEUES
from lab.telemetry import FRAME

EVENT_FILES = (
    ("flow", "traffic.jsonl"),
    ("controller", "controller.jsonl"),
    ("link", "links.jsonl"),
    ("lab", "lab.jsonl"),
)
"""Who writes events -> where. The controller's counters are samples, and come under "sampler"."""

INET_DIAG_MSG_BYTES = 72
TCP_LISTEN = 10
INFINITE_SSTHRESH = 0x7FFFFFFF
UNLIMITED_PACING = 2**64 - 1
BBR_UNIT = 256

_TCP_INFO_BYTES = {
    # name -> (offset, format)
    "tcp_state": (0, "B"),
    "ca_state": (1, "B"),
    "snd_mss": (16, "I"),
    "lost": (32, "I"),
    "rtt_us": (68, "I"),
    "rttvar_us": (72, "I"),
    "snd_ssthresh": (76, "I"),
    "snd_cwnd": (80, "I"),
    "total_retrans": (100, "I"),
    "pacing_rate": (104, "Q"),
    "bytes_acked": (120, "Q"),
    "bytes_received": (128, "Q"),
    "segs_out": (136, "I"),
    "min_rtt_us": (148, "I"),
    "data_segs_out": (156, "I"),
    "delivery_rate": (160, "Q"),
    "delivered": (192, "I"),
    "bytes_sent": (200, "Q"),
    "bytes_retrans": (208, "Q"),
}
_FIELDS = [(name, struct.Struct("=" + form), offset) for name, (offset, form) in _TCP_INFO_BYTES.items()]
_BYTES_RECEIVED = next((layout, offset) for name, layout, offset in _FIELDS if name == "bytes_received")
TCP_INFO_NEEDED_BYTES = 216

TCA_STATS2 = 7
TCA_STATS_BASIC, TCA_STATS_QUEUE, TCA_STATS_APP = 1, 3, 4
AQM_FIGURES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "codel": ((24,), (12,)),  # struct tc_codel_xstats: ecn_mark, ldelay
    "fq_codel": ((12,), ()),  # struct tc_fq_codel_xstats, of the whole qdisc: ecn_mark; each flow has its own delay
    "pie": ((36,), (8,)),  # struct tc_pie_xstats: ecn_mark, delay
    "fq_pie": ((16,), ()),  # struct tc_fq_pie_xstats: ecn_mark
    "red": ((12,), ()),  # struct tc_red_xstats: marked
    "dualpi2": ((24, 28), (4, 8)),  # struct tc_dualpi2_xstats: ecn_mark and step_marks, delay_c and delay_l
}
"""Qdisc -> where its own statistics (linux/pkt_sched.h) have its ECN marks, which add up, and its delays in µs."""
TCA_CAKE_STATS_TIN_STATS = 10
TCA_CAKE_TIN_STATS_ECN_MARKED_PACKETS, TCA_CAKE_TIN_STATS_AVG_DELAY_US = 8, 19
_U32 = struct.Struct("=I")
_QUEUE = struct.Struct("=IIIII")  # qlen, backlog, drops, requeues, overlimits


def tcp_info(data: memoryview) -> dict[str, int]:
    """Return the fields of a ``struct tcp_info`` that the record uses; rates in bytes/s, times in µs."""
    return {name: layout.unpack_from(data, offset)[0] for name, layout, offset in _FIELDS}


def ndm_state(data: memoryview) -> dict[str, int]:
    """Return NDM-TCP's state from the ``struct tcpvegas_info`` it fills in (the packing: kernel/ndm/ndm_tcp.c)."""
    enabled, packed = struct.unpack_from("=II", data)
    return {
        "ndm_entropy": packed & 1023,
        "ndm_flags": (enabled >> 1) & 255,
        "ndm_plasticity": (packed >> 10) & 1023,
        "ndm_output": ((packed >> 20) & 2047) - 1000,
    }


def bbr_state(data: memoryview) -> dict[str, float]:
    """Return BBR's state from ``struct tcp_bbr_info``; gains are in units of 1/256 there."""
    low, high, min_rtt_us, pacing_gain, cwnd_gain = struct.unpack_from("=IIIII", data)
    return {
        "bbr_bw_mbit": (low | high << 32) * 8 / 1e6,
        "bbr_min_rtt_ms": min_rtt_us / 1e3,
        "bbr_pacing_gain": pacing_gain / BBR_UNIT,
        "bbr_cwnd_gain": cwnd_gain / BBR_UNIT,
    }


def sender_row(body: memoryview, cca: str) -> dict[str, Any] | None:
    """Return what a sender's socket said, or None when it is no live socket."""
    found = attributes(body, INET_DIAG_MSG_BYTES)
    info_bytes = found.get(INET_DIAG_INFO)
    if info_bytes is None or len(info_bytes) < TCP_INFO_NEEDED_BYTES:
        return None
    info = tcp_info(info_bytes)
    row: dict[str, Any] = {
        "tcp_state": info["tcp_state"],
        "ca_state": info["ca_state"],
        "cwnd_segments": info["snd_cwnd"],
        "ssthresh_segments": None if info["snd_ssthresh"] >= INFINITE_SSTHRESH else info["snd_ssthresh"],
        "srtt_ms": info["rtt_us"] / 1e3 or None,  # none before the first sample
        "rttvar_ms": info["rttvar_us"] / 1e3,
        "min_rtt_ms": info["min_rtt_us"] / 1e3 if info["min_rtt_us"] != 0xFFFFFFFF else None,
        "mss_bytes": info["snd_mss"],
        "bytes_sent": info["bytes_sent"],
        "bytes_acked": info["bytes_acked"],
        "bytes_retrans": info["bytes_retrans"],
        "segs_out": info["segs_out"],
        "data_segs_out": info["data_segs_out"],
        "retrans_segments": info["total_retrans"],
        "lost_segments": info["lost"],
        "delivered_segments": info["delivered"],
        "delivery_rate_mbit": info["delivery_rate"] * 8 / 1e6,
        "pacing_rate_mbit": None if info["pacing_rate"] == UNLIMITED_PACING else info["pacing_rate"] * 8 / 1e6,
    }
    if cca in ("ndm_tcp", "ndm2") and INET_DIAG_VEGASINFO in found:
        row |= ndm_state(found[INET_DIAG_VEGASINFO])
    if INET_DIAG_BBRINFO in found:
        row |= bbr_state(found[INET_DIAG_BBRINFO])
    return row


def received_bytes(body: memoryview) -> int | None:
    """Return the payload bytes that a receiver's socket has taken in, or None when it is no live socket."""
    info = attributes(body, INET_DIAG_MSG_BYTES).get(INET_DIAG_INFO)
    if body[1] == TCP_LISTEN or info is None or len(info) < TCP_INFO_NEEDED_BYTES:
        return None
    layout, offset = _BYTES_RECEIVED
    received: int = layout.unpack_from(info, offset)[0]
    return received


def queue_row(body: memoryview) -> dict[str, Any] | None:
    """Return what a qdisc said, or None when it said nothing."""
    about = attributes(body, TCMSG_BYTES)
    stats = about.get(TCA_STATS2)
    if stats is None:
        return None
    found = attributes(stats, 0)
    kind = bytes(about.get(TCA_KIND, b"")).rstrip(b"\0").decode()
    length, backlog, drops, _requeues, overlimits = _QUEUE.unpack_from(found[TCA_STATS_QUEUE])
    sent_bytes, sent_packets = struct.unpack_from("=QI", found[TCA_STATS_BASIC])
    return {
        "backlog_bytes": backlog,
        "backlog_packets": length,
        "drops": drops,
        "overlimits": overlimits,
        "sent_bytes": sent_bytes,
        "sent_packets": sent_packets,
        **aqm_figures(kind, found.get(TCA_STATS_APP, memoryview(b""))),
    }


def aqm_figures(kind: str, data: memoryview) -> dict[str, float | int | None]:
    """Return an AQM's own count of ECN marks and its sojourn time in ms, each None where it has none.

    CoDel's sojourn time is that of the packet dequeued last, PIE's its current estimate of the queueing delay,
    DualPI2's how long the packet at the head has waited, in the slower of its two queues, CAKE's a moving mean.
    """
    if kind == "cake":
        marks, sojourns_us = _cake_figures(data)
    else:
        marks, sojourns_us = (_numbers(data, places) for places in AQM_FIGURES.get(kind, ((), ())))
    return {
        "ecn_marks": sum(marks) if marks else None,
        "sojourn_ms": max(sojourns_us) / 1e3 if sojourns_us else None,
    }


def _cake_figures(data: memoryview) -> tuple[list[int], list[int]]:
    """Return the ECN marks and the mean sojourn time in µs of each of CAKE's tins, which are attributes."""
    tins = attributes(attributes(data, 0).get(TCA_CAKE_STATS_TIN_STATS, memoryview(b"")), 0)
    found = [attributes(tin, 0) for tin in tins.values()]
    return (
        [_U32.unpack_from(tin[TCA_CAKE_TIN_STATS_ECN_MARKED_PACKETS])[0] for tin in found],
        [_U32.unpack_from(tin[TCA_CAKE_TIN_STATS_AVG_DELAY_US])[0] for tin in found],
    )


def _numbers(data: memoryview, places: Iterable[int]) -> list[int]:
    """Return the 32-bit numbers at these places, as far as the kernel's structure reaches."""
    return [_U32.unpack_from(data, place)[0] for place in places if len(data) >= place + 4]


def frames(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield (time ns, lateness ns, messages) of each sample; stop at one that was not written whole."""
    data = path.read_bytes() if path.exists() else b""
    offset = 0
    while offset + FRAME.size <= len(data):
        t_ns, late_ns, length = FRAME.unpack_from(data, offset)
        offset += FRAME.size
        if offset + length > len(data):
            return
        yield t_ns, late_ns, data[offset : offset + length]
        offset += length


def tables(plan: Mapping[str, Any], path: Path) -> tuple[pl.DataFrame, pl.DataFrame, list[int]]:
    """Return the flow table, the queue table and each sample's lateness in ns, from a file of samples."""
    probes: Sequence[Mapping[str, Any]] = plan["probes"]
    ccas = {flow["flow_id"]: flow["cca"] for flow in plan["flows"]}
    flow_rows: list[dict[str, Any]] = []
    queue_rows: list[dict[str, Any]] = []
    lateness = []
    for t_ns, late_ns, data in frames(path):
        lateness.append(late_ns)
        flows: dict[str, dict[str, Any]] = {}
        for kind, sequence, body in messages(data):
            probe = probes[sequence]
            if kind == RTM_NEWQDISC and (queue := queue_row(body)):
                queue_rows.append({"t_s": t_ns / 1e9, "queue_id": probe["queue_id"], **queue})
            elif kind == SOCK_DIAG_BY_FAMILY:
                flow_id = probe["flow_id"]
                if probe["side"] == "sender" and (row := sender_row(body, ccas[flow_id])):
                    flows[flow_id] = {"t_s": t_ns / 1e9, "flow_id": flow_id, "cca": ccas[flow_id], **row}
                elif probe["side"] == "receiver" and flow_id in flows:
                    flows[flow_id]["bytes_received"] = received_bytes(body)
        flow_rows += flows.values()
    return (
        pl.DataFrame(flow_rows, schema=_full(FLOWS.schema)),
        pl.DataFrame(queue_rows, schema=_full(QUEUES.schema)),
        lateness,
    )


def _full(schema: pl.Schema) -> dict[str, Any]:
    return dict(schema.items())


def events(raw: Path, t0_ns: int) -> pl.DataFrame:
    """Return the event table from what traffic, controller and links wrote, on the run's clock."""
    rows = []
    for source, name in EVENT_FILES:
        path = raw / name
        for line in path.read_text().splitlines() if path.exists() else ():
            event = _parsed(line)
            if event is not None:
                rows.append(
                    {
                        "t_s": (event["t_ns"] - t0_ns) / 1e9,
                        "source": "sampler" if event["kind"] == "counters" else source,
                        "kind": event["kind"],
                        "subject": str(event["subject"]),
                        "detail": event["detail"],
                    }
                )
    return pl.DataFrame(rows, schema=_full(EVENTS.schema))


def _parsed(line: str) -> dict[str, Any] | None:
    """Return a line's object, or None for one that was cut by a crash."""
    try:
        parsed = json.loads(line)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) and {"t_ns", "kind", "subject", "detail"} <= parsed.keys() else None
