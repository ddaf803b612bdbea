"""Decoding against structures put together by hand, field by field as linux/tcp.h orders them."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from controller.netlink import message
from lab import decode, netlink
from lab.record import FLOWS, QUEUES
from lab.telemetry import FRAME

PLAN: dict[str, Any] = {
    "flows": [{"flow_id": "ndm_tcp-1", "cca": "ndm_tcp"}],
    "probes": [
        {"flow_id": "ndm_tcp-1", "side": "sender", "socket": {}},
        {"flow_id": "ndm_tcp-1", "side": "receiver", "socket": {}},
        {"queue_id": "s1->s2", "qdisc": {}},
    ],
}


def attribute(kind: int, payload: bytes) -> bytes:
    """Return one netlink attribute, padded."""
    data = struct.pack("=HH", 4 + len(payload), kind) + payload
    return data + bytes(-len(data) % 4)


def tcp_info(**values: int) -> bytes:
    """Return a struct tcp_info, zero but for the fields given, built in the header's own order."""
    order = (
        "state:B ca_state:B retransmits:B probes:B backoff:B options:B wscale:B flags:B "
        "rto:I ato:I snd_mss:I rcv_mss:I unacked:I sacked:I lost:I retrans:I fackets:I "
        "last_data_sent:I last_ack_sent:I last_data_recv:I last_ack_recv:I "
        "pmtu:I rcv_ssthresh:I rtt:I rttvar:I snd_ssthresh:I snd_cwnd:I advmss:I reordering:I rcv_rtt:I rcv_space:I "
        "total_retrans:I pacing_rate:Q max_pacing_rate:Q bytes_acked:Q bytes_received:Q segs_out:I segs_in:I "
        "notsent_bytes:I min_rtt:I data_segs_in:I data_segs_out:I delivery_rate:Q busy_time:Q rwnd_limited:Q "
        "sndbuf_limited:Q delivered:I delivered_ce:I bytes_sent:Q bytes_retrans:Q dsack_dups:I reord_seen:I"
    )
    fields = [item.split(":") for item in order.split()]
    assert values.keys() <= {name for name, _ in fields}
    return b"".join(struct.pack("=" + form, values.get(name, 0)) for name, form in fields)


def socket_answer(sequence: int, info: bytes, *, state: int = 1, more: bytes = b"") -> bytes:
    """Return the kernel's answer about one socket."""
    head = bytes([2, state]) + bytes(70)
    return message(20, head + attribute(netlink.INET_DIAG_INFO, info) + more, sequence)


def queue_answer(sequence: int) -> bytes:
    """Return the kernel's answer about a queue: 3 packets of 4542 bytes waiting, 17 dropped, 1000 sent."""
    stats = attribute(1, struct.pack("=QIxxxx", 1_514_000, 1000)) + attribute(
        3, struct.pack("=IIIII", 3, 4542, 17, 0, 25)
    )
    return message(36, bytes(20) + attribute(7, stats), sequence)


def frame(t_ns: int, data: bytes, late_ns: int = 0) -> bytes:
    return FRAME.pack(t_ns, late_ns, len(data)) + data


def decoded(tmp_path: Path, *frames: bytes) -> Any:
    path = tmp_path / "samples"
    path.write_bytes(b"".join(frames))
    return decode.tables(PLAN, path)


def test_a_sample_becomes_a_row_of_each_table(tmp_path: Path) -> None:
    sender = tcp_info(
        state=1, ca_state=3, snd_mss=1448, lost=2, rtt=45_500, rttvar=1_250, snd_ssthresh=20, snd_cwnd=33,
        total_retrans=5, pacing_rate=2_500_000, bytes_acked=1_000_000, segs_out=800, min_rtt=40_100,
        data_segs_out=790, delivery_rate=1_250_000, delivered=700, bytes_sent=1_143_920, bytes_retrans=7_240,
    )  # fmt: skip
    # flags DATA | LOSS = 9; entropy 612, plasticity 345, output -250
    mind = struct.pack("=IIII", 1 | 9 << 1, 612 | 345 << 10 | (1000 - 250) << 20, 45_500, 40_100)
    data = (
        socket_answer(0, sender, more=attribute(netlink.INET_DIAG_VEGASINFO, mind))
        + socket_answer(1, tcp_info(state=1, bytes_received=990_432))
        + queue_answer(2)
    )
    flows, queues, lateness = decoded(tmp_path, frame(1_500_000_000, data, late_ns=70))
    assert lateness == [70]
    row = flows.to_dicts()[0]
    assert row == {
        "t_s": 1.5, "flow_id": "ndm_tcp-1", "cca": "ndm_tcp", "tcp_state": 1, "ca_state": 3,
        "cwnd_segments": 33, "ssthresh_segments": 20, "srtt_ms": 45.5, "rttvar_ms": 1.25, "min_rtt_ms": 40.1,
        "mss_bytes": 1448, "bytes_sent": 1_143_920, "bytes_acked": 1_000_000, "bytes_retrans": 7_240,
        "bytes_received": 990_432, "segs_out": 800, "data_segs_out": 790, "retrans_segments": 5,
        "lost_segments": 2, "delivered_segments": 700, "delivery_rate_mbit": 10.0, "pacing_rate_mbit": 20.0,
        "bbr_bw_mbit": None, "bbr_min_rtt_ms": None, "bbr_pacing_gain": None, "bbr_cwnd_gain": None,
        "ndm_entropy": 612, "ndm_flags": 9, "ndm_plasticity": 345, "ndm_output": -250,
    }  # fmt: skip
    assert queues.to_dicts()[0] == {
        "t_s": 1.5, "queue_id": "s1->s2", "backlog_bytes": 4542, "backlog_packets": 3, "drops": 17,
        "overlimits": 25, "ecn_marks": None, "sojourn_ms": None, "sent_bytes": 1_514_000, "sent_packets": 1000,
    }  # fmt: skip


def test_infinite_and_unlimited_are_null(tmp_path: Path) -> None:
    info = tcp_info(state=1, snd_ssthresh=0x7FFFFFFF, pacing_rate=2**64 - 1, min_rtt=0xFFFFFFFF, snd_cwnd=10)
    flows, _, _ = decoded(tmp_path, frame(0, socket_answer(0, info)))
    row = flows.to_dicts()[0]
    assert (row["ssthresh_segments"], row["pacing_rate_mbit"], row["min_rtt_ms"]) == (None, None, None)


def test_bbr_gains_are_in_256ths() -> None:
    state = struct.pack("=IIIII", 2_500_000, 0, 40_001, 320, 512)
    assert decode.bbr_state(memoryview(state)) == {
        "bbr_bw_mbit": 20.0, "bbr_min_rtt_ms": 40.001, "bbr_pacing_gain": 1.25, "bbr_cwnd_gain": 2.0,
    }  # fmt: skip


def test_sockets_that_are_not_there_give_no_row(tmp_path: Path) -> None:
    error = message(2, struct.pack("=i", -2) + bytes(16), 0)
    time_wait = message(20, bytes([2, 6]) + bytes(70), 0)
    listener = socket_answer(1, tcp_info(state=10, bytes_received=5), state=10)
    flows, _, _ = decoded(tmp_path, frame(0, error), frame(1, time_wait + listener))
    assert flows.height == 0 and flows.schema == FLOWS.schema


def test_a_listener_is_not_the_receiver(tmp_path: Path) -> None:
    data = socket_answer(0, tcp_info(state=2)) + socket_answer(1, tcp_info(state=10, bytes_received=5), state=10)
    flows, _, _ = decoded(tmp_path, frame(0, data))
    assert flows["bytes_received"].to_list() == [None]


@pytest.mark.parametrize("cut", [1, 5, FRAME.size + 1])
def test_a_sample_cut_by_a_crash_is_left_out(tmp_path: Path, cut: int) -> None:
    whole = frame(0, queue_answer(2))
    _, queues, _ = decoded(tmp_path, whole, whole[:-cut])
    assert queues.height == 1 and queues.schema == QUEUES.schema


def test_no_samples_give_empty_tables(tmp_path: Path) -> None:
    flows, queues, lateness = decode.tables(PLAN, tmp_path / "missing")
    assert (flows.height, queues.height, lateness) == (0, 0, [])


def test_events_of_both_sources_are_on_the_runs_clock(tmp_path: Path) -> None:
    line = {"t_ns": 12_500_000_000, "kind": "start", "subject": "cubic-1", "detail": ""}
    (tmp_path / "traffic.jsonl").write_text(json.dumps(line) + "\n" + '{"t_ns": 1, "ki')
    (tmp_path / "controller.jsonl").write_text(json.dumps(line | {"kind": "ready", "subject": ""}) + "\n")
    events = decode.events(tmp_path, t0_ns=10_000_000_000)
    assert events.select("t_s", "source", "kind").rows() == [(2.5, "flow", "start"), (2.5, "controller", "ready")]


@pytest.mark.parametrize(
    ("kind", "words", "marks", "sojourn_ms"),
    [
        # maxpacket, count, lastcount, ldelay, drop_next, drop_overlimit, ecn_mark, dropping, ce_mark
        ("codel", [1514, 3, 1, 5_250, 0, 0, 7, 0, 0], 7, 5.25),
        # type, maxpacket, drop_overlimit, ecn_mark, …
        ("fq_codel", [0, 1514, 2, 11, 0, 0, 0, 0, 0], 11, None),
        # prob (two words), delay, avg_dq_rate, dq_rate_estimating, packets_in, dropped, overlimit, maxq, ecn_mark
        ("pie", [1, 2, 14_500, 0, 0, 900, 5, 0, 60, 13], 13, 14.5),
        # packets_in, dropped, overlimit, overmemory, ecn_mark, …
        ("fq_pie", [900, 5, 0, 0, 17, 0, 0, 0, 0], 17, None),
        # early, pdrop, other, marked
        ("red", [1, 2, 3, 19], 19, None),
        # prob, delay_c, delay_l, packets_in_c, packets_in_l, maxq, ecn_mark, step_marks, credit, memory …
        ("dualpi2", [1, 16_000, 900, 5, 6, 60, 23, 4, 0, 0, 0, 0], 27, 16.0),
        # tins (10) { the first (1) { marks (8), mean delay (19) } }, each attribute with its length and kind
        ("cake", [24 | 10 << 16, 20 | 1 << 16, 8 | 8 << 16, 29, 8 | 19 << 16, 4_750], 29, 4.75),
        ("cake", [], None, None),
        ("bfifo", [], None, None),
        ("codel", [1514, 3], None, None),
    ],
)
def test_an_aqms_own_figures(kind: str, words: list[int], marks: int | None, sojourn_ms: float | None) -> None:
    stats = attribute(1, struct.pack("=QIxxxx", 1514, 1)) + attribute(3, struct.pack("=IIIII", 0, 0, 0, 0, 0))
    stats += attribute(4, struct.pack(f"={len(words)}I", *words))
    body = bytes(20) + attribute(1, kind.encode() + b"\0") + attribute(7, stats)
    row = decode.queue_row(memoryview(body))
    assert row is not None and (row["ecn_marks"], row["sojourn_ms"]) == (marks, sojourn_ms)
