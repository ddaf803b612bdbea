"""Calibration's pure parts; what it measures is tested on the lab kernel, through the verdict."""

import struct
from typing import Any

import pytest

from lab import calibration


def plan(
    buffer_bytes: int = 100_000, rate_mbit: float = 20.0, aqm: str = "fifo", more: dict[str, Any] | None = None
) -> dict[str, Any]:
    flow = {"flow_id": "cubic-1", "src": "snd1", "dst": "rcv1", "dst_address": ["10.0.0.1", 5001]}
    return {
        "flows": [flow, flow | {"flow_id": "bbr-1"}],
        "paths": {name: {"bottleneck": "s1->s2", "rate_mbit": rate_mbit} for name in ("cubic-1", "bbr-1")},
        "queues": {"s1->s2": {"buffer_bytes": buffer_bytes, "rate_mbit": rate_mbit, "aqm": aqm}} | (more or {}),
    }


def test_a_checksum_makes_the_whole_sum_to_all_ones() -> None:
    request = calibration.echo_request(identifier=7, sequence=3)
    words = struct.unpack(f"!{len(request) // 2}H", request)
    total = sum(words)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF  # RFC 1071
    assert request[:2] == bytes([8, 0]) and len(request) == 64


def test_one_train_for_each_bottleneck() -> None:
    (train,) = calibration.trains(plan())
    assert (train["edge"], train["frames"], train["skipped"]) == ("s1->s2", 52, 2)  # one frame of burst at 20 Mbit/s


def test_a_train_fits_the_buffer() -> None:
    (train,) = calibration.trains(plan(buffer_bytes=15_140))  # 10 frames
    assert train["frames"] == 9


def test_a_small_buffer_or_a_divided_port_has_no_train() -> None:
    assert calibration.trains(plan(buffer_bytes=3 * 1514)) == []
    assert calibration.trains(plan(more={"s1->s2/1": {"port": "s1->s2"}})) == []


def test_red_has_no_train_to_remember() -> None:
    assert calibration.trains(plan(aqm="red")) == []
    assert len(calibration.trains(plan(aqm="pie"))) == 1


def test_a_fast_shapers_burst_is_left_out() -> None:
    # 250 µs at 1 Gbit/s are 31,250 bytes, 21 frames
    (train,) = calibration.trains(plan(buffer_bytes=10_000_000, rate_mbit=1000.0))
    assert (train["skipped"], train["frames"]) == (22, 72)


@pytest.mark.parametrize(("gap_ns", "rate_mbit"), [(605_600, 20.0), (12_112, 1000.0)])
def test_the_rate_is_that_of_the_gaps(gap_ns: int, rate_mbit: float) -> None:
    arrivals = [0, 0, *range(0, 10 * gap_ns, gap_ns)]  # two frames of burst at once
    assert calibration.train_rate_mbit(arrivals, skipped=2) == pytest.approx(rate_mbit, rel=1e-6)


def test_too_few_arrivals_give_no_rate() -> None:
    assert calibration.train_rate_mbit([0, 1, 2], skipped=2) is None
    assert calibration.train_rate_mbit([], skipped=2) is None
