"""The calibration's arithmetic: what counts as right; and one link measured in the lab kernel."""

from pathlib import Path

import pytest

from experiments.calibrate import MAX_BUFFER_BYTES, Point, _backlog, _idle_rtt, _loss, _rate, _row, cells, grid, measure

POINT = Point(20.0, 40.0, 1.0, 10.0)


@pytest.mark.parametrize(("error", "good"), [(0.0, True), (0.0075, True), (0.015, False), (-0.015, False)])
def test_a_rate_is_right_within_one_percent(error: float, good: bool) -> None:
    assert _rate(error).good is good


@pytest.mark.parametrize(
    ("error_ms", "base_ms", "good"), [(0.09, 1.0, True), (0.11, 1.0, False), (0.49, 100.0, True), (-0.51, 100.0, False)]
)
def test_an_idle_rtt_is_right_within_the_larger_of_two_bounds(error_ms: float, base_ms: float, good: bool) -> None:
    assert _idle_rtt(error_ms, base_ms).good is good


@pytest.mark.parametrize(("missing", "good"), [(0, True), (1513, True), (1514, False), (-1, False)])
def test_the_largest_backlog_is_the_buffer_less_at_most_a_frame(missing: int, good: bool) -> None:
    assert _backlog(missing).good is good


@pytest.mark.parametrize(("lost", "good"), [(1000, True), (1077, True), (1079, False), (921, False)])
def test_a_loss_is_right_within_the_binomial_interval(lost: int, good: bool) -> None:
    """10 % of 10000: a standard deviation is 30, and 2.576 of them and the half that rounding adds are 77.8."""
    assert _loss(POINT, lost, 10_000).good is good


def test_what_was_found_is_compared_with_the_plan() -> None:
    plan = {
        "paths": {"cubic-1": {"base_rtt_ms": 40.0, "bottleneck": "s1->s2"}},
        "queues": {"s1->s2": {"buffer_bytes": 100_000}},
    }
    found = {
        "rate_mbit": 20.1, "idle_rtt_ms": 40.25, "largest_backlog_bytes": 99_000, "sent": 1000, "arrived_there": 900,
        "arrived_back": 500,
    }  # fmt: skip
    words, good = zip(*cells(POINT, plan, found), strict=True)
    assert words == ("+0.50%", "+0.250 ms", "-1000 B", "10.000%", "50.000%")
    assert good == (True, False, True, True, False)


def test_the_grid_reaches_all_that_is_asked_for() -> None:
    points = grid()
    assert {point.rate_mbit for point in points} >= {1.0, 1000.0}
    assert {point.rtt_ms for point in points} >= {1.0, 600.0}
    assert {point.buffer_bdp for point in points} == {0.25, 1.0, 8.0}
    assert {(p.rate_mbit, p.rtt_ms) for p in points if p.loss_pct == 31.0} >= {(1.0, 1.0), (1000.0, 600.0)}
    assert sum(point.buffer_bytes > MAX_BUFFER_BYTES for point in points) == 1


def test_a_buffer_below_a_frame_is_one_frame() -> None:
    point = Point(1.0, 1.0, 0.25)
    assert point.buffer_bytes == 1514
    assert _row(point, [])[2] == "1 frame"


@pytest.mark.system
def test_a_lossy_gigabit_link_is_as_configured(tmp_path: Path) -> None:
    """And so are a queue's last bytes, of which 83 frames leave in a millisecond."""
    assert [cell.good for cell in measure(Point(1000.0, 10.0, 1.0, 1.0), tmp_path / "point", 1, 1024)] == [True] * 5
