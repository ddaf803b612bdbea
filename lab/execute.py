"""A scenario becomes a recorded run: where it runs, what it is told, what comes back.

The run itself is ``python -m lab.runner`` everywhere. On the host's kernel it is a process of this machine; on the lab
kernel it is the same process inside a guest. This module starts it, listens to it, keeps the wall-clock watchdog,
and turns what it wrote into the record, whatever way it ended.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from controller.guest import check as check_application
from controller.plan import write as write_controller_plan
from lab import decode, hosts, provenance, verdict
from lab.guest import GUEST, Clock, Guest
from lab.kernels import CHECKOUT, checkout_job, compile_sources, lab_kernel
from lab.plan import make_plan
from lab.record import Run
from lab.scenario import Scenario
from topologies.errors import FairbedError, UsageError

APPLICATION = "application.py"
"""Name, below ``raw``, of the application that took the controller's place."""

Kernel = Literal["auto", "host", "lab"]
Progress = Callable[[Mapping[str, Any]], None]

CANCEL_S = 0.2
"""How soon a cancelled run ends."""

WATCHDOG_S = 120.0
"""Real time without a word after which a run counts as hung; it says something every virtual second."""


@dataclass(frozen=True)
class Where:
    """Where a run executes.

    ``kernel`` and ``clock`` as on the command line; ``memory_mb`` is the guest's; ``framework`` the controller's.
    ``application`` is a file for that framework which makes the rules in place of ours.
    """

    kernel: Kernel = "auto"
    clock: Clock | None = None
    memory_mb: int = 1024
    framework: str = "ryu"
    watchdog_s: float = WATCHDOG_S
    application: Path | None = None


@dataclass
class Ending:
    """How a run went, as far as its words tell."""

    phases: list[tuple[str, float]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    error: str = ""
    exit_status: int = 0
    status: str = "crashed"

    def hear(self, message: Mapping[str, Any]) -> None:
        """Take in one message of the runner."""
        if "phase" in message:
            self.phases.append((message["phase"], time.monotonic()))
        elif "fault" in message:
            self.faults.append(message["fault"])
        elif "error" in message:
            self.error, self.exit_status = message["error"], message["exit_status"]
        elif "done" in message:
            self.status = "complete"

    def wall_s(self) -> dict[str, float]:
        """Return the real time that each phase took, in s."""
        now = time.monotonic()
        ends = [began for _, began in self.phases[1:]] + [now]
        return {name: round(end - began, 3) for (name, began), end in zip(self.phases, ends, strict=True)}


def choose(where: Where, ccas: set[str]) -> tuple[Literal["host", "lab"], Clock, str]:
    """Return the kernel and the clock to use, and why.

    Raises
    ------
    UsageError
        When ``host`` is asked for and can't do it, naming each missing thing; when host is to have a virtual clock.
    """
    missing = hosts.missing(ccas) if where.kernel in ("auto", "host") else []
    if where.kernel == "host" and missing:
        raise UsageError(
            f"this machine's kernel can't run this: it lacks {'; '.join(map(str, missing))}. --kernel lab can; "
            "`python -m lab doctor` says more"
        )
    if where.kernel == "host" or (where.kernel == "auto" and not missing and where.clock != "virtual"):
        if where.clock == "virtual":
            raise UsageError("--clock virtual needs --kernel lab: a host's own clock can't be moved")
        return "host", "real", "this machine's kernel has all that the scenario needs"
    reason = f"this machine's kernel lacks {missing[0]}" if missing else "asked for"
    return "lab", where.clock or "virtual", reason


def execute(
    scenario: Scenario,
    out: Path,
    where: Where,
    progress: Progress = lambda _: None,
    cancelled: threading.Event | None = None,
) -> Run:
    """Run a scenario and return its record; setting ``cancelled`` is like Ctrl-C, for runs in other threads.

    Raises
    ------
    UsageError
        Before anything starts, when it can't be run as asked.
    FairbedError
        When the run failed; the record says so too, and holds what was recorded.
    KeyboardInterrupt
        After what was recorded has been kept.
    """
    plan = make_plan(scenario) | {"framework": where.framework}
    plan |= _application(where, plan["controller"])
    kernel, clock, reason = choose(where, {flow["cca"] for flow in plan["flows"]})
    facts = {
        "kernel_kind": kernel,
        "clock": clock,
        "why": reason,
        "framework": where.framework,
        "application": str(where.application or ""),
    }
    run = begin(plan, out, facts)
    if where.application is not None:
        shutil.copyfile(where.application, run.raw / APPLICATION)
    ending = Ending()
    ending.hear({"phase": "boot"})
    slept_before_s = slept_s()
    try:
        progress({"where": kernel, "clock": clock, "why": reason})
        with _started(kernel, clock, where, scenario, run) as words:
            for message in _listen(words, where.watchdog_s, cancelled or threading.Event()):
                ending.hear(message)
                progress(message)
    except KeyboardInterrupt:
        ending.status, ending.error, ending.exit_status = "interrupted", "interrupted by the user", 130
        raise
    except FairbedError as error:
        ending.error = ending.error or str(error)
        ending.exit_status = ending.exit_status or error.exit_status
    finally:
        ending.faults += verdict.sleep_problems(clock, slept_s() - slept_before_s)
        finish(run, plan, ending)
    if ending.status != "complete":
        kind = UsageError if ending.exit_status == UsageError.exit_status else FairbedError
        raise kind(ending.error or "the run ended without saying why")
    return run


def begin(plan: Mapping[str, Any], out: Path, facts: Mapping[str, Any]) -> Run:
    """Return the record of a run that is to come: its plan is there, and that it has not finished.

    ``facts`` say where it is going to run: kernel_kind, clock, why, framework, application.
    """
    run = Run.create(out)
    (run.raw / "plan.json").write_text(json.dumps(plan, indent=1) + "\n")
    write_controller_plan(run.raw / "controller.json", plan["controller"])
    run.write_info(
        {
            "created": provenance.now(),
            "scenario": plan["scenario"],
            "paths": plan["paths"],
            "queues": plan["queues"],
            "environment": provenance.facts() | dict(facts),
            "verdict": {"status": "invalid", "reasons": ["the run has not finished"]},
            "outcome": {"status": "crashed", "message": "the run has not finished", "wall_s": {}},
        }
    )
    return run


def slept_s() -> float:
    """Return for how long this machine has been suspended since its boot, in s: one clock goes on then."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


def _application(where: Where, controller: Mapping[str, Any]) -> dict[str, str]:
    """Return the plan's entry for someone else's application, kept with the run."""
    if where.application is None:
        return {}
    if any(step["adaptive"] for step in (controller, *controller["later"])):
        raise UsageError("--queues adaptive moves our own rules: with --controller, choose another policy")
    check_application(where.application, where.framework)
    return {"application": APPLICATION}


@contextmanager
def _started(kernel: str, clock: Clock, where: Where, scenario: Scenario, run: Run) -> Iterator[IO[bytes]]:
    """Start the runner; gives its standard output. What ends it early raises."""
    starter = _in_guest if kernel == "lab" else _on_host
    with (run.raw / "runner.log").open("xb") as log, starter(clock, where, scenario, run, log) as words:
        yield words


@contextmanager
def _in_guest(clock: Clock, where: Where, scenario: Scenario, run: Run, log: IO[bytes]) -> Iterator[IO[bytes]]:
    compile_sources()
    words = ["-m", "lab.inside", "--openvswitch", "--", "-m", "lab.runner", str(GUEST / "run")]
    job = checkout_job(words, run.path, scenario.seed, clock, where.memory_mb)
    with Guest(lab_kernel(), job) as guest:
        assert guest.stdout is not None and guest.stderr is not None  # noqa: S101 - no tty was asked for
        copier = threading.Thread(target=_copy, args=(guest.stderr, log), daemon=True)
        copier.start()
        yield guest.stdout
        guest.wait(where.watchdog_s)
        copier.join()


def _copy(source: IO[bytes], target: IO[bytes]) -> None:
    for chunk in iter(lambda: source.read(4096), b""):
        with suppress(OSError):  # no space left: the runner, which comes to say so itself, must not wait for a reader
            target.write(chunk)
            target.flush()


@contextmanager
def _on_host(clock: Clock, where: Where, scenario: Scenario, run: Run, log: IO[bytes]) -> Iterator[IO[bytes]]:
    argv = [sys.executable, "-m", "lab.runner", str(run.path.resolve())]
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT), "PYTHONHASHSEED": "0"}
    process = subprocess.Popen(
        argv, cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None  # noqa: S101
    try:
        yield process.stdout
        process.wait(where.watchdog_s)
    finally:
        process.terminate()  # it takes its network down
        process.wait()
        process.stdout.close()


def _listen(words: IO[bytes], watchdog_s: float, cancelled: threading.Event) -> Iterator[Mapping[str, Any]]:
    """Yield the runner's messages until it says no more; raise when it is silent for too long, or cancelled."""
    lines: queue.Queue[bytes | None] = queue.Queue()

    def read() -> None:
        for line in words:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    heard = time.monotonic()
    while True:
        if cancelled.is_set():
            raise KeyboardInterrupt
        try:
            line = lines.get(timeout=min(CANCEL_S, watchdog_s))
        except queue.Empty:
            if time.monotonic() - heard < watchdog_s:
                continue
            raise FairbedError(
                f"the run hung: no word for {watchdog_s:g} s of real time, so it was ended (--watchdog changes this)"
            ) from None
        heard = time.monotonic()
        if line is None:
            return
        try:
            yield json.loads(line)
        except ValueError:
            raise FairbedError(f"the runner said what it never should: {line[:200]!r}") from None


def _read_facts(path: Path) -> dict[str, Any]:
    """Return what the runner found out before the flows began; nothing when it was killed while writing it."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


def finish(run: Run, plan: Mapping[str, Any], ending: Ending) -> None:
    """Make the tables of what was recorded, judge the run, and write both."""
    facts = _read_facts(run.raw / "facts.json")
    flows, queues, lateness = decode.tables(plan, run.raw / "samples")
    events = decode.events(run.raw, facts.get("t0_ns", 0)) if facts else None
    run.write_tables(flows=flows, queues=queues, events=events)
    environment = run.info["environment"] | facts.get("environment", {}) | {"idle_rtt_ms": facts.get("idle_rtt_ms", {})}
    status, reasons = verdict.judge(plan, run, facts, lateness, ending.faults, ending.status == "complete")
    run.write_info(
        run.info
        | {
            "environment": environment,
            "verdict": {"status": status, "reasons": reasons},
            "outcome": {"status": ending.status, "message": ending.error, "wall_s": ending.wall_s()},
        }
    )
