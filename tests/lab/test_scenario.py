"""Scenarios: what is refused and in which words, both file formats, and a hash that means the same run."""

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lab import scenario as scenarios
from lab.scenario import Flow, Scenario
from topologies.errors import UsageError


def data(**changes: Any) -> dict[str, Any]:
    """Return the main job as plain data, with changes."""
    flows = scenarios.make_flows(["ndm_tcp", "cubic", "reno", "bbr"])
    return {
        "name": "dumbbell",
        "topology": "dumbbell",
        "params": {"pairs": 4, "rate_mbit": 20, "rtt_ms": 40.0, "buffer": "1bdp"},
        "flows": [flow.model_dump() for flow in flows],
        "duration_s": 60,
        "warmup_s": 5,
        "seed": 1,
    } | changes


def one_flow(**changes: Any) -> list[dict[str, Any]]:
    """Return one flow as plain data, with changes."""
    return [{"flow_id": "cubic-1", "src": "snd1", "dst": "rcv1", "cca": "cubic"} | changes]


def message(**changes: Any) -> str:
    """Return the one message with which a changed main job is refused."""
    with pytest.raises(UsageError) as raised:
        scenarios.loads(json.dumps(data(**changes)))
    return str(raised.value)


def test_main_job() -> None:
    """Defaults are the contract's."""
    scenario = Scenario.model_validate(data())
    assert (scenario.queues, scenario.aqm, scenario.sample_ms) == ("shared", "fifo", 50)
    assert [flow.flow_id for flow in scenario.flows] == ["ndm_tcp-1", "cubic-1", "reno-1", "bbr-1"]
    assert scenario.flows[3] == Flow(flow_id="bbr-1", src="snd4", dst="rcv4", cca="bbr")


def test_frozen() -> None:
    """Data does not change under a run."""
    scenario = Scenario.model_validate(data())
    with pytest.raises(ValidationError):
        scenario.seed = 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"duration_s": 5}, "scenario: duration_s 5 must be above warmup_s 5"),
        ({"duration_s": -1}, "scenario: duration_s -1 must be above 0"),
        ({"duration_s": 3601}, "scenario: duration_s 3601 must be at most 3600"),
        ({"duration_s": "60s"}, "scenario: duration_s '60s' must be a number"),
        ({"duration_s": True}, "scenario: duration_s True must be a number"),
        ({"duration_s": float("nan")}, "scenario: duration_s nan must be"),
        ({"warmup_s": -1}, "scenario: warmup_s -1 must be at least 0"),
        ({"seed": -1}, "scenario: seed -1 must be at least 0"),
        ({"seed": 2**32}, "scenario: seed 4294967296 must be at most 4294967295"),
        ({"seed": 1.5}, "scenario: seed 1.5 must be a whole number"),
        ({"sample_ms": 0}, "scenario: sample_ms 0 must be at least 1"),
        ({"sample_ms": 10001}, "scenario: sample_ms 10001 must be at most 10000"),
        ({"aqm": "blue"}, "scenario: aqm 'blue' must be 'fifo', 'fq_codel'"),
        ({"name": "../up"}, "scenario: name '../up' must match"),
        ({"params": {"aqm": "pie"}}, "scenario: aqm belongs beside params, not in them"),
        ({"sampling": 5}, "scenario: sampling is not a known field: there are name, topology, params"),
        ({"flows": 4}, "scenario: flows 4 must be a list"),
        ({"params": "pairs"}, "scenario: params 'pairs' must be a table"),
        ({"flows": []}, "scenario: flows [] needs at least 1"),
        ({"flows": one_flow(cca="Cubic")}, "scenario: flows[0].cca 'Cubic' must match"),
        ({"flows": one_flow(cca="x" * 16)}, "scenario: flows[0].cca 'xxxxxxxxxxxxxxxx' must match"),
        ({"flows": one_flow(cca="cubic; reboot")}, "scenario: flows[0].cca 'cubic; reboot' must match"),
        ({"flows": one_flow(start_s=-1)}, "scenario: flows[0].start_s -1 must be at least 0"),
        ({"flows": one_flow(start_s=60)}, "scenario: flow cubic-1: start_s 60 is not below duration_s 60"),
        ({"flows": one_flow(stop_s=61)}, "scenario: flow cubic-1: stop_s 61 is above duration_s 60"),
        (
            {"flows": one_flow(start_s=5, stop_s=5)},
            "scenario: flows[0]: stop_s 5 must be above start_s 5",
        ),
        ({"flows": one_flow(stop_s=5, size_bytes=1)}, "scenario: flows[0]: give stop_s or size_bytes"),
        ({"flows": one_flow(size_bytes=0)}, "scenario: flows[0].size_bytes 0 must be at least 1"),
        ({"flows": one_flow(dst="snd1")}, "scenario: flows[0]: src and dst are both snd1"),
        ({"flows": one_flow(src="a-b")}, "scenario: flows[0].src 'a-b' must match"),
        (
            {"flows": one_flow(generator="ping")},
            "scenario: flows[0].generator 'ping' must be 'bulk' or 'iperf3'",
        ),
        ({"flows": one_flow(pace_mbit=0.0)}, "scenario: flows[0].pace_mbit 0.0 must be at least 0.001"),
        (
            {"flows": one_flow(pace_mbit=5.0, generator="iperf3")},
            "scenario: flows[0]: pace_mbit is for bulk flows only",
        ),
        ({"flows": one_flow(rate=5)}, "scenario: flows[0].rate is not a known field: there are flow_id, src"),
        ({"flows": one_flow() * 2}, "scenario: 2 flows are named cubic-1"),
        ({"flows": [{}]}, "scenario: flows[0].flow_id is missing; flows[0].src is missing"),
    ],
)
def test_refusals(changes: dict[str, Any], words: str) -> None:
    """One message names the field, its value and what would be right."""
    assert message(**changes).startswith(words), message(**changes)


def test_all_problems_at_once() -> None:
    """Nobody needs to correct one field after the other."""
    text = message(seed=-1, sample_ms=0, flows=one_flow(cca=""))
    assert [part in text for part in ("seed -1", "sample_ms 0", "flows[0].cca ''")] == [True] * 3


def test_long_values_are_cut() -> None:
    """A message stays readable whatever the value."""
    assert len(message(name="x" * 10_000)) < 200


def test_missing_fields() -> None:
    """Fields without a default are named."""
    with pytest.raises(UsageError, match="name is missing; topology is missing; flows is missing"):
        scenarios.loads("{}")


@pytest.mark.parametrize(
    ("text", "form", "words"),
    [
        ("{", "json", "scenario is not JSON: .*line 1"),
        ("name = \n", "toml", "scenario is not TOML: .*line 1"),
        ("[" * 100_000, "json", "scenario is not JSON"),
        ("3", "json", "scenario: 3 must be a table of fields"),
    ],
)
def test_no_scenario_at_all(text: str, form: scenarios.Format, words: str) -> None:
    """Text that is not the format is refused with its place."""
    with pytest.raises(UsageError, match=words):
        scenarios.loads(text, form)


def test_files(tmp_path: Path) -> None:
    """The name's ending tells the format, and messages name the file."""
    scenario = Scenario.model_validate(data())
    for form in ("json", "toml"):
        path = tmp_path / f"one.{form}"
        path.write_text(scenarios.dumps(scenario, form), encoding="utf-8")
        assert scenarios.load(path) == scenario
    with pytest.raises(UsageError, match=r"two.yaml must end in .json or .toml"):
        scenarios.load(tmp_path / "two.yaml")
    with pytest.raises(UsageError, match=r"two.json cannot be read: .*No such file"):
        scenarios.load(tmp_path / "two.json")
    (tmp_path / "bad.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"bad.json: scenario: name is missing"):
        scenarios.load(tmp_path / "bad.json")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"bad.toml cannot be read"):
        scenarios.load(tmp_path / "bad.toml")


def test_toml_reads_well() -> None:
    """A file a person may edit: plain fields, a table of parameters, one table for each flow."""
    scenario = Scenario.model_validate(data(flows=one_flow(), params={"rtt_ms": [10, 40.5], "pairs": 2}))
    assert scenarios.dumps(scenario, "toml") == (
        '"name" = "dumbbell"\n'
        '"topology" = "dumbbell"\n'
        '"queues" = "shared"\n'
        '"aqm" = "fifo"\n'
        '"duration_s" = 60.0\n'
        '"warmup_s" = 5.0\n'
        '"seed" = 1\n'
        '"sample_ms" = 50\n'
        "\n[params]\n"
        '"rtt_ms" = [10, 40.5]\n'
        '"pairs" = 2\n'
        "\n[[flows]]\n"
        '"flow_id" = "cubic-1"\n'
        '"src" = "snd1"\n'
        '"dst" = "rcv1"\n'
        '"cca" = "cubic"\n'
        '"start_s" = 0.0\n'
        '"generator" = "bulk"\n'
    )


def test_toml_cannot_say_null() -> None:
    """JSON can."""
    scenario = Scenario.model_validate(data(params={"x": [None]}))
    assert scenarios.loads(scenarios.dumps(scenario)) == scenario
    with pytest.raises(UsageError, match="TOML cannot say null"):
        scenarios.dumps(scenario, "toml")


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
STARTS = st.floats(0, 50)
PARAMS = st.dictionaries(TEXT.filter(lambda key: key != "aqm"), VALUES, max_size=4)


@given(PARAMS, st.integers(0, 2**32 - 1), st.lists(STARTS, min_size=1, max_size=4), st.floats(51, 3600))
def test_round_trips(params: dict[str, Any], seed: int, starts: list[float], duration_s: float) -> None:
    """Any scenario is read back equal from both formats, with the same hash."""
    flows = [one_flow(flow_id=f"cubic-{k}", start_s=start)[0] for k, start in enumerate(starts)]
    scenario = Scenario.model_validate(data(params=params, seed=seed, flows=flows, duration_s=duration_s))
    for form in ("json", "toml"):
        again = scenarios.loads(scenarios.dumps(scenario, form), form)
        assert again == scenario
        assert scenarios.scenario_hash(again) == scenarios.scenario_hash(scenario)
    assert tomllib.loads(scenarios.dumps(scenario, "toml"))["seed"] == seed


def test_hash_means_the_same_run() -> None:
    """Neither the label nor how a number is written counts, every other field does."""
    base = scenarios.scenario_hash(Scenario.model_validate(data()))
    assert len(base) == 64

    def changed(**changes: Any) -> str:
        return scenarios.scenario_hash(Scenario.model_validate(data(**changes)))

    same_params = {"rtt_ms": 40, "buffer": "1bdp", "rate_mbit": 20.0, "pairs": 4}
    assert changed(name="other") == changed(params=same_params) == changed(duration_s=60.0) == base
    others = [
        changed(seed=2),
        changed(duration_s=61),
        changed(warmup_s=4),
        changed(sample_ms=51),
        changed(aqm="pie"),
        changed(queues="own"),
        changed(params={}),
        changed(flows=one_flow()),
        changed(flows=one_flow(cca="reno")),
        changed(flows=one_flow(start_s=0.5)),
        changed(flows=one_flow(generator="iperf3")),
    ]
    assert len({base, *others}) == len(others) + 1


def test_hash_is_stable() -> None:
    """A hash keeps baselines across versions of the program: changing it must be a decision."""
    scenario = Scenario.model_validate(data(flows=one_flow(), params={}))
    text = (
        '{"aqm":"fifo","duration_s":60,"flows":[{"cca":"cubic","dst":"rcv1","flow_id":"cubic-1",'
        '"generator":"bulk","size_bytes":null,"src":"snd1","start_s":0,"stop_s":null}],"params":{},'
        '"queues":"shared","sample_ms":50,"seed":1,"topology":"dumbbell","warmup_s":5}'
    )
    assert scenarios.scenario_hash(scenario) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("text", "ccas"),
    [
        ("ndm_tcp:2,cubic:2,bbr:1", ["ndm_tcp", "ndm_tcp", "cubic", "cubic", "bbr"]),
        ("cubic", ["cubic"]),
        (" cubic : 2 , bbr ", ["cubic", "cubic", "bbr"]),
        ("cubic:1,bbr:1,cubic:1", ["cubic", "bbr", "cubic"]),
        ("cubic:0,bbr", ["bbr"]),
    ],
)
def test_parse_flows(text: str, ccas: list[str]) -> None:
    """One name for each flow, in order."""
    assert scenarios.parse_flows(text) == ccas


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cubic:0", "are 0 flows: there must be 1 to 1000"),
        ("cubic:1001", "are 1001 flows"),
        ("cubic:999999,bbr:999999", "are 1999998 flows"),
        ("cubic:99999999999999999999", "the count must be a whole number"),
        ("cubic:-1", "item 'cubic:-1': the count must be a whole number from 0, not '-1'"),
        ("cubic:1.5", "not '1.5'"),
        ("cubic:", "not ''"),
        ("cubic:two", "not 'two'"),
        ("", "item '' names no algorithm: write NAME or NAME:COUNT"),
        ("cubic,,bbr", "item '' names no algorithm"),
        ("2", "item '2' names no algorithm"),
        (":2", "item ':2' names no algorithm"),
        ("CUBIC:2", "item 'CUBIC:2' names no algorithm"),
        ("cubic=2", "item 'cubic=2' names no algorithm"),
        ("x" * 16, "names no algorithm"),
    ],
)
def test_refused_flows(text: str, words: str) -> None:
    """The item at fault is named."""
    with pytest.raises(UsageError) as raised:
        scenarios.parse_flows(text)
    assert words in str(raised.value)


def test_make_flows() -> None:
    """Ids count within an algorithm, hosts and starts over all."""
    flows = scenarios.make_flows(["cubic", "bbr", "cubic"], start_gap_s=2.5, generator="iperf3")
    assert [(f.flow_id, f.src, f.dst, f.start_s) for f in flows] == [
        ("cubic-1", "snd1", "rcv1", 0.0),
        ("bbr-1", "snd2", "rcv2", 2.5),
        ("cubic-2", "snd3", "rcv3", 5.0),
    ]
    assert {flow.generator for flow in flows} == {"iperf3"}


def test_make_flows_refuses() -> None:
    """What a flow can't be is our own error here too."""
    with pytest.raises(UsageError, match="flow: cca 'Bad' must match"):
        scenarios.make_flows(["Bad"])
    with pytest.raises(UsageError, match="start_gap_s must be from 0 to 3600 s, not -1"):
        scenarios.make_flows(["cubic"], start_gap_s=-1)


def test_build_graph() -> None:
    """The scenario's graph has its queue management and carries its flows."""
    graph = scenarios.build_graph(Scenario.model_validate(data(aqm="fq_codel")))
    assert graph.edges["s1", "s2"]["aqm"] == "fq_codel"
    with pytest.raises(UsageError, match="flow cubic-1: src snd9 does not exist"):
        scenarios.build_graph(Scenario.model_validate(data(flows=one_flow(src="snd9"))))
    with pytest.raises(UsageError, match="pairs must be from 1 to 1000, not 0"):
        scenarios.build_graph(Scenario.model_validate(data(params={"pairs": 0})))
    with pytest.raises(UsageError, match="there is no topology 'ring'"):
        scenarios.build_graph(Scenario.model_validate(data(topology="ring")))


@pytest.mark.parametrize("name", ["saved.toml", "saved.json"])
def test_a_saved_scenario_loads_as_it_was_and_is_never_overwritten(tmp_path: Path, name: str) -> None:
    scenario = Scenario.model_validate(data())
    scenarios.save(tmp_path / name, scenario)
    assert scenarios.load(tmp_path / name) == scenario
    with pytest.raises(UsageError, match="File exists"):
        scenarios.save(tmp_path / name, scenario)


def test_a_flow_without_a_path_of_its_own_says_nothing_of_it() -> None:
    """So that scenarios and their hashes are as before."""
    flow = Flow(flow_id="cubic-1", src="snd1", dst="rcv1", cca="cubic")
    assert "path" not in flow.model_dump()
    with_path = flow.model_copy(update={"path": ("snd1", "s1", "rcv1")})
    assert Flow.model_validate(with_path.model_dump()) == with_path
