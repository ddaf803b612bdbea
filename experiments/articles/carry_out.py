"""Runs the jobs and keeps each result as one file, so that what was interrupted goes on where it was.

OUT/results/TRIAL/VARIANT/seedN.json   a run as numbers; there only when the run has ended, well or not
OUT/runs/TRIAL/VARIANT/seedN/          what it was made from
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from experiments.articles.measures import Result, of_iperf3, of_run
from experiments.articles.trials import Footprint, Job, Link, Published
from experiments.footprint import build_bench, run_bench, state_bytes
from experiments.session import at_once
from lab import provenance
from lab.execute import CANCEL_S, Where, execute
from lab.guest import GUEST, Guest
from lab.kernels import checkout_job, compile_sources, lab_kernel
from topologies.errors import FairbedError, UsageError

MEMORY_MB = 1024
LATE_S = 600.0
"""Real time beyond a run's own after which it counts as hung."""

COMPLETE, CRASHED, MISSING = "complete", "crashed", "missing"
"""How a job ended; missing: the kernel has no such algorithm."""


def folder(job: Job) -> Path:
    """Return a job's place below the results, and below the runs."""
    return Path(job.trial.name, job.variant.replace(",", "+"), f"seed{job.seed}")


class Store:
    """The results in a directory."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def path(self, job: Job) -> Path:
        """Return where a job's result is, once there is one."""
        return (self.out / "results" / folder(job)).with_suffix(".json")

    def load(self, job: Job) -> Result | None:
        """Return a job's result, None when it has not ended yet.

        Raises
        ------
        UsageError
            When what is there was made with other settings, or is no result.
        """
        path = self.path(job)
        if not path.exists():
            return None
        try:
            result: Result = json.loads(path.read_text())
            settings = result["settings"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is not a result ({error}): remove it, and its run is made again") from error
        if settings != json.loads(json.dumps(job.trial.settings())):
            raise UsageError(f"{path} was made with other settings of {job.trial.name}: choose another --out")
        return result

    def save(self, job: Job, result: Result) -> None:
        """Keep a result, at once and whole."""
        path = self.path(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
        part.replace(path)

    def work(self, job: Job) -> Path:
        """Return the empty place of a job's run; what an interrupted one left there is removed."""
        place = self.out / "runs" / folder(job)
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place


def carry_out(
    jobs: Sequence[Job], store: Store, side_by_side: int, tell: Callable[[Job, Result], None] = lambda *_: None
) -> None:
    """Run every job that has no result yet, several side by side: each lab kernel has a processor of its own.

    Raises
    ------
    KeyboardInterrupt
        At once; results so far are kept.
    """
    waiting = [job for job in jobs if store.load(job) is None]
    compile_sources()
    lab_kernel()
    cancelled = threading.Event()
    commit = provenance.commit()

    def one(job: Job) -> None:
        result = {**attempt(job, store.work(job), cancelled), "commit": commit}
        store.save(job, result)
        tell(job, result)

    at_once(one, waiting, side_by_side, cancelled)


def attempt(job: Job, place: Path, cancelled: threading.Event) -> Result:
    """Run a job and return its result; a run that fails gives one too, with the reason."""
    result: Result = {
        "trial": job.trial.name,
        "variant": job.variant,
        "seed": job.seed,
        "settings": job.trial.settings(),
        "status": COMPLETE,
        "error": "",
    }
    runners: dict[type, Callable[[Job, Path, threading.Event], Result]] = {
        Published: _on_loopback,
        Link: _on_link,
        Footprint: _footprint,
    }
    try:
        return result | runners[type(job.trial.setting)](job, place, cancelled)
    except UsageError as error:
        if "unknown algorithm" not in str(error):
            raise
        return result | {"status": MISSING, "error": str(error)}
    except (FairbedError, ValueError, OSError) as error:
        return result | {"status": CRASHED, "error": " ".join(str(error).split())}


def _on_link(job: Job, place: Path, cancelled: threading.Event) -> Result:
    setting = job.trial.setting
    assert isinstance(setting, Link)  # noqa: S101 - the caller has looked
    scenario = setting.scenario(job.trial.name, job.variant, job.seed)
    run = execute(scenario, place, Where("lab", "virtual", MEMORY_MB), cancelled=cancelled)
    return of_run(run) | {"verdict": run.verdict}


def _on_loopback(job: Job, place: Path, cancelled: threading.Event) -> Result:
    setting = job.trial.setting
    assert isinstance(setting, Published)  # noqa: S101 - the caller has looked
    place.mkdir()
    (place / "job.json").write_text(json.dumps({"cca": job.variant, "seconds": setting.seconds, "tc": setting.tc}))
    words = ["-m", "lab.loopback", str(GUEST / "run")]
    with Guest(lab_kernel(), checkout_job(words, place, job.seed, setting.clock, MEMORY_MB)) as guest:
        assert guest.stdout is not None and guest.stderr is not None  # noqa: S101 - no tty was asked for
        status = _wait(guest, setting.seconds + LATE_S, cancelled)
        said = guest.stderr.read().decode(errors="replace").strip()
    if status:
        raise (UsageError if status == UsageError.exit_status else FairbedError)(said or f"exit status {status}")
    return of_iperf3(place)


def _footprint(job: Job, place: Path, _: threading.Event) -> Result:
    place.mkdir()
    built = _bench(place.parents[1])
    cycles = run_bench(built, [job.variant])
    if job.variant not in cycles:
        raise UsageError(f"unknown algorithm {job.variant}: the lab kernel does not have it")
    sizes = _state_bytes()
    state = {"state_bytes": float(sizes[job.variant])} if job.variant in sizes else {}
    return {"measures": {"cycles_per_ack": cycles[job.variant], **state}, "series": {}}


_building = threading.Lock()


def _bench(where: Path) -> Path:
    """Return the directory of the benchmark's module, built by the first who asks."""
    built = where / "module"
    with _building:
        if not (built / "cc_bench.ko").exists():
            shutil.rmtree(built, ignore_errors=True)
            built.mkdir(parents=True)
            build_bench(built.resolve())
    return built


@cache
def _state_bytes() -> dict[str, int]:
    return state_bytes()[0]


def _wait(guest: Guest, limit_s: float, cancelled: threading.Event) -> int:
    """Return the guest's exit status; what it prints fits into its pipes."""
    deadline = time.monotonic() + limit_s
    while not cancelled.is_set():
        try:
            return guest.wait(CANCEL_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                raise FairbedError(f"the run hung: it did not end within {limit_s:g} s of real time") from None
    raise KeyboardInterrupt


def digest(results: Iterable[Result]) -> str:
    """Return one hash over what runs on the virtual clock gave: the same for the same seeds, on one installation."""
    total = hashlib.sha256()
    for result in results:
        if result["settings"]["clock"] == "virtual":
            kept: dict[str, Any] = {name: value for name, value in result.items() if name != "commit"}
            total.update(json.dumps(kept, sort_keys=True).encode())
    return total.hexdigest()[:16]
