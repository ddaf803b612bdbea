"""What the controller process is told: rules and queues as plain data in one JSON file.

All decisions are made before, by `forwarding` and `queues`; the process only carries them out, because its
start counts and every import is dear in the lab kernel. So this module imports nothing but the standard
library.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from topologies.errors import UsageError

FORMAT = 1
MAX_DPID = 2**64 - 1
MATCH_FIELDS = frozenset({"eth_type", "ip_proto", "ipv4_dst", "ipv4_src", "tcp_dst", "tcp_src"})
ACTIONS = frozenset({"output", "set_queue"})


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
        ["output", port] and ["set_queue", queue], in order.
    """

    dpid: int
    priority: int
    match: dict[str, int | str]
    actions: list[list[str | int]]


class QueueSetting(TypedDict):
    """One queue: an HTB class."""

    min_rate_bit: int
    max_rate_bit: int
    burst_bytes: int


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


class Plan(TypedDict):
    """Everything that the controller is to do.

    Attributes
    ----------
    format : int
        Version of this layout.
    tag : str
        Marks the OVSDB rows as this run's: external_ids:fairbed.
    dpids : list of int
        The switches to wait for.
    rules : list of Rule
        For these switches.
    queues : list of PortSetting
        Set before the rules.
    """

    format: int
    tag: str
    dpids: list[int]
    rules: list[Rule]
    queues: list[PortSetting]


def plan(tag: str, dpids: Mapping[str, int], rules: Iterable[Rule], queues: Iterable[PortSetting] = ()) -> Plan:
    """Return the plan for these switches (name -> datapath id)."""
    return check(
        {
            "format": FORMAT,
            "tag": tag,
            "dpids": sorted(dpids.values()),
            "rules": list(rules),
            "queues": list(queues),
        }
    )


def write(path: Path, content: Plan) -> None:
    """Write a plan as JSON."""
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> Plan:
    """Return the plan in a file, checked; what cannot be read or is wrong raises a UsageError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the plan {path}: {error}") from error
    try:
        return check(content)
    except UsageError as error:
        raise UsageError(f"plan {path}: {error}") from error


def check(content: Any) -> Plan:
    """Return the plan with queue numbers as int (JSON has only text keys), or raise what is wrong."""
    try:
        if content["format"] != FORMAT:
            raise UsageError(f"format {content['format']} is not {FORMAT}, the one this version reads")
        dpids = [_integer("dpid", dpid, MAX_DPID) for dpid in content["dpids"]]
        for rule in content["rules"]:
            _check_rule(rule, dpids)
        queues = [_port_setting(setting) for setting in content["queues"]]
        tag = content["tag"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"not a plan: {type(error).__name__}: {error}") from error
    if not isinstance(tag, str) or not tag:
        raise UsageError(f"the tag is a non-empty text, not {tag!r}")
    return {"format": FORMAT, "tag": tag, "dpids": dpids, "rules": content["rules"], "queues": queues}


def _check_rule(rule: Rule, dpids: list[int]) -> None:
    if rule["dpid"] not in dpids:
        raise UsageError(f"a rule is for switch {rule['dpid']}, which is not among the switches")
    _integer("priority", rule["priority"], 0xFFFF)
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
    }


def _integer(name: str, value: Any, highest: int = 2**63 - 1) -> int:
    """Return the value if it is an integer from 0 to the highest."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        raise UsageError(f"{name} {value!r} is not an integer from 0 to {highest}")
    return value
