"""How an edge is realised where Open vSwitch's queue alone can't do it: wires, netem, and their seeds.

Pure functions from a graph to lines of ``ip`` and ``tc``, and to what changes at run time. A packet on u->v meets

1. at a host's own egress netem, which delays by at least 1 µs and so releases the sender's small-queue budget;
2. the rate and its queue: HTB on the switch's port, owned by the controller, or on a wire where u is a host;
3. delay, jitter and loss: netem on a wire, behind the queue, as on a real line.

A wire is a chain of veth pairs between the two ends, joined by redirecting what arrives at one to the next one's
egress. Each stage has one qdisc for each direction, on an interface that nothing else owns::

    u-ethX ═══ wire1u0 ─> wire1v0 ═══ v-ethY        forward: the root qdisc of wire1v0
                       <─                           backward: that of wire1u0
"""

from __future__ import annotations

import bisect
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from controller.plan import PortSetting, QueueSetting, Step
from controller.queues import burst_bytes
from lab.netem import HTB_QUANTUM, JITTER_REACH, Netem
from lab.qdiscs import NETEM_MARGIN_PACKETS, RED_MAX_RATE_BIT, RELEASE_DELAY_US, leaf, red_burst, red_step_bytes
from topologies.events import EdgeState
from topologies.graph import edge_id, role
from topologies.ports import macs, natural, ports
from topologies.schema import Edge
from topologies.units import PACKET_BYTES

if TYPE_CHECKING:
    import networkx as nx

Pair = tuple[str, str]
Element = Literal["htb", "netem"]

MAX_LIMIT = 2**31 - 1


class Wire(NamedTuple):
    """The chain between u and v (u first in natural order): what each direction has, in the order packets meet it."""

    name: str
    u: str
    v: str
    forward: tuple[Element, ...]
    backward: tuple[Element, ...]

    @property
    def stages(self) -> int:
        """How many places for qdiscs there are."""
        return max(len(self.forward), len(self.backward))

    def end(self, side: Literal["u", "v"], stage: int) -> str:
        """Return a stage's interface that faces u or v."""
        return f"{self.name}{side}{stage}"

    def end_at(self, node: str) -> str:
        """Return the interface whose peer is a node's own."""
        return self.end("u", 0) if node == self.u else self.end("v", self.stages - 1)

    def interface(self, source: str, element: Element) -> str | None:
        """Return whose root qdisc an element is, on the way that leaves `source`; None where there is none."""
        elements = self.forward if source == self.u else self.backward
        if element not in elements:
            return None
        index = elements.index(element)
        return self.end("v", index) if source == self.u else self.end("u", self.stages - 1 - index)


class Place(NamedTuple):
    """Where a qdisc is: the host in whose namespace (None: the switches'), and the interface."""

    node: str | None
    interface: str


Wires = Mapping[Pair, Wire]
Netems = Mapping[Pair, Netem]


def changing(after: Iterable[EdgeState]) -> set[Pair]:
    """Return the edges of which events change more than the rate, which is not netem's."""
    return {state.event.ends for state in after if state.event.changes.keys() - {"rate_mbit"}}


def wires(graph: nx.DiGraph, will_change: Iterable[Pair] = ()) -> dict[Pair, Wire]:
    """Return the wires that a graph needs, by both directions of their links.

    Parameters
    ----------
    graph
        Validated.
    will_change
        Edges whose delay or loss changes during the run, and so need netem from the beginning.
    """
    changes = set(will_change)
    found: dict[Pair, Wire] = {}
    for u, v in sorted(graph.edges, key=lambda pair: (natural(pair[0]), natural(pair[1]))):
        if natural(u) > natural(v):
            continue
        forward, backward = (_elements(graph, pair, pair in changes) for pair in ((u, v), (v, u)))
        if forward or backward:
            wire = Wire(f"wire{len(found) // 2 + 1}", u, v, forward, backward)
            found[u, v] = found[v, u] = wire
    return found


def _elements(graph: nx.DiGraph, pair: Pair, changes: bool) -> tuple[Element, ...]:
    """Return what one direction needs a wire for; a host's netem without a rate is on its own interface."""
    edge = _edge(graph, pair)
    netem: tuple[Element, ...] = ("netem",) if edge.needs_netem or changes else ()
    if role(graph, pair[0]) == "switch":
        return netem
    return () if edge.rate_mbit is None else ("htb", *netem)


def _edge(graph: nx.DiGraph, pair: Pair) -> Edge:
    return Edge.model_validate(graph.edges[pair])


def netem_place(graph: nx.DiGraph, found: Wires, pair: Pair) -> Place | None:
    """Return where an edge's delay and loss are, None where it has neither."""
    interface = found[pair].interface(pair[0], "netem") if pair in found else None
    if interface is not None:
        return Place(None, interface)
    if role(graph, pair[0]) == "switch" or graph.edges[pair]["rate_mbit"] is not None:
        return None
    return Place(pair[0], ports(graph)[pair].interface)


def queue_interface(graph: nx.DiGraph, found: Wires, pair: Pair) -> str:
    """Return the interface, among the switches', below whose class 1:1 the queue of an edge with a rate is."""
    wired = found[pair].interface(pair[0], "htb") if pair in found else None
    return wired or ports(graph)[pair].interface


def link_lines(graph: nx.DiGraph, found: Wires) -> Iterator[str]:
    """Yield ip's lines that make every veth pair, a host's end in its namespace, and bring all others up."""
    numbered, mac = ports(graph), macs(graph)
    for (u, v), port in numbered.items():
        if (u, v) in found:
            peer = found[u, v].end_at(u)
        elif role(graph, u) != "switch" or (role(graph, v) == "switch" and u < v):
            peer = numbered[v, u].interface
        else:
            continue
        host = f" address {mac[u]} netns {u}" if role(graph, u) != "switch" else ""
        yield f"link add name {port.interface}{host} type veth peer name {peer}"
    for wire in _each(found):
        yield from _inner_pairs(wire)
    for (u, _), port in numbered.items():
        if role(graph, u) == "switch":
            # No IPv6 address, so no router solicitations among the measured packets.
            yield f"link set dev {port.interface} addrgenmode none up"
    for wire in _each(found):
        for stage in range(wire.stages):
            yield from (f"link set dev {wire.end(side, stage)} addrgenmode none up" for side in ("u", "v"))


def _each(found: Wires) -> list[Wire]:
    """Return each wire once."""
    return list(dict.fromkeys(found.values()))


def _inner_pairs(wire: Wire) -> Iterator[str]:
    """Yield the lines for the pairs between a wire's stages."""
    for stage in range(wire.stages - 1):
        yield f"link add name {wire.end('v', stage)} type veth peer name {wire.end('u', stage + 1)}"


def inner_interfaces(found: Wires) -> list[str]:
    """Return one interface of each pair that neither a host's nor a switch's end takes along when it goes."""
    return [wire.end("v", stage) for wire in _each(found) for stage in range(wire.stages - 1)]


def wire_switch(graph: nx.DiGraph, wire: Wire) -> str:
    """Return the switch with which a wire is made."""
    return wire.u if role(graph, wire.u) == "switch" else wire.v


def wire_interfaces(wire: Wire) -> list[str]:
    """Return a wire's interfaces."""
    return [wire.end(side, stage) for stage in range(wire.stages) for side in ("u", "v")]


def wire_lines(graph: nx.DiGraph, wire: Wire, made: Netems) -> Iterator[str]:
    """Yield tc's lines that join a wire's stages and give them their qdiscs, all but the queues' leaves."""
    for stage in range(wire.stages):
        near, far = wire.end("u", stage), wire.end("v", stage)
        for source, target in ((near, far), (far, near)):
            yield f"qdisc add dev {source} ingress"
            yield f"filter add dev {source} ingress matchall action mirred egress redirect dev {target}"
    for pair in ((wire.u, wire.v), (wire.v, wire.u)):
        if interface := wire.interface(pair[0], "netem"):
            yield f"qdisc add dev {interface} root handle 1: {made[pair].words()}"
        if interface := wire.interface(pair[0], "htb"):
            yield f"qdisc add dev {interface} root handle 1: htb default 1"
            yield f"class add dev {interface} parent 1: classid 1:1 {htb_words(graph.edges[pair]['rate_mbit'])}"


def htb_words(rate_mbit: float) -> str:
    """Return the class of a rate as tc's arguments, its burst computed as the controller computes its own."""
    rate_bit = round(rate_mbit * 1e6)
    burst = burst_bytes(rate_bit)
    return f"htb rate {rate_bit}bit ceil {rate_bit}bit burst {burst}b cburst {burst}b quantum {HTB_QUANTUM}"


def leaf_lines(graph: nx.DiGraph, found: Wires, shaped: Iterable[Pair]) -> Iterator[str]:
    """Yield tc's lines for the queues of the edges with a rate."""
    for index, pair in enumerate(shaped):
        interface = queue_interface(graph, found, pair)
        yield f"qdisc replace dev {interface} parent 1:1 handle {index + 16:x}: {queue_words(_edge(graph, pair))}"


def queue_words(edge: Edge) -> str:
    """Return an edge's queue as tc's arguments.

    Examples
    --------
    >>> queue_words(Edge(rate_mbit=20.0, buffer_bytes=151400, aqm="codel", aqm_params={"target_ms": 2.5}, ecn=True))
    'codel limit 100 target 2500us ecn'
    """
    assert edge.buffer_bytes is not None and edge.rate_mbit is not None  # noqa: S101 - the schema asks for both
    words = [leaf(edge.aqm, edge.buffer_bytes)]
    words += [_parameter(name, value) for name, value in edge.aqm_params.items()]
    if edge.aqm in ("fq_codel", "codel", "pie", "fq_pie"):
        words.append("ecn" if edge.ecn else "noecn" if edge.aqm in ("fq_codel", "codel") else "")
    elif edge.aqm == "red":
        words += [*_red_burst(edge), f"bandwidth {round(min(edge.rate_mbit * 1e6, RED_MAX_RATE_BIT))}bit"]
        words += ["ecn"] if edge.ecn else []
    return " ".join(word for word in words if word)


def _red_burst(edge: Edge) -> Iterator[str]:
    """Yield RED's burst where its least threshold is given and the burst, which must fit it, is not."""
    given = edge.aqm_params
    if "min" in given and "burst" not in given:
        yield f"burst {red_burst(given['min'], given.get('avpkt', red_step_bytes(edge.buffer_bytes or 0)))}"


def leaf_words(graph: nx.DiGraph, pair: Pair, buffer_bytes: int) -> str:
    """Return a queue of an edge's kind with another buffer, as tc's arguments."""
    return queue_words(_edge(graph, pair).model_copy(update={"buffer_bytes": buffer_bytes}))


def _parameter(name: str, value: float) -> str:
    if name.endswith("_ms"):
        return f"{name.removesuffix('_ms')} {round(value * 1e3)}us"
    return f"{name} {value:.10g}"


def netem(edge: Edge, limit: int, up: bool = True, in_order: bool = False) -> Netem:
    """Return an edge's netem; a link that is down loses everything. `in_order` even without jitter: it may change."""
    slot, model = edge.slot, edge.gemodel
    return Netem(
        delay_us=max(RELEASE_DELAY_US, round(edge.delay_ms * 1e3, 3)),
        limit=limit,
        jitter_us=round(edge.jitter_ms * 1e3, 3),
        distribution=edge.distribution,
        loss_pct=edge.loss_pct if up else 100.0,
        gemodel=(model.p_pct, model.r_pct, model.loss_bad_pct, model.loss_good_pct) if model and up else None,
        slot=(round(slot.min_ms * 1e6), round(slot.max_ms * 1e6), slot.packets, slot.bytes) if slot else None,
        in_order=(in_order or edge.jitter_ms > 0) and not edge.reorder,
    )


def netem_limit(edges: Iterable[Edge], rate_mbit: float) -> int:
    """Return a limit that netem never reaches: twice what the longest delay holds at a rate, and a margin.

    Parameters
    ----------
    edges
        The edge, in each state that it will be in.
    rate_mbit
        The fastest that packets may come.
    """
    longest_ms = max(
        max(edge.delay_ms, RELEASE_DELAY_US / 1e3)
        + JITTER_REACH * edge.jitter_ms
        + (max(edge.slot.min_ms, edge.slot.max_ms) if edge.slot else 0.0)
        for edge in edges
    )
    held = rate_mbit * 1e6 / 8 * longest_ms / 1e3 / PACKET_BYTES
    return min(MAX_LIMIT, math.ceil(2 * held) + NETEM_MARGIN_PACKETS)


def seed_of(scenario_seed: int, pair: Pair, number: int = 0) -> int:
    """Return netem's own seed (64 bits) for an edge; `number` counts its changes, or each would repeat the first."""
    text = f"{scenario_seed} {edge_id(*pair)} {number}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def netems(graph: nx.DiGraph, found: Wires, after: Sequence[EdgeState], fastest_mbit: Mapping[str, float]) -> Netems:
    """Return what netem does on each edge that has it, with limits for all that the edge will be.

    Parameters
    ----------
    graph, found
        The graph and its wires.
    after
        Edges after each event.
    fastest_mbit
        For a host, the rate at which its packets may come in the long run; a host that isn't there sends none.
    """
    result = {}
    for pair in graph.edges:
        place = netem_place(graph, found, pair)
        edge, is_sender = _edge(graph, pair), role(graph, pair[0]) == "sender"
        later = [state.edge for state in after if state.event.ends == pair]
        if place is None or not (edge.needs_netem or later or is_sender or place.node is None):
            continue
        rate_mbit = fastest_mbit.get(pair[0], 0.0) if place.node else _fastest(graph, [edge, *later])
        result[pair] = netem(edge, netem_limit([edge, *later], rate_mbit), in_order=bool(later))
    return result


def _fastest(graph: nx.DiGraph, edge_in_time: Iterable[Edge]) -> float:
    """Return the rate that can reach a wire: that of the queue before it, or no more than all queues together."""
    rates = [edge.rate_mbit for edge in edge_in_time]
    own = [rate for rate in rates if rate is not None]
    return max(own) if own else math.fsum(rate for _, _, rate in graph.edges(data="rate_mbit") if rate)


def host_netem(graph: nx.DiGraph, pair: Pair, made: Netems) -> Netem | None:
    """Return the netem of a host's own egress; a sender always has one, before any rate."""
    if graph.edges[pair]["rate_mbit"] is None:
        return made.get(pair)
    return netem(Edge(), netem_limit([Edge()], 0.0)) if role(graph, pair[0]) == "sender" else None


def seed_entries(graph: nx.DiGraph, found: Wires, made: Netems, seed: int) -> Iterator[dict[str, Any]]:
    """Yield, for each netem that does more than delay, the plan's entry that gives it its seed."""
    for pair, settings in made.items():
        if settings.is_random or settings.slot:
            yield {"edge": edge_id(*pair), **_entry(netem_place(graph, found, pair), settings, seed_of(seed, pair))}


def _entry(place: Place | None, settings: Netem, seed: int) -> dict[str, Any]:
    assert place is not None  # noqa: S101 - only edges that have netem come here
    return {**place._asdict(), "settings": asdict(settings), "seed": seed}


def event_entries(
    graph: nx.DiGraph,
    found: Wires,
    made: Netems,
    after: Sequence[EdgeState],
    steps: Sequence[Step],
    seed: int,
) -> Iterator[dict[str, Any]]:
    """Yield the plan's entry for each event: its time, what changes, and the settings that make it so.

    Parameters
    ----------
    steps
        The controller's, with its settings for the ports of switches.
    seed
        The scenario's.
    """
    begins_s = [step["at_s"] for step in steps]
    by_port = [{setting["port"]: setting for setting in step["queues"]} for step in steps]
    for number, state in enumerate(after, start=1):
        pair = state.event.ends
        entry: dict[str, Any] = {"t_s": state.event.t_s, "edge": state.event.edge, "changes": state.event.changes}
        if state.event.changes.keys() - {"rate_mbit"}:
            changed = netem(state.edge, made[pair].limit, state.up, in_order=True)
            entry["netem"] = _entry(netem_place(graph, found, pair), changed, seed_of(seed, pair, number))
        if state.event.rate_mbit is not None:
            now = by_port[bisect.bisect_right(begins_s, state.event.t_s) - 1]
            entry["rate"] = _rate_entry(queue_interface(graph, found, pair), state.event.rate_mbit, now)
        yield entry


def _rate_entry(interface: str, rate_mbit: float, by_port: Mapping[str, PortSetting]) -> dict[str, Any]:
    """Return how a rate is changed: by the controller's setting on a switch's port, as an HTB class on a wire."""
    if interface in by_port:
        return {"port": with_rate(by_port[interface], round(rate_mbit * 1e6))}
    burst = burst_bytes(round(rate_mbit * 1e6))
    return {"htb": {"interface": interface, "rate_mbit": rate_mbit, "burst_bytes": burst}}


def in_force(
    graph: nx.DiGraph, after: Sequence[EdgeState], settings: Iterable[PortSetting], t_s: float
) -> list[PortSetting]:
    """Return ports' settings at the rates that events up to a time have made."""
    numbered = ports(graph)
    rates_bit = {
        numbered[state.event.ends].interface: round(state.edge.rate_mbit * 1e6)
        for state in after
        if state.event.t_s <= t_s and state.edge.rate_mbit is not None
    }
    return [with_rate(one, rates_bit.get(one["port"], one["max_rate_bit"])) for one in settings]


def with_rate(setting: PortSetting, rate_bit: int) -> PortSetting:
    """Return a port's queues at another rate, each with its share of it and a burst that fits."""
    growth = rate_bit / setting["max_rate_bit"]
    queues: dict[int, QueueSetting] = {
        number: {
            **queue,
            "min_rate_bit": round(queue["min_rate_bit"] * growth),
            "max_rate_bit": round(queue["max_rate_bit"] * growth),
            "burst_bytes": burst_bytes(round(queue["max_rate_bit"] * growth)),
        }
        for number, queue in setting["queues"].items()
    }
    return {"port": setting["port"], "type": setting["type"], "max_rate_bit": rate_bit, "queues": queues}
