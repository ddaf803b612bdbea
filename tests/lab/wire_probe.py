"""Sends numbered frames over one wire in the lab kernel and tells when each arrives; run by test_links.py.

Reads a list of steps as JSON from its one argument: {"edges": {"s1->s2": {...}, ...}} makes the wire anew,
{"send": "s1->s2", "frames": n, "gap_ms": g} sends frames and waits for them, {"change": "s1->s2", "edge": {...},
"up": bool} changes the edge in place, with "flying": n frames sent before, {"show": true} tells what tc says.
Prints one JSON list: each step's result.
"""

import json
import socket
import struct
import subprocess
import sys
import time
from typing import Any

import networkx as nx

from lab import links
from lab.link_events import Links
from lab.netlink import Namespaces
from topologies.graph import link
from topologies.schema import Edge

ETHERTYPE = 0x88B5  # for local experiments (IEEE 802)
SO_TIMESTAMPNS, SO_RCVBUFFORCE = 35, 33
LIMIT = 200_000


class Wire:
    """One wire between two switches' ports, without Open vSwitch."""

    def __init__(self, edges: dict[str, dict[str, Any]]) -> None:
        self.graph = nx.DiGraph()
        self.graph.add_nodes_from(["s1", "s2"], role="switch")
        link(self.graph, "s1", "s2", edges["s1->s2"], edges["s2->s1"])
        pairs = [("s1", "s2"), ("s2", "s1")]
        self.found = links.wires(self.graph, pairs)
        self.made = {pair: links.netem(Edge.model_validate(self.graph.edges[pair]), LIMIT) for pair in pairs}
        batch("ip", links.link_lines(self.graph, self.found))
        batch("tc", links.wire_lines(self.graph, self.found["s1", "s2"], self.made))
        self.links = Links({"controller": {"tag": "", "queues": [], "later": []}}, Namespaces({}))
        self.links.seed(list(links.seed_entries(self.graph, self.found, self.made, seed=1)))
        self.sockets = {node: self.listen(f"{node}-eth1") for node in ("s1", "s2")}

    @staticmethod
    def listen(interface: str) -> socket.socket:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
        sock.bind((interface, ETHERTYPE))
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 28)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.setblocking(False)
        return sock

    def send(self, edge: str, frames: int, gap_ms: float = 0.0) -> None:
        source = edge[:2]
        for number in range(frames):
            frame = bytes(6) + bytes(6) + struct.pack("!HIq", ETHERTYPE, number, time.time_ns())
            self.sockets[source].send(frame.ljust(100, b"\0"))
            if gap_ms:
                time.sleep(gap_ms / 1e3)

    def received(self, edge: str) -> list[tuple[int, float, float]]:
        """Return (number, delay in ms, time of arrival in ms) in order of arrival."""
        time.sleep(5)
        target = edge[-2:]
        found: list[tuple[int, float, float]] = []
        while True:
            try:
                data, extra, *_ = self.sockets[target].recvmsg(2048, 256)
            except BlockingIOError:
                return found
            seconds, nanoseconds = struct.unpack("=qq", extra[0][2][:16])
            _, number, sent_ns = struct.unpack_from("!HIq", data, 12)
            arrival_ns = seconds * 1_000_000_000 + nanoseconds
            found.append((number, (arrival_ns - sent_ns) / 1e6, arrival_ns % 10**12 / 1e6))

    def change(self, edge: str, attributes: dict[str, Any], up: bool) -> None:
        pair = (edge[:2], edge[-2:])
        settings = links.netem(Edge.model_validate(attributes), LIMIT, up, in_order=True)
        self.links.apply([{"netem": links._entry(links.netem_place(self.graph, self.found, pair), settings, 7)}])

    def show(self) -> Any:
        text = subprocess.run(["tc", "-s", "-j", "qdisc", "show"], capture_output=True, check=True).stdout
        return [qdisc for qdisc in json.loads(text) if qdisc["kind"] == "netem"]

    def remove(self) -> None:
        batch("ip", ["link del dev s1-eth1", "link del dev s2-eth1"])


def batch(tool: str, lines: Any) -> None:
    subprocess.run([tool, "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


def main(steps: list[dict[str, Any]]) -> None:
    wire: Wire | None = None
    results: list[Any] = []
    for step in steps:
        if "edges" in step:
            if wire:
                wire.remove()
            wire = Wire(step["edges"])
            results.append(None)
        assert wire
        if "send" in step:
            wire.send(step["send"], step["frames"], step.get("gap_ms", 0.0))
            results.append(wire.received(step["send"]))
        elif "change" in step:
            wire.send(step["change"], step.get("flying", 0))
            wire.change(step["change"], step["edge"], step.get("up", True))
            wire.send(step["change"], step.get("after", 0))
            results.append(wire.received(step["change"]))
        elif "show" in step:
            results.append(wire.show())
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
