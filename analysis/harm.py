"""What flows do to each other: harm against solo baselines, and the impact of one camp on another.

A mixed run is held against baseline runs of the same scenario: each flow alone, and every flow with one congestion
control. `baseline_scenarios` says which; whoever runs them caches them by their scenario's hash.

Sources
-------
Ware 2019
    R. Ware et al., "Beyond Jain's Fairness Index", HotNets 2019 (harm).
tcpeval
    draft-irtf-iccrg-tcpeval, §6.1 (impact on the mean goodput of the other camp).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from analysis import metrics
from analysis.series import FlowSeries, RunSeries
from analysis.summary import FlowSummary, summarise_series
from lab.record import Run
from topologies.errors import UsageError

__all__ = ["FlowHarm", "HarmSummary", "baseline_scenarios", "harm_summary"]

Scenario = Mapping[str, Any]


@dataclass(frozen=True)
class FlowHarm:
    """What the company did to one flow, 0 (none) to 1; below 0 it did better in company.

    Attributes
    ----------
    flow_id, cca : str
    goodput, retransmissions, delay : float or None
        Harm to its goodput, to its retransmission rate (of segments), and to its median smoothed RTT.
    solo_goodput_mbit, contested_goodput_mbit : float or None
    """

    flow_id: str
    cca: str
    goodput: float | None
    retransmissions: float | None
    delay: float | None
    solo_goodput_mbit: float | None
    contested_goodput_mbit: float | None


@dataclass(frozen=True)
class HarmSummary:
    """Harm to each flow of a mixed run, and the paired impact on each congestion control.

    Attributes
    ----------
    run, name : str
    flows : tuple of FlowHarm
    impact : dict
        Congestion control to its flows' mean goodput in the mix ÷ their mean in the run where every flow uses it:
        above 1 it gains from the others, below 1 it loses.
    reasons : dict
        Why a value is None; the key is `flows.<flow_id>.<field>` or `impact.<cca>`.
    """

    run: str
    name: str
    flows: tuple[FlowHarm, ...]
    impact: dict[str, float | None]
    reasons: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as JSON takes it."""
        return asdict(self)


def baseline_scenarios(scenario: Scenario) -> dict[str, dict[str, Any]]:
    """Return the scenarios that a mixed one is held against: `solo:<flow_id>` and, for a mix, `all:<cca>`.

    A solo scenario keeps one flow as it is; an `all` scenario gives every flow the same congestion control. All else,
    the seed too, stays.

    Examples
    --------
    >>> mixed = {"seed": 1, "flows": [{"flow_id": "a-1", "cca": "a"}, {"flow_id": "b-1", "cca": "b"}]}
    >>> list(baseline_scenarios(mixed))
    ['solo:a-1', 'solo:b-1', 'all:a', 'all:b']
    """
    flows = [dict(flow) for flow in scenario["flows"]]
    ccas = list(dict.fromkeys(flow["cca"] for flow in flows))
    found = {f"solo:{flow['flow_id']}": {**scenario, "flows": [flow]} for flow in flows}
    if len(ccas) > 1:
        found |= {f"all:{cca}": {**scenario, "flows": [{**flow, "cca": cca} for flow in flows]} for cca in ccas}
    return found


def harm_summary(mixed: Run, baselines: Sequence[Run]) -> HarmSummary:
    """Return harm and paired impact of a mixed run; baselines are found by their scenario, wherever they are.

    Baselines that did not complete, or are invalid, do not count.

    Raises
    ------
    UsageError
        When the mixed run recorded no scenario, or none of the baselines belongs to it.
    """
    if not mixed.scenario.get("flows"):
        raise UsageError(f"{mixed.path} has no scenario with flows to compare with")
    matched = _matched(mixed, baselines)
    if not matched:
        raise UsageError(
            f"none of the {len(baselines)} baseline runs belongs to {mixed.path}: they need the same scenario with one "
            "flow alone, or with every flow on one congestion control"
        )
    return _Harm(mixed, matched).summary()


def _matched(mixed: Run, baselines: Sequence[Run]) -> dict[str, Run]:
    """Return the baseline runs by what they are baselines for."""
    sound = [run for run in baselines if run.verdict.get("status") != "invalid" and _complete(run)]
    by_scenario = {_identity(run.scenario): run for run in sound}
    wanted = baseline_scenarios(mixed.scenario)
    return {key: by_scenario[_identity(each)] for key, each in wanted.items() if _identity(each) in by_scenario}


def _complete(run: Run) -> bool:
    return run.outcome.get("status") == "complete"


def _identity(scenario: Scenario) -> str:
    return json.dumps({key: value for key, value in scenario.items() if key != "name"}, sort_keys=True)


class _Harm:
    """Collects the values and why one is missing."""

    def __init__(self, mixed: Run, baselines: Mapping[str, Run]) -> None:
        self.mixed = RunSeries(mixed)
        self.baselines = {key: RunSeries(run) for key, run in baselines.items()}
        self.reasons: dict[str, str] = {}

    def summary(self) -> HarmSummary:
        mixed = summarise_series(self.mixed)
        flows = tuple(self._flow(series, flow) for series, flow in zip(self.mixed.flows, mixed.flows, strict=True))
        ccas = dict.fromkeys(flow.cca for flow in mixed.flows)
        impact = {cca: self._impact(cca, mixed.flows) for cca in ccas} if len(ccas) > 1 else {}
        return HarmSummary(mixed.run, mixed.name, flows, impact, self.reasons)

    def _flow(self, series: FlowSeries, flow: FlowSummary) -> FlowHarm:
        solo = self.baselines.get(f"solo:{flow.flow_id}")
        alone = summarise_series(solo).flows[0] if solo else None
        delays = self._median_rtt(self.mixed, series), self._median_rtt(solo, solo.flows[0]) if solo else None
        more, less = metrics.harm_more_is_better, metrics.harm_less_is_better
        solo_goodput = alone.goodput_mbit if alone else None
        solo_rate = alone.retransmission_rate if alone else None
        harm = {
            "goodput": _both(more, solo_goodput, flow.goodput_mbit),
            "retransmissions": _both(less, solo_rate, flow.retransmission_rate),
            "delay": _both(less, delays[1], delays[0]),
        }
        reason = "unknown, or 0, in the mix or alone" if solo else "no solo run of this flow is given"
        self.reasons |= {f"flows.{flow.flow_id}.{name}": reason for name, value in harm.items() if value is None}
        return FlowHarm(flow.flow_id, flow.cca, **harm, solo_goodput_mbit=solo_goodput,
                        contested_goodput_mbit=flow.goodput_mbit)  # fmt: skip

    def _median_rtt(self, run: RunSeries, flow: FlowSeries) -> float | None:
        t_s, srtt = flow.known("srtt_ms")
        measured = srtt[(t_s >= run.warmup_s) & (t_s <= run.end_s + metrics.EPSILON_S)]
        return float(np.median(measured)) if measured.size else None

    def _impact(self, cca: str, flows: Sequence[FlowSummary]) -> float | None:
        every = self.baselines.get(f"all:{cca}")
        if every is None:
            self.reasons[f"impact.{cca}"] = f"no run with every flow on {cca} is given"
            return None
        mixed = [flow.goodput_mbit for flow in flows if flow.cca == cca]
        pure = [flow.goodput_mbit for flow in summarise_series(every).flows]
        known, base = [x for x in mixed if x is not None], [x for x in pure if x is not None]
        if len(known) < len(mixed) or len(base) < len(pure) or not any(base):
            self.reasons[f"impact.{cca}"] = "a flow's goodput is unknown, or all are 0"
            return None
        return fmean(known) / fmean(base)


def _both(harm: Any, solo: float | None, contested: float | None) -> float | None:
    """Return the harm when both values are known."""
    if solo is None or contested is None:
        return None
    value: float | None = harm(solo=solo, contested=contested)
    return value
