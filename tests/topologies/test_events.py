"""Link events: what a graph allows, what an edge becomes, and trace files whose errors name the line."""

from pathlib import Path
from typing import Any

import pytest

from topologies.dumbbell import dumbbell
from topologies.errors import UsageError
from topologies.events import LinkEvent, check_events, load_events, on_both_ways, states


def event(t_s: float = 1.0, edge: str = "s1->s2", **changes: Any) -> LinkEvent:
    return LinkEvent(t_s=t_s, edge=edge, **(changes or {"up": False}))


def test_states_add_up() -> None:
    """Each event starts from what the one before left; other edges keep theirs."""
    events = [event(1, delay_ms=5.0), event(2, up=False), event(3, "s2->s1", loss_pct=3.0), event(4, rate_mbit=7.0)]
    found = [(s.edge.delay_ms, s.edge.loss_pct, s.edge.rate_mbit, s.up) for s in states(dumbbell(), events)]
    assert found == [(5.0, 0.0, 20.0, True), (5.0, 0.0, 20.0, False), (0.0, 3.0, 20.0, True), (5.0, 0.0, 7.0, False)]


def test_a_link_comes_back_as_it_was() -> None:
    """Up and down leave delay and loss alone; back to zero is possible."""
    events = [
        event(1, loss_pct=9.0, delay_ms=2.0),
        event(2, up=False),
        event(3, up=True),
        event(4, loss_pct=0.0, delay_ms=0.0),
    ]
    assert [(s.edge.loss_pct, s.edge.delay_ms, s.up) for s in states(dumbbell(), events)] == [
        (9.0, 2.0, True),
        (9.0, 2.0, False),
        (9.0, 2.0, True),
        (0.0, 0.0, True),
    ]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([event(2), event(1)], "event at 1 s on s1->s2: comes after one at 2 s; events are in order of time"),
        ([event(1, "s1->s9")], "event at 1 s on s1->s9: there is no such edge"),
        (
            [event(1, "snd1->s1", rate_mbit=5.0)],
            "event at 1 s on snd1->s1: rate_mbit 5 changes the rate of an edge that",
        ),
        ([event(1, "snd1->s1", jitter_ms=50.0)], "event at 1 s on snd1->s1: jitter_ms 50.0 is above delay_ms 20.0"),
    ],
)
def test_refused_by_the_graph(events: list[LinkEvent], words: str) -> None:
    """The message names the event."""
    with pytest.raises(UsageError) as raised:
        check_events(dumbbell(), events)
    assert str(raised.value).startswith(words)


def test_both_ways() -> None:
    """The same change for both directions."""
    assert [(e.edge, e.up) for e in on_both_ways(1.0, "a", "b", up=True)] == [("a->b", True), ("b->a", True)]


def test_csv(tmp_path: Path) -> None:
    """Empty cells are no change."""
    path = tmp_path / "trace.csv"
    path.write_text("t_s,edge,delay_ms,rate_mbit,up\n1,s1->s2,30,,\n2.5,s1->s2,,7.5,true\n2.5,s2->s1,,,false\n")
    assert load_events(path) == (event(1.0, delay_ms=30.0), event(2.5, rate_mbit=7.5, up=True), event(2.5, "s2->s1"))


def test_json(tmp_path: Path) -> None:
    """What `model_dump` gives is read back."""
    path = tmp_path / "trace.json"
    path.write_text('[{"t_s": 1, "edge": "s1->s2", "loss_pct": 2.5}]')
    assert load_events(path) == (event(1.0, loss_pct=2.5),)
    assert load_events(path)[0].model_dump() == {"t_s": 1.0, "edge": "s1->s2", "loss_pct": 2.5}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.csv", "t_s,edge,up\n1,s1->s2,maybe\n", "t.csv, line 2: up 'maybe' must be true or false"),
        ("t.csv", "t_s,edge,delay_ms\n2,a->b,1\n1,a->b,1\n", "t.csv, line 3: t_s 1 is before the 2 in front of it"),
        ("t.csv", "t_s,edge,delay_ms\n2,a->b,nan\n", "t.csv, line 2: delay_ms 'nan' must be a number"),
        ("t.csv", "t_s,edge,loss_pct\n2,a->b,100\n", "t.csv, line 2: loss_pct 100.0 must be below 100"),
        (
            "t.csv",
            "t_s,edge,bandwidth\n2,a->b,5\n",
            "t.csv, line 2: bandwidth is not a known field: there are t_s, edge",
        ),
        ("t.csv", "t_s,edge,up\n2,a->b\n", "t.csv, line 2: changes none of rate_mbit, delay_ms"),
        ("t.csv", "t_s,edge,up\n2,a->b,true,9\n", "t.csv, line 2: (more) is not a known field"),
        ("t.csv", "t_s,edge,up\n2,$(reboot)->b,true\n", "t.csv, line 2: edge '$(reboot)->b' must match"),
        ("t.json", "{}", "t.json cannot be read: a JSON trace is a list of events"),
        ("t.json", "[1]", "t.json, event 1: 1 must be a table of fields"),
        ("t.json", "[", "t.json cannot be read: "),
        ("t.txt", "", "t.txt must end in .csv or .json"),
    ],
)
def test_refused_traces(tmp_path: Path, name: str, text: str, words: str) -> None:
    """The message names the file and the line."""
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as raised:
        load_events(tmp_path / name)
    assert words in str(raised.value)


def test_a_missing_trace(tmp_path: Path) -> None:
    """So does a file that is not there."""
    with pytest.raises(UsageError, match="cannot be read"):
        load_events(tmp_path / "none.csv")
