"""The controller as a process: what it does when, from the first switch to its end."""

from __future__ import annotations

import itertools
import math
import os
import select
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from controller import adaptive, frameworks, guest, ovsdb, plan
from controller.app import Events, Switches, leave, messages, send, serve
from controller.counters import Counters
from controller.leaves import set_leaves
from controller.shaping import port_setting
from topologies.errors import FairbedError

NANO = 1_000_000_000
GUEST_GRACE_S = 1.0
"""How long someone else's application may take for its rules after all switches are there."""


class Options(NamedTuple):
    """How the process was started.

    Attributes
    ----------
    framework : str
        "ryu" or "os-ken".
    address : (str, int)
        Where to listen for switches.
    database : str
        OVSDB's address.
    events : str or None
        File to append events to.
    ready_fd, begin_fd : int or None
        Descriptors: to write "ready" to; to read from when the run begins.
    application : str or None
        File with someone else's application, which makes the rules in place of the plan's.
    """

    framework: str
    address: tuple[str, int]
    database: str
    events: str | None = None
    ready_fd: int | None = None
    begin_fd: int | None = None
    application: str | None = None


class Process:
    """Carries a plan out: sets queues and rules at their times, reads counters, and ends exactly once."""

    def __init__(self, options: Options, content: plan.Plan) -> None:
        """Open the events."""
        self.options = options
        self.events = Events(options.events, options.ready_fd)
        self.counters = Counters(content["watched"])
        self.switches = Switches(content["dpids"], self.events, self._begin, self._install, self._ready)
        self._content = content
        self._step: plan.Step = content
        self._rules = list(content["rules"])
        self._meters = list(content["meters"])
        self._pilots: list[Pilot] = []
        self._begun_ns: int | None = None
        self._framework: frameworks.Framework | None = None
        self._busy = threading.Lock()

    @property
    def framework(self) -> frameworks.Framework:
        """The framework, which is loaded by the time that a switch can come."""
        assert self._framework is not None  # noqa: S101
        return self._framework

    def run(self) -> None:
        """Serve switches until a signal or a failure ends the process."""
        options = self.options
        self._framework = frameworks.load(options.framework, lean=options.application is None)
        name = guest.load(options.application, self.framework) if options.application else None
        self.events.write(
            "started", framework=options.framework, rules=len(self._rules), application=options.application or ""
        )
        serve(self.framework, options.address, (self.switches, self.counters, self.fail), name)
        self.finish(1, f"stopped listening on {options.address[0]}:{options.address[1]}")

    def fail(self, error: FairbedError) -> None:
        """End for this reason."""
        self.finish(error.exit_status, str(error))

    def finish(self, status: int, message: str = "") -> None:
        """Remove our queues and end the process; whoever comes second waits for that end."""
        self._busy.acquire()
        try:
            if self._content["queues"]:
                ovsdb.remove_queues(self.options.database, self._content["tag"], wait=False)
        except FairbedError as error:
            status, message = status or error.exit_status, f"{message} {error}".strip()
        self.events.write("stopped", packet_ins=self.switches.packet_ins, status=status, message=message)
        leave(status, message)

    # When switches come

    def _begin(self) -> None:
        """Set the queues of the policy that is in force: all switches are there."""
        self._catch_up()
        if self._step["queues"]:
            self._set_queues(self._step["queues"], self._step["leaves"])
            self.events.write("queues_set", ports=[setting["port"] for setting in self._step["queues"]])
        self._take_over(self._step)

    def _catch_up(self) -> None:
        """Go to the policy of now when the run began before, so that a restart doesn't go back to the first."""
        fd = self.options.begin_fd
        if fd is None or not select.select([fd], [], [], 0)[0]:
            return
        self._begun_ns = _time_of(os.read(fd, 8))
        for step in self._content["later"]:
            if self._begun_ns + round(step["at_s"] * NANO) <= time.monotonic_ns():
                self._step = step
                self._remember(step["rules"], step["meters"])

    def _install(self, datapath: Any) -> None:
        """Send a switch all that is in force now, or, beside someone else's application, only ask whether it is there.

        The barrier comes last in any case.
        """
        rules, meters = self._of(datapath.id, self._rules), self._of(datapath.id, self._meters)
        if self.options.application:
            rules, meters = [], []
        self.switches.after_barrier(datapath.id, lambda: self.switches.confirmed(datapath.id, len(rules)))
        send(datapath, messages(self.framework, datapath, rules, meters))

    def _ready(self) -> None:
        """All rules are in force: say so, and follow the clock from now on."""
        if self._content["later"] or self._content["counters_s"] or self._pilots:
            self.framework.hub.spawn(self._follow_the_clock)
        if self.options.application:
            self.framework.hub.spawn(self._ready_after_grace)
        else:
            self.events.ready()

    def _ready_after_grace(self) -> None:
        self.framework.hub.sleep(GUEST_GRACE_S)
        self.events.ready()

    # When time passes

    def _follow_the_clock(self) -> None:
        """Do what is due at each time of the run, which begins when we are told, or now."""
        try:
            begin_ns = self._begin_ns()
            for t_s, step in self._agenda((time.monotonic_ns() - begin_ns) / NANO):
                wait_ns = begin_ns + round(t_s * NANO) - time.monotonic_ns()
                self.framework.hub.sleep(max(0, wait_ns) / NANO)
                if step is not None:
                    self._change(step)
                else:
                    self._read_counters()
        except FairbedError as error:
            self.fail(error)

    def _begin_ns(self) -> int:
        """Return when the run begins, in ns of the monotonic clock."""
        if self._begun_ns is None and self.options.begin_fd is not None:
            self._begun_ns = _time_of(frameworks.read(self.framework, self.options.begin_fd, 8))
        return self._begun_ns or time.monotonic_ns()

    def _agenda(self, since_s: float) -> Iterator[tuple[float, plan.Step | None]]:
        """Yield when to change to which step, and, with None, when to read counters, from a time of the run on."""
        later = [step for step in self._content["later"] if step["at_s"] > since_s]
        interval_s = self._content["counters_s"]
        for tick in itertools.count(max(0, math.floor(since_s / (interval_s or 1))) + 1):
            t_s = tick * interval_s if interval_s else math.inf
            while later and later[0]["at_s"] <= t_s:
                yield later[0]["at_s"], later.pop(0)
            if not interval_s:
                return
            yield t_s, None

    # What is done

    def _change(self, step: plan.Step) -> None:
        """Go over to a step: queues first, so that they are there when flows come."""
        self._set_queues(step["queues"], step["leaves"])
        self._take_over(step)
        self._replace(step["rules"], step["meters"])
        self.events.write("policy", step["policy"])

    def _take_over(self, step: plan.Step) -> None:
        """Make a step the one in force."""
        self._step = step
        self._pilots = [Pilot(port) for port in step["adaptive"]["ports"]] if step["adaptive"] else []

    def _replace(self, rules: Sequence[plan.Rule], meters: Sequence[plan.Meter] = ()) -> None:
        """Put rules in place of those of the same match, in all switches that are there and for those to come."""
        self._remember(rules, meters)
        if self.options.application:
            return
        for dpid, datapath in sorted(self.switches.connections.items()):
            own, limits = self._of(dpid, rules), self._of(dpid, meters)
            if own or limits:
                self.switches.after_barrier(dpid, lambda: None)
                send(datapath, messages(self.framework, datapath, own, limits))

    def _remember(self, rules: Sequence[plan.Rule], meters: Sequence[plan.Meter]) -> None:
        """Keep what a switch that comes has to get."""
        kept = {_key(rule): rule for rule in self._rules} | {_key(rule): rule for rule in rules}
        self._rules = list(kept.values())
        self._meters += meters

    @staticmethod
    def _of(dpid: int, items: Sequence[Any]) -> list[Any]:
        return [item for item in items if item["dpid"] == dpid]

    def _set_queues(self, settings: Sequence[plan.PortSetting], leaves: Sequence[str]) -> None:
        """Set queues in OVSDB, then the qdiscs below them."""
        with self._busy:  # an end meanwhile waits, and then finds what it has to remove
            ovsdb.apply_queues(self.options.database, self._content["tag"], settings)
            set_leaves(leaves)

    def _read_counters(self) -> None:
        """Ask every switch for its counters."""
        for dpid, datapath in sorted(self.switches.connections.items()):
            asked = self.counters.requests(self.framework, datapath)
            if asked:
                asked.append(self.framework.parser.OFPBarrierRequest(datapath))
                self.switches.after_barrier(dpid, lambda dpid=dpid: self._counted(dpid))  # type: ignore[misc]
                send(datapath, asked)

    def _counted(self, dpid: int) -> None:
        """Record a switch's counters and decide by them."""
        now_ns, counted = time.monotonic_ns(), self.counters.take(dpid)
        self.events.write("counters", str(dpid), **counted)
        for pilot in self._pilots:
            if pilot.port["dpid"] == dpid and pilot.measured(counted.get("flows", {}), now_ns):
                self._follow(pilot)

    def _follow(self, pilot: Pilot) -> None:
        """Let a pilot decide, and carry it out."""
        decision = pilot.decide()
        if decision is None:
            return
        setting, leaves, queues = pilot.settings()
        others = [other for other in self._step["queues"] if other["port"] != setting["port"]]
        self._step = {**self._step, "queues": [*others, setting]}
        self._set_queues(self._step["queues"], leaves)
        self._replace(
            [
                _in_queue(rule, queues[flow_id])
                for rule in self._rules
                if rule["dpid"] == pilot.port["dpid"]
                and (flow_id := self._flow_of(rule)) in queues
                and pilot.has(rule, self._content["watched"])
            ]
        )
        rates_mbit = {flow_id: round(rate, 3) for flow_id, rate in pilot.rates_mbit.items()}
        guaranteed = {number: round(queue["min_rate_bit"] / 1e6, 3) for number, queue in setting["queues"].items()}
        detail = {"reason": decision.reason, "rates_mbit": rates_mbit, "guaranteed_mbit": guaranteed}
        self.events.write("decision", f"{pilot.port['edge']}: {decision.subject}", **detail)

    def _flow_of(self, rule: plan.Rule) -> str | None:
        return self._content["watched"]["flows"][rule["flow"]] if "flow" in rule else None


class Pilot:
    """Adaptive queues of one port: its counters, its state, its decisions."""

    def __init__(self, port: plan.AdaptivePort) -> None:
        """Begin with all flows in one queue."""
        self.port = port
        self.rates_mbit: dict[str, float] = {}
        self._state = adaptive.State()
        self._before: dict[str, list[int]] | None = None
        self._before_ns = 0

    def measured(self, flows: dict[str, list[int]], now_ns: int) -> bool:
        """Take in flows' counters; say whether there are rates now."""
        before, since_s = self._before, (now_ns - self._before_ns) / NANO
        self._before, self._before_ns = flows, now_ns
        if before is None:
            return False
        own = {flow_id for members in self.port["groups"].values() for flow_id in members}
        sent = {flow_id: flows[flow_id][1] - before.get(flow_id, [0, 0])[1] for flow_id in flows if flow_id in own}
        self.rates_mbit = {flow_id: count * 8 / 1e6 / since_s for flow_id, count in sorted(sent.items()) if count > 0}
        return True

    def decide(self) -> adaptive.Decision | None:
        """Return the decision for the last interval, None if there is none to make."""
        decided = adaptive.decide(self.port["groups"], self._state, self.rates_mbit)
        self._state = decided.state if isinstance(decided, adaptive.Decision) else decided
        return decided if isinstance(decided, adaptive.Decision) else None

    def settings(self) -> tuple[plan.PortSetting, list[str], dict[str, int]]:
        """Return the port's queues, its leaves, and the queue of each flow, as decided."""
        groups, port = self.port["groups"], self.port
        shares = adaptive.shares(groups, self._state, port["queues"])
        queues = {
            flow_id: adaptive.queue_of(groups, self._state, cca)
            for cca, members in groups.items()
            for flow_id in members
        }
        counts = {number: list(queues.values()).count(number) for number in port["queues"]}
        leaves = [
            plan.leaf_line(port["port"], number, port["leaves"][count - 1]) for number, count in counts.items() if count
        ]
        return port_setting(port["rate_bit"], port["port"], shares), leaves, queues

    def has(self, rule: plan.Rule, watched: plan.Watched) -> bool:
        """Say whether a rule sends out of this port."""
        number = next(port["number"] for port in watched["ports"] if port["edge"] == self.port["edge"])
        return ["output", number] in rule["actions"]


def _time_of(told: bytes) -> int:
    """Return the time that 8 bytes say, or now when there are none."""
    return int.from_bytes(told, "little") if len(told) == 8 else time.monotonic_ns()


def _key(rule: plan.Rule) -> tuple[Any, ...]:
    """Return what makes two rules the same to a switch."""
    return rule["dpid"], rule["priority"], tuple(sorted(rule["match"].items()))


def _in_queue(rule: plan.Rule, queue: int) -> plan.Rule:
    """Return the rule with another queue."""
    actions: list[list[str | int]] = [
        [name, queue if name == "set_queue" else number] for name, number in rule["actions"]
    ]
    return {**rule, "actions": actions}
