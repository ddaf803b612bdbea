"""The OpenFlow 1.3 application: sends each switch its rules, and tells when they are in place.

It decides nothing: when all switches of the plan are connected it has the queues set, then every switch gets its
rules and a barrier, whose reply says that they are in force. A switch that comes back gets them again; rules
are added, never cleared, so packets keep flowing. All of it waits on sockets, nothing polls.
"""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from controller.counters import FLOW_COOKIE, Counters
from controller.frameworks import Framework
from controller.plan import Meter, Rule
from topologies.errors import FairbedError

Handler = TypeVar("Handler", bound=Callable[..., None])

METER_EXISTS = (12, 1)
"""OFPET_METER_MOD_FAILED, OFPMMFC_METER_EXISTS (OpenFlow 1.3.5, section 7.4.4)."""
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


def messages(framework: Framework, datapath: Any, rules: Iterable[Rule], meters: Iterable[Meter] = ()) -> list[Any]:
    """Return the OpenFlow messages that set the meters and add the rules, and the barrier after them."""
    setting = [mod for meter in meters for mod in meter_mods(framework, datapath, meter)]
    adding = [flow_mod(framework, datapath, rule) for rule in rules]
    return [*setting, *adding, framework.parser.OFPBarrierRequest(datapath)]


def flow_mod(framework: Framework, datapath: Any, rule: Rule) -> Any:
    """Return the OpenFlow message that adds one rule, or replaces the one of the same match."""
    parser, ofproto = framework.parser, framework.ofproto
    kinds = {"output": parser.OFPActionOutput, "set_queue": parser.OFPActionSetQueue}
    actions = [kinds[str(name)](number) for name, number in rule["actions"] if name in kinds]
    meters = [parser.OFPInstructionMeter(number) for name, number in rule["actions"] if name == "meter"]
    return parser.OFPFlowMod(
        datapath=datapath,
        cookie=FLOW_COOKIE | rule["flow"] if "flow" in rule else 0,
        priority=rule["priority"],
        match=parser.OFPMatch(**rule["match"]),
        instructions=[*meters, parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)],
    )


def meter_mods(framework: Framework, datapath: Any, meter: Meter) -> list[Any]:
    """Return the messages that make a meter, whether or not it is there: adding it is refused when it is."""
    parser, ofproto = framework.parser, framework.ofproto
    bands = [parser.OFPMeterBandDrop(rate=meter["rate_kbit"], burst_size=meter["burst_kbit"])]
    flags = ofproto.OFPMF_KBPS | ofproto.OFPMF_BURST
    return [
        parser.OFPMeterMod(datapath, command, flags, meter["meter"], bands)
        for command in (ofproto.OFPMC_ADD, ofproto.OFPMC_MODIFY)
    ]


def send(datapath: Any, batch: Iterable[Any]) -> None:
    """Send messages in one write: a system call each would dominate in an emulated kernel."""
    data = bytearray()
    for message in batch:
        datapath.set_xid(message)
        message.serialize()
        data += message.buf
    datapath.send(bytes(data))


class Switches:
    """The switches' progress, in the order that they come and answer.

    Parameters
    ----------
    dpids : iterable of int
        The switches to wait for.
    events : Events
        Where to tell it.
    begin : callable
        Called once, when all switches are there, before any rule is sent.
    install : callable
        Sends a datapath its rules and a barrier.
    ready : callable
        Called once, when every switch has its rules.
    """

    def __init__(
        self,
        dpids: Iterable[int],
        events: Events,
        begin: Callable[[], None],
        install: Callable[[Any], None],
        ready: Callable[[], None],
    ) -> None:
        """Wait for the switches."""
        self.packet_ins = 0
        self.connections: dict[int, Any] = {}
        self._dpids = frozenset(dpids)
        self._waiting = set(self._dpids)
        self._barriers: dict[int, deque[Callable[[], None]]] = {dpid: deque() for dpid in self._dpids}
        self._begun = False
        self._events = events
        self._begin = begin
        self._install = install
        self._ready = ready

    def connected(self, datapath: Any) -> None:
        """Take a switch in; when it completes the set, begin and install all rules."""
        known = datapath.id in self._dpids
        self._events.write("switch_connected", str(datapath.id), known=known)
        if not known:
            return
        self.connections[datapath.id] = datapath
        self._barriers[datapath.id].clear()
        if self._begun:
            self._install(datapath)
        elif self.connections.keys() == self._dpids:
            self._begin()
            self._begun = True
            for _, each in sorted(self.connections.items()):
                self._install(each)

    def after_barrier(self, dpid: int, action: Callable[[], None]) -> None:
        """Have something done at the answer to the barrier that is about to be sent."""
        self._barriers[dpid].append(action)

    def barrier(self, dpid: int) -> None:
        """Do what a barrier's answer was waited for."""
        if self._barriers.get(dpid):
            self._barriers[dpid].popleft()()

    def confirmed(self, dpid: int, rules: int) -> None:
        """Note that a switch's rules are in force; when they are in all, the network is ready."""
        self._events.write("switch_ready", str(dpid), rules=rules)
        if dpid in self._waiting:
            self._waiting.remove(dpid)
            if not self._waiting:
                self._ready()

    def lost(self, datapath: Any) -> None:
        """Note that a switch is gone; what it has installed stays in force."""
        dpid = datapath.id
        if dpid in self.connections and self.connections[dpid] is datapath:  # not one that was replaced
            self._events.write("switch_lost", str(dpid))
            del self.connections[dpid]

    def packet_in(self, datapath: Any) -> None:
        """Count a packet that a switch had no rule for; no rule of ours asks for any."""
        self.packet_ins += 1
        if self.packet_ins == 1:
            self._events.write("packet_in", str(datapath.id))

    def refused(self, message: Any) -> None:
        """Note an error message of a switch, but for the one that a meter is there already."""
        if (message.type, message.code) == METER_EXISTS:
            return
        detail = {"type": message.type, "code": message.code, "data": bytes(message.data).hex()}
        self._events.write("openflow_error", str(message.datapath.id), **detail)


def application(framework: Framework) -> Any:
    """Return the application class for this framework, a shim between its events and `Switches`."""
    event, handler = framework.ofp_event, framework.handler
    on: Callable[[Any, Any], Callable[[Handler], Handler]] = handler.set_ev_cls
    main = handler.MAIN_DISPATCHER

    class FairbedController(framework.app_class):  # type: ignore[misc, name-defined]
        """Hands the framework's events on."""

        OFP_VERSIONS = (framework.ofproto.OFP_VERSION,)

        def __init__(self, switches: Switches, counters: Counters, fail: Callable[[FairbedError], None]) -> None:
            super().__init__()
            self.switches = switches
            self.counters = counters
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
            try:
                self.switches.barrier(reply.msg.datapath.id)
            except FairbedError as error:
                self.fail(error)

        @on(event.EventOFPFlowStatsReply, main)
        def flow_counters(self, reply: Any) -> None:
            """A switch tells what its rules have counted."""
            self.counters.flow_reply(reply.msg.datapath.id, reply.msg.body)

        @on(event.EventOFPQueueStatsReply, main)
        def queue_counters(self, reply: Any) -> None:
            """A switch tells what its queues have counted."""
            self.counters.queue_reply(reply.msg.datapath.id, reply.msg.body)

        @on(event.EventOFPPortStatsReply, main)
        def port_counters(self, reply: Any) -> None:
            """A switch tells what its ports have counted."""
            self.counters.port_reply(reply.msg.datapath.id, reply.msg.body)

        @on(event.EventOFPPacketIn, main)
        def packet_in(self, packet: Any) -> None:
            """A switch asks what to do with a packet."""
            self.switches.packet_in(packet.msg.datapath)

        @on(event.EventOFPErrorMsg, [handler.HANDSHAKE_DISPATCHER, handler.CONFIG_DISPATCHER, main])
        def error_message(self, error: Any) -> None:
            """A switch refuses a message."""
            self.switches.refused(error.msg)

    return FairbedController


def serve(framework: Framework, address: tuple[str, int], app_arguments: tuple[Any, ...], guest: str | None) -> None:
    """Listen for switches and serve them; returns only if listening fails.

    Parameters
    ----------
    app_arguments : tuple
        For our application.
    guest : str, optional
        Name of a loaded module with someone else's application, to be served beside ours.
    """
    options = framework.options
    options.ofp_listen_host, options.ofp_tcp_listen_port = address
    # The framework looks up at this interval whether to stop; it is ended by a signal instead.
    options.socket_timeout = 3600.0
    manager = framework.app_manager.AppManager.get_instance()
    manager.instantiate(application(framework), *app_arguments).start()
    if guest:
        manager.load_apps([guest])  # with it, what it needs: the handler of connections
        threads = manager.instantiate_apps(**manager.create_contexts())
    else:
        threads = [manager.instantiate(framework.ofp_handler.OFPHandler).start()]
    framework.hub.joinall(threads)


def leave(status: int, message: str = "") -> None:
    """End the process at once, whatever its threads do; open descriptors close with it."""
    if message:
        print(f"controller: {message}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
