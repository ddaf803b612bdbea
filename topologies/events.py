"""Links that change while a run goes on: a timeline of events, checked against the graph, and its files."""

import csv
import io
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_serializer, model_validator

from topologies.errors import UsageError
from topologies.problems import problem_lines
from topologies.schema import Edge
from topologies.units import MAX_RATE_MBIT, MAX_TIME_MS, MAX_TIME_S, MIN_RATE_MBIT

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["CHANGES", "EdgeState", "LinkEvent", "check_events", "load_events", "on_both_ways", "states"]

CHANGES = ("rate_mbit", "delay_ms", "jitter_ms", "loss_pct", "up")
"""What an event may change."""


class LinkEvent(BaseModel):
    """One direction of a link changes.

    Attributes
    ----------
    t_s : float
        When, in s since the run began.
    edge : str
        Which: "s1->s2".
    rate_mbit, delay_ms, jitter_ms, loss_pct : float or None
        The new value, None for no change.
    up : bool or None
        False: all that is sent from now on is lost; True: the link works again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    t_s: Annotated[float, Field(ge=0, le=MAX_TIME_S)]
    edge: Annotated[str, Field(pattern=r"^\w+->\w+$")]
    rate_mbit: Annotated[float, Field(ge=MIN_RATE_MBIT, le=MAX_RATE_MBIT)] | None = None
    delay_ms: Annotated[float, Field(ge=0, le=MAX_TIME_MS)] | None = None
    jitter_ms: Annotated[float, Field(ge=0, le=MAX_TIME_MS)] | None = None
    loss_pct: Annotated[float, Field(ge=0, lt=100)] | None = None
    up: bool | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> "LinkEvent":
        """Refuse an event that changes nothing."""
        if not self.changes:
            raise ValueError(f"changes none of {', '.join(CHANGES)}")
        return self

    @model_serializer
    def _without_none(self) -> dict[str, Any]:
        """Return the fields that say something, as a file holds them."""
        return {"t_s": self.t_s, "edge": self.edge, **self.changes}

    @property
    def changes(self) -> dict[str, Any]:
        """What it changes, by field."""
        return {name: value for name in CHANGES if (value := getattr(self, name)) is not None}

    @property
    def ends(self) -> tuple[str, str]:
        """The edge's two nodes."""
        u, _, v = self.edge.partition("->")
        return u, v


class EdgeState(BaseModel):
    """An edge after an event."""

    model_config = ConfigDict(frozen=True)

    event: LinkEvent
    edge: Edge
    up: bool = True


def check_events(graph: "nx.DiGraph", events: Sequence[LinkEvent]) -> None:
    """Raise a UsageError that lists the events which a graph can't have, one line each."""
    found = [*_order_problems(events), *_edge_problems(graph, events)]
    if found:
        raise UsageError("\n".join(found))
    states(graph, events)


def _order_problems(events: Sequence[LinkEvent]) -> Iterator[str]:
    """Yield the events that come before the one in front of them."""
    for earlier, later in itertools.pairwise(events):
        if later.t_s < earlier.t_s:
            yield f"{_name(later)}: comes after one at {earlier.t_s:g} s; events are in order of time"


def _edge_problems(graph: "nx.DiGraph", events: Iterable[LinkEvent]) -> Iterator[str]:
    """Yield the events whose edge isn't there, or has nothing to change."""
    for event in events:
        if not graph.has_edge(*event.ends):
            yield f"{_name(event)}: there is no such edge"
        elif event.rate_mbit is not None and graph.edges[event.ends].get("rate_mbit") is None:
            yield f"{_name(event)}: rate_mbit {event.rate_mbit:g} changes the rate of an edge that has none"


def _name(event: LinkEvent) -> str:
    """Return how messages name an event."""
    return f"event at {event.t_s:g} s on {event.edge}"


def states(graph: "nx.DiGraph", events: Iterable[LinkEvent]) -> list[EdgeState]:
    """Return each event's edge as it is after the event, checked as any edge is."""
    current: dict[tuple[str, str], EdgeState] = {}
    found = []
    for event in events:
        before = current.get(event.ends)
        old = before.edge if before else Edge.model_validate(graph.edges[event.ends])
        changes = event.changes
        up = changes.pop("up", before.up if before else True)
        try:
            new = Edge.model_validate(old.model_dump() | changes)
        except ValidationError as error:
            lines = problem_lines(error, lambda _: Edge.model_fields)
            raise UsageError(f"{_name(event)}: {'; '.join(lines)}") from error
        current[event.ends] = EdgeState(event=event, edge=new, up=up)
        found.append(current[event.ends])
    return found


def load_events(path: Path) -> tuple[LinkEvent, ...]:
    """Return the timeline in a file: CSV with a line of field names, or JSON, a list of objects.

    Raises
    ------
    UsageError
        Naming the file and the line (CSV) or the event's number (JSON), from 1.
    """
    readers = {".csv": _csv_rows, ".json": _json_rows}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"trace {path} must end in .csv or .json")
    try:
        rows = list(reader(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UsageError(f"trace {path} cannot be read: {error}") from error
    events: list[LinkEvent] = []
    for place, row in rows:
        try:
            event = LinkEvent.model_validate(row)
        except ValidationError as error:
            lines = problem_lines(error, lambda _: LinkEvent.model_fields)
            raise UsageError(f"{path}, {place}: {'; '.join(lines)}") from error
        if events and event.t_s < events[-1].t_s:
            raise UsageError(f"{path}, {place}: t_s {event.t_s:g} is before the {events[-1].t_s:g} in front of it")
        events.append(event)
    return tuple(events)


def _json_rows(text: str) -> Iterator[tuple[str, Any]]:
    """Yield each event of a JSON list with its number."""
    data = json.loads(text)
    if not isinstance(data, list):
        raise ValueError("a JSON trace is a list of events")
    yield from ((f"event {number}", row) for number, row in enumerate(data, start=1))


def _csv_rows(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each event of a CSV text with its line; an empty cell is no change."""
    reader = csv.DictReader(io.StringIO(text), strict=True, restkey="(more)")
    for row in reader:
        yield f"line {reader.line_num}", {name: _cell(name, cell) for name, cell in row.items() if cell}


def _cell(name: str, text: Any) -> Any:
    """Return a cell as its field's type, or as it is where it has none, for the model to refuse."""
    if name == "up":
        return {"true": True, "1": True, "false": False, "0": False}.get(str(text).strip().lower(), text)
    if name == "edge" or not isinstance(text, str):
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def on_both_ways(t_s: float, u: str, v: str, **changes: Any) -> tuple[LinkEvent, LinkEvent]:
    """Return the same change for both directions of a link."""
    return LinkEvent(t_s=t_s, edge=f"{u}->{v}", **changes), LinkEvent(t_s=t_s, edge=f"{v}->{u}", **changes)
