"""What a run's links were set to: each value as asked for, beside what the kernel said at the run's end.

Where a value changes during the run, the last one that was asked for counts.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from lab.record import RecordError, Run
from topologies.graph import edge_id

__all__ = ["Setting", "settings", "settings_table"]

TOLERANCE = 0.001
SLACK = {"us": 2.0, "ms": 0.002, "B": 64.0}
"""Unit -> what may be missing besides: tc says times in whole µs, Open vSwitch rounds the least burst up."""
NOT_NUMBERS = {"unlimited", "besteffort", "nopacing"}

Words = Mapping[str, tuple[float, str]]
"""Name -> (value, unit)."""


class Setting(NamedTuple):
    """One value of one direction of a link.

    Attributes
    ----------
    edge : str
        "u->v".
    interface : str
        Where it is set.
    name, unit : str
        What it is; "" for tc's own units.
    asked : float or None
        What the run's plan says; None where the controller decided by itself during the run.
    found : float or None
        What the kernel said; None for what tc doesn't show.
    """

    edge: str
    interface: str
    name: str
    asked: float | None
    found: float | None
    unit: str

    @property
    def differs(self) -> bool:
        """Whether the kernel has something else than was asked for."""
        if self.asked is None or self.found is None:
            return False
        return abs(self.found - self.asked) > max(TOLERANCE * abs(self.asked), SLACK.get(self.unit, 0.0))


def settings(run: Run) -> list[Setting]:
    """Return what each link was set to, in order of the links' names.

    Raises
    ------
    RecordError
        When the run did not come to its end, or is of a version that did not record this.
    """
    plan, tc, classes = (_read(run, name) for name in ("plan.json", "tc.json", "classes.json"))
    qdiscs = {(qdisc["dev"], qdisc.get("parent", "root")): qdisc for text in tc.values() for qdisc in json.loads(text)}
    edges, decided = _edges(plan), _decided(plan)
    found = []
    for interface, place, kind, words in (*_rates(plan), *_queues(plan), *_netems(plan)):
        read = _read_back(kind, place, interface, qdiscs, classes)
        what = f"{place} {kind}" if place != "root" else kind
        for name, (value, unit) in words.items():
            asked = None if interface in decided else value
            found.append(Setting(edges[interface], interface, f"{what} {name}", asked, read.get(name), unit))
    return sorted(found, key=lambda setting: (setting.edge, setting.interface))


def _read(run: Run, name: str) -> Any:
    try:
        return json.loads((run.raw / name).read_text())
    except (OSError, ValueError) as error:
        raise RecordError(f"{run.path}: raw/{name} can't be read, so what the kernel had is not known") from error


def _decided(plan: Mapping[str, Any]) -> set[str]:
    """Return the ports at which the controller decides by itself."""
    steps = [plan["controller"], *plan["controller"]["later"]]
    return {port["port"] for step in steps if step["adaptive"] for port in step["adaptive"]["ports"]}


Asked = tuple[str, str, str, Words]
"""Interface, class or parent there, kind, values."""


def _edges(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the edge of which each interface is a part: a node's own way out, or a wire's two ends."""
    links = plan["topo"]["links"]
    ends = [(link[f"intfName{near}"], link[f"node{near}"], link[f"node{far}"]) for link in links for near, far in SIDES]
    found = {interface: edge_id(u, v) for interface, u, v in ends}
    peers = {made[1]: made[2] for made in filter(None, map(PAIR.match, plan["links"]))}
    for port, u, v in ends:
        if wire := WIRE.match(peers.get(port, "")):
            own, other = wire[2], "v" if wire[2] == "u" else "u"
            for stage in range(STAGES):  # what leaves towards the far end is on the interfaces that are named after it
                found |= {f"{wire[1]}{other}{stage}": edge_id(u, v), f"{wire[1]}{own}{stage}": edge_id(v, u)}
    return found


SIDES = ((1, 2), (2, 1))
STAGES = 2
"""A wire's places for qdiscs, at most."""
PAIR = re.compile(r"link add name (\S+).* peer name (\S+)")
WIRE = re.compile(r"(wire\d+)([uv])\d+$")


def _rates(plan: Mapping[str, Any]) -> Iterator[Asked]:
    """Yield each class: the controller's at switches' ports, and those on wires."""
    changed = [event["rate"] for event in plan["events"] if "rate" in event]
    for interface, port in _last_ports(plan).items():
        for number, queue in port["queues"].items():
            rates = queue["min_rate_bit"], queue["max_rate_bit"], queue["burst_bytes"]
            yield interface, f"1:{int(number) + 1:x}", "htb", _class_words(*rates)
    bursts = {rate["htb"]["interface"]: rate["htb"] for rate in changed if "htb" in rate}
    for made in filter(None, map(CLASS.match, _lines(plan))):
        rate_bit, burst_bytes = int(made[2]), int(made[3])
        if made[1] in bursts:
            rate_bit, burst_bytes = round(bursts[made[1]]["rate_mbit"] * 1e6), bursts[made[1]]["burst_bytes"]
        yield made[1], "1:1", "htb", _class_words(rate_bit, rate_bit, burst_bytes)


def _last_ports(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return each switch port's last setting, of a policy or of an event, whichever came later."""
    steps = [plan["controller"], *plan["controller"]["later"]]
    timed = [(step["at_s"], port) for step in steps for port in step["queues"]]
    timed += [(event["t_s"], event["rate"]["port"]) for event in plan["events"] if "port" in event.get("rate", ())]
    return {port["port"]: port for _, port in sorted(timed, key=lambda pair: pair[0])}


CLASS = re.compile(r"class add dev (\S+) parent 1: classid 1:1 htb rate (\d+)bit .* burst (\d+)b")
NETEM = re.compile(r"qdisc add dev (\S+) root handle 1: netem delay (\S+)us")


def _lines(plan: Mapping[str, Any]) -> list[str]:
    """Return tc's lines for all nodes."""
    return [line for node in plan["nodes"].values() for line in node["tc"]]


def _class_words(least_bit: float, most_bit: float, burst_bytes: float) -> Words:
    return {
        "rate": (least_bit / 1e6, "Mbit/s"),
        "ceil": (most_bit / 1e6, "Mbit/s"),
        "burst": (burst_bytes, "B"),
    }


def _netems(plan: Mapping[str, Any]) -> Iterator[Asked]:
    """Yield each netem: a plain delay as tc was told, all else as it was told by netlink."""
    asked = {made[1]: {"delay_us": float(made[2])} for made in filter(None, map(NETEM.match, _lines(plan)))}
    changed = [event["netem"] for event in plan["events"] if "netem" in event]
    asked |= {entry["interface"]: entry["settings"] for entry in (*plan["seeds"], *changed)}
    for interface, values in asked.items():
        yield interface, "root", "netem", _netem_words(values)


def _netem_words(values: Mapping[str, Any]) -> Words:
    """Return what a netem is to do, without what it isn't."""
    model = dict(zip(("p", "r", "1-h", "1-k"), values.get("gemodel") or (), strict=False))
    slot = values.get("slot") or (0, 0, 0, 0)
    words = {
        "delay": (values["delay_us"] / 1e3, "ms"),
        "jitter": (values.get("jitter_us", 0.0) / 1e3, "ms"),
        "loss": (values.get("loss_pct", 0.0), "%"),
        **{f"loss {name}": (value, "%") for name, value in model.items()},
        "slot": (slot[0] / 1e6, "ms"),
    }
    return {name: value for name, value in words.items() if value[0]}


def _queues(plan: Mapping[str, Any]) -> Iterator[Asked]:
    """Yield each leaf qdisc, as tc's line for it says."""
    steps = [plan["controller"], *plan["controller"]["later"]]
    lines = [*(line for step in steps for line in step["leaves"]), *plan["leaves"]]
    last = {(words[3], words[5]): words[8:] for words in map(str.split, lines)}
    for (interface, parent), (kind, *words) in last.items():
        yield interface, parent, kind, dict(_leaf_words(words))


def _leaf_words(words: list[str]) -> Iterator[tuple[str, tuple[float, str]]]:
    """Yield the values in a leaf's words; ECN counts as 0 or 1."""
    rest = iter(word for word in words if word not in NOT_NUMBERS)
    for name in rest:
        if name in ("ecn", "noecn"):
            yield "ecn", (float(name == "ecn"), "")
        elif made := re.fullmatch(r"([\d.]+)(us|bit)?", next(rest)):
            yield name, (float(made[1]), made[2] or "")


def _read_back(
    kind: str, place: str, interface: str, qdiscs: Mapping[Any, Any], classes: Mapping[str, Any]
) -> dict[str, float]:
    """Return what the kernel said, by the same names."""
    if kind == "htb":
        found = classes.get(interface, {}).get(place)
        return (
            {} if found is None else _values(_class_words(found["rate_bit"], found["ceil_bit"], found["burst_bytes"]))
        )
    qdisc = qdiscs.get((interface, place), {"kind": None})
    if qdisc["kind"] != kind:
        return {}
    options = qdisc["options"]
    if kind == "netem":
        return _netem_options(options)
    return {"ecn": 0.0} | {name: float(value) for name, value in options.items() if isinstance(value, int | float)}


def _values(words: Words) -> dict[str, float]:
    return {name: value for name, (value, _) in words.items()}


def _netem_options(options: Mapping[str, Any]) -> dict[str, float]:
    """Return netem's options as tc has them in JSON: times in s, shares of 1."""
    model = options.get("loss-gemodel", {})
    return {
        "delay": options["delay"]["delay"] * 1e3,
        "jitter": options["delay"]["jitter"] * 1e3,
        "loss": options.get("loss-random", {}).get("loss", 0.0) * 100,
        **{f"loss {name}": share * 100 for name, share in model.items()},
        "slot": options.get("slot", {}).get("min-delay", 0.0) * 1e3,
    }


def settings_table(found: list[Setting]) -> Table:
    """Return the table of a run's settings; what differs is marked."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("link", "interface", "setting"):
        table.add_column(name, no_wrap=True)
    for name in ("asked for", "read back"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for (edge, interface), group in itertools.groupby(found, lambda setting: (setting.edge, setting.interface)):
        for index, one in enumerate(group):
            head = ("", "") if index else (edge, interface)
            values = ("–" if value is None else f"{value:.10g} {one.unit}" for value in (one.asked, one.found))
            table.add_row(*head, one.name, *values, "[red]differs[/red]" if one.differs else "")
    return table
