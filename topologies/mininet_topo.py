"""A topology graph as Mininet takes it: the only module here that imports Mininet."""

from collections.abc import Mapping
from typing import Any

from mininet.topo import Topo

__all__ = ["FairbedTopo"]


class FairbedTopo(Topo):  # type: ignore[misc]  # Mininet has no types
    """Hosts, switches and plain links of a graph; delays, rates and queues are not Mininet's to set.

    Parameters
    ----------
    data : mapping
        From `topologies.ports.mininet_data`; plain data, so that building a network does not import networkx.
    """

    def build(self, data: Mapping[str, Any]) -> None:
        """Add every node and link, numbered, named and addressed as `topologies.ports` says."""
        for name, options in data["switches"].items():
            self.addSwitch(name, **options)
        for name, options in data["hosts"].items():
            self.addHost(name, **options)
        for options in data["links"]:
            ends = {key: value for key, value in options.items() if key not in ("node1", "node2")}
            self.addLink(options["node1"], options["node2"], **ends)
