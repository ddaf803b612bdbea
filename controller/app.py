"""The OpenFlow 1.3 application: sends each switch its rules, and tells when they are in place.

It decides nothing: when all switches of the plan are connected it sets the queues, then every switch gets its
rules and a barrier, whose reply says that they are in force. A switch that comes back gets them again; rules
are added, never cleared, so packets keep flowing. All of it waits on sockets, nothing polls.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from controller.frameworks import Framework
from controller.plan import Plan, Rule
from topologies.errors import FairbedError

Handler = TypeVar("Handler", bound=Callable[..., None])

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Events:
    """What happened, as JSON lines in a file, and the word "ready" on a file descriptor.

    Parameters
    ----------
    path : str or None
        File to append to.
    ready_fd : int or None
        Gets b"ready\\n" once, and is closed; closed without it means that it never came to that.
    """

    def __init__(self, path: str | None, ready_fd: int | None) -> None:
        """Open the file."""
        try:
            self._file = os.open(path, APPEND | os.O_CLOEXEC, 0o644) if path else None
        except OSError as error:
            raise FairbedError(f"cannot write events to {path}: {error}") from error
        self._ready_fd = ready_fd

    def write(self, kind: str, subject: str = "", **detail: Any) -> None:
        """Append one event; a line is one system call, so that none is ever cut."""
        line = {
            "t_ns": time.monotonic_ns(),
            "kind": kind,
            "subject": subject,
            "detail": json.dumps(detail) if detail else "",
        }
        if self._file is not None:
            os.write(self._file, json.dumps(line).encode() + b"\n")

    def ready(self) -> None:
        """Say, the first time, that all rules are in force."""
        self.write("ready")
        if self._ready_fd is not None:
            os.write(self._ready_fd, b"ready\n")
            os.close(self._ready_fd)
            self._ready_fd = None


def messages(framework: Framework, datapath: Any, rules: Iterable[Rule]) -> list[Any]:
    """Return the OpenFlow messages that add the rules, and the barrier after them."""
    adding = [flow_mod(framework, datapath, rule) for rule in rules]
    return [*adding, framework.parser.OFPBarrierRequest(datapath)]


def flow_mod(framework: Framework, datapath: Any, rule: Rule) -> Any:
    """Return the OpenFlow message that adds one rule."""
    parser, ofproto = framework.parser, framework.ofproto
    kinds = {"output": parser.OFPActionOutput, "set_queue": parser.OFPActionSetQueue}
    actions = [kinds[str(name)](number) for name, number in rule["actions"]]
    return parser.OFPFlowMod(
        datapath=datapath,
        priority=rule["priority"],
        match=parser.OFPMatch(**rule["match"]),
        instructions=[parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)],
    )


def send(datapath: Any, batch: Iterable[Any]) -> None:
    """Send messages in one write: a system call each would dominate in an emulated kernel."""
    data = bytearray()
    for message in batch:
        datapath.set_xid(message)
        message.serialize()
        data += message.buf
    datapath.send(bytes(data))


class Switches:
    """The plan's progress, in the order that switches come and answer.

    Parameters
    ----------
    plan : Plan
        What to install.
    events : Events
        Where to tell it.
    set_queues : callable
        Sets the plan's queues; called once, when all switches are there, before any rule is sent.
    install : callable
        Sends rules and a barrier to a datapath.
    """

    def __init__(
        self,
        plan: Plan,
        events: Events,
        set_queues: Callable[[], None],
        install: Callable[[Any, list[Rule]], None],
    ) -> None:
        """Wait for the plan's switches."""
        self.packet_ins = 0
        self._waiting = set(plan["dpids"])
        self._rules: dict[int, list[Rule]] = {dpid: [] for dpid in plan["dpids"]}
        for rule in plan["rules"]:
            self._rules[rule["dpid"]].append(rule)
        self._connected: dict[int, Any] = {}
        self._queues_set = False
        self._events = events
        self._set_queues = set_queues
        self._install = install

    def connected(self, datapath: Any) -> None:
        """Take a switch in; when it completes the set, set the queues and install all rules."""
        known = datapath.id in self._rules
        self._events.write("switch_connected", str(datapath.id), known=known)
        if not known:
            return
        self._connected[datapath.id] = datapath
        if self._queues_set:
            self._install(datapath, self._rules[datapath.id])
        elif self._connected.keys() == self._rules.keys():
            self._set_queues()
            self._queues_set = True
            for dpid, each in sorted(self._connected.items()):
                self._install(each, self._rules[dpid])

    def confirmed(self, dpid: int) -> None:
        """Note that a switch's rules are in force; when they are in all, the network is ready."""
        self._events.write("switch_ready", str(dpid), rules=len(self._rules[dpid]))
        if dpid in self._waiting:
            self._waiting.remove(dpid)
            if not self._waiting:
                self._events.ready()

    def lost(self, datapath: Any) -> None:
        """Note that a switch is gone; what it has installed stays in force."""
        dpid = datapath.id
        if dpid in self._connected and self._connected[dpid] is datapath:  # not one that was replaced
            self._events.write("switch_lost", str(dpid))
            del self._connected[dpid]

    def packet_in(self, datapath: Any) -> None:
        """Count a packet that a switch had no rule for; no rule of ours asks for any."""
        self.packet_ins += 1
        if self.packet_ins == 1:
            self._events.write("packet_in", str(datapath.id))

    def refused(self, message: Any) -> None:
        """Note an error message of a switch."""
        detail = {"type": message.type, "code": message.code, "data": bytes(message.data).hex()}
        self._events.write("openflow_error", str(message.datapath.id), **detail)


def application(framework: Framework) -> Any:
    """Return the application class for this framework, a shim between its events and `Switches`."""
    event, handler = framework.ofp_event, framework.handler
    on: Callable[[Any, Any], Callable[[Handler], Handler]] = handler.set_ev_cls
    main = handler.MAIN_DISPATCHER

    class Forwarding(framework.app_class):  # type: ignore[misc, name-defined]
        """Hands the framework's events on."""

        OFP_VERSIONS = (framework.ofproto.OFP_VERSION,)

        def __init__(self, switches: Switches, fail: Callable[[FairbedError], None]) -> None:
            super().__init__()
            self.switches = switches
            self.fail = fail

        @on(event.EventOFPStateChange, [main, handler.DEAD_DISPATCHER])
        def state_changed(self, change: Any) -> None:
            """A switch came or went."""
            try:
                if change.state == main:
                    self.switches.connected(change.datapath)
                else:
                    self.switches.lost(change.datapath)
            except FairbedError as error:
                self.fail(error)

        @on(event.EventOFPBarrierReply, main)
        def barrier_reply(self, reply: Any) -> None:
            """A switch has carried out all before the barrier."""
            self.switches.confirmed(reply.msg.datapath.id)

        @on(event.EventOFPPacketIn, main)
        def packet_in(self, packet: Any) -> None:
            """A switch asks what to do with a packet."""
            self.switches.packet_in(packet.msg.datapath)

        @on(event.EventOFPErrorMsg, [handler.HANDSHAKE_DISPATCHER, handler.CONFIG_DISPATCHER, main])
        def error_message(self, error: Any) -> None:
            """A switch refuses a message."""
            self.switches.refused(error.msg)

    return Forwarding


def serve(
    framework: Framework,
    address: tuple[str, int],
    switches: Switches,
    fail: Callable[[FairbedError], None],
) -> None:
    """Listen for switches and serve them; returns only if listening fails."""
    options = framework.options
    options.ofp_listen_host, options.ofp_tcp_listen_port = address
    # The framework looks up at this interval whether to stop; it is ended by a signal instead.
    options.socket_timeout = 3600.0
    manager = framework.app_manager.AppManager.get_instance()
    server = manager.instantiate(framework.ofp_handler.OFPHandler)
    app = manager.instantiate(application(framework), switches, fail)
    app.start()
    framework.hub.joinall([server.start()])


def leave(status: int, message: str = "") -> None:
    """End the process at once, whatever its threads do; open descriptors close with it."""
    if message:
        print(f"controller: {message}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
