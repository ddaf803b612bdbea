"""Everything that can happen to a connection, to 20 of them, with both NDM-TCP profiles; then the module in and out.

Run as root in a lab kernel that has the module loaded: ``workout.py MODULE``. Prints one JSON object: the kernel's
counters of what the connections went through, and the kernel's messages.

    a 10.213.1.2 --- 10.213.1.1 r 10.213.2.1 --- 10.213.2.2 b
      netem (delay, jitter, loss, cut) on a's side; the bottleneck is r's port to b
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

CLONE_NEWNET = 0x40000000
PORT = 5001
FLOWS = 20
PROFILES = ("ndm_tcp", "ndm2")
LOADS = 30
NETEM = "qdisc {what} dev eth0 root netem limit 10000 {how}"
WANDERING = "delay 20ms 5ms loss 1%"  # reorders, so some cuts are undone
COUNTERS = ("TcpRetransSegs", "TcpExtTCPTimeouts", "TcpExtTCPSpuriousRTOs", "TcpExtTCPLossUndo", "TcpExtTCPDSACKUndo",
            "TcpExtTCPFullUndo", "TcpExtTCPPartialUndo", "TcpExtTCPLossProbes", "TcpExtTCPFastRetrans")  # fmt: skip


def run(command: str) -> str:
    """Run a command and return its output; a failure raises with what it said."""
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def inside(name: str) -> None:
    """Move this thread into a named network namespace."""
    with Path("/run/netns", name).open() as namespace:
        if ctypes.CDLL(None).setns(namespace.fileno(), CLONE_NEWNET):
            raise SystemExit(f"setns {name}")


def build() -> None:
    """Make the three namespaces and what joins them."""
    for name in "arb":
        run(f"ip netns add {name}")
    for host, port, net in (("a", "ra", 1), ("b", "rb", 2)):
        run(f"ip -n r link add {port} type veth peer name eth0 netns {host}")
        for namespace, device, end in (("r", port, 1), (host, "eth0", 2)):
            run(f"ip -n {namespace} address add 10.213.{net}.{end}/24 dev {device}")
            run(f"ip -n {namespace} link set {device} up")
        run(f"ip -n {host} route add default via 10.213.{net}.1")
    run("ip netns exec r sysctl -q net.ipv4.ip_forward=1")
    run("tc -n r qdisc add dev rb root tbf rate 40mbit burst 10k limit 60k")
    run("tc -n a " + NETEM.format(what="add", how=WANDERING))


def receive() -> None:
    """Take in everything that comes, for ever (a thread)."""
    inside("b")
    ready = selectors.DefaultSelector()
    server = socket.create_server(("10.213.2.2", PORT), backlog=FLOWS)
    ready.register(server, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is server:
                ready.register(server.accept()[0], selectors.EVENT_READ)
                continue
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            try:
                ended = not connection.recv(1 << 20)
            except ConnectionResetError:
                ended = True
            if ended:
                ready.unregister(connection)
                connection.close()


def connected(number: int) -> socket.socket:
    """Return a connection with one of the profiles."""
    sender = socket.socket()
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, PROFILES[number % 2].encode())
    sender.connect(("10.213.2.2", PORT))
    sender.setblocking(False)
    return sender


def send(senders: list[socket.socket], duration_s: float) -> None:
    """Keep every connection busy for that long."""
    ready = selectors.DefaultSelector()
    for sender in senders:
        ready.register(sender, selectors.EVENT_WRITE)
    end = time.monotonic() + duration_s
    while (left := end - time.monotonic()) > 0:
        for key, _ in ready.select(left):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.send(bytes(1 << 16))


def netem(how: str) -> None:
    """Change the path."""
    run("tc -n a " + NETEM.format(what="change", how=how))


def close(senders: list[socket.socket]) -> None:
    """End half of the connections politely and reset the others, with data on the way."""
    for number, sender in enumerate(senders):
        if number // 2 % 2:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sender.close()


def live() -> None:
    """Connect, lose, time out, undo, idle, change the algorithm, close."""
    senders = [connected(number) for number in range(FLOWS)]
    send(senders, 5)
    run("ip netns exec a ss -tin")  # asks every connection for its state
    netem("delay 20ms loss 100%")  # nothing arrives: retransmission timeouts
    time.sleep(3)
    netem(WANDERING)
    send(senders, 5)
    netem("delay 700ms")  # a step that outlasts the timeout: spurious timeouts, undone
    send(senders, 3)
    netem(WANDERING)
    time.sleep(8)  # longer than the timeout: the window restarts
    send(senders, 4)
    for number, sender in enumerate(senders):  # what one algorithm leaves in the connection, the next finds
        for name in ("reno", PROFILES[number % 2 - 1], "cubic", PROFILES[number % 2]):
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    send(senders, 4)
    close(senders)
    time.sleep(5)


def counters() -> dict[str, int]:
    """Return what namespace a's connections went through."""
    lines = run("ip netns exec a nstat -asz").splitlines()
    found = {line.split()[0]: int(line.split()[1]) for line in lines if not line.startswith("#")}
    return {name: found.get(name, 0) for name in COUNTERS}


def in_and_out(module: str) -> int:
    """Unload and load the module many times, refused while a socket has it; return how often it was refused."""
    refused = 0
    for number in range(LOADS):
        run("rmmod ndm_tcp")
        run(f"insmod {module}")
        with socket.socket() as held:
            held.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, PROFILES[number % 2].encode())
            refused += subprocess.run(["rmmod", "ndm_tcp"], capture_output=True, check=False).returncode != 0
    run("rmmod ndm_tcp")
    return refused


def main() -> None:
    """Do it all."""
    build()
    threading.Thread(target=receive, daemon=True).start()
    inside("a")
    time.sleep(0.1)
    live()
    lived = counters()
    refused = in_and_out(sys.argv[1])
    print(json.dumps({"counters": lived, "refused": refused, "messages": run("dmesg")}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
