"""How the two profiles behave in the lab kernel when something other than the window limits them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel.ndm_harness import ROOT

pytestmark = pytest.mark.system

Windows = dict[str, dict[str, tuple[int, float]]]

BDP_SEGMENTS = 20e6 / 8 * 0.040 / 1448
"""20 Mbit/s for 40 ms: 69 segments."""


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Windows:
    """The largest window in segments and the goodput in Mbit/s, by what limits and by algorithm (limited.py)."""
    script = [sys.executable, str(Path(__file__).with_name("limited.py")), "reno", "ndm_tcp", "ndm2"]
    lab = [sys.executable, "-m", "lab", "run", "--clock", "virtual", "--", *script]
    where = tmp_path_factory.mktemp("limited")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(lab, cwd=where, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    found: Windows = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("way", ["application", "qdisc"])
def test_fixed_window_is_bounded_by_use(windows: Windows, way: str) -> None:
    """What is not used does not grow: below four BDPs, as Reno."""
    assert windows[way]["ndm2"][0] < 4 * BDP_SEGMENTS
    assert windows[way]["reno"][0] < 4 * BDP_SEGMENTS


@pytest.mark.parametrize("way", ["application", "qdisc"])
def test_published_window_is_not(windows: Windows, way: str) -> None:
    """The published fault that the module warns of: a hundred BDPs and more, with nothing gained by it."""
    assert windows[way]["ndm_tcp"][0] > 100 * BDP_SEGMENTS
    assert windows[way]["ndm_tcp"][1] == pytest.approx(windows[way]["reno"][1], rel=0.01)


@pytest.mark.parametrize("cca", ["ndm_tcp", "ndm2"])
def test_a_full_bottleneck_bounds_both(windows: Windows, cca: str) -> None:
    """Where losses speak, neither stays far above what fits (one BDP and a buffer of one), and both fill it."""
    segments, goodput_mbit = windows["network"][cca]
    assert segments < 4 * BDP_SEGMENTS
    assert goodput_mbit > 0.95 * 20 * 1448 / 1514


@pytest.mark.parametrize("cca", ["reno", "ndm_tcp", "ndm2"])
def test_the_application_gets_what_it_offers(windows: Windows, cca: str) -> None:
    """A quarter of the rate."""
    assert windows["application"][cca][1] == pytest.approx(5.0, rel=0.02)
