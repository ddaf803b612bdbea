"""What the controller process is told: rules and queues as plain data in one JSON file.

All decisions are made before, by `forwarding` and `queues`; the process only carries them out, because its
start counts and every import is dear in the lab kernel. So this module imports nothing but the standard
library.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from topologies.errors import UsageError

FORMAT = 2
MAX_DPID = 2**64 - 1
LEAF_HANDLE = 16
"""Major number of queue 0's leaf qdisc, so that none is that of the HTB tree, 1."""
MATCH_FIELDS = frozenset({"eth_type", "ip_proto", "ipv4_dst", "ipv4_src", "tcp_dst", "tcp_src"})
ACTIONS = frozenset({"meter", "output", "set_queue"})


class Rule(TypedDict):
    """One OpenFlow rule.

    Attributes
    ----------
    dpid : int
        Datapath id of its switch, 0 to 2**64 - 1.
    priority : int
        0 to 65535, the highest matching rule wins.
    match : dict
        OpenFlow 1.3 match fields by name.
    actions : list of list
        ["meter", number], ["set_queue", queue] and ["output", port], in this order.
    flow : int, optional
        Which of the watched flows it carries, so that its counters are that flow's.
    """

    dpid: int
    priority: int
    match: dict[str, int | str]
    actions: list[list[str | int]]
    flow: NotRequired[int]


class Meter(TypedDict):
    """What drops packets of a switch above a rate; the burst is how much may pass at once."""

    dpid: int
    meter: int
    rate_kbit: int
    burst_kbit: int


class QueueSetting(TypedDict):
    """One queue: an HTB class. The lowest priority, 0 if none is given, is served first."""

    min_rate_bit: int
    max_rate_bit: int
    burst_bytes: int
    priority: NotRequired[int]


class PortSetting(TypedDict):
    """The queues of one switch port, an OVSDB QoS row.

    Attributes
    ----------
    port : str
        Its interface, "s1-eth5".
    type : str
        OVSDB's QoS type, "linux-htb".
    max_rate_bit : int
        Rate of the port in bit/s.
    queues : dict
        Queue number -> setting; packets without `set_queue` are in queue 0.
    """

    port: str
    type: str
    max_rate_bit: int
    queues: dict[int, QueueSetting]


class AdaptivePort(TypedDict):
    """A port whose queues the controller moves.

    Attributes
    ----------
    edge, port : str
        "s1->s2", and its interface.
    dpid, rate_bit : int
        Its switch, and its rate in bit/s.
    queues : list of int
        All its queues; group k, from 1, has queue k.
    groups : dict
        Algorithm -> its flows.
    leaves : list of str
        The leaf qdisc of a queue with 1, 2, … flows, as tc's arguments.
    """

    edge: str
    port: str
    dpid: int
    rate_bit: int
    queues: list[int]
    groups: dict[str, list[str]]
    leaves: list[str]


class Adaptive(TypedDict):
    """Decisions left to the controller, every interval_s."""

    interval_s: float
    ports: list[AdaptivePort]


class Step(TypedDict):
    """What is set when a policy begins.

    Attributes
    ----------
    at_s : float
        When, in s since the run began.
    policy : str
        Its text.
    queues : list of PortSetting
        Set first.
    leaves : list of str
        tc's lines for the qdiscs below the queues.
    meters, rules : list of Meter, list of Rule
        Sent last; they replace those of the same number or match.
    adaptive : Adaptive or None
        What is left to the controller.
    """

    at_s: float
    policy: str
    queues: list[PortSetting]
    leaves: list[str]
    meters: list[Meter]
    rules: list[Rule]
    adaptive: Adaptive | None


class WatchedPort(TypedDict):
    """A port whose counters are read: its edge, interface, switch and OpenFlow number."""

    edge: str
    port: str
    dpid: int
    number: int


class Watched(TypedDict):
    """What is counted: ports, and flows by the number that rules give them."""

    ports: list[WatchedPort]
    flows: list[str]


class Plan(Step):
    """Everything that the controller is to do: its first step, with all rules, and the rest.

    Attributes
    ----------
    format : int
        Version of this layout.
    tag : str
        Marks the OVSDB rows as this run's: external_ids:fairbed.
    dpids : list of int
        The switches to wait for.
    later : list of Step
        Changes of policy, in order of time.
    watched : Watched
        What is counted.
    counters_s : float or None
        How often counters are read and recorded, None for never.
    """

    format: int
    tag: str
    dpids: list[int]
    later: list[Step]
    watched: Watched
    counters_s: float | None


def plan(
    tag: str,
    dpids: Mapping[str, int],
    rules: Iterable[Rule],
    steps: Sequence[Step] = (),
    watched: Watched | None = None,
    counters_s: float | None = None,
) -> Plan:
    """Return the plan for these switches (name -> datapath id): rules that always hold, and steps, the first at 0."""
    first = steps[0] if steps else no_step()
    return check(
        {
            **first,
            "format": FORMAT,
            "tag": tag,
            "dpids": sorted(dpids.values()),
            "rules": [*rules, *first["rules"]],
            "later": list(steps[1:]),
            "watched": watched or {"ports": [], "flows": []},
            "counters_s": counters_s,
        }
    )


def no_step() -> Step:
    """Return a step that sets nothing."""
    return {"at_s": 0.0, "policy": "", "queues": [], "leaves": [], "meters": [], "rules": [], "adaptive": None}


def leaf_line(interface: str, number: int, words: str) -> str:
    """Return tc's line for a queue's leaf; where there is one of the same kind, it changes and keeps its packets."""
    return f"qdisc replace dev {interface} parent 1:{number + 1:x} handle {LEAF_HANDLE + number:x}: {words}"


def write(path: Path, content: Plan) -> None:
    """Write a plan as JSON."""
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> Plan:
    """Return the plan in a file, its own or a run's; what cannot be read or is wrong raises a UsageError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the plan {path}: {error}") from error
    try:
        return check(content["controller"] if isinstance(content, dict) and "controller" in content else content)
    except UsageError as error:
        raise UsageError(f"plan {path}: {error}") from error


def check(content: Any) -> Plan:
    """Return the plan with queue numbers as int (JSON has only text keys), or raise what is wrong."""
    try:
        if content["format"] != FORMAT:
            raise UsageError(f"format {content['format']} is not {FORMAT}, the one this version reads")
        dpids = [_integer("dpid", dpid, MAX_DPID) for dpid in content["dpids"]]
        first = _step(content, dpids)
        later = [_step(step, dpids) for step in content["later"]]
        tag, watched, counters_s = content["tag"], content["watched"], content["counters_s"]
        _check_watched(watched)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"not a plan: {type(error).__name__}: {error}") from error
    if not isinstance(tag, str) or not tag:
        raise UsageError(f"the tag is a non-empty text, not {tag!r}")
    if counters_s is not None and not counters_s > 0:
        raise UsageError(f"counters_s {counters_s!r} is not above 0")
    return {
        **first,
        "format": FORMAT,
        "tag": tag,
        "dpids": dpids,
        "later": later,
        "watched": watched,
        "counters_s": counters_s,
    }


def _step(content: Mapping[str, Any], dpids: list[int]) -> Step:
    for rule in content["rules"]:
        _check_rule(rule, dpids)
    return {
        "at_s": float(content["at_s"]),
        "policy": str(content["policy"]),
        "queues": [_port_setting(setting) for setting in content["queues"]],
        "leaves": [_one_line(line) for line in content["leaves"]],
        "meters": [_meter(meter) for meter in content["meters"]],
        "rules": content["rules"],
        "adaptive": content["adaptive"],
    }


def _check_watched(watched: Watched) -> None:
    for port in watched["ports"]:
        _integer("dpid", port["dpid"], MAX_DPID)
        _integer("number", port["number"], 0xFFFFFFFF)
    if not all(isinstance(name, str) for name in watched["flows"]):
        raise TypeError("a watched flow is not a text")


def _one_line(line: Any) -> str:
    """Return a line for tc's batch, refusing what would be two."""
    if not isinstance(line, str) or "\n" in line:
        raise UsageError(f"{line!r} is not one line for tc")
    return line


def _meter(meter: Mapping[str, Any]) -> Meter:
    return {
        "dpid": _integer("dpid", meter["dpid"], MAX_DPID),
        "meter": _integer("meter", meter["meter"], 0xFFFF0000),
        "rate_kbit": _integer("rate_kbit", meter["rate_kbit"], 0xFFFFFFFF),
        "burst_kbit": _integer("burst_kbit", meter["burst_kbit"], 0xFFFFFFFF),
    }


def _check_rule(rule: Rule, dpids: list[int]) -> None:
    if rule["dpid"] not in dpids:
        raise UsageError(f"a rule is for switch {rule['dpid']}, which is not among the switches")
    _integer("priority", rule["priority"], 0xFFFF)
    _integer("flow", rule.get("flow", 0), 0xFFFF)
    unknown = rule["match"].keys() - MATCH_FIELDS
    unknown |= {str(name) for name, _ in rule["actions"]} - ACTIONS
    if unknown:
        raise UsageError(f"a rule of switch {rule['dpid']} has unknown parts: {', '.join(sorted(unknown))}")
    for name, number in rule["actions"]:
        _integer(str(name), number, 0xFFFFFFFF)


def _port_setting(setting: Mapping[str, Any]) -> PortSetting:
    return {
        "port": str(setting["port"]),
        "type": str(setting["type"]),
        "max_rate_bit": _integer("max_rate_bit", setting["max_rate_bit"]),
        "queues": {int(number): _queue_setting(queue) for number, queue in setting["queues"].items()},
    }


def _queue_setting(queue: Mapping[str, Any]) -> QueueSetting:
    return {
        "min_rate_bit": _integer("min_rate_bit", queue["min_rate_bit"]),
        "max_rate_bit": _integer("max_rate_bit", queue["max_rate_bit"]),
        "burst_bytes": _integer("burst_bytes", queue["burst_bytes"]),
        "priority": _integer("priority", queue.get("priority", 0), 0xFFFFFFFF),
    }


def _integer(name: str, value: Any, highest: int = 2**63 - 1) -> int:
    """Return the value if it is an integer from 0 to the highest."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        raise UsageError(f"{name} {value!r} is not an integer from 0 to {highest}")
    return value
