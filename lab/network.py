"""The running network: a plan becomes Mininet hosts, Open vSwitch switches, links and qdiscs.

Mininet makes the nodes. Links, addresses and qdiscs are made with one batch of ``ip`` and ``tc`` for each namespace,
because a process for each setting is what makes large networks slow to start; the batches are the plan's own text, so
what ``--explain`` shows is what is run.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import socket
import struct
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from mininet.link import Intf, Link
from mininet.log import setLogLevel
from mininet.net import Mininet

from controller.leaves import BY_NETLINK, read_back, set_leaves
from lab.claim import GROUP, interfaces, remove_interfaces
from lab.link_events import Links
from lab.netlink import Namespaces
from lab.nodes import LightHost, LightSwitch
from topologies.errors import FairbedError, UsageError
from topologies.mininet_topo import FairbedTopo

SIOCETHTOOL = 0x8946
NODES_A_WORD = 32
"""Nodes between two words about how far it is: whoever listens takes silence for a hang."""
OPEN_FILES = 16384
"""A namespace for each host, a socket for each end of a flow."""
OFFLOADS_OFF = {"tso": 0x1F, "gso": 0x24, "gro": 0x2C}
"""ethtool's ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO: a queue must hold packets of the wire's size."""


class NetworkError(FairbedError):
    """A command that builds the network failed."""


class _PlannedInterface(Intf):  # type: ignore[misc]
    """An interface that exists already and is configured already."""

    def config(self, **_: object) -> dict[str, object]:
        """Do nothing: the batch did."""
        return {}


class _PlannedLink(Link):  # type: ignore[misc]
    """A veth pair that the network's batch made."""

    @classmethod
    def makeIntfPair(cls, *_: object, **__: object) -> None:  # noqa: N802 - Mininet's name
        """Do nothing: the batch makes all pairs at once."""

    def stop(self) -> None:
        """Do nothing: a pair goes with its host's namespace, or with its switch's bridge below."""


class _ListeningController:
    """What Mininet needs to know of a controller that is ours to start; its own would telnet to it to see."""

    name, protocol = "c0", "tcp"

    def __init__(self, address: str, port: int) -> None:
        self._address, self.port = address, port

    def IP(self) -> str:  # noqa: N802 - Mininet's name
        """Return its address."""
        return self._address

    def start(self) -> None:
        """Do nothing: it is started by the runner."""

    def stop(self) -> None:
        """Do nothing: it is stopped by the runner."""


def run(argv: Sequence[str], text: str = "", where: str = "") -> str:
    """Run a command and return what it printed.

    Raises
    ------
    NetworkError
        Naming the command, the host, and what came back.
    """
    done = subprocess.run(list(argv), input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        words = done.stderr.strip()
        if at := re.search(r"Command failed -:(\d+)", words):
            words += f" (line: {text.splitlines()[int(at[1]) - 1]})"
        raise NetworkError(f"{' '.join(argv)}{f' on {where}' if where else ''} failed: {words}")
    return done.stdout


def check_queues(aqms: Iterable[str]) -> None:
    """Refuse queue managements that this machine's tc can't make, before anything is there to be taken down."""
    for aqm in sorted(set(aqms) - {"fifo", *BY_NETLINK}):
        asked = subprocess.run(
            ["tc", "qdisc", "add", "dev", "lo", "root", aqm, "help"], capture_output=True, text=True, check=False
        )
        if "Unknown qdisc" in asked.stderr:
            version = run(["tc", "-V"]).strip()
            raise UsageError(f"aqm {aqm}: this machine's tc ({version}) does not know it, a newer iproute2 would")


def _complete(text: str) -> str:
    """Return tc's JSON with the options of qdiscs that tc does not know: in their place it has what is no JSON."""
    qdiscs = json.loads(re.sub(r"\[Unknown qdisc, optlen=\d+\]", "", text))
    for qdisc in qdiscs:
        if qdisc["kind"] in BY_NETLINK:
            qdisc["options"] = read_back(qdisc["kind"], qdisc["dev"], qdisc["parent"])
    return json.dumps(qdiscs)


def switch_off_offloads(sock: socket.socket, interface: str) -> None:
    """Switch segmentation and receive offloads of an interface off, through any socket of its namespace."""
    for command in OFFLOADS_OFF.values():
        value = bytearray(struct.pack("=II", command, 0))
        request = struct.pack("16sP", interface.encode(), _address_of(value)) + bytes(16)
        fcntl.ioctl(sock.fileno(), SIOCETHTOOL, request)


def _allow_open_files(count: int) -> None:
    """Let this process and its children have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), max(hard, count)))


def _address_of(buffer: bytearray) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


class Network:
    """A plan's network; a context manager that takes everything down in reverse order.

    Parameters
    ----------
    plan
        See ``plan.py``.
    controller
        (address, port) of the OpenFlow controller, which must be listening already or connect soon.
    tell
        Called now and then with the number of nodes that are ready.
    """

    def __init__(
        self, plan: Mapping[str, Any], controller: tuple[str, int], tell: Callable[[int], None] = lambda _: None
    ) -> None:
        setLogLevel("critical")
        self._tell = tell
        self._plan, self._controller = plan, controller
        self._net: Mininet | None = None

    def __enter__(self) -> Network:
        try:
            self._build()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _build(self) -> None:
        Mininet.inited = True  # or it would set limits of the whole machine; those that matter are in the claim
        _allow_open_files(OPEN_FILES)
        self._net = net = Mininet(
            topo=FairbedTopo(self._plan["topo"]),
            host=LightHost,
            switch=LightSwitch,
            link=_PlannedLink,
            intf=_PlannedInterface,
            controller=None,
            build=False,
        )
        net.build()
        self._make_links()
        self._configure_nodes()
        if self._plan["seeds"]:
            Links(self._plan, self.namespaces()).seed(self._plan["seeds"])
        net.controllers.append(_ListeningController(*self._controller))
        for switch in net.switches:
            switch.protocols, switch.reconnectms = "OpenFlow13", 1000
        net.start()

    @property
    def mininet(self) -> Mininet:
        """The Mininet network itself."""
        assert self._net is not None  # noqa: S101 - inside the context only
        return self._net

    @property
    def _descriptors(self) -> dict[str, int]:
        """An open descriptor of each host's namespace."""
        return {host.name: host.namespace for host in self.mininet.hosts}

    def _make_links(self) -> None:
        place = {name: f"/proc/{os.getpid()}/fd/{number}" for name, number in self._descriptors.items()}
        lines = [re.sub(r" netns (\w+)", lambda host: f" netns {place[host[1]]}", line) for line in self._plan["links"]]
        lines = [re.sub(r"^(link add name \S+)(.*)", rf"\1 group {GROUP}\2 group {GROUP}", line) for line in lines]
        run(["ip", "-batch", "-"], "\n".join(lines) + "\n")

    def _configure_nodes(self) -> None:
        namespaces = self.namespaces()
        for number, (node, commands) in enumerate(self._plan["nodes"].items(), start=1):
            with namespaces.inside(node):
                for tool in ("ip", "tc"):
                    if commands[tool]:
                        run([tool, "-batch", "-"], "\n".join(commands[tool]) + "\n", where=node)
            for name, value in commands["sysctls"].items():
                namespaces.sysctl(node, name, value)
            with namespaces.socket(node, socket.AF_INET, socket.SOCK_DGRAM) as sock:
                for interface in commands["interfaces"]:
                    switch_off_offloads(sock, interface)
            if number % NODES_A_WORD == 0:
                self._tell(number)

    def add_leaves(self) -> None:
        """Add the leaf qdiscs below the controller's classes, which must exist."""
        set_leaves(self._plan["leaves"])

    def namespaces(self) -> Namespaces:
        """Return the hosts' namespaces, to make sockets in."""
        return Namespaces(self._descriptors)

    def popen(self, node: str, argv: list[str], output: Path) -> subprocess.Popen[bytes]:
        """Start a command on a host, its standard output in a new file."""
        with output.open("xb") as file:
            started: subprocess.Popen[bytes] = self.mininet[node].popen(argv, stdout=file, stderr=subprocess.STDOUT)
        return started

    def tc_state(self) -> dict[str, str]:
        """Return what the kernel says of all qdiscs and classes, with counters, per namespace, as tc's JSON text."""
        state = {"": _complete(run(["tc", "-s", "-j", "qdisc", "show"]))}
        namespaces = self.namespaces()
        for node in self._descriptors:
            if self._plan["nodes"][node]["tc"]:
                with namespaces.inside(node):
                    state[node] = run(["tc", "-s", "-j", "qdisc", "show"], where=node)
        return state

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._net is None:
            return
        self._net.stop()
        self._net = None
        # Pairs between switches, and between two stages of a wire: no host's namespace takes them along.
        remove_interfaces(interfaces(self._plan))
