"""Where a run goes, and how an ending is understood; running one is tested in tests/system."""

import io
import threading
from pathlib import Path
from typing import IO, cast

import pytest

from lab import execute, hosts
from lab.execute import Where, choose
from lab.lack import Lack
from topologies.errors import FairbedError, UsageError


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host kernel that has everything."""
    monkeypatch.setattr(hosts, "missing", lambda ccas: [])


@pytest.fixture
def unable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host kernel that lacks two things."""
    monkeypatch.setattr(hosts, "missing", lambda ccas: [Lack("root", "use sudo"), Lack("the qdisc netem")])


def test_auto_takes_a_host_that_can(able: None) -> None:
    assert choose(Where(), {"cubic"})[:2] == ("host", "real")


def test_auto_takes_the_lab_where_the_host_cant_and_says_why(unable: None) -> None:
    assert choose(Where(), {"cubic"}) == ("lab", "virtual", "this machine's kernel lacks root (use sudo)")


def test_asking_for_virtual_time_is_asking_for_the_lab(able: None) -> None:
    assert choose(Where(clock="virtual"), {"cubic"})[:2] == ("lab", "virtual")


def test_the_lab_can_run_on_the_real_clock(able: None) -> None:
    assert choose(Where(kernel="lab", clock="real"), {"cubic"})[:2] == ("lab", "real")


def test_a_host_that_cant_is_refused_with_each_missing_thing(unable: None) -> None:
    with pytest.raises(UsageError, match=r"root \(use sudo\); the qdisc netem\. --kernel lab can; .*lab doctor"):
        choose(Where(kernel="host"), {"cubic"})


def test_a_hosts_clock_cant_be_virtual(able: None) -> None:
    with pytest.raises(UsageError, match="--clock virtual needs --kernel lab"):
        choose(Where(kernel="host", clock="virtual"), {"cubic"})


def listen(text: str, watchdog_s: float = 5.0) -> list[object]:
    return list(execute._listen(cast(IO[bytes], io.BytesIO(text.encode())), watchdog_s, threading.Event()))


def test_messages_are_json_lines() -> None:
    assert listen('{"phase": "network"}\n{"done": true}\n') == [{"phase": "network"}, {"done": True}]


def test_anything_else_is_an_error() -> None:
    with pytest.raises(FairbedError, match="said what it never should"):
        listen("Segmentation fault\n")


def test_silence_is_a_hang() -> None:
    class Silent(io.BytesIO):
        def __iter__(self) -> "Silent":
            return self

        def __next__(self) -> bytes:
            import time

            time.sleep(1)
            raise StopIteration

    with pytest.raises(FairbedError, match=r"hung: no word for 0.1 s"):
        list(execute._listen(cast(IO[bytes], Silent()), 0.1, threading.Event()))


def test_a_host_without_anything_says_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    monkeypatch.setattr(hosts, "_module", lambda name: False)
    monkeypatch.setattr(hosts, "OVS_SOCKET", Path("/nowhere"))
    monkeypatch.setattr(hosts, "has_algorithm", lambda cca: False)
    text = "; ".join(map(str, hosts.missing(["ndm_tcp"])))
    for part in (
        "root",
        "mnexec (sudo apt-get install mininet)",
        "netem",
        "htb",
        "openvswitch datapath",
        "the algorithm ndm_tcp",
    ):
        assert part in text


def test_how_long_this_machine_has_slept_does_not_grow_while_it_is_awake() -> None:
    assert abs(execute.slept_s() - execute.slept_s()) < 0.001
