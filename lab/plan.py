"""What a run will do, decided before it starts: a pure function from a scenario to plain data.

The plan is JSON: the process that carries it out imports neither networkx nor pydantic, because each import is paid
for in the lab kernel, and whoever wants to know what a run does to the network can read it (``--explain``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from controller.forwarding import forwarding_rules
from controller.plan import plan as controller_plan
from controller.queues import QueueFlow, queue_plan, queue_rules, queue_settings
from lab.qdiscs import leaf, netem
from lab.scenario import Scenario, build_graph
from topologies.errors import UsageError
from topologies.graph import edge_id, role
from topologies.paths import FlowPath, flow_paths
from topologies.ports import PREFIX_LENGTH, addresses, dpids, hosts, macs, mininet_data, ports, switches

if TYPE_CHECKING:
    import networkx as nx

SENDER_PORT = 20_000
RECEIVER_PORT = 5_001
"""First TCP ports; flow k uses the k-th. Fixed, so that telemetry knows each socket before it exists."""

HTB_MAJOR = 1
"""Major number of the HTB tree that Open vSwitch makes; the class of queue q is 1:(q + 1)."""

HOST_SYSCTLS = {
    "net.ipv4.tcp_no_metrics_save": "1",  # or ssthresh leaks from one flow to the next
    "net.ipv4.tcp_rmem": "4096 131072 67108864",  # autotuning must never be what limits a flow
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
    queues = _controller_queues(scenario, graph, flows, paths)
    return {
        "scenario": scenario.model_dump(mode="json"),
        "paths": {flow_id: asdict(path) for flow_id, path in paths.items()},
        "queues": _queues(graph),
        "topo": mininet_data(graph),
        "links": list(_links(graph)),
        "nodes": {node: _node(graph, node, flows, paths) for node in [*hosts(graph), *switches(graph)]},
        "controller": queues,
        "leaves": list(_leaves(graph)),
        "flows": flows,
        "probes": [*_socket_probes(flows), *_queue_probes(graph)],
    }


def shaped_edges(graph: nx.DiGraph) -> list[tuple[str, str]]:
    """Return the edges with a rate, in order of name; each must leave a switch."""
    found = sorted(edge for edge, rate in graph.edges(data="rate_mbit") and _rates(graph).items() if rate is not None)
    for u, v in found:
        if role(graph, u) != "switch":
            raise UsageError(f"edge {edge_id(u, v)}: a rate at a host's own egress can't be realised yet")
    return found


def _rates(graph: nx.DiGraph) -> dict[tuple[str, str], float | None]:
    return {(u, v): rate for u, v, rate in graph.edges(data="rate_mbit")}


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


def _controller_queues(
    scenario: Scenario, graph: nx.DiGraph, flows: list[dict[str, Any]], paths: Mapping[str, FlowPath]
) -> Any:
    known = [
        QueueFlow(
            flow["flow_id"],
            flow["cca"],
            flow["src"],
            flow["dst"],
            flow["dst_address"][1],
            paths[flow["flow_id"]].nodes,
        )
        for flow in flows
    ]
    numbered, address, ids = ports(graph), addresses(graph), dpids(graph)
    policy = queue_plan(scenario.queues, graph, known)
    rules = forwarding_rules(graph, numbered, address, ids) + queue_rules(policy, known, numbered, address, ids)
    return controller_plan("run", ids, rules, queue_settings(graph, policy, numbered))


def _queues(graph: nx.DiGraph) -> dict[str, Any]:
    return {
        edge_id(u, v): {
            "rate_mbit": graph.edges[u, v]["rate_mbit"],
            "buffer_bytes": graph.edges[u, v]["buffer_bytes"],
            "aqm": graph.edges[u, v]["aqm"],
            "bottleneck": graph.edges[u, v]["bottleneck"],
        }
        for u, v in shaped_edges(graph)
    }


def _links(graph: nx.DiGraph) -> Iterator[str]:
    """Yield ip's lines that make every veth pair, a host's end in its namespace, and bring the switches' ends up."""
    numbered, mac = ports(graph), macs(graph)
    for (u, v), port in numbered.items():
        peer = numbered[v, u]
        if role(graph, u) != "switch":
            end = f"link add name {port.interface} address {mac[u]} netns {u}"
        elif role(graph, v) == "switch" and u < v:
            end = f"link add name {port.interface}"
        else:
            continue
        yield f"{end} type veth peer name {peer.interface}"
    for (u, _), port in numbered.items():
        if role(graph, u) == "switch":
            # No IPv6 address, so no router solicitations among the measured packets.
            yield f"link set dev {port.interface} addrgenmode none up"


def _node(graph: nx.DiGraph, node: str, flows: list[dict[str, Any]], paths: Mapping[str, FlowPath]) -> dict[str, Any]:
    """Return one node's settings; a switch has only interfaces, its queues are the controller's."""
    interfaces = [port.interface for (u, _), port in ports(graph).items() if u == node]
    if role(graph, node) == "switch":
        return {"ip": [], "tc": list(_switch_delays(graph, node)), "sysctls": {}, "interfaces": interfaces}
    (neighbour,) = graph.successors(node)
    (interface,) = interfaces
    rate_mbit = max((path.rate_mbit for path in paths.values() if node in path.nodes), default=0.0)
    delay_ms = graph.edges[node, neighbour]["delay_ms"]
    needs_netem = delay_ms > 0 or role(graph, node) == "sender"
    return {
        "ip": list(_addresses(graph, node, interface, flows)),
        "tc": [f"qdisc add dev {interface} root handle 1: {netem(delay_ms, rate_mbit)}"] if needs_netem else [],
        "sysctls": HOST_SYSCTLS,
        "interfaces": interfaces,
    }


def _switch_delays(graph: nx.DiGraph, node: str) -> Iterator[str]:
    for _, neighbour, edge in graph.out_edges(node, data=True):
        if edge["delay_ms"] or edge["loss_pct"] or edge["jitter_ms"]:
            raise UsageError(
                f"edge {edge_id(node, neighbour)}: delay, jitter and loss at a switch's egress can't be realised yet; "
                "give them to the hosts' edges"
            )
    yield from ()


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


def _leaves(graph: nx.DiGraph) -> Iterator[str]:
    numbered = ports(graph)
    for index, edge in enumerate(shaped_edges(graph)):
        data = graph.edges[edge]
        place = f"dev {numbered[edge].interface} parent {HTB_MAJOR}:1 handle {index + 16:x}:"
        yield f"qdisc replace {place} {leaf(data['aqm'], data['buffer_bytes'])}"


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


def _queue_probes(graph: nx.DiGraph) -> Iterator[dict[str, Any]]:
    numbered = ports(graph)
    for edge in shaped_edges(graph):
        yield {
            "queue_id": edge_id(*edge),
            "qdisc": {"interface": numbered[edge].interface, "parent": (HTB_MAJOR << 16) | 1},
        }
