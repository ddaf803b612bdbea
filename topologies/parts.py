"""What the topologies are put together from: checked numbers, queues, hosts in pairs."""

from collections.abc import Mapping
from typing import Any

import networkx as nx

from topologies.errors import UsageError
from topologies.graph import AQMS, link, role
from topologies.units import MAX_RATE_MBIT, MIN_RATE_MBIT, Buffer, check_range, parse_buffer

__all__ = ["as_buffer", "attach", "attach_pair", "both_ways", "count", "natural_flows", "queue"]


def count(what: str, value: object, low: int, high: int) -> int:
    """Return a whole number within bounds, or raise a UsageError that names it."""
    check_range(what, value, low, high)
    number = float(value)  # type: ignore[arg-type]  # check_range has seen that it is a number
    if not number.is_integer():
        raise UsageError(f"{what} must be a whole number, not {value}")
    return int(number)


def as_buffer(buffer: str | Buffer) -> Buffer:
    """Return a buffer that may have been written as text."""
    if isinstance(buffer, Buffer):
        return buffer
    if not isinstance(buffer, str):
        raise UsageError(f"buffer {buffer!r} has no unit: write {buffer}bdp, {buffer}packets or {buffer}B")
    return parse_buffer(buffer)


def queue(rate_mbit: float, rtt_ms: float, buffer: str | Buffer, aqm: str, what: str = "rate_mbit") -> dict[str, Any]:
    """Return an edge's rate and queue as attributes; a BDP is that of `rtt_ms`; `what` names the rate in errors."""
    check_range(what, rate_mbit, MIN_RATE_MBIT, MAX_RATE_MBIT, " Mbit/s")
    if aqm not in AQMS:
        raise UsageError(f"aqm {aqm!r} must be one of {', '.join(AQMS)}")
    size = as_buffer(buffer).resolve_bytes(rate_mbit, rtt_ms)
    return {"rate_mbit": float(rate_mbit), "buffer_bytes": size, "aqm": aqm}


def attach(graph: nx.DiGraph, host: str, its_role: str, switch: str, **egress: Any) -> None:
    """Add a host and its link to a switch; `egress` are the attributes of the host's own direction."""
    graph.add_node(host, role=its_role)
    link(graph, host, switch, egress, {})


def attach_pair(graph: nx.DiGraph, number: int, ends: tuple[str, str], delay_ms: float, **egress: Any) -> None:
    """Add snd{number} and rcv{number} at two switches, each with a delay, and what `egress` says, on its own egress."""
    for host, its_role, switch in ((f"snd{number}", "sender", ends[0]), (f"rcv{number}", "receiver", ends[1])):
        attach(graph, host, its_role, switch, delay_ms=delay_ms, **egress)


def natural_flows(graph: nx.DiGraph) -> tuple[tuple[str, str], ...]:
    """Return the flows that a topology is made for, as (sender, receiver): snd1 to rcv1, snd2 to rcv2, ….

    Examples
    --------
    >>> from topologies.dumbbell import dumbbell
    >>> natural_flows(dumbbell(pairs=2))
    (('snd1', 'rcv1'), ('snd2', 'rcv2'))
    """
    senders = sum(role(graph, node) == "sender" for node in graph)
    pairs = ((f"snd{number}", f"rcv{number}") for number in range(1, senders + 1))
    return tuple(pair for pair in pairs if set(pair) <= graph.nodes.keys())


def both_ways(attributes: Mapping[str, Any], **forward: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes of a link's two directions, which differ by `forward` only."""
    return {**attributes, **forward}, dict(attributes)
