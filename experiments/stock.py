"""The lab kernel held against a distribution's own kernel, on one dumbbell: ``python -m experiments.stock``.

The stock kernel boots in QEMU once (``kernel/stock/boot.sh``), its time counted in instructions. What is planned and
what becomes of the samples is this machine's; in the guest there is only ``lab.runner``, as in the lab kernel.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from experiments import options as opt
from lab import provenance
from lab.commandline import run_app
from lab.execute import Ending, Where, begin, execute, finish
from lab.hosts import find_program
from lab.kernels import CHECKOUT, compile_sources
from lab.plan import make_plan
from lab.record import Run
from lab.scenario import Scenario, make_flows, make_scenario
from topologies.errors import FairbedError, UsageError
from topologies.units import PACKET_BYTES

if TYPE_CHECKING:
    from analysis.repeats import Comparison, Difference
    from analysis.statistics import Interval

app = typer.Typer(add_completion=False, rich_markup_mode=None)

STOCK = CHECKOUT / "kernel" / "stock"
NDM = CHECKOUT / "kernel" / "ndm"
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "cpio": "cpio", "dkms": "dkms",
}  # fmt: skip
"""Program -> Debian package that has it."""
DKMS_NAME, DKMS_VERSION = "ndm_tcp", "0.1.0"

CCAS = ("ndm_tcp", "cubic", "reno", "bbr")
WARM_UP, WARM_UP_S = "warm-up", 3.0
"""The first run in the guest reads programs and libraries from this machine, at which the guest's clock jumps."""

STEADY = "1"
"""An instruction of the guest takes 2 ns: two runs' work then fills a few percent of its time."""
MEMORY = "2G"


RATE_MBIT = 20.0
PACKET_MS = PACKET_BYTES * 8e-3 / RATE_MBIT
"""What one packet adds to a queueing delay: a full queue reads the same, to the packet, in run after run."""


class Row(NamedTuple):
    """A line of the table: where the measure is, what it is called, its factor, decimals and finest difference."""

    group: str
    measure: str
    label: str
    factor: float = 1.0
    decimals: int = 1
    resolution: float = 0.0


ROWS = (
    *(Row(cca, "share", f"share of {cca}, %", 100) for cca in CCAS),
    *(
        Row("overall", f"queueing_delay_{p}_ms", f"queueing delay, {p}, ms", resolution=PACKET_MS)
        for p in ("p50", "p95", "p99")
    ),
    Row("overall", "utilisation", "utilisation, %", 100),
    Row("overall", "jain", "Jain's index", decimals=3),
    *(Row(cca, "retransmission_rate", f"retransmissions of {cca}, %", 100, 2) for cca in CCAS),
    *(Row(cca, "rtt_inflation_p50_ms", f"RTT inflation of {cca}, p50, ms") for cca in CCAS),
)


def dumbbell(seed: int, duration_s: float) -> Scenario:
    """Return the main job's network and flows, for so long."""
    return make_scenario(
        name="dumbbell",
        topology="dumbbell",
        params={"pairs": len(CCAS), "rate_mbit": RATE_MBIT, "rtt_ms": 40.0, "buffer": "1bdp"},
        flows=make_flows(CCAS),
        duration_s=duration_s,
        warmup_s=min(5.0, duration_s / 2),
        seed=seed,
    )


def check(release: str | None) -> str:
    """Return the release to boot, by default the newest of this machine that has its headers.

    Raises
    ------
    UsageError
        Naming what is missing and the package that has it.
    """
    for program, package in PROGRAMS.items():
        if not find_program(program):
            raise UsageError(f"{program} is missing: apt-get install {package}")
    images = sorted(Path("/boot").glob("vmlinuz-*"), key=lambda path: path.stat().st_mtime)
    releases = [image.name.removeprefix("vmlinuz-") for image in images]
    found = [name for name in releases if Path("/lib/modules", name, "build", "Makefile").exists()]
    if not found:
        raise UsageError("no kernel in /boot has its headers: apt-get install linux-image-amd64 linux-headers-amd64")
    if release not in (None, *found):
        raise UsageError(f"--release {release}: of the kernels in /boot, these have headers: {', '.join(found)}")
    return release or found[-1]


def build_module(release: str, scratch: Path) -> Path:
    """Return NDM-TCP's module for a kernel, built and installed by DKMS in trees below ``scratch``."""
    trees = {name: scratch / name for name in ("dkmstree", "sourcetree", "installtree")}
    for tree in trees.values():
        tree.mkdir()
    (trees["installtree"] / release).mkdir()
    ignored = shutil.ignore_patterns("build")
    shutil.copytree(NDM, trees["sourcetree"] / f"{DKMS_NAME}-{DKMS_VERSION}", ignore=ignored)
    options = [word for name, tree in trees.items() for word in (f"--{name}", str(tree))] + ["--no-depmod"]
    for step in ("add", "build", "install"):
        command = ["dkms", step, "-m", DKMS_NAME, "-v", DKMS_VERSION, "-k", release, *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise FairbedError(f"dkms {step} for {release} failed: {done.stdout.strip()}")
    built = sorted(trees["installtree"].rglob("ndm_tcp.ko*"))
    if not built:
        raise FairbedError(f"dkms installed no ndm_tcp.ko for {release}")
    return built[0]


def run_stock(release: str, scenarios: Mapping[str, Scenario], out: Path, limit_s: int) -> list[Run]:
    """Run scenarios by name in one boot of a stock kernel, below ``out``; return the records in their order."""
    plans = {name: make_plan(scenario) | {"framework": "ryu"} for name, scenario in scenarios.items()}
    facts = {"kernel_kind": "stock", "clock": "real", "framework": "ryu", "application": ""}
    facts["why"] = f"{release} in QEMU, 2^{STEADY} ns an instruction"
    runs = {name: begin(plan, out / name, facts) for name, plan in plans.items()}
    try:
        boot(release, out, list(scenarios), limit_s)
    finally:
        for name, run in runs.items():
            finish(run, plans[name], _ending(run.raw / "words.jsonl"))
    for name, run in runs.items():
        if run.outcome["status"] != "complete":
            raise FairbedError(f"run {name} in the stock kernel: {run.outcome['message']}; see {run.raw}")
    return list(runs.values())


def boot(release: str, out: Path, names: Sequence[str], limit_s: int) -> None:
    """Boot the kernel and have it carry out the runs; what it says goes to standard error."""
    python = Path(sys.prefix).resolve() / "bin" / "python"
    with tempfile.TemporaryDirectory(prefix="fairbed-stock-") as scratch:
        module = build_module(release, Path(scratch))
        command = [str(STOCK / "boot.sh"), release, str(STOCK / "runs.sh"), str(module), str(python), *names]
        settings = {"STEADY": STEADY, "MEMORY": MEMORY, "LIMIT_S": str(limit_s), "OUT": str(out.resolve())}
        status = subprocess.run(command, cwd=CHECKOUT, env=os.environ | settings, stdout=sys.stderr, check=False)
    if status.returncode:
        raise FairbedError(f"the stock kernel {release} did not carry out the runs, for the reason above")


def _ending(words: Path) -> Ending:
    """Return how a run went by what its runner said; what was killed while speaking said half a line."""
    ending = Ending(error="the guest ended before the run did")
    for line in words.read_text().splitlines() if words.exists() else ():
        try:
            ending.hear(json.loads(line))
        except ValueError:
            break
    if ending.status == "complete":
        ending.error = ""
    return ending


def overlap(difference: Difference, resolution: float = 0.0) -> bool:
    """Say whether the intervals of both sides share a value, or come as near as the measure can tell."""
    a, b = difference.a, difference.b
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.low <= b.high + resolution and b.low <= a.high + resolution


def _has_zero(interval: Interval) -> bool:
    return interval.low is not None and interval.high is not None and interval.low <= 0 <= interval.high


def rows(comparison: Comparison) -> Iterator[tuple[Row, Difference]]:
    """Yield the table's rows whose measure both kernels have."""
    for row in ROWS:
        if difference := comparison.differences.get(row.group, {}).get(row.measure):
            yield row, difference


def _answer(row: Row, difference: Difference) -> str:
    if overlap(difference):
        return "yes"
    return "within a packet" if overlap(difference, row.resolution) else "**no**"


def _cells(row: Row, difference: Difference) -> str:
    def words(value: float | None) -> str:
        return "–" if value is None else f"{value * row.factor:.{row.decimals}f}"

    found = (difference.a, difference.b, difference.difference)
    intervals = [f"{words(x.mean)} ({words(x.low)} .. {words(x.high)})" for x in found]
    return " | ".join([row.label, *intervals, _answer(row, difference)])


def document(comparison: Comparison, lab: Sequence[Run], stock: Sequence[Run], command: str) -> str:
    """Return the Markdown page."""
    found = list(rows(comparison))
    agree = sum(overlap(difference) for _, difference in found)
    near = sum(overlap(difference, row.resolution) for row, difference in found) - agree
    closeness = f"; {near} more, of delays, come within one packet's time ({PACKET_MS:.1f} ms)" if near else ""
    apart = sum(not _has_zero(difference.difference) for _, difference in found)
    kernels = [run.info["environment"]["kernel"] for run in (lab[0], stock[0])]
    verdicts = ", ".join(sorted({run.verdict["status"] for run in (*lab, *stock)}))
    table = "".join(f"| {_cells(*pair)} |\n" for pair in found)
    scenario = stock[0].scenario
    seeds = ", ".join(str(run.scenario["seed"]) for run in stock)
    return f"""# The lab kernel and a stock kernel, side by side

Made by `{command}` on {datetime.now(UTC):%Y-%m-%d}, commit `{str(provenance.commit())[:12]}`. **{agree} of {len(found)}
pairs of intervals overlap**{closeness}.
Verdicts of all runs: {verdicts}.

| | lab kernel | stock kernel |
|---|---|---|
| release | {kernels[0]} | {kernels[1]} |
| where | user-mode Linux, one process | QEMU without KVM, x86-64, one processor |
| clock | virtual: computing costs no time | counts instructions, {2 ** int(STEADY)} ns each: computing costs time |
| ndm_tcp | built with the lab kernel | built by DKMS against the kernel's headers |
| runs | {len(lab)} | {len(stock)} |

Both carried out the same plans: one flow each of {", ".join(CCAS)} for {scenario["duration_s"]:g} s over 20 Mbit/s, a
base RTT of 40 ms, a drop-tail buffer of one BDP; seeds {seeds}; figures from {scenario["warmup_s"]:g} s on.
Means with their 95 % bootstrap intervals over the runs.

| measure | lab | stock | stock - lab | overlap |
|---|---:|---:|---:|---|
{table}
Overlapping intervals say that the runs of one kernel lie among the other's; they don't show that two kernels are the
same. In {apart} rows the interval of the difference leaves out zero, and with so few runs all intervals are too narrow
rather than too wide. What differs besides the release: in the lab the seed makes all that is random, the stock kernel
has its own randomness besides; and the stock kernel's computing takes time.
"""


@app.command(help="Run the main job's flows in the lab kernel and in a stock kernel, and write the table.")
def stock(
    page: Annotated[Path, typer.Option(help="The Markdown file to write.")] = Path("docs/stock.md"),
    out: Annotated[Path | None, typer.Option(help="Directory of the runs.", show_default=False)] = None,
    release: Annotated[str | None, typer.Option(help="A kernel in /boot; by default the newest.")] = None,
    repeats: Annotated[int, typer.Option(min=2, help="Runs in each kernel, with the seeds SEED, SEED + 1, ….")] = 6,
    duration: Annotated[float, typer.Option(min=6, help="Length of a run, s.")] = 30.0,
    seed: opt.Seed = 1,
    limit: Annotated[int, typer.Option(min=60, help="Real time that the stock kernel may take, s.")] = 3600,
) -> None:
    """Run the experiment."""
    from analysis import compare

    release = check(release)
    page.parent.mkdir(parents=True, exist_ok=True)
    out = out or Path("runs") / f"stock-{datetime.now():%Y%m%d-%H%M%S}"
    scenarios = {f"seed{number}": dumbbell(number, duration) for number in range(seed, seed + repeats)}
    compile_sources()
    warm_up = {WARM_UP: dumbbell(seed, WARM_UP_S)}
    on_stock = run_stock(release, warm_up | scenarios, out / "stock", limit)[1:]
    in_lab = [execute(scenario, out / "lab" / name, Where(kernel="lab")) for name, scenario in scenarios.items()]
    comparison = compare(in_lab, on_stock)
    page.write_text(document(comparison, in_lab, on_stock, "make stock-table"))
    print(f"runs     {out}\npage     {page}")


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments.stock"))
