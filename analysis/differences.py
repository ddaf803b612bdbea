"""Whether two records are identical and, if not, what differs first."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from lab.record import TABLES, Run, Table

__all__ = ["changed_environment", "first_difference"]

MEASURED = ("idle_rtt_ms",)


def first_difference(a: Run, b: Run) -> str | None:
    """Return what differs first between two records: table, row, column and both values; None when they are identical.

    The scenario is compared before the tables, and a table's values in order of its rows. NaN equals NaN, null null.
    """
    return next(_differences(a, b), None)


def changed_environment(a: Run, b: Run) -> list[str]:
    """Return what changed between the environments of two runs, one line each: a possible cause of a difference."""
    left, right = (
        {key: value for key, value in (run.info.get("environment") or {}).items() if key not in MEASURED}
        for run in (a, b)
    )
    return list(_values("environment", left, right))


def _differences(a: Run, b: Run) -> Iterator[str]:
    yield from _values("scenario", a.scenario, b.scenario)
    for table in TABLES:
        yield from _table(table, getattr(a, table.name), getattr(b, table.name))


def _values(where: str, a: Any, b: Any) -> Iterator[str]:
    """Yield where two pieces of JSON differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            yield from _values(f"{where}.{key}", a.get(key), b.get(key))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from _values(f"{where}[{index}]", left, right)
    elif a != b:
        yield f"{where}: {a!r} and {b!r}"


def _table(table: Table, a: pl.DataFrame, b: pl.DataFrame) -> Iterator[str]:
    """Yield the first cell in which two tables differ, else that one has more rows."""
    common = min(a.height, b.height)
    left, right = a.head(common), b.head(common)
    unequal = {name: left[name].ne_missing(right[name]) for name in table.schema}
    rows = {name: index for name, mask in unequal.items() if (index := mask.arg_max()) is not None and mask[index]}
    if rows:
        column = min(rows, key=lambda name: rows[name])
        row = rows[column]
        key = ", ".join(f"{name} {left[name][row]}" for name in table.order)
        yield f"{table.name}, row {row} ({key}), column {column}: {left[column][row]!r} and {right[column][row]!r}"
    elif a.height != b.height:
        yield f"{table.name}: {a.height} rows and {b.height} rows, the first {common} identical"
