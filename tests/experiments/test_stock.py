"""The comparison with a stock kernel: when intervals overlap, and how the guest's words end. The rest: test-stock."""

from pathlib import Path

import pytest

from analysis.repeats import Difference
from analysis.statistics import Interval
from experiments.stock import PACKET_MS, PROGRAMS, ROWS, _cells, _ending, check, overlap
from topologies.errors import UsageError


def difference(a: tuple[float | None, float | None], b: tuple[float | None, float | None]) -> Difference:
    """Return one whose sides have these intervals."""
    left, right = (Interval(0.5, *bounds, 6) for bounds in (a, b))
    return Difference(left, right, Interval(0.0, -0.1, 0.1, 6), 0.0, 1.0)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((0.1, 0.3), (0.2, 0.4), True),
        ((0.2, 0.4), (0.1, 0.3), True),
        ((0.1, 0.4), (0.2, 0.3), True),
        ((0.1, 0.2), (0.2, 0.3), True),
        ((0.1, 0.2), (0.21, 0.3), False),
        ((0.21, 0.3), (0.1, 0.2), False),
        ((None, None), (0.1, 0.2), False),
    ],
)
def test_intervals_overlap_when_they_share_a_value(
    a: tuple[float | None, float | None], b: tuple[float | None, float | None], expected: bool
) -> None:
    assert overlap(difference(a, b)) is expected


@pytest.mark.parametrize(("b", "expected"), [((0.8, 0.9), True), ((0.81, 0.9), False)])
def test_intervals_overlap_within_what_a_measure_can_tell(b: tuple[float, float], expected: bool) -> None:
    assert overlap(difference((0.1, 0.2), b), 0.6) is expected


def test_a_packet_takes_six_tenths_of_a_millisecond() -> None:
    assert pytest.approx(1514 * 8 / 20e6 * 1e3) == PACKET_MS


def test_a_row_has_the_units_of_its_label() -> None:
    row = ROWS[0]
    assert row.label == "share of ndm_tcp, %"
    assert _cells(row, difference((0.1, 0.2), (0.3, 0.4))) == (
        "share of ndm_tcp, % | 50.0 (10.0 .. 20.0) | 50.0 (30.0 .. 40.0) | 0.0 (-10.0 .. 10.0) | **no**"
    )


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        ('{"phase": "flows"}\n{"done": true}\n', "complete", ""),
        ('{"phase": "flows"}\n{"t_s": 1', "crashed", "the guest ended before the run did"),
        ('{"error": "no netem", "exit_status": 2}\n', "crashed", "no netem"),
        (None, "crashed", "the guest ended before the run did"),
    ],
)
def test_how_a_run_in_the_guest_ended(tmp_path: Path, words: str | None, status: str, error: str) -> None:
    path = tmp_path / "words.jsonl"
    if words is not None:
        path.write_text(words)
    ending = _ending(path)
    assert (ending.status, ending.error) == (status, error)


def test_a_kernel_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.stock.PROGRAMS", {})
    with pytest.raises(UsageError, match=r"--release 9\.9: of the kernels|no kernel in /boot has its headers"):
        check("9.9")


def test_a_program_that_is_missing_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.stock.find_program", lambda name: None if name == "cpio" else name)
    assert "cpio" in PROGRAMS
    with pytest.raises(UsageError, match=r"^cpio is missing: apt-get install cpio$"):
        check(None)
