"""A scenario: everything that decides what a run does, as frozen data, in JSON or TOML."""

import hashlib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

import topologies
from topologies.errors import UsageError
from topologies.events import LinkEvent, check_events
from topologies.problems import problem_lines
from topologies.schema import NODE_PATTERN, Aqm
from topologies.units import MAX_RATE_MBIT, MAX_SIZE_BYTES, MAX_TIME_S, MIN_RATE_MBIT, check_range

__all__ = [
    "Flow",
    "Scenario",
    "build_graph",
    "describe_validation_error",
    "dumps",
    "load",
    "loads",
    "make_flows",
    "make_scenario",
    "parse_flows",
    "save",
    "scenario_hash",
]

if TYPE_CHECKING:
    import networkx as nx

MAX_FLOWS = 1000
MAX_EVENTS = 100_000

CCA_PATTERN = r"^[a-z][a-z0-9_]{0,14}$"
"""The kernel's TCP_CA_NAME_MAX is 16, with the closing NUL."""
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
"""What may safely become part of a directory's name."""

Cca = Annotated[str, Field(pattern=CCA_PATTERN)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Node = Annotated[str, Field(pattern=NODE_PATTERN)]
Start = Annotated[float, Field(ge=0, le=MAX_TIME_S, strict=True)]
Positive = Annotated[float, Field(gt=0, le=MAX_TIME_S, strict=True)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1, strict=True)]
"""32 bits are what PYTHONHASHSEED takes."""
Format = Literal["json", "toml"]

DATA = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Flow(BaseModel):
    """One TCP flow.

    Attributes
    ----------
    flow_id : str
        Its name in every record: <cca>-<k>, such as cubic-1.
    src, dst : str
        Sending and receiving node of the topology.
    cca : str
        Congestion-control algorithm by its kernel name.
    start_s : float
        When it starts, in s since the run began.
    stop_s : float or None
        When it stops, None for the end of the run.
    size_bytes : int or None
        Payload after which it is complete, in place of `stop_s`.
    generator : {"bulk", "iperf3"}
        What sends it.
    path : tuple of str or None
        The nodes that its data crosses, src and dst included, None for the usual route. Acknowledgements take that.
    pace_mbit : float or None
        Rate that its sender never exceeds (SO_MAX_PACING_RATE), in 10⁶ bit/s with headers; bulk flows only.
    """

    model_config = DATA

    flow_id: Name
    src: Node
    dst: Node
    cca: Cca
    start_s: Start = 0.0
    stop_s: Positive | None = None
    size_bytes: Annotated[int, Field(ge=1, le=MAX_SIZE_BYTES, strict=True)] | None = None
    generator: Literal["bulk", "iperf3"] = "bulk"
    path: tuple[Node, ...] | None = None
    pace_mbit: Annotated[float, Field(ge=MIN_RATE_MBIT, le=MAX_RATE_MBIT, strict=True)] | None = None

    @model_serializer(mode="wrap")
    def _without_the_unusual(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the fields, without a path or a pace that isn't asked for: few flows have one."""
        data: dict[str, Any] = handler(self)
        return {name: value for name, value in data.items() if value is not None or name not in ("path", "pace_mbit")}

    @model_validator(mode="after")
    def _fields_agree(self) -> "Flow":
        """Refuse fields that contradict each other."""
        if self.src == self.dst:
            raise ValueError(f"src and dst are both {self.src}")
        if self.stop_s is not None and self.size_bytes is not None:
            raise ValueError("give stop_s or size_bytes, not both")
        if self.pace_mbit is not None and self.generator != "bulk":
            raise ValueError("pace_mbit is for bulk flows only")
        if self.stop_s is not None and self.stop_s <= self.start_s:
            raise ValueError(f"stop_s {self.stop_s:g} must be above start_s {self.start_s:g}")
        return self


class QueueChange(BaseModel):
    """From `at_s` on, in s since the run began, the queue policy is `queues`."""

    model_config = DATA

    at_s: Positive
    queues: Annotated[str, Field(min_length=1)]


class Fault(BaseModel):
    """What is broken on purpose at `at_s`, in s since the run began."""

    model_config = DATA

    at_s: Positive
    what: Literal["kill-controller", "restart-controller", "kill-vswitchd"]


class Scenario(BaseModel):
    """What a run does. Equal scenarios (see `scenario_hash`) give equal runs on a virtual clock.

    Attributes
    ----------
    name : str
        Label, part of the run directory's name.
    topology : str
        A name that `topologies.build` knows.
    params : mapping
        That topology's parameters, all but `aqm`.
    flows : tuple of Flow
    events : tuple of LinkEvent
        Links that change during the run, in order of time.
    queues : str
        Queue policy of the controller.
    queues_at : tuple of QueueChange
        Other policies later in the run, in order of time.
    faults : tuple of Fault
        What is broken on purpose, in order of time.
    aqm : str
        Queue management at the bottlenecks.
    duration_s, warmup_s : float
        Length of the run, and of its beginning that lifetime metrics leave out.
    seed : int
        Of every random choice, 0 to 2³² - 1.
    sample_ms : int
        Time between samples, 1 to 10000.
    """

    model_config = DATA

    name: Name
    topology: Annotated[str, Field(min_length=1)]
    params: dict[str, JsonValue] = {}
    flows: Annotated[tuple[Flow, ...], Field(min_length=1, max_length=MAX_FLOWS)]
    events: Annotated[tuple[LinkEvent, ...], Field(max_length=MAX_EVENTS)] = ()
    queues: Annotated[str, Field(min_length=1)] = "shared"
    queues_at: tuple[QueueChange, ...] = ()
    faults: tuple[Fault, ...] = ()
    aqm: Aqm = "fifo"
    duration_s: Positive
    warmup_s: Start
    seed: Seed
    sample_ms: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 50

    @model_serializer(mode="wrap")
    def _without_no_events(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the fields, without empty timelines: few scenarios have one."""
        data: dict[str, Any] = handler(self)
        return {name: value for name, value in data.items() if value or name not in ("events", "queues_at", "faults")}

    @model_validator(mode="after")
    def _fields_agree(self) -> "Scenario":
        """Refuse fields that contradict each other, all in one message."""
        found = [*self._time_problems(), *self._flow_id_problems()]
        if "aqm" in self.params:
            found.append("aqm belongs beside params, not in them")
        if found:
            raise ValueError("; ".join(found))
        return self

    def _time_problems(self) -> Iterator[str]:
        """Yield what does not fit into the run's duration."""
        if self.warmup_s >= self.duration_s:
            yield f"duration_s {self.duration_s:g} must be above warmup_s {self.warmup_s:g}"
        for change in self.queues_at:
            if change.at_s >= self.duration_s:
                yield f"queues_at {change.at_s:g} s is not below duration_s {self.duration_s:g}"
        for flow in self.flows:
            end = f"duration_s {self.duration_s:g}"
            if flow.start_s >= self.duration_s:
                yield f"flow {flow.flow_id}: start_s {flow.start_s:g} is not below {end}"
            if flow.stop_s is not None and flow.stop_s > self.duration_s:
                yield f"flow {flow.flow_id}: stop_s {flow.stop_s:g} is above {end}"

    def _flow_id_problems(self) -> Iterator[str]:
        """Yield the flow ids that several flows share."""
        counts = Counter(flow.flow_id for flow in self.flows)
        yield from (f"{count} flows are named {name}" for name, count in counts.items() if count > 1)


def describe_validation_error(error: ValidationError) -> UsageError:
    """Return an error whose message names each wrong field, its value and what would be right."""

    def fields(location: tuple[int | str, ...]) -> Iterable[str]:
        return (Flow if "flows" in location or error.title == "Flow" else Scenario).model_fields

    return UsageError(f"{error.title.lower()}: {'; '.join(problem_lines(error, fields))}")


def loads(text: str, form: Format = "json") -> Scenario:
    """Return the scenario that a text in JSON or TOML describes.

    Raises
    ------
    UsageError
        Naming the place where the text is not JSON or TOML, or the fields that are wrong.
    """
    try:
        data = tomllib.loads(text) if form == "toml" else json.loads(text)
        return Scenario.model_validate(data)
    except ValidationError as error:
        raise describe_validation_error(error) from error
    except (ValueError, RecursionError) as error:  # both decoders' errors are ValueErrors
        raise UsageError(f"scenario is not {form.upper()}: {error}") from error


def load(path: Path) -> Scenario:
    """Return the scenario in a file, whose name ends in .json or .toml."""
    form = _form(path)
    try:
        return loads(path.read_text(encoding="utf-8"), form)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"scenario file {path} cannot be read: {error}") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def save(path: Path, scenario: Scenario) -> None:
    """Write a scenario to a new file, whose name ends in .json or .toml."""
    text = dumps(scenario, _form(path))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"scenario file {path} cannot be written: {error.strerror}") from error


def _form(path: Path) -> Format:
    forms: dict[str, Format] = {".json": "json", ".toml": "toml"}
    form = forms.get(path.suffix.lower())
    if form is None:
        raise UsageError(f"scenario file {path} must end in .json or .toml")
    return form


def dumps(scenario: Scenario, form: Format = "json") -> str:
    """Return a scenario as text that `loads` reads back; TOML leaves out what is None."""
    data = scenario.model_dump(mode="json")
    return _toml_document(data) if form == "toml" else json.dumps(data, indent=2) + "\n"


def _toml_document(data: Mapping[str, Any]) -> str:
    """Return a scenario's data as TOML: plain fields, then [params], then a [[flows]] for each flow."""
    plain = {key: value for key, value in data.items() if key not in ("params", "flows")}
    tables = ["[params]\n" + _toml_lines(data["params"])] if data["params"] else []
    tables += ["[[flows]]\n" + _toml_lines(flow) for flow in data["flows"]]
    return "\n".join([_toml_lines(plain), *tables])


def _toml_lines(table: Mapping[str, Any]) -> str:
    """Return a table's lines, leaving out what is None."""
    return "".join(f"{_toml(key)} = {_toml(value)}\n" for key, value in table.items() if value is not None)


def _toml(value: Any) -> str:
    """Return a value as TOML writes it: JSON's way but for tables, DEL, and null, which is refused."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if value is None:
        raise UsageError("TOML cannot say null inside params: leave it out, or write JSON")
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def scenario_hash(scenario: Scenario) -> str:
    """Return 64 hexadecimal digits (SHA-256) that agree for scenarios that ask for the same run.

    The name does not count, nor how a number is written (20 or 20.0).
    """
    data = _canonical(scenario.model_dump(mode="json", exclude={"name"}))
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """Return JSON data with whole floats as integers."""
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def build_graph(scenario: Scenario) -> "nx.DiGraph":
    """Return the scenario's topology, frozen, after checking that its flows and events fit it."""
    import networkx as nx  # takes 0.4 s, and only this needs it

    from topologies.graph import check_flows

    graph = nx.freeze(topologies.build(scenario.topology, aqm=scenario.aqm, **scenario.params))
    check_flows(graph, scenario.flows)
    check_events(graph, scenario.events)
    return graph


def parse_flows(text: str) -> list[str]:
    """Return the algorithms of the flows, one for each flow, from "name:count" items; a lone name counts 1.

    Examples
    --------
    >>> parse_flows("ndm_tcp:2,cubic")
    ['ndm_tcp', 'ndm_tcp', 'cubic']
    """
    counts = [_flow_count(item.strip()) for item in text.split(",")]
    total = sum(count for _, count in counts)
    if not 1 <= total <= MAX_FLOWS:
        raise UsageError(f"flows {text!r} are {total} flows: there must be 1 to {MAX_FLOWS}")
    return [cca for cca, count in counts for _ in range(count)]


def _flow_count(item: str) -> tuple[str, int]:
    """Return an algorithm and its number of flows from one "name:count" item."""
    cca, colon, count = (part.strip() for part in item.partition(":"))
    if not re.fullmatch(CCA_PATTERN, cca):
        raise UsageError(
            f"flows item {item!r} names no algorithm: write NAME or NAME:COUNT, such as cubic:2; "
            "a name has up to 15 lower-case letters, digits and _"
        )
    if colon and not re.fullmatch("[0-9]{1,6}", count):
        raise UsageError(f"flows item {item!r}: the count must be a whole number from 0, not {count!r}")
    return cca, int(count) if colon else 1


def make_flows(ccas: Sequence[str], start_gap_s: float = 0.0, generator: str = "bulk") -> tuple[Flow, ...]:
    """Return flows for a dumbbell: flow k goes from snd{k} to rcv{k} and starts (k - 1) gaps after the first.

    Examples
    --------
    >>> [(f.flow_id, f.src, f.dst, f.start_s) for f in make_flows(["cubic", "bbr", "cubic"], start_gap_s=5)]
    [('cubic-1', 'snd1', 'rcv1', 0.0), ('bbr-1', 'snd2', 'rcv2', 5.0), ('cubic-2', 'snd3', 'rcv3', 10.0)]
    """
    check_range("start_gap_s", start_gap_s, 0, MAX_TIME_S, " s")
    numbers: Counter[str] = Counter()
    flows = []
    for index, cca in enumerate(ccas):
        numbers[cca] += 1
        flows.append(
            _flow(
                flow_id=f"{cca}-{numbers[cca]}",
                src=f"snd{index + 1}",
                dst=f"rcv{index + 1}",
                cca=cca,
                start_s=index * start_gap_s,
                generator=generator,
            )
        )
    return tuple(flows)


def _flow(**fields: Any) -> Flow:
    """Return a flow, or raise what is wrong with it as our own error."""
    try:
        return Flow(**fields)
    except ValidationError as error:
        raise describe_validation_error(error) from error


def make_scenario(**fields: Any) -> Scenario:
    """Return a scenario of these fields, or raise what is wrong with them as our own error."""
    try:
        return Scenario(**fields)
    except ValidationError as error:
        raise describe_validation_error(error) from error
