"""Wires: the lines that make them, and what frames meet on them in the lab kernel."""

import itertools
import json
import math
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from lab import links
from lab.netem import Netem, htb_body, netem_body
from topologies.events import LinkEvent, states
from topologies.graph import link
from topologies.parking_lot import parking_lot
from topologies.schema import Edge, GilbertElliott, Slot

CHECKOUT = Path(__file__).resolve().parents[2]
SHAPED = {"rate_mbit": 20.0, "buffer_bytes": 100_000}

Steps = Callable[..., list[Any]]


def network(**edges: dict[str, Any]) -> nx.DiGraph:
    """Return snd1 - s1 - s2 - rcv1; an edge is given as u__v."""
    graph = nx.DiGraph()
    for node, role in (("snd1", "sender"), ("s1", "switch"), ("s2", "switch"), ("rcv1", "receiver")):
        graph.add_node(node, role=role)
    for u, v in (("snd1", "s1"), ("s1", "s2"), ("s2", "rcv1")):
        link(graph, u, v, edges.get(f"{u}__{v}", {}), edges.get(f"{v}__{u}", {}))
    return graph


def realised(graph: nx.DiGraph) -> tuple[links.Wires, links.Netems]:
    found = links.wires(graph)
    return found, links.netems(graph, found, (), {"snd1": 20.0, "rcv1": 20.0})


def test_a_rate_alone_needs_no_wire() -> None:
    """Open vSwitch's queue is enough, and a host's delay is on its own interface."""
    graph = network(s1__s2=SHAPED, snd1__s1={"delay_ms": 20.0})
    found, made = realised(graph)
    assert found == {}
    assert made["snd1", "s1"].words() == "netem delay 20000us limit 10067"
    assert links.netem_place(graph, found, ("snd1", "s1")) == ("snd1", "snd1-eth0")
    assert links.queue_interface(graph, found, ("s1", "s2")) == "s1-eth1"


def test_a_delay_behind_a_queue_is_on_a_wire() -> None:
    """Delay and loss have a stage of their own, each in its direction."""
    graph = network(s1__s2=SHAPED | {"delay_ms": 5.0}, s2__s1={"loss_pct": 3.0})
    found, made = realised(graph)
    (wire,) = set(found.values())
    assert [line for line in links.link_lines(graph, found) if "peer name wire" in line] == [
        "link add name s1-eth1 type veth peer name wire1u0",
        "link add name s2-eth2 type veth peer name wire1v0",
    ]
    lines = list(links.wire_lines(graph, wire, made))
    assert lines[:2] == [
        "qdisc add dev wire1u0 ingress",
        "filter add dev wire1u0 ingress matchall action mirred egress redirect dev wire1v0",
    ]
    assert lines[4:] == [
        "qdisc add dev wire1v0 root handle 1: netem delay 5000us limit 10017",
        "qdisc add dev wire1u0 root handle 1: netem delay 1us limit 10001 loss 3%",
    ]
    assert links.queue_interface(graph, found, ("s1", "s2")) == "s1-eth1"
    assert links.inner_interfaces(found) == []


def test_a_rate_at_a_host_is_on_a_wire_before_the_delay() -> None:
    """A stage for HTB, one for netem; on the host itself only what releases the sender's packets."""
    graph = network(snd1__s1=SHAPED | {"delay_ms": 5.0}, s1__snd1={"delay_ms": 7.0})
    found, made = realised(graph)
    wire = found["snd1", "s1"]
    # s1 comes before snd1 in natural order, so it is the wire's u.
    assert (wire.u, wire.forward, wire.backward, wire.stages) == ("s1", ("netem",), ("htb", "netem"), 2)
    lines = [line for line in links.link_lines(graph, found) if "peer name wire" in line]
    assert lines == [
        "link add name s1-eth2 type veth peer name wire1u0",
        "link add name snd1-eth0 address 02:00:0a:00:00:02 netns snd1 type veth peer name wire1v1",
        "link add name wire1v0 type veth peer name wire1u1",
    ]
    roots = [line for line in links.wire_lines(graph, wire, made) if "root" in line or "class" in line]
    assert roots == [
        "qdisc add dev wire1v0 root handle 1: netem delay 7000us limit 10024",
        "qdisc add dev wire1u0 root handle 1: netem delay 5000us limit 10017",
        "qdisc add dev wire1u1 root handle 1: htb default 1",
        "class add dev wire1u1 parent 1: classid 1:1 htb rate 20000000bit ceil 20000000bit "
        "burst 1514b cburst 1514b quantum 1514",
    ]
    host = links.host_netem(graph, ("snd1", "s1"), made)
    assert host and host.words() == "netem delay 1us limit 10000"
    assert links.queue_interface(graph, found, ("snd1", "s1")) == "wire1u1"
    assert links.inner_interfaces(found) == ["wire1v0"]


def test_every_interface_name_is_there_once_and_fits() -> None:
    """Every veth pair of a large parking lot has two names that no other has, of at most 15 characters."""
    graph = parking_lot(hops=100, cross=1)
    ends = []
    for line in links.link_lines(graph, links.wires(graph)):
        if "add name" in line:
            ends += [line.split()[3], line.split()[-1]]
    assert len(ends) == len(set(ends)) == 2 * (graph.number_of_edges() // 2 + 100)
    assert max(map(len, ends)) <= 15


@pytest.mark.parametrize(
    ("edge", "words"),
    [
        (Edge(delay_ms=0.25), "netem delay 250us limit 9"),
        (Edge(delay_ms=3.0, jitter_ms=1.0), "netem delay 3000us 1000us limit 9 rate 1000000000000bit"),
        (Edge(delay_ms=3.0, jitter_ms=1.0, reorder=True), "netem delay 3000us 1000us limit 9"),
        (
            Edge(delay_ms=3.0, jitter_ms=1.0, reorder=True, distribution="pareto"),
            "netem delay 3000us 1000us distribution pareto limit 9",
        ),
        (
            Edge(gemodel=GilbertElliott(p_pct=1.0, r_pct=25.0, loss_bad_pct=90.0)),
            "netem delay 1us limit 9 loss gemodel 1% 25% 90% 0%",
        ),
        (
            Edge(slot=Slot(min_ms=2.0, max_ms=4.0, packets=32)),
            "netem delay 1us limit 9 slot 2000000ns 4000000ns packets 32 bytes 0",
        ),
    ],
)
def test_netem_words(edge: Edge, words: str) -> None:
    """What an edge says, as tc's arguments."""
    assert links.netem(edge, limit=9).words() == words


def test_down_loses_everything() -> None:
    """Whatever the loss model was."""
    down = links.netem(Edge(gemodel=GilbertElliott(p_pct=1.0, r_pct=25.0)), limit=9, up=False)
    assert (down.loss_pct, down.gemodel) == (100.0, None)


def test_limits_hold_the_longest_delay_of_all_states() -> None:
    """Twice rate x delay / 1514, and the margin: 100 Mbit/s x 600 ms is 4954 frames."""
    states_of_edge = [Edge(delay_ms=5.0), Edge(delay_ms=600.0)]
    assert links.netem_limit(states_of_edge, 100.0) == math.ceil(2 * 100e6 / 8 * 0.6 / 1514) + 10_000
    assert links.netem_limit([Edge(delay_ms=3.6e6)], 1e5) == 2**31 - 1


@pytest.mark.parametrize(
    ("aqm", "more", "words"),
    [
        ("fifo", {}, "bfifo limit 151400"),
        ("fq_codel", {}, "fq_codel limit 100 memory_limit 302800 noecn"),
        (
            "pie",
            {"ecn": True, "aqm_params": {"target_ms": 15.0, "alpha": 2.0}},
            "pie limit 100 target 15000us alpha 2 ecn",
        ),
        (
            "red",
            {"aqm_params": {"min": 30_000.0}},
            "red limit 151400 avpkt 1000 min 12616 max 37850 burst 22 min 30000 burst 51 bandwidth 20000000bit",
        ),
    ],
)
def test_queue_words(aqm: str, more: dict[str, Any], words: str) -> None:
    """An edge's queue with its parameters, ECN said where the AQM's own default is not the edge's."""
    edge = Edge.model_validate({"rate_mbit": 20.0, "buffer_bytes": 151_400, "aqm": aqm, **more})
    assert links.queue_words(edge) == words


def test_seeds_differ_by_edge_scenario_and_change() -> None:
    """And are the same every time: this one is from sha256("1 s1->s2 0")."""
    seeds = {links.seed_of(seed, pair, n) for seed in (1, 2) for pair in (("s1", "s2"), ("s2", "s1")) for n in (0, 1)}
    assert len(seeds) == 8
    assert links.seed_of(1, ("s1", "s2")) == links.seed_of(1, ("s1", "s2"), 0)


def test_messages() -> None:
    """Header: tcmsg of interface 7, handle 1:, at the root; the seed comes last."""
    body = netem_body(7, Netem(delay_us=5.0, limit=9, loss_pct=50.0), seed=0x0102030405060708)
    assert struct.unpack_from("=BxxxiIII", body) == (0, 7, 0x10000, 0xFFFFFFFF, 0)
    assert struct.unpack_from("=IIIIII", body, 20 + 12 + 4) == (0, 9, 0x80000000, 0, 0, 0)
    assert body.endswith(struct.pack("=HHQ", 12, 14, 0x0102030405060708))
    assert struct.unpack_from("=BxxxiIII", htb_body(7, 20.0, 1514)) == (0, 7, 0x10001, 0x10000, 0)


def test_events_become_settings() -> None:
    """Delay goes to netem with a seed of its own, a switch's rate to the controller's queues, a host's to HTB."""
    graph = network(snd1__s1=SHAPED, s1__s2=SHAPED | {"delay_ms": 5.0})
    after = states(
        graph,
        [
            LinkEvent(t_s=1.0, edge="s1->s2", delay_ms=9.0, rate_mbit=200.0),
            LinkEvent(t_s=2.0, edge="s1->s2", up=False),
            LinkEvent(t_s=3.0, edge="snd1->s1", rate_mbit=1.0),
        ],
    )
    found = links.wires(graph, links.changing(after))
    made = links.netems(graph, found, after, {})
    port: Any = {
        "port": "s1-eth1",
        "type": "linux-htb",
        "max_rate_bit": 20_000_000,
        "queues": {0: {"min_rate_bit": 5_000_000, "max_rate_bit": 20_000_000, "burst_bytes": 1514}},
    }
    steps: Any = [{"at_s": 0.0, "queues": [port]}]
    first, second, third = links.event_entries(graph, found, made, after, steps, seed=1)
    assert first["changes"] == {"rate_mbit": 200.0, "delay_ms": 9.0}
    assert first["netem"]["interface"] == "wire1v0"
    assert (first["netem"]["settings"]["delay_us"], first["netem"]["settings"]["in_order"]) == (9000.0, True)
    assert (
        first["netem"]["settings"]["limit"] == made["s1", "s2"].limit == math.ceil(2 * 200e6 / 8 * 9e-3 / 1514) + 10_000
    )
    assert first["rate"]["port"]["max_rate_bit"] == 200_000_000
    assert first["rate"]["port"]["queues"][0] == {
        "min_rate_bit": 50_000_000,
        "max_rate_bit": 200_000_000,
        "burst_bytes": 5 * 1514,  # 200 Mbit/s x 250 µs
    }
    assert (second["netem"]["settings"]["loss_pct"], second["netem"]["settings"]["delay_us"]) == (100.0, 9000.0)
    assert second["netem"]["seed"] != first["netem"]["seed"]
    assert third["rate"]["htb"] == {"interface": "wire2u0", "rate_mbit": 1.0, "burst_bytes": 1514}


@pytest.fixture(scope="module")
def steps() -> Steps:
    """Return a function that has `wire_probe.py` do these steps in the lab kernel and gives their results."""

    def run(*wanted: dict[str, Any]) -> list[Any]:
        argv = [sys.executable, "-m", "lab", "run", "--clock", "virtual", "--", sys.executable]
        argv += [str(Path(__file__).with_name("wire_probe.py")), json.dumps(wanted)]
        done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found: list[Any] = json.loads(done.stdout)
        return found

    return run


def both(forward: dict[str, Any], backward: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"edges": {"s1->s2": forward, "s2->s1": backward or {}}}


def in_binomial_interval(lost: int, sent: int, share: float) -> bool:
    """Say whether so many losses lie in the two-sided 99.9 % interval (normal approximation)."""
    return abs(lost - sent * share) <= 3.29 * math.sqrt(sent * share * (1 - share))


def overtaken(arrivals: list[list[float]]) -> int:
    return sum(later[0] < earlier[0] for earlier, later in itertools.pairwise(arrivals))


@pytest.mark.system
def test_delay_and_loss_act_in_their_direction_only(steps: Steps) -> None:
    """10 ms there, 20 % loss back."""
    there = {"send": "s1->s2", "frames": 2000, "gap_ms": 0.1}
    _, forth, back = steps(both({"delay_ms": 10.0}, {"loss_pct": 20.0}), there, there | {"send": "s2->s1"})
    assert [number for number, *_ in forth] == list(range(2000))
    assert max(abs(delay - 10.0) for _, delay, _ in forth) < 0.01
    assert in_binomial_interval(2000 - len(back), 2000, 0.2)
    assert max(delay for _, delay, _ in back) < 0.01
    assert overtaken(back) == 0


@pytest.mark.system
@pytest.mark.parametrize("loss_pct", [0.1, 1.0, 31.0])
def test_loss_is_what_was_asked_for_and_repeats(steps: Steps, loss_pct: float) -> None:
    """The same seed loses the same frames."""
    wire, send = both({"loss_pct": loss_pct}), {"send": "s1->s2", "frames": 20_000}
    _, first, _, second = steps(wire, send, wire, send)
    assert in_binomial_interval(20_000 - len(first), 20_000, loss_pct / 100)
    assert [number for number, *_ in first] == [number for number, *_ in second]


@pytest.mark.system
def test_burst_loss(steps: Steps) -> None:
    """Mean loss p / (p + r) = 1/21, within four deviations of a Markov chain's mean; mean burst 1 / r = 5."""
    model = {"p_pct": 1.0, "r_pct": 20.0}
    _, arrived = steps(both({"gemodel": model}), {"send": "s1->s2", "frames": 100_000})
    numbers = [-1, *(number for number, *_ in arrived), 100_000]
    bursts = [b - a - 1 for a, b in itertools.pairwise(numbers) if b - a > 1]
    assert abs(sum(bursts) / 100_000 - 1 / 21) < 4 * 0.00197
    assert abs(sum(bursts) / len(bursts) - 5) < 0.7


@pytest.mark.system
@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_jitter(steps: Steps, distribution: str) -> None:
    """Frames far apart have the asked-for delays; frames close together keep their order unless told otherwise."""
    edge = {"delay_ms": 10.0, "jitter_ms": 2.0, "distribution": distribution}
    apart, close = {"send": "s1->s2", "frames": 1000, "gap_ms": 25}, {"send": "s1->s2", "frames": 1000, "gap_ms": 0.1}
    _, far, near, _, loose = steps(both(edge), apart, close, both(edge | {"reorder": True}), close)
    delays = [delay for _, delay, _ in far]
    mean = sum(delays) / len(delays)
    deviation = math.sqrt(sum((delay - mean) ** 2 for delay in delays) / len(delays))
    assert len(far) == len(near) == len(loose) == 1000
    assert abs(mean - 10.0) < 0.25
    assert abs(deviation - (2.0 if distribution == "normal" else 2.0 / math.sqrt(3))) < 0.15
    assert overtaken(near) == 0
    assert overtaken(loose) > 100


@pytest.mark.system
def test_slots(steps: Steps) -> None:
    """Frames leave in bunches 5 ms apart."""
    _, arrived = steps(both({"slot": {"min_ms": 5.0}}), {"send": "s1->s2", "frames": 1000, "gap_ms": 0.1})
    assert len(arrived) == 1000
    times = sorted({round(arrival, 1) for *_, arrival in arrived})
    assert all(4.9 < later - earlier < 5.3 for earlier, later in itertools.pairwise(times))


@pytest.mark.system
def test_changes_in_place_lose_nothing(steps: Steps) -> None:
    """Frames on their way arrive all and in order when delay falls, rises, and loss comes and goes."""
    slow, fast = {"delay_ms": 500.0}, {"delay_ms": 5.0}
    change = {"change": "s1->s2", "flying": 100, "after": 100}
    _, faster, slower, lossy, clean, down, up = steps(
        both(slow),
        change | {"edge": fast},
        change | {"edge": slow},
        change | {"edge": fast | {"loss_pct": 50.0}},
        change | {"edge": fast},
        change | {"edge": fast, "up": False},
        change | {"edge": fast},
    )
    for arrived in (faster, slower):
        assert [number for number, *_ in arrived] == [*range(100), *range(100)]
    assert abs(slower[0][1] - 5.0) < 0.01 and abs(slower[150][1] - 500.0) < 0.01
    assert 20 < 200 - len(lossy) < 80
    assert 20 < 200 - len(clean) < 80  # the first hundred still met the loss
    assert [number for number, *_ in down] == list(range(100))
    assert [number for number, *_ in up] == list(range(100))


@pytest.mark.system
def test_text_and_messages_say_the_same(steps: Steps) -> None:
    """What tc was told in words and what a change says by netlink read back alike."""
    for edge in (
        {"delay_ms": 30.5, "loss_pct": 0.25},
        {"delay_ms": 3.0, "jitter_ms": 1.25, "gemodel": {"p_pct": 2.0, "r_pct": 30.0, "loss_bad_pct": 80.0}},
        {"delay_ms": 1.0, "slot": {"min_ms": 2.0, "max_ms": 4.0, "packets": 10, "bytes": 9000}},
    ):
        _, said, _, _, changed = steps(
            both(edge), {"show": True}, both({}), {"change": "s1->s2", "edge": edge}, {"show": True}
        )
        options = [
            {name: value for name, value in qdisc["options"].items() if name not in ("rate", "seed")}
            for shown in (said, changed)
            for qdisc in shown
            if qdisc["dev"] == "wire1v0"
        ]
        assert options[0] == options[1]
