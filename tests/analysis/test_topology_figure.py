"""The picture of the topology: every node, what the links are, where the bottleneck is."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.text import Annotation

from analysis.topology_figure import topology_figure
from lab.record import Run
from lab.scenario import make_flows, make_scenario
from topologies.layout import layout
from topologies.parking_lot import parking_lot


def recorded(directory: Path, topology: str, **params: Any) -> Run:
    scenario = make_scenario(
        name=topology,
        topology=topology,
        params=params,
        flows=make_flows(["ndm_tcp", "cubic"]),
        duration_s=10.0,
        warmup_s=1.0,
        seed=1,
    )
    run = Run.create(directory / "run")
    run.write_info(
        {
            "format": 1,
            "created": "2026-01-01T00:00:00Z",
            "scenario": scenario.model_dump(mode="json"),
            "paths": {},
            "queues": {},
            "environment": {},
            "verdict": {"status": "valid", "reasons": []},
            "outcome": {"status": "complete", "message": "", "wall_s": {}},
        }
    )
    return run


def words(run: Run) -> list[str]:
    figure = topology_figure(run)
    assert figure is not None
    return [text.get_text() for text in figure.axes[0].texts if isinstance(text, Annotation)]


def test_nodes_links_and_one_bottleneck(tmp_path: Path) -> None:
    said = words(recorded(tmp_path, "dumbbell", pairs=2, rate_mbit=20.0, rtt_ms=40.0))
    assert {"snd1 ndm_tcp", "snd2 cubic", "rcv1", "rcv2", "s1", "s2"} <= set(said)
    assert said.count("20 Mbit/s, 100 kB fifo") == 1
    assert said.count("20 ms") == 4
    assert said.count("") == 1  # the bottleneck's arrow


def test_directions_that_differ_are_both_told(tmp_path: Path) -> None:
    said = words(recorded(tmp_path, "satellite", pairs=2, down_mbit=50.0, up_mbit=5.0, delay_ms=250.0, buffer="100kB"))
    assert "→ 50 Mbit/s, 100 kB fifo\n250 ms\n← 5 Mbit/s, 100 kB fifo\n250 ms" in said


def test_a_topology_whose_file_is_gone_has_no_picture(tmp_path: Path) -> None:
    run = recorded(tmp_path, "graph_file", path=str(tmp_path / "gone.json"))
    assert topology_figure(run) is None


@pytest.mark.parametrize("hops", [1, 4])
def test_hosts_never_lie_on_a_link_between_switches(hops: int) -> None:
    places = layout(parking_lot(hops=hops, long=1, cross=1))
    hosts = [place for node, place in places.items() if not node.startswith("s") or node.startswith("snd")]
    assert not [(x, y) for x, y in hosts if y == 0 and 0 <= x <= hops]
