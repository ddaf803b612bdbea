"""What a run will do, decided before it starts: a pure function from a scenario to plain data.

The plan is JSON: the process that carries it out imports neither networkx nor pydantic, because each import is paid
for in the lab kernel, and whoever wants to know what a run does to the network can read it (``--explain``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from controller import queues as policies
from controller.forwarding import forwarding_rules
from controller.plan import Step
from controller.plan import plan as controller_plan
from lab import links
from lab.claim import RUN_TAG
from lab.netem import HTB_CLASS, Netem
from lab.qdiscs import NEVER_CHANGED
from lab.scenario import Scenario, build_graph
from topologies.errors import UsageError
from topologies.events import EdgeState, states
from topologies.graph import edge_id, role
from topologies.paths import FlowPath, flow_paths
from topologies.ports import PREFIX_LENGTH, addresses, dpids, hosts, macs, mininet_data, ports, switches

if TYPE_CHECKING:
    import networkx as nx

SENDER_PORT = 20_000
RECEIVER_PORT = 5_001
"""First TCP ports; flow k uses the k-th. Fixed, so that telemetry knows each socket before it exists."""

COUNTERS_S = 1.0
"""How often the controller reads its switches' counters, s."""

ROOT = 0xFFFFFFFF
"""Parent of an interface's root qdisc (linux/pkt_sched.h: TC_H_ROOT); HTB's counts all that is below it."""

HOST_SYSCTLS = {
    "net.ipv4.tcp_no_metrics_save": "1",  # or ssthresh leaks from one flow to the next
    "net.ipv4.tcp_rmem": "4096 67108864 67108864",  # neither the window nor how fast it grows ever limits a flow
    "net.ipv4.tcp_wmem": "4096 16384 67108864",
}


def make_plan(scenario: Scenario) -> dict[str, Any]:
    """Return the plan of a scenario.

    Raises
    ------
    UsageError
        When the topology, the flows, the policy or a link can't be made.
    """
    graph = build_graph(scenario)
    paths = flow_paths(graph, scenario.flows)
    flows = _flows(scenario, graph)
    after = states(graph, scenario.events)
    wires = links.wires(graph, links.changing(after))
    netems = links.netems(graph, wires, after, _fastest(graph, paths, after))
    known = _known_flows(flows, paths)
    changes = policies.timeline([(0.0, scenario.queues), *_queue_changes(scenario)], graph, known)
    _check_changes(changes, graph)
    steps = _steps(changes, graph, known, after)
    queues = _controller_plan(steps, changes, graph, known)
    return {
        "scenario": scenario.model_dump(mode="json"),
        "paths": {flow_id: asdict(path) for flow_id, path in paths.items()},
        "queues": _queues(graph, changes),
        "topo": mininet_data(graph),
        "links": list(links.link_lines(graph, wires)),
        "nodes": {
            node: _node(graph, node, flows, netems)
            if role(graph, node) != "switch"
            else _switch(graph, node, wires, netems)
            for node in [*hosts(graph), *switches(graph)]
        },
        "wires": links.inner_interfaces(wires),
        "controller": queues,
        "leaves": list(
            links.leaf_lines(graph, wires, [e for e in shaped_edges(graph) if role(graph, e[0]) != "switch"])
        ),
        "seeds": list(links.seed_entries(graph, wires, netems, scenario.seed)),
        "events": list(links.event_entries(graph, wires, netems, after, steps, scenario.seed)),
        "flows": flows,
        "probes": [*_socket_probes(flows), *_queue_probes(graph, wires, changes)],
    }


def shaped_edges(graph: nx.DiGraph) -> list[tuple[str, str]]:
    """Return the edges with a rate, in order of name."""
    return sorted((u, v) for u, v, rate in graph.edges(data="rate_mbit") if rate is not None)


def _fastest(graph: nx.DiGraph, paths: Mapping[str, FlowPath], after: Sequence[EdgeState]) -> dict[str, float]:
    """Return for each host the fastest rate of a flow's path, with all that events will make of it."""
    growth = max(
        (state.edge.rate_mbit / graph.edges[state.event.ends]["rate_mbit"] for state in after if state.edge.rate_mbit),
        default=1.0,
    )
    return {
        node: max((path.rate_mbit for path in paths.values() if node in path.nodes), default=0.0) * max(1.0, growth)
        for node in hosts(graph)
    }


def _flows(scenario: Scenario, graph: nx.DiGraph) -> list[dict[str, Any]]:
    address = addresses(graph)
    return [
        {
            **flow.model_dump(mode="json"),
            "kernel_cca": flow.cca,
            "src_address": [address[flow.src], SENDER_PORT + index],
            "dst_address": [address[flow.dst], RECEIVER_PORT + index],
            "lasts_s": (flow.stop_s or scenario.duration_s) - flow.start_s,
        }
        for index, flow in enumerate(scenario.flows)
    ]


def _known_flows(flows: list[dict[str, Any]], paths: Mapping[str, FlowPath]) -> list[policies.QueueFlow]:
    """Return what a queue policy may know of the flows."""
    return [
        policies.QueueFlow(
            flow["flow_id"],
            flow["cca"],
            flow["src"],
            flow["dst"],
            flow["dst_address"][1],
            paths[flow["flow_id"]].nodes,
        )
        for flow in flows
    ]


def _queue_changes(scenario: Scenario) -> Iterator[tuple[float, str]]:
    """Yield when the queue policy changes to which; what an event does to a rate `adaptive` would undo."""
    changes = [(change.at_s, change.queues) for change in scenario.queues_at]
    names = {policies.parse_policy(text)[0] for text in (scenario.queues, *(text for _, text in changes))}
    if "adaptive" in names and any(event.rate_mbit is not None for event in scenario.events):
        raise UsageError("events that change a rate go with every queue policy but adaptive")
    yield from changes


def _check_changes(changes: Sequence[policies.Change], graph: nx.DiGraph) -> None:
    """Refuse policies that change queues which can't be changed in place."""
    moving = len(changes) > 1 or changes[0].plan.interval_s is not None
    for edge in changes[0].plan.shares if moving else ():
        if (aqm := graph.edges[edge]["aqm"]) in NEVER_CHANGED:
            raise UsageError(
                f"the queue of {edge_id(*edge)} can't change during the run: {aqm} would lose the packets in it. "
                "Choose another aqm, or one fixed queue policy other than adaptive"
            )


def _network(graph: nx.DiGraph) -> policies.Network:
    return policies.Network(graph, ports(graph), addresses(graph), dpids(graph))


def _steps(
    changes: Sequence[policies.Change],
    graph: nx.DiGraph,
    flows: Sequence[policies.QueueFlow],
    after: Sequence[EdgeState],
) -> list[Step]:
    """Return the controller's steps, each at the rates that links have by then."""
    made = policies.steps(changes, flows, _network(graph), lambda edge, size: links.leaf_words(graph, edge, size))
    return [{**step, "queues": links.in_force(graph, after, step["queues"], step["at_s"])} for step in made]


def _controller_plan(
    steps: Sequence[Step], changes: Sequence[policies.Change], graph: nx.DiGraph, flows: Sequence[policies.QueueFlow]
) -> Any:
    network = _network(graph)
    rules = forwarding_rules(graph, network.ports, network.addresses, network.dpids)
    intervals_s = [step["adaptive"]["interval_s"] for step in steps if step["adaptive"]]
    watched = policies.watched(changes[0].plan, flows, network)
    return controller_plan(RUN_TAG, network.dpids, rules, steps, watched, min(intervals_s, default=COUNTERS_S))


def _queues(graph: nx.DiGraph, changes: Sequence[policies.Change]) -> dict[str, Any]:
    """Return what is behind each name in the record: ports, and, where a policy makes several, their queues."""
    found: dict[str, Any] = {}
    for edge in shaped_edges(graph):
        data = graph.edges[edge]
        found[edge_id(*edge)] = {name: data[name] for name in ("rate_mbit", "buffer_bytes", "aqm", "bottleneck")}
        if edge in changes[0].plan.shares:
            found |= policies.queue_rows(changes, graph, edge)
    return found


def _node(
    graph: nx.DiGraph, node: str, flows: list[dict[str, Any]], netems: Mapping[tuple[str, str], Netem]
) -> dict[str, Any]:
    """Return one host's settings."""
    (edge,) = graph.out_edges(node)
    interface = ports(graph)[edge].interface
    delay = links.host_netem(graph, edge, netems)
    ecn = {"net.ipv4.tcp_ecn": "1"} if any(ecn for _, _, ecn in graph.edges(data="ecn")) else {}
    return {
        "ip": [*_addresses(graph, node, interface, flows), *_frame_by_frame(interface, delay)],
        "tc": [f"qdisc add dev {interface} root handle 1: {delay.words()}"] if delay else [],
        "sysctls": HOST_SYSCTLS | ecn,
        "interfaces": [interface],
    }


def _frame_by_frame(interface: str, egress: Netem | None) -> Iterator[str]:
    """Yield ip's line that has a host send single segments, where its own netem draws lots for what it sends.

    TCP hands several segments at a time to its own interface's qdisc, whatever the device can do: they would be lost,
    and late, together.
    """
    if egress is not None and (egress.is_random or egress.slot):
        yield f"link set dev {interface} gso_max_segs 1"


def _switch(
    graph: nx.DiGraph, node: str, wires: links.Wires, netems: Mapping[tuple[str, str], Netem]
) -> dict[str, Any]:
    """Return one switch's settings: interfaces, whose queues are the controller's, and the wires made with it."""
    own = [wire for wire in dict.fromkeys(wires.values()) if links.wire_switch(graph, wire) == node]
    interfaces = [port.interface for (u, _), port in ports(graph).items() if u == node]
    return {
        "ip": [],
        "tc": [line for wire in own for line in links.wire_lines(graph, wire, netems)],
        "sysctls": {},
        "interfaces": interfaces + [name for wire in own for name in links.wire_interfaces(wire)],
    }


def _addresses(graph: nx.DiGraph, node: str, interface: str, flows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield ip's lines for a host: its address, and its peers' Ethernet addresses, so that nothing asks for them."""
    address, mac = addresses(graph), macs(graph)
    yield "link set dev lo up"
    yield f"link set dev {interface} addrgenmode none up"
    yield f"addr add {address[node]}/{PREFIX_LENGTH} dev {interface}"
    peers = {flow["dst"] for flow in flows if flow["src"] == node} | {
        flow["src"] for flow in flows if flow["dst"] == node
    }
    for peer in sorted(peers):
        yield f"neigh add {address[peer]} lladdr {mac[peer]} dev {interface} nud permanent"


def _socket_probes(flows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for flow in flows:
        for side, node, local, remote in (
            ("sender", flow["src"], flow["src_address"], flow["dst_address"]),
            ("receiver", flow["dst"], flow["dst_address"], flow["src_address"]),
        ):
            yield {
                "flow_id": flow["flow_id"],
                "side": side,
                "socket": {"node": node, "local": local, "remote": remote},
            }


def _queue_probes(
    graph: nx.DiGraph, wires: links.Wires, changes: Sequence[policies.Change]
) -> Iterator[dict[str, Any]]:
    """Yield a probe for each port: its one leaf, or, where there are several, the tree's root and each leaf."""
    for edge in shaped_edges(graph):
        interface = links.queue_interface(graph, wires, edge)
        queues = policies.queue_rows(changes, graph, edge) if edge in changes[0].plan.shares else {}
        yield {
            "queue_id": edge_id(*edge),
            "qdisc": {"interface": interface, "parent": ROOT if queues else HTB_CLASS},
        }
        for number, name in enumerate(queues):
            yield {"queue_id": name, "qdisc": {"interface": interface, "parent": policies.classid(number)}}
