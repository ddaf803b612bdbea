"""What a machine can do, as ``lab doctor`` tells it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import doctor, environment
from lab.doctor import Way, as_data, examine, report, ways
from lab.lack import Lack
from tests.system.conftest import CHECKOUT

READY = Way("lab", "runs in the lab kernel", [])
UNABLE = Way("host", "runs here", [Lack("the qdisc netem"), Lack("mnexec", "apt-get install mininet")])
NOT_A_RUN = Way("bpf", "NDM-TCP as BPF", [], runs=False)


def test_the_text_names_what_is_missing_and_the_command() -> None:
    text = report([READY, UNABLE])
    assert "yes  lab      runs in the lab kernel\n" in text
    assert "no   host     runs here\n" in text
    assert "missing: the qdisc netem\n" in text
    assert "missing: mnexec\n              fix:     apt-get install mininet\n" in text
    assert text.endswith("Next: .venv/bin/python -m experiments.dumbbell")


@pytest.mark.parametrize(
    ("found", "status", "advice"),
    [
        ([READY, UNABLE], 0, "experiments.dumbbell"),
        ([UNABLE, NOT_A_RUN], 1, "Nothing runs here yet; lab/setup.sh"),
        ([UNABLE, READY._replace(name="vagrant")], 0, "vagrant up"),
    ],
)
def test_it_succeeds_where_something_runs(
    found: list[Way], status: int, advice: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "ways", lambda: found)
    assert examine(as_json=False) == status
    assert advice in capsys.readouterr().out.splitlines()[-1]


def test_the_data_says_the_same() -> None:
    data = as_data([READY, UNABLE])
    assert [way["ready"] for way in data["ways"]] == [True, False]
    assert data["ways"][1]["missing"][1] == {"what": "mnexec", "fix": "apt-get install mininet"}


def test_this_machine_runs_the_lab() -> None:
    found = {way.name: way for way in ways()}
    assert found.keys() == {"lab", "host", "vagrant", "module", "bpf"}
    assert found["lab"].lacks == []  # or none of the system tests could pass


def doctor_of(python: list[str], **variables: str) -> "subprocess.CompletedProcess[str]":
    argv = [*python, "-m", "lab", "doctor", "--json"]
    return subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, env=os.environ | variables)


def test_it_works_without_any_package() -> None:
    done = doctor_of([sys.executable, "-S"])
    assert done.stderr == ""
    found = {way["name"]: way for way in json.loads(done.stdout)["ways"]}
    assert not found["lab"]["ready"]
    assert "has no matplotlib, networkx" in found["lab"]["missing"][0]["what"]
    assert found["lab"]["missing"][0]["fix"]


def test_it_works_without_a_lab_kernel_and_builds_none(tmp_path: Path) -> None:
    done = doctor_of([sys.executable], FAIRBED_CACHE=str(tmp_path))
    found = {way["name"]: way for way in json.loads(done.stdout)["ways"]}
    assert [lack["fix"] for lack in found["lab"]["missing"]] == ["lab/setup.sh"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["experiments.dumbbell"], ["lab", "run", "--", "true"], ["analysis", "summary"]])
def test_commands_say_that_packages_are_missing(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-S", "-m", *command], cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("fairbed: this Python (")
    assert "python3 -m lab doctor" in done.stderr


def test_a_damaged_package_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "polars").mkdir()
    (tmp_path / "polars" / "__init__.py").write_text("from polars.nothing import here")
    argv = [sys.executable, "-m", "experiments.dumbbell", "--explain"]
    variables = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, env=variables)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "has a damaged package: No module named 'polars.nothing' (rm " in done.stderr


def test_the_interpreter_is_python_in_a_virtual_machine_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There .venv leads to the outside's cache, which is not in it."""
    (tmp_path / ".venv").symlink_to(tmp_path / "outside")
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(environment, "IN_VM", tmp_path / "python")
    assert environment.python() == ".venv/bin/python"
    (tmp_path / "python").touch()
    assert environment.python() == "python"
    (tmp_path / "outside" / "bin").mkdir(parents=True)
    (tmp_path / "outside" / "bin" / "python").touch()
    assert environment.python() == ".venv/bin/python"


def test_an_old_python_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.version_info", (3, 10, 12))
    assert environment.lacks()[0].what == "Python 3.11 or newer: this is 3.10"
