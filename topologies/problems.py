"""What pydantic found wrong, in one line each: the field, its value, and what would be right."""

from collections.abc import Callable, Iterable
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

__all__ = ["problem_lines"]

Location = tuple[int | str, ...]

WORDING = {
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "model_type": "must be a table of fields",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "literal_error": "must be {expected}",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "needs at least {min_length}",
    "too_long": "takes at most {max_length}",
}
"""pydantic's error types (its documentation's "Validation Errors") in the words of our own messages."""


def problem_lines(error: ValidationError, fields: Callable[[Location], Iterable[str]]) -> list[str]:
    """Return one line for each problem; `fields` gives the field names known where an unknown one stood."""
    return [_line(item, fields) for item in error.errors(include_url=False)]


def _line(item: ErrorDetails, fields: Callable[[Location], Iterable[str]]) -> str:
    """Return one problem as "field value: what would be right"."""
    where, context = _dotted(item["loc"]), item.get("ctx", {})
    if item["type"] == "missing":
        return f"{where} is missing"
    if item["type"] == "extra_forbidden":
        return f"{where} is not a known field: there are {', '.join(fields(item['loc'][:-1]))}"
    if item["type"] == "value_error":  # raised by a validator of ours, which says it all
        return f"{where}: {context['error']}" if where else str(context["error"])
    wording = WORDING.get(item["type"])
    wanted = wording.format(**context) if wording else item["msg"]
    return f"{where} {_short(item['input'])} {wanted}".lstrip()


def _dotted(location: Location) -> str:
    """Return a location as people write it: flows[0].cca."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


def _short(value: Any, longest: int = 60) -> str:
    """Return a value as Python writes it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= longest else text[: longest - 3] + "..."
