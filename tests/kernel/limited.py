"""How far a window grows that is not used: ``limited.py ALGORITHM...``, as root in a lab kernel, virtual clock.

20 Mbit/s, 40 ms. Three ways to be limited, each with each algorithm, 60 s:

    application   it offers a quarter of the rate; the path is empty
    qdisc         the bottleneck is the sender's own interface, so TCP small queues hold the sender back
    network       the bottleneck is a router's port with one BDP of buffer, for comparison

Prints one JSON object: way -> algorithm -> [largest window in segments, goodput in Mbit/s].
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

CLONE_NEWNET = 0x40000000
RATE_MBIT = 20
DELAY_MS = 20
SECONDS = 60.0
STEP_S = 0.01
PORT = 5001
TBF = f"tbf rate {RATE_MBIT}mbit burst 3k limit"
WAYS = {
    # way: (sender's qdisc, router's qdisc, share of the rate that the application offers)
    "application": (f"netem delay {DELAY_MS}ms", f"{TBF} 100k", 0.25),
    "qdisc": (f"{TBF} 10m", f"netem delay {DELAY_MS}ms", 2.0),
    "network": (f"netem delay {DELAY_MS}ms", f"{TBF} 100k", 2.0),
}


def run(command: str) -> None:
    """Run a command; a failure raises with what it said."""
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout}{done.stderr}")


def inside(name: str) -> None:
    """Move this thread into a named network namespace."""
    with Path("/run/netns", name).open() as namespace:
        if ctypes.CDLL(None).setns(namespace.fileno(), CLONE_NEWNET):
            raise SystemExit(f"setns {name}")


def build() -> None:
    """a 10.213.1.2 --- 10.213.1.1 r 10.213.2.1 --- 10.213.2.2 b, with b's delay on the way back."""
    for name in "arb":
        run(f"ip netns add {name}")
    for host, port, net in (("a", "ra", 1), ("b", "rb", 2)):
        run(f"ip -n r link add {port} type veth peer name eth0 netns {host}")
        for namespace, device, end in (("r", port, 1), (host, "eth0", 2)):
            run(f"ip -n {namespace} address add 10.213.{net}.{end}/24 dev {device}")
            run(f"ip netns exec {namespace} ethtool -K {device} tso off gso off gro off")
            run(f"ip -n {namespace} link set {device} up")
        run(f"ip -n {host} route add default via 10.213.{net}.1")
        run(f"ip netns exec {host} sysctl -q net.ipv4.tcp_no_metrics_save=1")
    run("ip netns exec r sysctl -q net.ipv4.ip_forward=1")
    run(f"tc -n b qdisc add dev eth0 root netem delay {DELAY_MS}ms limit 10000")


def receive() -> None:
    """Take in what comes, one connection after the other (a thread)."""
    inside("b")
    with socket.create_server(("10.213.2.2", PORT)) as server:
        while True:
            with server.accept()[0] as connection, suppress(ConnectionResetError):
                while connection.recv(1 << 20):
                    pass


def tcp_info(sender: socket.socket) -> tuple[int, int]:
    """Return the window in segments and the acknowledged bytes (offsets of struct tcp_info in linux/tcp.h)."""
    info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return struct.unpack_from("=I", info, 80)[0], struct.unpack_from("=Q", info, 120)[0]


def largest_window(cca: str, share: float) -> tuple[int, float]:
    """Send for a while; return the largest window in segments and the goodput in Mbit/s."""
    offered = bytes(round(share * RATE_MBIT * 1e6 / 8 * STEP_S))
    largest = 0
    with socket.socket() as sender:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cca.encode())
        sender.connect(("10.213.2.2", PORT))
        sender.setblocking(False)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with suppress(BlockingIOError):
                sender.send(offered)
            time.sleep(STEP_S)
            cwnd, acked = tcp_info(sender)
            largest = max(largest, cwnd)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return largest, acked * 8e-6 / SECONDS


def main() -> None:
    """Try each algorithm in each way."""
    build()
    threading.Thread(target=receive, daemon=True).start()
    inside("a")
    time.sleep(0.1)
    found = {}
    for way, (sender, router, share) in WAYS.items():
        run(f"tc -n a qdisc replace dev eth0 root {sender}")
        run(f"tc -n r qdisc replace dev rb root {router}")
        found[way] = {cca: largest_window(cca, share) for cca in sys.argv[1:]}
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
