"""An experiment's command: its own options, the shared ones after them, and one run for each repeat."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import typer

from experiments import options as opt
from experiments.session import Session
from lab.scenario import Scenario, load, make_flows, make_scenario, save
from topologies.errors import UsageError
from topologies.events import LinkEvent, load_events
from topologies.units import parse_buffer, parse_time_s

__all__ = ["Asked", "experiment"]


class Asked(NamedTuple):
    """What an experiment's own options ask for.

    Attributes
    ----------
    params : mapping
        The topology's parameters, all but `buffer` and `aqm`.
    ccas : sequence of str
        The algorithm of flow k, from snd{k} to rcv{k}.
    events : callable
        (duration in s, seed) -> the timeline of the links.
    """

    params: dict[str, Any]
    ccas: Sequence[str]
    events: Callable[[float, int], Sequence[LinkEvent]] = lambda duration_s, seed: ()


@dataclass(frozen=True)
class Shared:
    """The options that every experiment has, parsed as far as they stand alone."""

    buffer: opt.Buffer = "1bdp"
    aqm: opt.Aqm = "fifo"
    queues: opt.Queues = "shared"
    queues_at: opt.QueuesAt = None
    fault: opt.Faults = None
    events: opt.Events = None
    duration: opt.Duration = "60s"
    warmup: opt.Warmup = "5s"
    start_gap: opt.StartGap = "0s"
    sample: opt.Sample = "50ms"
    repeats: opt.Repeats = 1
    seed: opt.Seed = 1
    scenario: opt.ScenarioFile = None
    save_scenario: opt.SaveScenario = None
    generator: opt.Generator = "bulk"
    kernel: opt.Kernel = "auto"
    clock: opt.ClockOption = None
    framework: opt.Framework = "ryu"
    controller: opt.ControllerFile = None
    memory: opt.Memory = 1024
    watchdog: opt.Watchdog = opt.DEFAULT_WATCHDOG_S
    out: opt.Out = None
    json: opt.Json = False
    strict: opt.Strict = False
    harm: opt.Harm = False
    explain: opt.Explain = False

    def session(self) -> Session:
        """Return where the runs execute and where their results go."""
        return Session(
            self.kernel, self.clock, self.framework, self.memory, self.watchdog, self.out, self.json, self.strict,
            self.explain, self.controller, self.harm,
        )  # fmt: skip

    def described(self, topology: str, asked: Asked, seed: int) -> Scenario:
        """Return the scenario of one run that the options describe."""
        if not asked.ccas:
            raise UsageError("there are no flows")
        if self.buffer is not None:
            parse_buffer(self.buffer)  # refused here, with the option's own text
        duration_s = parse_time_s(self.duration)
        events = asked.events(duration_s, seed) if self.events is None else load_events(Path(self.events))
        return make_scenario(
            name=topology,
            topology=topology,
            params={k: v for k, v in (asked.params | {"buffer": self.buffer}).items() if v is not None},
            aqm=self.aqm,
            queues=self.queues,
            queues_at=[{"at_s": at_s, "queues": policy} for at_s, policy in opt.timed("queues-at", self.queues_at)],
            faults=[{"at_s": at_s, "what": what} for at_s, what in opt.timed("fault", self.fault)],
            events=tuple(events),
            flows=make_flows(asked.ccas, parse_time_s(self.start_gap), self.generator),
            duration_s=duration_s,
            warmup_s=parse_time_s(self.warmup),
            sample_ms=opt.sample_ms(self.sample),
            seed=seed,
        )


BESIDE_SCENARIO = {
    *("scenario", "save_scenario", "repeats", "seed", "out", "json", "strict", "harm", "explain"),
    *("kernel", "clock", "framework", "controller", "memory", "watchdog"),
}
"""Options that say nothing a scenario says; but for the seed, which repeats need to differ."""


def _from_file(path: Path, context: typer.Context) -> Scenario:
    """Return a file's scenario, with the command line's seed if it has one; refuse other options that it would hide."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    if hidden := sorted(given - BESIDE_SCENARIO):
        names = ", ".join(name.replace("_", "-") for name in hidden)
        raise UsageError(f"--scenario says all that {names} would: give one or the other")
    scenario = load(path)
    return scenario.model_copy(update={"seed": context.params["seed"]}) if "seed" in given else scenario


def experiment(app: typer.Typer, topology: str, **defaults: Any) -> Callable[[Callable[..., Asked]], None]:
    """Return a decorator that makes the command of a topology from a function of its own options.

    Parameters
    ----------
    app
        Gets the command.
    topology
        By its name.
    defaults
        Shared options whose defaults differ here.
    """

    def decorate(own: Callable[..., Asked]) -> None:
        parameters = inspect.signature(own, eval_str=True).parameters
        shared = {
            name: parameter.replace(default=defaults.get(name, parameter.default), kind=parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(Shared, eval_str=True).parameters.items()
        }

        def command(context: typer.Context, **values: Any) -> None:
            common = Shared(**{name: values[name] for name in shared})
            session = common.session()
            if common.scenario is not None:
                first = _from_file(common.scenario, context)
            else:
                asked = own(**{name: values[name] for name in parameters})
                first = common.described(topology, asked, common.seed)
            if common.save_scenario is not None:
                save(common.save_scenario, first)
            seeds = range(first.seed + 1, first.seed + common.repeats)
            if common.scenario is not None:
                others = [first.model_copy(update={"seed": seed}) for seed in seeds]
            else:
                others = [common.described(topology, asked, seed) for seed in seeds]
            session.run([first, *others])

        first_of_all = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        together = [first_of_all, *(p.replace(kind=p.KEYWORD_ONLY) for p in parameters.values()), *shared.values()]
        command.__signature__ = inspect.Signature(together)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in together}
        app.command(help=own.__doc__)(command)

    return decorate
