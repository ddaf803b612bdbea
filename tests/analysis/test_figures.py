"""The figures: what they show, that they never lose an extreme, and that they are the same file each time."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.figure import Figure

from analysis import figures
from lab.record import EVENTS, RecordError, Run
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


def with_events(run: Run, *events: tuple[float, str, str]) -> Run:
    """Record events of a source and kind."""
    rows = [{"t_s": t, "source": source, "kind": kind, "subject": "x", "detail": ""} for t, source, kind in events]
    run.write_tables(events=pl.DataFrame(rows, schema=EVENTS.schema))
    return Run.open(run.path)


def test_events_are_on_the_time_axis(make_run: MakeRun) -> None:
    """Joins, controller decisions and link events are lines in every panel, and named once; what came before is not."""
    run = make_run({"cubic-1": 6.0, "bbr-1": 4.0}, start_s={"bbr-1": 3.0})
    run = with_events(run, (-1.0, "controller", "ready"), (7.0, "controller", "queues_set"), (9.0, "link", "handover"))
    figure = figures.overview(run)
    for axes in figure.axes[:5]:
        vertical = {float(line.get_xdata()[0]) for line in axes.lines if list(line.get_ydata()) == [0, 1]}  # type: ignore[arg-type,index]
        assert {3.0, 7.0, 9.0} <= vertical and -1.0 not in vertical
    legend = figure.axes[0].get_legend()
    assert legend is not None
    words = " ".join(text.get_text() for text in legend.get_texts())
    assert all(kind in words for kind in ("flow joins", "controller", "link"))


def test_shares_fill_the_whole(make_run: MakeRun) -> None:
    """6 and 4 Mbit/s are 60 % and 40 %: the first band ends at 60, the second at 100."""
    (axes,) = figures.share_figure(make_run({"cubic-1": 6.0, "bbr-1": 4.0})).axes
    tops = [np.asarray(band.get_paths()[0].vertices)[:, 1].max() for band in axes.collections[:2]]
    assert tops == pytest.approx([60.0, 100.0], abs=0.1)
    assert "%" in axes.get_ylabel()


def test_delay_distribution(make_run: MakeRun) -> None:
    """Constant delays are a step: sRTT at 60 ms, 50,000 bytes at 20 Mbit/s at 20 ms; both axes have units."""
    left, right = figures.delay_cdf_figure(make_run({"cubic-1": 6.0, "bbr-1": 4.0})).axes
    assert "ms" in left.get_xlabel() and "ms" in right.get_xlabel()
    assert set(np.asarray(left.lines[0].get_xdata())) == {60.0}
    assert np.allclose(np.asarray(right.lines[0].get_xdata()), 20.0)


def test_goodput_and_delay(make_run: MakeRun) -> None:
    """The middle of each flow's ellipse: 20 ms above the base, at its goodput; less delay is to the right."""
    (axes,) = figures.goodput_delay_figure(make_run({"cubic-1": 6.0, "bbr-1": 4.0})).axes
    middles = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in axes.lines]  # type: ignore[arg-type,index]
    assert middles == [pytest.approx((20.0, 6.0)), pytest.approx((20.0, 4.0))]
    assert axes.xaxis_inverted()


def test_pdf(sawtooth_run: Run, tmp_path: Path) -> None:
    """PDF on request, the same bytes each time."""
    first = figures.save_all(sawtooth_run, tmp_path / "a", ("pdf",))
    second = figures.save_all(sawtooth_run, tmp_path / "b", ("pdf",))
    assert all(path.read_bytes().startswith(b"%PDF") for path in first)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_ecn_marks_are_drawn_beside_drops(make_run: MakeRun) -> None:
    """Where the queue counts marks they have ticks and a legend entry of their own."""
    run = make_run({"cubic-1": 6.0, "bbr-1": 4.0})
    run.write_tables(queues=run.queues.with_columns(ecn_marks=pl.col("drops") * 2))
    legend = figures.backlog_figure(Run.open(run.path)).axes[0].get_legend()
    assert legend is not None
    words = [text.get_text() for text in legend.get_texts()]
    assert "drops (20 packets)" in words and "ECN marks (40 packets)" in words
