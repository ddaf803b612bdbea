"""The page: what is in it, that nothing in it is from elsewhere, and that hostile names stay text."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from analysis.__main__ import main
from analysis.report import RunData, report_html, write_report
from analysis.series import RunSeries
from analysis.topology_svg import topology_svg
from lab.record import EVENTS, RecordError, Run
from tests.analysis.synthetic_runs import MakeRun, sawtooth
from topologies.errors import UsageError

pytest.importorskip("plotly")

RECORDED = Path(__file__).parents[1] / "data" / "dumbbell-10s"
FLOWS = {"cubic-1": 6.0, "bbr-1": 4.0}


def embedded(page: str, name: str) -> dict[str, Any]:
    """Return the data that the page carries for its script."""
    found = re.search(f'<script type="application/json" id="{name}">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def test_page_of_a_recorded_run() -> None:
    """Table, topology, scenario, environment, verdict, events and how to replay it are there, below 10 MB."""
    page = report_html([Run.open(RECORDED)])
    for words in (
        "dumbbell-10s: dumbbell, seed 1",
        '<span class="verdict valid">valid</span>',
        "12.88",
        'aria-label="Topology"',
        "ndm_tcp:1,cubic:1,reno:1,bbr:1",
        "congestion_controls",
        "Events (",
        "python -m analysis replay",
        Run.open(RECORDED).digest(),
    ):
        assert words in page, words
    assert len(page.encode()) < 10e6


def test_the_page_loads_nothing() -> None:
    """Its policy forbids every load, and outside of plotly.js no tag asks for one."""
    page = report_html([Run.open(RECORDED)])
    assert "default-src 'none'" in page
    assert not re.findall(r"<(?:script|img|iframe|link)[^>]+(?:src|href)=[\"'](?!data:)", page)


def test_hostile_names_stay_text(make_run: MakeRun) -> None:
    """A name, a reason or an event that looks like HTML is shown, and ends no element."""
    hostile = "</script><script>alert(1)</script>"
    run = make_run(FLOWS, verdict={"status": hostile, "reasons": [hostile]})
    run.write_info(run.info | {"scenario": run.scenario | {"name": hostile}})
    event = {"t_s": 1.0, "source": "link", "kind": hostile, "subject": hostile, "detail": hostile}
    run.write_tables(events=pl.DataFrame([event], schema=EVENTS.schema))
    page = report_html([Run.open(run.path)])
    assert hostile not in page and "alert(1)" in page


def test_lines_are_the_samples(make_run: MakeRun) -> None:
    """A short run's samples are in the page one by one, 4 bytes each, equal arrays once."""
    run = make_run(FLOWS)
    content = embedded(report_html([run]), "run-0")
    cwnd = next(panel for panel in content["panels"] if panel["label"].startswith("cwnd"))
    arrays = [np.frombuffer(base64.b64decode(text), "<f4") for text in content["arrays"]]
    for trace in cwnd["traces"]:
        assert np.allclose(arrays[trace["x"]], run.flows["t_s"].unique().sort().to_numpy())
        assert set(arrays[trace["y"]].tolist()) == {50.0}
    assert cwnd["traces"][0]["x"] == cwnd["traces"][1]["x"]
    assert len(set(content["arrays"])) == len(content["arrays"])


def test_long_runs_are_thinned_with_their_extremes(tmp_path: Path) -> None:
    """Above the budget there are fewer points, and the largest cwnd is still there."""
    run = sawtooth(tmp_path / "run", duration_s=60.0)
    full, thin = (RunData(RunSeries(run), budget).content() for budget in (10**6, 10**4))
    points, tops = [], []
    for content in (full, thin):
        arrays = [np.frombuffer(base64.b64decode(text), "<f4") for text in content["arrays"]]
        lines = [arrays[trace["y"]] for trace in content["panels"][1]["traces"] if trace["width"] > 1]
        points.append(sum(line.size for line in lines))
        tops.append(max(line.max() for line in lines))
    assert points == [4 * 1201, points[1]] and points[1] < 4 * 210
    assert tops[1] == tops[0] == run.flows["cwnd_segments"].max()


def test_comparison_page(make_run: MakeRun) -> None:
    """Two groups of repeats: means with their runs, the difference, every run folded; one run alone is no finding."""
    runs = [make_run(FLOWS, name=f"a{seed}", seed=seed) for seed in (1, 2)]
    runs.append(make_run({"cubic-1": 5.0, "bbr-1": 5.0}, name="b", duration_s=21.0))
    page = report_html(runs)
    content = embedded(page, "comparison")
    assert content["groups"] == ["dumbbell, duration_s 20.0 (n = 2)", "dumbbell, duration_s 21.0 (n = 1)"]
    goodput = content["panels"][0]["groups"]
    assert goodput[0]["means"] == pytest.approx([6.0, 4.0]) and goodput[1]["means"] == pytest.approx([5.0, 5.0])
    assert goodput[1]["above"] == [0.0, 0.0]
    assert page.count('<details class="fold">') == 3
    assert "one run is never a finding" in page and "B - A" in page


def test_a_crashed_run_has_a_page(tmp_path: Path, make_run: MakeRun) -> None:
    """What is there is shown and said to be partial; a run that recorded nothing has a page too."""
    run = make_run(FLOWS, recorded_s=8.0, outcome={"status": "crashed", "message": "kernel panic"})
    page = report_html([run])
    assert "crashed: kernel panic" in page and "the record ends at 8 s of 20 s" in page
    empty = Run.create(tmp_path / "empty")
    empty.write_info({"outcome": {"status": "crashed"}})
    assert "nothing was recorded" in report_html([empty])


def test_topology() -> None:
    """Every node once; the bottleneck, and only it, is marked and labelled."""
    svg = topology_svg(Run.open(RECORDED))
    assert svg.count("<rect") == 10 and svg.count('class="bottleneck"') == 1 and svg.count('class="link"') == 8
    assert "20 Mbit/s" in svg and "100 kB fifo" in svg


def test_command(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints the page's path; what can't be written or shown is an error."""
    run = make_run(FLOWS)
    assert main(["report", str(run.path), "-o", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'page.html'}\n"
    with pytest.raises(RecordError, match="no-such"):
        write_report([run], tmp_path / "no-such" / "page.html")
    with pytest.raises(UsageError):
        report_html([])
