"""The page in a real browser: it draws, toggles and zooms, in light and dark, with no word on the console."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.report import write_report
from lab.record import Run
from tests.analysis.synthetic_runs import sawtooth

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("plotly")

pytestmark = pytest.mark.system

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
RECORDED = Path(__file__).parents[1] / "data" / "dumbbell-10s"
OPEN_S = 2.0
DRAWN = "section.run[data-drawn=true]"
CCAS = ("ndm_tcp", "cubic", "reno", "bbr") * 2


class Tab:
    """A page that was opened, and what its console said."""

    def __init__(self, browser: Any, path: Path, scheme: str = "light") -> None:
        """Open the page and wait until a single run is drawn."""
        self.page = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900}).new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.resolve().as_uri())

    def drawn(self) -> "Tab":
        """Wait until the run is drawn."""
        self.page.wait_for_selector(DRAWN, timeout=20_000)
        return self

    def shown(self) -> dict[str, int]:
        """Return how many lines each flow or queue has that are visible."""
        script = """() => {
            const counts = {};
            for (const trace of document.querySelector(".plots").data)
                counts[trace.name] = (counts[trace.name] ?? 0) + (trace.visible === true ? 1 : 0);
            return counts;
        }"""
        counts: dict[str, int] = self.page.evaluate(script)
        return counts

    def paths(self) -> int:
        """Return how many lines are really drawn: paths that have a length."""
        script = """() => [...document.querySelectorAll(".plots .scatterlayer path.js-line")]
            .filter((path) => path.getTotalLength() > 10).length"""
        return int(self.page.evaluate(script))

    def range(self) -> list[float]:
        """Return the seconds shown."""
        found: list[float] = self.page.evaluate("document.querySelector('.plots').layout.xaxis.range.map(Number)")
        return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a headless Chromium."""
    if CHROMIUM is None:
        pytest.skip("no Chromium: install the package chromium")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of the recorded run."""
    return write_report([Run.open(RECORDED)], tmp_path_factory.mktemp("page") / "report.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws_quietly(browser: Any, page: Path, scheme: str) -> None:
    """Every flow has its lines, the ground is that of the scheme, the console is empty, nothing else is loaded."""
    tab = Tab(browser, page, scheme).drawn()
    assert tab.said == []
    assert [url for url in tab.asked if not url.startswith("data:")] == [page.resolve().as_uri()]
    assert tab.paths() >= 4 * 3
    ground = tab.page.evaluate("document.querySelector('.plots').layout.paper_bgcolor")
    assert ground == {"light": "#ffffff", "dark": "#15171a"}[scheme]
    assert tab.page.locator("svg.topology rect").count() == 10


def test_a_toggle_hides_a_flow_everywhere(browser: Any, page: Path) -> None:
    """One click hides all lines of the flow and no other, a second one shows them again; "no flow" hides all flows."""
    tab = Tab(browser, page).drawn()
    before, paths = tab.shown(), tab.paths()
    button = tab.page.locator("button", has_text="bbr-1")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert tab.shown() == before | {"bbr-1": 0} and tab.paths() < paths
    button.click()
    assert tab.shown() == before
    tab.page.get_by_role("button", name="no flow").click()
    assert [tab.shown()[flow] for flow in ("ndm_tcp-1", "cubic-1", "reno-1", "bbr-1")] == [0, 0, 0, 0]
    assert tab.shown()["s1->s2"] == before["s1->s2"]
    assert tab.said == []


def test_a_zoom_zooms_every_panel(browser: Any, page: Path) -> None:
    """Dragging in the first panel narrows the one time axis that all share; the button shows the whole run again."""
    tab = Tab(browser, page).drawn()
    tab.page.evaluate("document.querySelector('.flows').scrollIntoView()")
    area = tab.page.locator(".plots .nsewdrag").first.bounding_box()
    assert area is not None
    x, y = area["x"], area["y"] + area["height"] / 2
    tab.page.mouse.move(x + 0.25 * area["width"], y)
    tab.page.mouse.down()
    tab.page.mouse.move(x + 0.5 * area["width"], y, steps=5)
    tab.page.mouse.up()
    deadline = time.monotonic() + 10
    while tab.range() == [0, 10] and time.monotonic() < deadline:
        tab.page.wait_for_timeout(50)
    assert tab.range() == pytest.approx([2.5, 5.0], abs=0.1)
    axes = tab.page.evaluate("[...new Set(document.querySelector('.plots').data.map((trace) => trace.xaxis))]")
    assert axes == ["x"]
    tab.page.get_by_role("button", name="whole run").click()
    assert tab.range() == [0, 10]
    assert tab.said == []


def test_zoom_shows_samples_that_the_whole_run_thins(browser: Any, tmp_path: Path) -> None:
    """A line of the whole run has its extremes only; of a part, every sample."""
    run = sawtooth(tmp_path / "run", duration_s=120.0)
    tab = Tab(browser, write_report([run], tmp_path / "page.html")).drawn()
    script = "document.querySelector('.plots').data.find((trace) => trace.yaxis === 'y3').x.length"
    whole = tab.page.evaluate(script)
    tab.page.evaluate("document.querySelector('section.run').plots.show([50, 60])")
    assert whole <= 1000 + 2
    assert tab.page.evaluate(script) in (201, 202, 203)  # 10 s at 50 ms, and one sample more at either side


def test_it_opens_in_time(browser: Any, tmp_path: Path) -> None:
    """8 flows, 300 s at 50 ms: below 10 MB, and drawn after less than 2 s of the page's own work.

    The work is the processor time of the page's thread, so that a busy machine doesn't count.
    """
    path = write_report([sawtooth(tmp_path / "run", CCAS, duration_s=300.0)], tmp_path / "page.html")
    assert path.stat().st_size < 10e6
    context = browser.new_context()
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    page.wait_for_selector(DRAWN, timeout=20_000)
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    assert 0.1 < metrics["TaskDuration"] < OPEN_S


def test_comparison(browser: Any, tmp_path: Path) -> None:
    """The means are drawn at once, a run when it is unfolded."""
    runs = [sawtooth(tmp_path / f"run{seed}", duration_s=10.0, seed=seed) for seed in (1, 2)]
    tab = Tab(browser, write_report(runs, tmp_path / "page.html"))
    tab.page.wait_for_selector("[data-comparison] .scatterlayer .point")
    assert tab.page.locator(DRAWN).count() == 0
    tab.page.locator("section.run summary").first.click()
    tab.drawn()
    assert tab.paths() >= 12 and tab.said == []
