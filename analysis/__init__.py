"""Runs to metrics, statistics, tables and figures.

    >>> from analysis import Run, summarise, jain

Nothing here needs root. matplotlib is imported when a figure is first asked for, not before.
"""

from typing import TYPE_CHECKING, Any

from analysis.metrics import jain, normalised_jain, windowed_jain
from analysis.repeats import Comparison, RepeatSummary, compare, summarise_repeats
from analysis.summary import Summary, summarise
from analysis.tables import comparison_table, repeats_table, summary_table
from lab.record import RecordError, Run

if TYPE_CHECKING:
    from analysis.figures import (
        backlog_figure,
        cwnd_figure,
        goodput_figure,
        jain_figure,
        mind_figure,
        overview,
        rtt_figure,
        save_all,
    )

__all__ = [
    "Comparison",
    "RecordError",
    "RepeatSummary",
    "Run",
    "Summary",
    "backlog_figure",
    "compare",
    "comparison_table",
    "cwnd_figure",
    "goodput_figure",
    "jain",
    "jain_figure",
    "mind_figure",
    "normalised_jain",
    "overview",
    "repeats_table",
    "rtt_figure",
    "save_all",
    "summarise",
    "summarise_repeats",
    "summary_table",
    "windowed_jain",
]


def __getattr__(name: str) -> Any:
    """Return what `analysis.figures` offers, importing it only now."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from analysis import figures

    return getattr(figures, name)
