"""The figures: what they show, that they never lose an extreme, and that they are the same file each time."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.figure import Figure

from analysis import figures
from lab.record import RecordError, Run
from tests.analysis.synthetic_runs import MakeRun, sawtooth

ONE_PANEL = {
    figures.goodput_figure: "Mbit/s",
    figures.cwnd_figure: "segments",
    figures.rtt_figure: "ms",
    figures.backlog_figure: "kB",
    figures.jain_figure: "0 to 1",
}


@given(arrays(float, st.integers(1, 400), elements=st.floats(-1e6, 1e6)), st.integers(2, 40))
def test_downsampling_keeps_extremes_and_order(values: np.ndarray, buckets: int) -> None:
    """For any series: the largest and the smallest value survive, time rises, there are few points."""
    t_s = np.arange(values.size, dtype=float)
    t, v = figures.downsample(t_s, values, buckets)
    assert v.max() == values.max() and v.min() == values.min()
    assert np.all(np.diff(t) > 0)
    assert t.size <= 2 * buckets
    assert np.array_equal(values[t.astype(int)], v)


def test_downsampling_keeps_gaps() -> None:
    """A bucket of nothing but NaN stays a gap."""
    values = np.concatenate([np.ones(500), np.full(500, np.nan), np.ones(500)])
    _, v = figures.downsample(np.arange(1500.0), values, 30)
    assert np.isnan(v).sum() >= 9


@pytest.mark.parametrize(("draw", "unit"), ONE_PANEL.items())
def test_figures_have_units_and_name_the_run(sawtooth_run: Run, draw: Callable[[Run], Figure], unit: str) -> None:
    """Every axis has a unit, the title names run, seed and verdict."""
    figure = draw(sawtooth_run)
    (axes,) = figure.axes
    assert unit in axes.get_ylabel()
    assert "(s)" in axes.get_xlabel()
    assert axes.lines
    title = figure.get_suptitle()
    assert "dumbbell-1, seed 1" in title and "verdict: valid" in title


def test_overview_shares_the_time_axis(sawtooth_run: Run) -> None:
    """Five panels, one time axis, one legend of flows outside the panels."""
    figure = figures.overview(sawtooth_run)
    assert [axes.get_xlim() for axes in figure.axes] == [(0.0, 60.0)] * 5
    (legend,) = figure.legends
    assert [entry.get_text() for entry in legend.get_texts()] == ["ndm_tcp-1", "cubic-1", "reno-1", "bbr-1"]
    figure.draw_without_rendering()
    bottom = min(axes.get_window_extent().y0 for axes in figure.axes)
    assert legend.get_window_extent().y1 < bottom


def test_no_two_flows_look_alike(tmp_path: Path) -> None:
    """Without colour: marker and line style together tell every flow, known algorithm or not."""
    ccas = (
        "ndm_tcp",
        "bpf_ndm",
        "ndm2",
        "bpf_ndm2",
        "cubic",
        "reno",
        "bbr",
        "vegas",
        "bbr",
        "cubic",
        "westwood",
    )
    figure = figures.goodput_figure(sawtooth(tmp_path / "run", ccas, duration_s=3.0))
    lines = [line for line in figure.axes[0].lines if line.get_marker() != "None"]
    looks = {(line.get_marker(), str(line._unscaled_dash_pattern)) for line in lines}  # type: ignore[attr-defined]
    assert len(lines) == len(looks) == len(ccas)


def test_a_flow_alone_has_no_fairness_to_show(make_run: MakeRun) -> None:
    """An index of 1 for one flow would read as perfect fairness."""
    figure = figures.jain_figure(make_run({"cubic-1": 5.0}))
    assert not figure.axes[0].lines


def test_mind_is_drawn_only_when_recorded(sawtooth_run: Run, tmp_path: Path) -> None:
    """Four panels for the NDM algorithms, no figure for the others."""
    figure = figures.mind_figure(sawtooth_run)
    assert figure is not None and len(figure.axes) == 4
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ndm_tcp-1"]
    assert figures.mind_figure(sawtooth(tmp_path / "other", ("cubic",), 2.0)) is None


def test_flags_of_a_single_sample_are_seen() -> None:
    """A bit set in one sample lasts until the next."""
    t_s = np.array([0.0, 1.0, 2.0, 3.0])
    assert figures._spans(t_s, np.array([0, 1, 0, 1])) == [(1.0, 1.0), (3.0, 0.0)]


def test_saved_files_are_the_same_each_time(tmp_path: Path) -> None:
    """PNG and SVG of each figure, the overview first; the bytes depend on the run only."""
    run = sawtooth(tmp_path / "run", duration_s=8.0)
    first = figures.save_all(run, tmp_path / "first")
    second = figures.save_all(Run.open(run.path), tmp_path / "second")
    assert [path.name for path in first[:2]] == ["overview.png", "overview.svg"]
    assert len(first) == 20
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert not any(b"<dc:date>" in path.read_bytes() for path in first)


def test_runs_with_little_in_them_are_drawn(make_run: MakeRun, tmp_path: Path) -> None:
    """Crashed before the first sample, in the warm-up, and with a flow that never came."""
    empty = Run.create(tmp_path / "empty")
    empty.write_info({})
    short = make_run({"cubic-1": 5.0, "bbr-1": 5.0}, recorded_s=0.5, start_s={"bbr-1": 10.0}, name="short")
    for run in (Run.open(empty.path), short):
        figure = figures.overview(run)
        figure.draw_without_rendering()
        assert "verdict" in figure.get_suptitle()
    assert "at 0.5 s" not in figures.overview(short).get_suptitle()


def test_title_says_what_is_wrong(make_run: MakeRun) -> None:
    """Verdict, reasons and the crash are in the picture itself."""
    verdict = {"status": "invalid", "reasons": ["netem dropped 3 packets"]}
    run = make_run({"cubic-1": 5.0}, recorded_s=7.0, verdict=verdict, outcome={"status": "crashed"})
    title = figures.goodput_figure(run).get_suptitle()
    assert "invalid (netem dropped 3 packets); crashed at 7 s" in title


def test_unwritable_directory_is_our_error(make_run: MakeRun, tmp_path: Path) -> None:
    """The message names the directory."""
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot write figures"):
        figures.save_all(make_run({"cubic-1": 5.0}), tmp_path / "file")
