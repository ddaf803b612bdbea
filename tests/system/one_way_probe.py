"""Sends numbered datagrams one way and the other over networks in the lab kernel; run by test_one_way.py.

Its argument is a directory with one run directory for each network (raw/plan.json, raw/controller.json). Prints one
JSON object: the network's name -> for each direction a list of (number, one-way delay in ms) in order of arrival.
"""

import json
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

from lab.calibration import SO_TIMESTAMPNS
from lab.claim import claimed
from lab.control import Controller
from lab.netlink import Namespaces
from lab.network import Network
from lab.process import exact_timers
from lab.runner import LISTEN

DATAGRAMS, GAP_S = 1000, 0.5e-3
SETTLE_S = 2.0

Arrival = tuple[int, float]


def one_way(namespaces: Namespaces, flow: dict[str, Any], near: str, far: str) -> list[Arrival]:
    """Send from one end of a flow to the other."""
    address = tuple(flow[f"{far}_address"])
    receiver = namespaces.socket(flow[far], socket.AF_INET, socket.SOCK_DGRAM)
    sender = namespaces.socket(flow[near], socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    receiver.setblocking(False)
    receiver.bind(address)
    with receiver, sender:
        for number in range(DATAGRAMS):
            sender.sendto(struct.pack("=Iq", number, time.time_ns()), address)
            time.sleep(GAP_S)
        time.sleep(SETTLE_S)
        return list(arrivals(receiver))


def arrivals(receiver: socket.socket) -> Any:
    """Yield what has arrived."""
    while True:
        try:
            data, ancillary, _, _ = receiver.recvmsg(64, 64)
        except BlockingIOError:
            return
        number, sent_ns = struct.unpack("=Iq", data)
        seconds, nanoseconds = struct.unpack("=qq", ancillary[0][2])
        yield number, (seconds * 1_000_000_000 + nanoseconds - sent_ns) / 1e6


def measure(run: Path) -> dict[str, list[Arrival]]:
    """Build one network and send both ways."""
    plan = json.loads((run / "raw" / "plan.json").read_text())
    with claimed(plan), Network(plan, LISTEN) as network, Controller(plan, run / "raw", LISTEN, print):
        network.add_leaves()
        namespaces, flow = network.namespaces(), plan["flows"][0]
        return {
            "there": one_way(namespaces, flow, "src", "dst"),
            "back": one_way(namespaces, flow, "dst", "src"),
        }


if __name__ == "__main__":
    exact_timers()
    json.dump({run.name: measure(run) for run in sorted(Path(sys.argv[1]).iterdir())}, sys.stdout)
