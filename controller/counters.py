"""OpenFlow counters: what is asked of a switch, and what it answers, gathered until its barrier."""

from __future__ import annotations

from typing import Any

from controller.frameworks import Framework
from controller.plan import Watched

__all__ = ["FLOW_COOKIE", "Counters"]

FLOW_COOKIE = 1 << 32
"""Bit that marks the cookie of a watched flow's rule; the flow's number is below it."""

Table = dict[str, dict[str, list[int]]]


class Counters:
    """The counters of one run's flows, queues and ports.

    Parameters
    ----------
    watched : Watched
        What is counted.
    """

    def __init__(self, watched: Watched) -> None:
        self._flows = watched["flows"]
        self._ports = {(port["dpid"], port["number"]): port for port in watched["ports"]}
        self._gathered: dict[int, Table] = {}

    def requests(self, framework: Framework, datapath: Any) -> list[Any]:
        """Return the requests for one switch; none when nothing of it is watched."""
        parser, ofproto = framework.parser, framework.ofproto
        numbers = [number for dpid, number in self._ports if dpid == datapath.id]
        if not numbers:
            return []
        self._gathered[datapath.id] = {"flows": {}, "queues": {}, "ports": {}}
        anything = (ofproto.OFPTT_ALL, ofproto.OFPP_ANY, ofproto.OFPG_ANY)
        asked = [parser.OFPFlowStatsRequest(datapath, 0, *anything, FLOW_COOKIE, FLOW_COOKIE, parser.OFPMatch())]
        for number in numbers:
            asked.append(parser.OFPQueueStatsRequest(datapath, 0, number, ofproto.OFPQ_ALL))
            asked.append(parser.OFPPortStatsRequest(datapath, 0, number))
        return asked

    def flow_reply(self, dpid: int, body: list[Any]) -> None:
        """Take in flows' counters: flow -> packets, bytes."""
        into = self._gathered.get(dpid, {}).get("flows", {})
        for entry in body:
            number = entry.cookie & (FLOW_COOKIE - 1)
            if entry.cookie & FLOW_COOKIE and number < len(self._flows):
                into[self._flows[number]] = [entry.packet_count, entry.byte_count]

    def queue_reply(self, dpid: int, body: list[Any]) -> None:
        """Take in queues' counters: "s1->s2/0" -> packets, bytes, drops."""
        for entry in body:
            port = self._ports.get((dpid, entry.port_no))
            if port and dpid in self._gathered:
                name = f"{port['edge']}/{entry.queue_id}"
                self._gathered[dpid]["queues"][name] = [entry.tx_packets, entry.tx_bytes, entry.tx_errors]

    def port_reply(self, dpid: int, body: list[Any]) -> None:
        """Take in ports' counters: "s1->s2" -> packets, bytes, drops."""
        for entry in body:
            port = self._ports.get((dpid, entry.port_no))
            if port and dpid in self._gathered:
                self._gathered[dpid]["ports"][port["edge"]] = [entry.tx_packets, entry.tx_bytes, entry.tx_dropped]

    def take(self, dpid: int) -> Table:
        """Return what a switch has answered since it was asked."""
        return self._gathered.pop(dpid, {})
