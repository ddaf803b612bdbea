"""A switch without a switch: says where the rules would send a packet."""

from collections.abc import Iterable, Mapping

from controller.plan import Rule
from topologies.ports import Port

Packet = Mapping[str, int | str]


def packet(src: str, dst: str, **fields: int | str) -> Packet:
    """Return an IPv4 packet from one address to another."""
    return {"eth_type": 0x0800, "ipv4_src": src, "ipv4_dst": dst, **fields}


class FlowTable:
    """The rules of all switches, looked up as OpenFlow 1.3 says: the highest priority that matches wins."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        """Take the rules in."""
        self.rules = list(rules)

    def actions(self, dpid: int, packet: Packet) -> list[list[str | int]]:
        """Return what happens to a packet: nothing when no rule matches, which means that it is dropped."""
        matching = [rule for rule in self.rules if rule["dpid"] == dpid and _matches(rule, packet)]
        if not matching:
            return []
        highest = max(rule["priority"] for rule in matching)
        chosen = [rule["actions"] for rule in matching if rule["priority"] == highest]
        assert len(chosen) == 1, f"the switch may choose between {chosen}"
        return chosen[0]

    def output(self, dpid: int, packet: Packet) -> int | None:
        """Return the port by which a packet leaves, None when it is dropped."""
        ports = [number for name, number in self.actions(dpid, packet) if name == "output"]
        assert len(ports) <= 1, "nothing is ever sent twice"
        return int(ports[0]) if ports else None

    def walk(
        self,
        packet: Packet,
        source: str,
        ports: Mapping[tuple[str, str], Port],
        dpids: Mapping[str, int],
    ) -> list[str]:
        """Return the nodes that a packet passes, from a host to where it leaves the switches."""
        beyond = {(u, port.number): v for (u, v), port in ports.items() if u in dpids}
        nodes = [source, next(v for u, v in ports if u == source)]
        while nodes[-1] in dpids:
            assert len(nodes) <= len(dpids) + 2, f"the packet goes in circles: {nodes}"
            port = self.output(dpids[nodes[-1]], packet)
            if port is None:
                break
            nodes.append(beyond[nodes[-1], port])
        return nodes


def _matches(rule: Rule, packet: Packet) -> bool:
    return all(packet.get(field) == value for field, value in rule["match"].items())
