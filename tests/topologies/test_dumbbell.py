"""The dumbbell: its invariants by formula, its refusals, and the registry that finds it."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import topologies
from topologies.dumbbell import dumbbell
from topologies.errors import UsageError
from topologies.graph import problems
from topologies.schema import Edge
from topologies.units import parse_buffer


def test_main_job() -> None:
    """Four pairs at 20 Mbit/s and 40 ms with one BDP: every attribute that is not a default."""
    graph = dumbbell()
    assert len(graph) == 10
    assert graph.edges["s1", "s2"] == Edge(rate_mbit=20.0, buffer_bytes=100_000, bottleneck=True).model_dump()
    assert graph.edges["s2", "s1"] == {**graph.edges["s1", "s2"], "bottleneck": False}
    delayed = {pair: delay for *pair, delay in graph.edges(data="delay_ms") if delay for pair in [tuple(pair)]}
    assert delayed == {pair: 20.0 for k in range(1, 5) for pair in ((f"snd{k}", "s1"), (f"rcv{k}", "s2"))}


@given(st.integers(1, 12), st.floats(0.01, 1e4), st.data())
def test_invariants(pairs: int, rate_mbit: float, data: st.DataObject) -> None:
    """2N + 2 nodes, 4N + 2 edges, one bottleneck, half an RTT at each end, and a valid graph."""
    rtts_ms = data.draw(st.lists(st.integers(0, 10**9).map(lambda ns: ns / 1e6), min_size=pairs, max_size=pairs))
    graph = dumbbell(pairs, rate_mbit, rtts_ms, "10packets")
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (2 * pairs + 2, 4 * pairs + 2)
    assert problems(graph) == []
    assert [(u, v) for u, v, flag in graph.edges(data="bottleneck") if flag] == [("s1", "s2")]
    assert {(u, v) for u, v, rate in graph.edges(data="rate_mbit") if rate} == {("s1", "s2"), ("s2", "s1")}
    for k, rtt_ms in enumerate(rtts_ms, start=1):
        assert graph.edges[f"snd{k}", "s1"]["delay_ms"] + graph.edges[f"rcv{k}", "s2"]["delay_ms"] == rtt_ms


def test_buffer_is_of_the_longest_rtt() -> None:
    """With 10 and 40 ms one BDP is 100 kB, in text or as a Buffer."""
    assert dumbbell(2, rtt_ms=[10, 40]).edges["s1", "s2"]["buffer_bytes"] == 100_000
    assert dumbbell(2, buffer=parse_buffer("2bdp")).edges["s2", "s1"]["buffer_bytes"] == 200_000


def test_air_is_on_every_hosts_own_way() -> None:
    """Jitter and loss are on the egress of both hosts, and nowhere else."""
    graph = dumbbell(1, jitter_ms=5, distribution="normal", reorder=True, loss_pct=0.5)
    fields = ("jitter_ms", "distribution", "reorder", "loss_pct")
    air = {(u, v): tuple(data[name] for name in fields) for u, v, data in graph.edges(data=True)}
    none = (0.0, "uniform", False, 0.0)
    assert {edge: found for edge, found in air.items() if found != none} == dict.fromkeys(
        [("snd1", "s1"), ("rcv1", "s2")], (5.0, "normal", True, 0.5)
    )


def test_aqm_in_both_directions() -> None:
    """Queue management is the core link's."""
    graph = dumbbell(aqm="fq_codel")
    assert [graph.edges[pair]["aqm"] for pair in (("s1", "s2"), ("s2", "s1"), ("snd1", "s1"))] == [
        "fq_codel",
        "fq_codel",
        "fifo",
    ]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"pairs": 0}, "pairs must be from 1 to 1000, not 0"),
        ({"pairs": -3}, "pairs must be from 1 to 1000, not -3"),
        ({"pairs": 1001}, "pairs must be from 1 to 1000, not 1001"),
        ({"pairs": 1.5}, "pairs must be a whole number, not 1.5"),
        ({"pairs": "4"}, "pairs must be a number, not '4'"),
        ({"rate_mbit": 0}, "rate_mbit must be from 0.001 to 100000 Mbit/s, not 0"),
        ({"rate_mbit": math.nan}, "rate_mbit must be from 0.001 to 100000 Mbit/s, not nan"),
        ({"rate_mbit": "20mbit"}, "rate_mbit must be a number of Mbit/s, not '20mbit'"),
        ({"rtt_ms": -1}, "rtt_ms must be from 0 to 3600000 ms, not -1"),
        ({"rtt_ms": [40, 80]}, "rtt_ms has 2 values for 4 pairs: give one, or one for each"),
        ({"rtt_ms": [40, 40, 40, math.inf]}, "rtt_ms must be from 0 to 3600000 ms, not inf"),
        ({"rtt_ms": "40ms"}, "rtt_ms must be a number of ms, not '40ms'"),
        ({"rtt_ms": 0}, "buffer 1.0bdp is 0 bytes at 20 Mbit/s and 0 ms, below one packet (1514)"),
        ({"buffer": "700B"}, "buffer 700B is 700 bytes, below one packet (1514)"),
        ({"buffer": 64000}, "buffer 64000 has no unit: write 64000bdp, 64000packets or 64000B"),
        ({"jitter_ms": "5ms"}, "jitter_ms must be a number of ms, not '5ms'"),
        ({"loss_pct": 101}, "loss_pct must be from 0 to 100 %, not 101"),
        ({"aqm": "blue"}, "aqm 'blue' must be one of fifo, fq_codel"),
    ],
)
def test_refusals(params: dict[str, Any], words: str) -> None:
    """Each refusal states the bound."""
    with pytest.raises(UsageError) as raised:
        dumbbell(**params)
    assert str(raised.value).startswith(words)


def test_build_by_name() -> None:
    """The registry calls the function with its parameters."""
    built, direct = topologies.build("dumbbell", pairs=2, aqm="pie"), dumbbell(2, aqm="pie")
    assert dict(built.edges) == dict(direct.edges)
    assert dict(built.nodes) == dict(direct.nodes)


@pytest.mark.parametrize("name", ["ring", "", "errors", "__init__", "os"])
def test_unknown_topology(name: str) -> None:
    """Only topologies are topologies; the message lists them."""
    with pytest.raises(UsageError, match=f"there is no topology '{name}': choose one of dumbbell"):
        topologies.build(name)


def test_unknown_parameter() -> None:
    """The message names the parameter and lists the known ones."""
    with pytest.raises(UsageError, match=r"dumbbell: .*'bandwidth'; its parameters are pairs, rate_mbit, rtt_ms"):
        topologies.build("dumbbell", bandwidth=20)


@pytest.mark.parametrize("name", [name for name in topologies.NAMES if name != "graph_file"])
def test_every_topology_builds(name: str) -> None:
    """Each has defaults that make a valid graph, and takes an aqm."""
    assert problems(topologies.build(name, aqm="fq_codel")) == []
