"""Runs in groups of repeats, each group named by what sets it apart from the others."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.repeats import same_scenario
from lab.record import Run

__all__ = ["Group", "group_runs", "settings", "varied"]

UNIMPORTANT = ("name", "seed")


@dataclass(frozen=True)
class Group:
    """Repeats of one scenario.

    Attributes
    ----------
    label : str
        The scenario's name and the settings in which the groups differ: ``dumbbell, rtt_ms 80``.
    settings : dict
        Those settings.
    runs : tuple of Run
    """

    label: str
    settings: dict[str, Any]
    runs: tuple[Run, ...]


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Return the runs in groups of repeats, both in the order given."""
    groups: list[list[Run]] = []
    for run in runs:
        group = next((group for group in groups if same_scenario(group[0], run)), None)
        groups.append([run]) if group is None else group.append(run)
    names = varied([group[0] for group in groups])
    return [_group(group, names) for group in groups]


def _group(runs: list[Run], names: Sequence[str]) -> Group:
    values = settings(runs[0])
    chosen = {name: values.get(name) for name in names}
    words = [f"{name} {'–' if value is None else value}" for name, value in chosen.items()]
    return Group(", ".join([str(runs[0].scenario.get("name") or runs[0].name), *words]), chosen, tuple(runs))


def varied(runs: Sequence[Run]) -> list[str]:
    """Return the names of the settings in which the runs' scenarios differ, seed and name apart."""
    each = [settings(run) for run in runs]
    names = list(dict.fromkeys(name for values in each for name in values))
    return [name for name in names if len({json.dumps(values.get(name)) for values in each}) > 1]


def settings(run: Run) -> dict[str, Any]:
    """Return a scenario's settings by name, without seed and name: its fields, its parameters, its flows in short.

    >>> from pathlib import Path; run = Run(Path("demo"))
    >>> run.info = {"scenario": {"seed": 1, "params": {"rtt_ms": 40}, "flows": [{"cca": "bbr"}, {"cca": "bbr"}]}}
    >>> settings(run)
    {'rtt_ms': 40, 'flows': 'bbr:2'}
    """
    scenario = dict(run.scenario)
    flows, params = scenario.pop("flows", None) or [], scenario.pop("params", None) or {}
    plain = {name: value for name, value in scenario.items() if name not in UNIMPORTANT}
    return plain | params | {"flows": _flows(flows)}


def _flows(flows: Sequence[dict[str, Any]]) -> str:
    """Return flows as the command line writes them, with their starts and ends where they have any."""
    counts = Counter(str(flow.get("cca")) for flow in flows)
    text = ",".join(f"{cca}:{count}" for cca, count in counts.items())
    times = [f"{flow.get('start_s') or 0:g}–{'' if flow.get('stop_s') is None else flow['stop_s']}" for flow in flows]
    return text if all(time == "0–" for time in times) else f"{text} at {' '.join(times)} s"
