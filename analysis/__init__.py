"""Runs to metrics, statistics, tables and figures.

    >>> from analysis import Run, summarise, jain

Nothing here needs root. matplotlib is imported when a figure is first asked for, not before.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lab import environment

if sys.argv[:1] == ["-m"]:  # as a command
    environment.explain_failing_imports()

from analysis.differences import first_difference
from analysis.groups import Group, group_runs
from analysis.harm import HarmSummary, baseline_scenarios, harm_summary
from analysis.metrics import jain, normalised_jain, windowed_jain
from analysis.repeats import Comparison, RepeatSummary, compare, summarise_repeats
from analysis.summary import Summary, summarise
from analysis.tables import comparison_table, harm_table, repeats_table, summary_table
from lab.record import RecordError, Run

if TYPE_CHECKING:
    from analysis.export import export_run
    from analysis.figures import (
        backlog_figure,
        cwnd_figure,
        delay_cdf_figure,
        goodput_delay_figure,
        goodput_figure,
        jain_figure,
        mind_figure,
        overview,
        rtt_figure,
        save_all,
        share_figure,
    )
    from analysis.group_figures import convergence_figure, heat_map, measure_figure, save_group_figures
    from analysis.report import write_report

__all__ = [
    "Comparison",
    "Group",
    "HarmSummary",
    "RecordError",
    "RepeatSummary",
    "Run",
    "Summary",
    "backlog_figure",
    "baseline_scenarios",
    "compare",
    "comparison_table",
    "convergence_figure",
    "cwnd_figure",
    "delay_cdf_figure",
    "export_run",
    "first_difference",
    "goodput_delay_figure",
    "goodput_figure",
    "group_runs",
    "harm_summary",
    "harm_table",
    "heat_map",
    "jain",
    "jain_figure",
    "measure_figure",
    "mind_figure",
    "normalised_jain",
    "overview",
    "repeats_table",
    "rtt_figure",
    "save_all",
    "save_group_figures",
    "share_figure",
    "summarise",
    "summarise_repeats",
    "summary_table",
    "windowed_jain",
    "write_report",
]

LATER = {
    "export_run": "analysis.export",
    "write_report": "analysis.report",
    "convergence_figure": "analysis.group_figures",
    "heat_map": "analysis.group_figures",
    "measure_figure": "analysis.group_figures",
    "save_group_figures": "analysis.group_figures",
}
"""Where a name comes from that is imported when it is first asked for; `analysis.figures` for the others."""


def __getattr__(name: str) -> Any:
    """Return what the figures, the page and the exports offer, importing them only now."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(LATER.get(name, "analysis.figures")), name)
