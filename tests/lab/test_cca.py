"""Which algorithms a kernel has, how NDM-TCP gets into it, and what is said when it can't."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import pytest

from lab import cca, hosts
from lab.cca import LoadError, Machine, check_available, kernel_name, load, obstacles, survey, unload, ways_to_load
from lab.commandline import run_app
from lab.commands import app
from topologies.errors import UsageError

ABLE = Machine(
    root=True,
    release="6.12.113+deb12-amd64",
    modules=True,
    headers=True,
    signed_only=False,
    btf=True,
    lacking=(),
    names=frozenset({"reno", "cubic"}),
)
WITH_BPF = ABLE._replace(names=ABLE.names | {"bpf_ndm", "bpf_ndm2"})


def test_module_names_come_before_bpf_names() -> None:
    both = {"ndm2", "bpf_ndm2", "cubic"}
    assert kernel_name("ndm2", both.__contains__) == "ndm2"
    assert kernel_name("ndm2", (both - {"ndm2"}).__contains__) == "bpf_ndm2"
    assert kernel_name("ndm_tcp", both.__contains__) is None
    assert kernel_name("bpf_ndm2", both.__contains__) == "bpf_ndm2"
    assert kernel_name("cubic", both.__contains__) == "cubic"


def test_flows_get_the_name_that_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cca, "is_available", {"cubic", "bpf_ndm", "bpf_ndm2"}.__contains__)
    flows = [{"kernel_cca": name} for name in ("ndm_tcp", "cubic", "ndm2", "cubic")]
    assert check_available(flows) == {"ndm_tcp": "bpf_ndm", "cubic": "cubic", "ndm2": "bpf_ndm2"}


def test_every_missing_algorithm_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cca, "is_available", {"cubic"}.__contains__)
    with pytest.raises(UsageError, match=r"ndm2, westwood: this kernel has .*python -m lab cca load.*tcp_westwood"):
        check_available([{"kernel_cca": name} for name in ("cubic", "ndm2", "westwood")])


def test_hosts_accept_the_bpf_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "registered", lambda: ["cubic", "bpf_ndm2"])
    lacks = [lack for lack in hosts.missing({"ndm2", "ndm_tcp"}) if lack.what.startswith("the algorithm")]
    assert [lack.what for lack in lacks] == ["the algorithm ndm_tcp"]
    assert lacks[0].fix.endswith(".venv/bin/python -m lab cca load")


# ---- the decision


def test_the_module_is_tried_first() -> None:
    assert ways_to_load(ABLE, "auto") == ["module", "bpf"]
    assert ways_to_load(ABLE, "bpf") == ["bpf"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"release": "5.15.0-91-generic"}, "kernel 5.15.0-91-generic is older than 5.19"),
        ({"modules": False}, "can't load modules"),
        ({"headers": False}, "apt-get install linux-headers-6.12.113+deb12-amd64"),
        ({"signed_only": True}, "signed modules only"),
    ],
)
def test_bpf_where_no_module_can_be_loaded(change: dict[str, Any], reason: str) -> None:
    machine = ABLE._replace(**change)
    assert ways_to_load(machine, "auto") == ["bpf"]
    assert reason in obstacles(machine)["module"]
    with pytest.raises(LoadError, match=r"As a module: .*The lab kernel has it"):
        ways_to_load(machine, "module")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"btf": False}, "no BTF (CONFIG_DEBUG_INFO_BTF)"),
        ({"lacking": ("clang", "libbpf-dev")}, "apt-get install clang libbpf-dev"),
        ({"release": "5.10.0-33-amd64"}, "older than 5.13"),
    ],
)
def test_what_bpf_lacks(change: dict[str, Any], reason: str) -> None:
    assert reason in obstacles(ABLE._replace(**change))["bpf"]


def test_neither_way_names_both_reasons() -> None:
    with pytest.raises(LoadError) as refused:
        ways_to_load(ABLE._replace(root=False, headers=False, btf=False), "auto")
    for part in ("As a module: it needs root", "linux-headers-6.12.113", "As BPF: it needs root", "no BTF"):
        assert part in str(refused.value)


# ---- what a machine is found to be


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file system of a machine on which the module can be built and loaded."""
    monkeypatch.setattr(platform, "release", lambda: "6.1.0-57-amd64")
    for path, text in {
        "proc/modules": "",
        "proc/sys/net/ipv4/tcp_available_congestion_control": "reno cubic\n",
        "lib/modules/6.1.0-57-amd64/build/Makefile": "",
        "sys/kernel/security/lockdown": "[none] integrity confidentiality\n",
        "sys/module/module/parameters/sig_enforce": "N\n",
        "usr/include/bpf/bpf_helpers.h": "",
        "sys/kernel/btf/vmlinux": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_survey_of_a_usual_machine(root: Path) -> None:
    machine = survey(root)
    assert (machine.modules, machine.headers, machine.signed_only, machine.btf) == (True, True, False, True)
    assert (machine.release, machine.names) == ("6.1.0-57-amd64", frozenset({"reno", "cubic"}))


@pytest.mark.parametrize("mode", ["none [integrity] confidentiality", "none integrity [confidentiality]"])
def test_survey_sees_lockdown(root: Path, mode: str) -> None:
    (root / "sys/kernel/security/lockdown").write_text(f"{mode}\n")
    assert survey(root).signed_only


def test_survey_sees_enforced_signatures(root: Path) -> None:
    (root / "sys/module/module/parameters/sig_enforce").write_text("Y\n")
    assert survey(root).signed_only


def test_survey_of_a_bare_machine(tmp_path: Path) -> None:
    machine = survey(tmp_path)
    assert (machine.modules, machine.headers, machine.btf, machine.names) == (False, False, False, frozenset())
    assert "libbpf-dev" in machine.lacking


# ---- the acts, with a make that only writes down what it was asked


class FakeMake:
    """Writes down the targets asked of it, in order; those in ``failing`` fail with its text."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failing: dict[str, str] = {}

    def __call__(self, target: str, _build: Path) -> None:
        self.asked.append(target)
        if target in self.failing:
            raise LoadError(self.failing[target])


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> FakeMake:
    """A make that does nothing."""
    fake = FakeMake()
    monkeypatch.setattr(cca, "make", fake)
    return fake


def test_load_stops_at_the_first_way_that_works(make: FakeMake, tmp_path: Path) -> None:
    assert load(ABLE, tmp_path) == "module"
    assert make.asked == ["load"]


def test_load_falls_back_to_bpf(make: FakeMake, tmp_path: Path) -> None:
    make.failing = {"load": "the kernel refused ndm_tcp.ko"}
    assert load(ABLE, tmp_path) == "bpf"
    assert make.asked == ["load", "bpf-load"]


def test_load_says_why_each_way_failed(make: FakeMake, tmp_path: Path) -> None:
    make.failing = {"load": "the name ndm2 is taken", "bpf-load": "the kernel refused the BPF programs"}
    with pytest.raises(LoadError, match=r"as module: the name ndm2 is taken; as bpf: the kernel refused"):
        load(ABLE, tmp_path)


def test_load_twice_is_nothing(make: FakeMake, tmp_path: Path) -> None:
    assert load(WITH_BPF, tmp_path) == "bpf"
    assert load(WITH_BPF._replace(root=False), tmp_path) == "bpf"
    assert make.asked == []
    assert load(WITH_BPF, tmp_path, "module") == "module"
    assert make.asked == ["load"]


def test_unload_takes_out_what_is_in(make: FakeMake, tmp_path: Path) -> None:
    assert unload(ABLE, tmp_path) == []
    assert make.asked == []
    assert unload(WITH_BPF._replace(names=WITH_BPF.names | {"ndm_tcp", "ndm2"}), tmp_path) == ["module", "bpf"]
    assert make.asked == ["unload", "bpf-unload"]


def test_words_of_make() -> None:
    said = "  CC [M]  ndm_tcp.o\nndm: ndm_tcp is in use by 3 sockets\nmake[1]: *** [Makefile:59: unload] Error 1\n"
    assert cca._words(said) == "ndm_tcp is in use by 3 sockets"
    assert cca._words("ndm_tcp.c:1: error: this\nmake: *** Error 2\n") == "ndm_tcp.c:1: error: this"


# ---- the command line, on this machine


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(app, "lab", ["cca", "list", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    names = {row["name"]: row for row in said["algorithms"]}
    assert set(cca.registered()) <= names.keys()
    assert names.keys() >= {"ndm_tcp", "ndm2"}
    assert said["obstacles"].keys() == {"module", "bpf"}


def test_unknown_way_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(app, "lab", ["cca", "load", "--how", "magic"]) == 2
    assert "auto, module, bpf" in capsys.readouterr().err


@pytest.mark.system
def test_load_use_and_unload_on_this_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    """On a kernel with BTF: loaded, the flows' names resolve to what is loaded, and gone again."""
    machine = survey()
    if cca.loaded(machine.names):
        pytest.skip("NDM-TCP is loaded already, by someone else")
    if not any(not obstacle for obstacle in obstacles(machine).values()):
        pytest.skip(f"this kernel takes neither: {obstacles(machine)}")
    try:
        assert run_app(app, "lab", ["cca", "load"]) == 0, capsys.readouterr().err
        way = cca.loaded(survey().names)[0]
        names = check_available([{"kernel_cca": "ndm2"}, {"kernel_cca": "ndm_tcp"}])
        expected = ["ndm2", "ndm_tcp"] if way == "module" else ["bpf_ndm2", "bpf_ndm"]
        assert list(names.values()) == expected
        assert run_app(app, "lab", ["cca", "load"]) == 0
        assert "already loaded" in capsys.readouterr().out
    finally:
        assert run_app(app, "lab", ["cca", "unload"]) == 0
    assert cca.loaded(survey().names) == []
    assert os.geteuid() == 0
