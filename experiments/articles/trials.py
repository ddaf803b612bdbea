"""What is run: every trial as plain data, and the jobs that it is made of."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lab.guest import Clock
from lab.scenario import Scenario, make_flows, make_scenario, parse_flows
from topologies.errors import UsageError

NDM = ("ndm_tcp", "ndm2")
"""The published profile and the fixed one."""
START_SPREAD_S = 1.0
"""Where several flows compete, each starts somewhere in the first second: no seed's luck is that of equal starts."""

Form = Literal["published", "link"]


@dataclass(frozen=True)
class Published:
    """iperf3 on the loopback device, after these lines for tc: both directions and both ends share its one qdisc."""

    seconds: int
    tc: tuple[str, ...] = ()
    clock: Clock = "virtual"


@dataclass(frozen=True)
class Link:
    """A dumbbell with these parameters; a flow for each algorithm of the variant, paced where a pace is given."""

    params: Mapping[str, Any]
    duration_s: float
    warmup_s: float = 0.0
    pace_mbit: float | None = None
    sample_ms: int = 50
    clock: Clock = field(default="virtual", init=False)

    def scenario(self, name: str, variant: str, seed: int) -> Scenario:
        """Return one run."""
        ccas = parse_flows(variant)
        draw = random.Random(seed)  # noqa: S311 - repeatable on purpose
        flows = [
            flow.model_copy(update=self._changes(round(draw.uniform(0, START_SPREAD_S), 3) if len(ccas) > 1 else 0.0))
            for flow in make_flows(ccas)
        ]
        return make_scenario(
            name=name,
            topology="dumbbell",
            params={"pairs": len(ccas), **self.params},
            flows=flows,
            duration_s=self.duration_s,
            warmup_s=self.warmup_s,
            seed=seed,
            sample_ms=self.sample_ms,
        )

    def _changes(self, start_s: float) -> dict[str, float]:
        return {"start_s": start_s} | ({} if self.pace_mbit is None else {"pace_mbit": self.pace_mbit})


@dataclass(frozen=True)
class Footprint:
    """What a connection takes in memory, and an ACK in cycles, which no virtual clock counts."""

    clock: Clock = field(default="real", init=False)


@dataclass(frozen=True)
class Trial:
    """One setting and the flows that are tried in it.

    Attributes
    ----------
    name
        Its directory below the results.
    test
        What it belongs to, as the command line names it.
    setting
        `Published`, `Link` or `Footprint`.
    variants
        Flows as ``--flows`` writes them.
    times
        How many times the usual number of repeats: more where chance rules, or where some runs never end.
    """

    name: str
    test: str
    setting: Published | Link | Footprint
    variants: tuple[str, ...]
    times: int = 1

    def settings(self) -> dict[str, Any]:
        """Return the setting as plain data, kept with each result."""
        return {"kind": type(self.setting).__name__.lower(), **asdict(self.setting)}


@dataclass(frozen=True)
class Job:
    """One run."""

    trial: Trial
    variant: str
    seed: int


NOISY = (
    "qdisc add dev lo root handle 1: netem delay 20ms 5ms distribution normal loss 0.5%",
    "qdisc add dev lo parent 1:1 handle 10: tbf rate 50mbit burst 5000kbit latency 50ms",
)
"""The second article's own lines."""
FAILING = ("qdisc add dev lo root handle 1: netem delay 250ms loss 31%",)
"""The first article gives no line; with this one the sender's reports come out as in its tables."""

NOISY_LINK = {
    "rate_mbit": 50.0,
    "rtt_ms": 40.0,  # 20 ms each way, as on the loopback device
    "buffer": "312500B",  # tbf's 50 ms
    "jitter_ms": 5.0,
    "distribution": "normal",
    "loss_pct": 0.5,
}
QUIET = {"rate_mbit": 50.0, "rtt_ms": 40.0, "buffer": "1bdp"}
SHARED = {"rate_mbit": 20.0, "rtt_ms": 40.0, "buffer": "1bdp"}
PACE_MBIT = 5.0
"""A tenth of the link: a flow so slow never waits in a queue."""
CLASSIC = ("cubic", "reno")
PROFILES = (*NDM, *CLASSIC)

TRIALS = (
    Trial("constrained-published", "constrained", Published(20, NOISY), PROFILES),
    Trial("constrained-link", "constrained", Link(NOISY_LINK, 20.0), PROFILES),
    Trial("constrained-reordering", "constrained", Link({**NOISY_LINK, "reorder": True}, 20.0), PROFILES),
    Trial("torture-published", "torture", Published(10, FAILING), PROFILES, times=2),
    Trial(
        "torture-link", "torture", Link({"rate_mbit": 50.0, "rtt_ms": 250.0, "loss_pct": 31.0}, 10.0), PROFILES, times=2
    ),
    Trial("clean-link", "clean", Link({"rate_mbit": 1000.0, "rtt_ms": 1.0}, 10.0), (*PROFILES, "bbr")),
    Trial("entropy-calm", "entropy", Link(QUIET, 20.0, pace_mbit=PACE_MBIT), NDM),
    Trial(
        "entropy-jitter",
        "entropy",
        Link({**QUIET, "jitter_ms": 5.0, "distribution": "normal"}, 20.0, pace_mbit=PACE_MBIT),
        NDM,
    ),
    Trial("entropy-loss", "entropy", Link({**QUIET, "loss_pct": 0.5}, 20.0, pace_mbit=PACE_MBIT), NDM),
    Trial("entropy-queue", "entropy", Link({**QUIET, "rate_mbit": PACE_MBIT}, 20.0), NDM),
    Trial(
        "others",
        "others",
        Link(SHARED, 60.0, warmup_s=5.0),
        (
            "ndm_tcp,cubic,reno,bbr",
            "ndm2,cubic,reno,bbr",
            "ndm_tcp,cubic",
            "ndm2,cubic",
            "cubic,cubic",
            "ndm_tcp,reno",
            "ndm2,reno",
            "reno,reno",
            "cubic",
            "reno",
        ),
    ),
    Trial(
        "controls",
        "controls",
        Link({"rate_mbit": 100.0, "rtt_ms": 20.0, "loss_pct": 0.5}, 30.0, warmup_s=2.0),
        ("cubic", "reno"),
    ),
    Trial("footprint", "footprint", Footprint(), (*PROFILES, "bbr")),
    Trial("clean-published", "clean", Published(10, clock="real"), PROFILES),
    Trial("loopback-published", "loopback", Published(40, clock="real"), (*PROFILES, "bbr")),
)
"""In the order of running: those on the virtual clock first, because they take minutes."""

TESTS = tuple(dict.fromkeys(trial.test for trial in TRIALS))


def chosen_tests(names: Sequence[str]) -> tuple[str, ...]:
    """Return the tests asked for, all when none is.

    Raises
    ------
    UsageError
        For a name that is no test.
    """
    if unknown := [name for name in names if name not in TESTS]:
        raise UsageError(f"there is no test {unknown[0]!r}: choose from {', '.join(TESTS)}")
    return tuple(test for test in TESTS if not names or test in names)


def trials_of(tests: Sequence[str]) -> list[Trial]:
    """Return the trials of some tests; what the loopback test compares with is the clean test's link."""
    wanted = {*tests, *(["clean"] if "loopback" in tests else [])}
    return [
        trial for trial in TRIALS if trial.test in wanted and (trial.test in tests or isinstance(trial.setting, Link))
    ]


def jobs_of(trials: Sequence[Trial], seed: int, repeats: int) -> list[Job]:
    """Return every run, by trial, then seed, then variant."""
    return [
        Job(trial, variant, number)
        for trial in trials
        for number in range(seed, seed + repeats * trial.times)
        for variant in trial.variants
    ]


def trial_named(name: str) -> Trial:
    """Return a trial by name."""
    return next(trial for trial in TRIALS if trial.name == name)


def forms_of(test: str) -> dict[str, str]:
    """Return the forms in which a test is run, each with its trial's name.

    Examples
    --------
    >>> forms_of("torture")
    {'published': 'torture-published', 'link': 'torture-link'}
    """
    own = {trial.name.removeprefix(f"{test}-"): trial.name for trial in TRIALS if trial.test == test}
    return own | ({"link": "clean-link"} if test == "loopback" else {})
