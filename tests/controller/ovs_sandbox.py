"""A private Open vSwitch with its user-space datapath, in namespaces that end with the test.

hold ─ unshare: network, mounts (a tmpfs over /run) and processes of its own; ends when its stdin closes
 ├─ ovsdb-server, ovs-vswitchd      sockets and database in the test's folder
 ├─ one network namespace per host
 └─ the controller under test
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import networkx as nx

from topologies.ports import Port, addresses, dpids, hosts, macs, ports

CHECKOUT = Path(__file__).parents[2]
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
DEADLINE_S = 20.0
PING = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
    raw.settimeout(3)
    raw.sendto(bytes.fromhex("0800f7fd00010001"), (sys.argv[1], 0))
    try:
        print("answered" if raw.recv(100)[20] == 0 else "refused")
    except TimeoutError:
        print("no answer")
"""
"""One echo request (type 8, checksum, identifier 1, sequence 1): ping itself is not installed everywhere."""
LISTEN = "127.0.0.1:6653"


def missing() -> str:
    """Return why a sandbox can't be made here, "" if it can."""
    if os.geteuid() != 0:
        return "needs root (network namespaces)"
    tools = [tool for tool in ("ovs-vswitchd", "ovsdb-server", "unshare", "ip") if not shutil.which(tool)]
    return f"not installed: {', '.join(tools)}" if tools else ""


class Sandbox:
    """A running private Open vSwitch; `database` is its OVSDB address."""

    def __init__(self, holder: int, folder: Path) -> None:
        """Enter with processes by the namespaces of `holder`."""
        self.holder = holder
        self.folder = folder
        self.database = f"unix:{folder}/db.sock"
        self._environment = os.environ | {f"OVS_{name}DIR": str(folder) for name in ("RUN", "LOG", "DB")}

    def command(self, argv: list[str]) -> list[str]:
        """Return the command that runs `argv` inside, in the checkout's folder (nsenter goes to the root)."""
        return ["nsenter", "-t", str(self.holder), "-n", "-m", "-p", "--", "env", "-C", str(CHECKOUT), *argv]

    def run(self, *argv: str) -> str:
        """Run a command inside and return what it prints, or raise with it."""
        done = subprocess.run(
            self.command(list(argv)),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout}{done.stderr}"
        return done.stdout

    def popen(self, argv: list[str], **options: Any) -> "subprocess.Popen[str]":
        """Start a process inside."""
        return subprocess.Popen(self.command(argv), env=self._environment, text=True, **options)

    def start_ovs(self) -> None:
        """Start the database and the switch daemon."""
        database = f"{self.folder}/conf.db"
        daemon = ["--pidfile", "--detach", "--no-chdir", "--log-file"]
        self.run("ovsdb-tool", "create", database, str(SCHEMA))
        self.run("ovsdb-server", database, f"--remote=punix:{self.folder}/db.sock", *daemon)
        self.run("ovs-vsctl", "--no-wait", "init")
        self.run("ovs-vswitchd", "--disable-system", *daemon, self.database)

    def vsctl(self, *argv: str) -> str:
        """Run ovs-vsctl."""
        return self.run("ovs-vsctl", "--timeout=15", *argv).strip()

    def build(self, graph: nx.DiGraph) -> None:
        """Make the graph: a namespace per host with static neighbours, a bridge per switch, veths between."""
        port = ports(graph)
        for host in hosts(graph):
            self.run("ip", "netns", "add", host)
        for u, v in graph.edges:
            if u < v:
                ends = port[u, v].interface, port[v, u].interface
                self.run("ip", "link", "add", ends[0], "up", "type", "veth", "peer", "name", ends[1])
                self.run("ip", "link", "set", ends[1], "up")
        for host in hosts(graph):
            self._set_up_host(host, graph)
        self.vsctl(*self._bridges(graph, port))

    def _set_up_host(self, host: str, graph: nx.DiGraph) -> None:
        address, mac, device = addresses(graph), macs(graph), f"{host}-eth0"
        self.run("ip", "link", "set", device, "netns", host)
        batch = [
            f"link set {device} address {mac[host]} up",
            f"address add {address[host]}/16 dev {device}",
            *(
                f"neigh replace {address[other]} lladdr {mac[other]} dev {device} nud permanent"
                for other in hosts(graph)
                if other != host
            ),
        ]
        path = self.folder / f"{host}.batch"
        path.write_text("\n".join(batch) + "\n")
        self.run("ip", "-n", host, "-batch", str(path))

    def _bridges(self, graph: nx.DiGraph, port: Mapping[tuple[str, str], Port]) -> Iterator[str]:
        """Yield the arguments of one ovs-vsctl command; s2 may speak any version, the others 1.3 only."""
        for switch, dpid in dpids(graph).items():
            yield from ("--", "add-br", switch)
            yield from ("--", "set", "bridge", switch, "datapath_type=netdev", "fail_mode=secure")
            yield f"other_config:datapath-id={dpid:016x}"
            if switch != "s2":
                yield "protocols=OpenFlow13"
            for (u, _), (interface, number) in port.items():
                if u == switch:
                    yield from ("--", "add-port", switch, interface)
                    yield from ("--", "set", "interface", interface, f"ofport_request={number}")
            yield from ("--", "set-controller", switch, f"tcp:{LISTEN}")
            yield from ("--", "set", "controller", switch, "connection_mode=out-of-band", "max_backoff=1000")

    def pings(self, source: str, address: str) -> bool:
        """Say whether an ICMP echo to an address is answered."""
        return self.run("ip", "netns", "exec", source, sys.executable, "-c", PING, address) == "answered\n"

    def flows(self, switch: str) -> str:
        """Return a switch's rules as ovs-ofctl prints them."""
        return self.run("ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "dump-flows", switch)


@contextmanager
def sandbox(folder: Path) -> Iterator[Sandbox]:
    """Give a running sandbox, and end everything in it."""
    hold = "mount -t tmpfs none /run && mkdir /run/netns && ip link set lo up && echo up && read -r _"
    holder = subprocess.Popen(
        ["unshare", "-n", "-m", "-p", "--fork", "--kill-child", "--mount-proc", "sh", "-c", hold],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        made = Sandbox(child_of(holder.pid), folder)
        made.start_ovs()
        yield made
    finally:
        holder.kill()  # with it, by --kill-child, the first process inside, and with that all others
        holder.communicate()


def child_of(pid: int) -> int:
    """Return a process's one child, when it has it."""
    return int(wait_for(lambda: _children(pid), f"a child of {pid}")[0])


def _children(pid: int) -> list[str]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return path.read_text().split() if path.exists() else []


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Return a condition's value as soon as it is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {DEADLINE_S:g} s for {what}"
        time.sleep(0.02)
    return value


class Controller:
    """A controller process inside a sandbox."""

    def __init__(self, inside: Sandbox, argv: list[str], ready: int, ready_fd: int) -> None:
        """Start it; `ready` is our end of the pipe whose other end `ready_fd` it inherits."""
        self._ready = ready
        assert argv[0] == sys.executable
        self.process = inside.popen(argv, pass_fds=[ready_fd], stderr=subprocess.PIPE)
        os.close(ready_fd)

    def signal_word(self) -> bytes:
        """Return the line that it says on its descriptor; nothing when it ends without."""
        words = b""
        while not words.endswith(b"\n") and (data := os.read(self._ready, 100)):
            words += data
        return words

    def pid(self) -> int:
        """Return the process id of the controller itself."""
        return child_of(self.process.pid)

    def stop(self) -> tuple[int, str]:
        """End it as the lab does; return its exit status and what it wrote to stderr."""
        os.kill(self.pid(), signal.SIGTERM)
        return self.result()

    def result(self) -> tuple[int, str]:
        """Wait for its end; return its exit status and what it wrote to stderr."""
        _, errors = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, errors

    def close(self) -> None:
        """Release our end, and the process if a test left it."""
        os.close(self._ready)
        for pid in _children(self.process.pid):
            os.kill(int(pid), signal.SIGKILL)
        self.process.communicate()
