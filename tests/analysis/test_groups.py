"""Groups of repeats, and the figures of several runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from analysis import group_figures
from analysis.groups import group_runs
from analysis.repeats import between_algorithms, summarise_repeats
from lab.record import Run
from tests.analysis.synthetic_runs import MakeRun
from topologies.errors import UsageError

FLOWS = {"cubic-1": 6.0, "bbr-1": 4.0}


def with_settings(run: Run, **params: Any) -> Run:
    """Give a run parameters of its topology."""
    run.write_info(run.info | {"scenario": run.scenario | {"params": params}})
    return Run.open(run.path)


@pytest.fixture
def sweep(make_run: MakeRun) -> list[Run]:
    """Two RTTs, two buffers, two seeds each; Jain's index is 1 at 20 ms and lower at 80 ms."""
    return [
        with_settings(
            make_run({"cubic-1": 5.0 + rtt / 40, "bbr-1": 5.0}, name=f"{rtt}-{buffer}-{seed}", seed=seed),
            rtt_ms=rtt,
            buffer=buffer,
        )
        for rtt in (80, 0)
        for buffer in ("1bdp", "2bdp")
        for seed in (1, 2)
    ]


def test_groups_are_named_by_what_differs(sweep: list[Run]) -> None:
    """Seeds are repeats; the label holds the settings that vary, and only those."""
    groups = group_runs(sweep)
    assert [group.label for group in groups] == [
        "dumbbell, rtt_ms 80, buffer 1bdp",
        "dumbbell, rtt_ms 80, buffer 2bdp",
        "dumbbell, rtt_ms 0, buffer 1bdp",
        "dumbbell, rtt_ms 0, buffer 2bdp",
    ]
    assert [len(group.runs) for group in groups] == [2, 2, 2, 2]
    assert group_runs(sweep[:2])[0].label == "dumbbell"


def words(figure: Figure) -> str:
    """Return the texts in a figure's panels and its title."""
    return " ".join([figure.get_suptitle(), *(text.get_text() for axes in figure.axes for text in axes.texts)])


def test_heat_map(sweep: list[Run]) -> None:
    """Numbers in order along their axis, the index in each cell: 12² / (2 (7² + 5²)) = 0.973 at 80 ms, 1 at 0 ms."""
    figure = group_figures.heat_map(group_runs(sweep), "rtt_ms", "buffer")
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "80"]
    assert [text.get_text() for text in axes.texts] == ["1.000", "0.973", "1.000", "0.973"]
    assert "8 valid" in words(figure)


def test_heat_map_refuses_a_third_setting(sweep: list[Run]) -> None:
    """A cell must not mix runs that are not alike."""
    with pytest.raises(UsageError, match="differ in buffer too"):
        group_figures.heat_map(group_runs(sweep), "rtt_ms")


def test_bars_have_intervals_only_over_repeats(make_run: MakeRun) -> None:
    """Two repeats have an interval, a single run has none: its label says n = 1."""
    several = group_runs([make_run(FLOWS, name=f"r{seed}", seed=seed) for seed in (1, 2)])
    one = group_runs([make_run(FLOWS, name="single", seed=9)])
    for groups, intervals, count in ((several, 2, "n = 2"), (one, 0, "n = 1")):
        figure = group_figures.measure_figure(groups, "retransmission_rate", "Retransmitted")
        (axes,) = figure.axes
        assert len([c for c in axes.containers if type(c).__name__ == "ErrorbarContainer"]) == intervals
        assert "% segments" in axes.get_ylabel()
        assert count in figure.legends[0].get_texts()[0].get_text()


def test_censored_runs_are_not_times(make_run: MakeRun) -> None:
    """A run that never becomes fair is an open triangle at how long it had; one that does is a dot."""
    fair, unfair = make_run({"cubic-1": 5.0, "bbr-1": 5.0}, name="fair"), make_run({"cubic-1": 9.0, "bbr-1": 1.0})
    figure = group_figures.convergence_figure(group_runs([fair, unfair]))
    (axes,) = figure.axes
    assert [line.get_marker() for line in axes.lines] == ["o", "^"]
    assert np.array_equal(axes.lines[1].get_ydata(), [20.0])


def test_left_out_runs_are_said(make_run: MakeRun) -> None:
    """An invalid run is no part of a mean, and the title says so, in red."""
    bad = make_run(FLOWS, name="bad", seed=2, verdict={"status": "invalid", "reasons": ["x"]})
    figure = group_figures.measure_figure(group_runs([make_run(FLOWS), bad]), "goodput_mbit", "Goodput")
    assert "1 valid, 1 invalid; 1 left out" in figure.get_suptitle()


def test_files(sweep: list[Run], tmp_path: Path) -> None:
    """A sweep has a heat map; each group of repeats its goodput and delay."""
    names = {path.name for path in group_figures.save_group_figures(sweep, tmp_path / "out", ("png",))}
    assert {"heat-map.png", "retransmissions.png", "convergence.png", "goodput-delay-1.png"} <= names


def test_algorithms_are_compared_run_by_run(make_run: MakeRun) -> None:
    """Three runs in which bbr has 2, 3 and 4 Mbit/s more: mean 3, all of one sign: p = 2 / 2³; a is the first named."""
    runs = [make_run({"cubic-1": 4.0, "bbr-1": 5.0 + k}, name=f"r{k}", seed=k) for k in (1, 2, 3)]
    found = between_algorithms(runs)["cubic, bbr"]["goodput_mbit"]
    assert found.difference.mean == pytest.approx(3.0) and found.difference.n == 3
    assert found.difference.low is not None and found.difference.low >= 2.0
    assert found.cliffs_delta == 1.0 and found.p_value == pytest.approx(0.25)
    summary = summarise_repeats(runs)
    assert summary.differences["cubic, bbr"]["goodput_mbit"].difference.mean == pytest.approx(3.0)
    assert "cannot give a p below 0.25" in " ".join(summary.notes)


def test_one_run_compares_no_algorithms(make_run: MakeRun) -> None:
    """A single run never gets a winner."""
    assert between_algorithms([make_run(FLOWS)]) == {}
