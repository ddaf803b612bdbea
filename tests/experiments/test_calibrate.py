"""The calibration's arithmetic: what counts as right, and what could not be measured."""

import polars as pl
import pytest

from experiments.calibrate import MAX_IN_FLIGHT_BYTES, Point, _backlog, _loss, _rate, _row, grid


def queue(rate_mbit: float, seconds: int, backlog: int = 3000) -> pl.DataFrame:
    """Return ten samples a second of a queue that sends at a rate."""
    times = [tenth / 10 for tenth in range(10 * seconds + 1)]
    sent = [round(rate_mbit * 1e6 / 8 * t_s) for t_s in times]
    return pl.DataFrame({"t_s": times, "sent_bytes": sent, "backlog_bytes": backlog, "drops": 1})


@pytest.mark.parametrize(("sent_mbit", "good"), [(20.0, True), (20.15, True), (20.3, False), (19.7, False)])
def test_a_rate_is_right_within_one_percent(sent_mbit: float, good: bool) -> None:
    assert _rate(Point(20.0, 40.0, 1.0), queue(sent_mbit, 10)).good is good


def test_a_rate_that_flows_did_not_ask_for_is_not_judged() -> None:
    cell = _rate(Point(20.0, 40.0, 1.0), queue(10.0, 10, backlog=0))
    assert (cell.words, cell.good) == ("flows reach 50%", None)


def test_the_fastest_second_counts_not_the_mean() -> None:
    slow, fast = queue(5.0, 10), queue(20.0, 10)
    later = fast.with_columns(pl.col("t_s") + 10.1, pl.col("sent_bytes") + slow["sent_bytes"][-1])
    assert _rate(Point(20.0, 40.0, 1.0), pl.concat([slow, later])).words == "+0.00%"


@pytest.mark.parametrize(("largest", "good"), [(100_000, True), (98_600, True), (98_400, False), (100_001, False)])
def test_the_largest_backlog_is_the_buffer_less_at_most_a_frame(largest: int, good: bool) -> None:
    assert _backlog(100_000, queue(20.0, 1, backlog=largest)).good is good


def test_a_queue_that_never_dropped_is_not_judged() -> None:
    assert _backlog(100_000, queue(20.0, 1, 50_000).with_columns(drops=0)).words == "50% used, no drop"


@pytest.mark.parametrize(("drops", "good"), [(1000, True), (1077, True), (1079, False), (921, False)])
def test_a_loss_is_right_within_the_binomial_interval(drops: int, good: bool) -> None:
    """10 % of 10000: a standard deviation is 30, and 2.576 of them and the half that rounding adds are 77.8."""
    assert _loss(Point(20.0, 40.0, 1.0, 10.0), drops, 10_000).good is good


def test_the_grid_reaches_all_that_is_asked_for() -> None:
    points = grid()
    assert {point.rate_mbit for point in points} >= {1.0, 1000.0}
    assert {point.rtt_ms for point in points} >= {1.0, 600.0}
    assert {point.buffer_bdp for point in points} == {0.25, 1.0, 8.0}
    assert {point.loss_pct for point in points} >= {0.0, 31.0}
    assert sum(point.in_flight_bytes > MAX_IN_FLIGHT_BYTES for point in points) == 1
    assert all(point.scenario(1).sample_ms >= 1 for point in points)


def test_a_buffer_below_a_frame_is_one_frame() -> None:
    point = Point(1.0, 1.0, 0.25)
    assert point.buffer_bytes == 1514
    assert _row(point, [])[2] == "1 frame"
