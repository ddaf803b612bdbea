"""Names and numbers that follow from a graph alone: interfaces, ports, datapath ids, addresses.

Everything is in natural order of node names (s2 before s10), so that the same graph gives the same network,
and the controller, the lab and Mininet agree without asking each other.
"""

import re
from typing import Any, NamedTuple

import networkx as nx

from topologies.errors import UsageError
from topologies.graph import role, validate
from topologies.kept import kept

__all__ = [
    "PREFIX_LENGTH",
    "Port",
    "addresses",
    "dpids",
    "hosts",
    "macs",
    "mininet_data",
    "natural",
    "ports",
    "switches",
]

HOSTS_PER_BLOCK = 254
"""Hosts in each 10.0.N.0/24 of the one 10.0.0.0/16, leaving out .0 and .255, which look like no host's."""
MAX_HOSTS = 256 * HOSTS_PER_BLOCK
PREFIX_LENGTH = 16


class Port(NamedTuple):
    """One end of a link.

    Attributes
    ----------
    interface : str
        Name of the network interface, NAME-ethN.
    number : int
        N: the OpenFlow port number on a switch, from 1; 0 on a host.
    """

    interface: str
    number: int


def natural(name: str) -> list[tuple[int, int | str]]:
    """Return a sort key by which s2 comes before s10."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split("([0-9]+)", name) if part]


def switches(graph: nx.DiGraph) -> list[str]:
    """Return the switches in natural order."""
    return sorted((node for node in graph if role(graph, node) == "switch"), key=natural)


def hosts(graph: nx.DiGraph) -> list[str]:
    """Return the senders and receivers in natural order."""
    return sorted((node for node in graph if role(graph, node) != "switch"), key=natural)


@kept
def ports(graph: nx.DiGraph) -> dict[tuple[str, str], Port]:
    """Return for each edge (u, v) the port on u that leads to v.

    Examples
    --------
    >>> from topologies.dumbbell import dumbbell
    >>> found = ports(dumbbell(pairs=2))
    >>> found["snd1", "s1"], found["s1", "snd2"]
    (Port(interface='snd1-eth0', number=0), Port(interface='s1-eth3', number=3))
    """
    return {
        (node, neighbour): Port(f"{node}-eth{number}", number)
        for node in sorted(graph, key=natural)
        for number, neighbour in enumerate(
            sorted(graph.successors(node), key=natural), start=1 if role(graph, node) == "switch" else 0
        )
    }


def dpids(graph: nx.DiGraph) -> dict[str, int]:
    """Return each switch's OpenFlow datapath id, from 1."""
    return {switch: number for number, switch in enumerate(switches(graph), start=1)}


@kept
def addresses(graph: nx.DiGraph) -> dict[str, str]:
    """Return each host's IPv4 address in 10.0.0.0/16.

    Examples
    --------
    >>> from topologies.dumbbell import dumbbell
    >>> addresses(dumbbell(pairs=1))
    {'rcv1': '10.0.0.1', 'snd1': '10.0.0.2'}
    """
    return {host: f"10.0.{block}.{last}" for host, (block, last) in _numbers(graph).items()}


@kept
def macs(graph: nx.DiGraph) -> dict[str, str]:
    """Return each host's Ethernet address: locally administered (02:…), ending in its IPv4 address.

    Examples
    --------
    >>> from topologies.dumbbell import dumbbell
    >>> macs(dumbbell(pairs=1))["snd1"]
    '02:00:0a:00:00:02'
    """
    return {host: f"02:00:0a:00:{block:02x}:{last:02x}" for host, (block, last) in _numbers(graph).items()}


def mininet_data(graph: nx.DiGraph) -> dict[str, Any]:
    """Return a valid graph as the plain JSON data from which `topologies.mininet_topo.FairbedTopo` is made.

    It keeps networkx out of the process that runs the network, where importing takes longest.

    Examples
    --------
    >>> from topologies.dumbbell import dumbbell
    >>> data = mininet_data(dumbbell(pairs=1))
    >>> data["switches"]["s2"], data["hosts"]["snd1"]
    ({'dpid': '0000000000000002'}, {'ip': '10.0.0.2/16', 'mac': '02:00:0a:00:00:02'})
    >>> data["links"][0]
    {'node1': 'rcv1', 'node2': 's2', 'port1': 0, 'port2': 1, 'intfName1': 'rcv1-eth0', 'intfName2': 's2-eth1'}
    """
    validate(graph)
    host_macs, numbered = macs(graph), ports(graph)
    return {
        "switches": {name: {"dpid": f"{dpid:016x}"} for name, dpid in dpids(graph).items()},
        "hosts": {
            name: {"ip": f"{address}/{PREFIX_LENGTH}", "mac": host_macs[name]}
            for name, address in addresses(graph).items()
        },
        "links": [
            {
                "node1": u,
                "node2": v,
                "port1": port.number,
                "port2": numbered[v, u].number,
                "intfName1": port.interface,
                "intfName2": numbered[v, u].interface,
            }
            for (u, v), port in numbered.items()
            if natural(u) < natural(v)
        ],
    }


def _numbers(graph: nx.DiGraph) -> dict[str, tuple[int, int]]:
    """Return the last two bytes of each host's address."""
    names = hosts(graph)
    if len(names) > MAX_HOSTS:
        raise UsageError(f"{len(names)} hosts do not fit 10.0.0.0/{PREFIX_LENGTH}: at most {MAX_HOSTS}")
    return {host: (index // HOSTS_PER_BLOCK, index % HOSTS_PER_BLOCK + 1) for index, host in enumerate(names)}
