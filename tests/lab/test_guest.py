"""What a guest is started with; booting one is tested in tests/system."""

import fcntl
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab import guest
from lab.guest import Bind, Guest, GuestError, Job, LabKernel, remove_remains
from topologies.errors import UsageError


def job(**changes: Any) -> Job:
    fields: dict[str, Any] = {"argv": ["true"], "cwd": Path("/work dir")}
    return Job(**(fields | changes))


def test_the_command_line_depends_on_nothing_that_differs_between_repeats(tmp_path: Path) -> None:
    # the kernel stirs it into its random generator
    arguments = guest.kernel_arguments(job())
    assert arguments == guest.kernel_arguments(job(argv=["false"], cwd=tmp_path, seed=2, binds=[Bind(tmp_path)]))
    assert not any(str(tmp_path) in argument for argument in arguments)


def test_virtual_time_is_asked_for_only_where_it_is_wanted() -> None:
    assert any(argument.startswith("time-travel=inf-cpu") for argument in guest.kernel_arguments(job()))
    assert not any("time-travel" in argument for argument in guest.kernel_arguments(job(clock="real")))


def test_entropy_is_the_seeds() -> None:
    assert len(guest.entropy(1)) == 256
    assert guest.entropy(1) == guest.entropy(1) != guest.entropy(2)


def test_the_job_is_written_as_init_reads_it(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel"
    kernel.mkdir()
    (kernel / "ndm_tcp.ko").touch()
    made = job(argv=["sh", "-c", "echo a b"], environment={"A": "1"}, binds=[Bind(Path("/out"), Path("/in"))])
    guest.write_job(LabKernel(kernel), made, tmp_path / "job")
    content = {path.name: path.read_bytes() for path in (tmp_path / "job").iterdir()}
    assert content["argv"] == b"sh\0-c\0echo a b\0"
    assert content["env"] == b"A=1\0"
    assert content["cwd"] == b"/work dir"
    assert content["binds"].split(b"\0") == [
        b"w", bytes(tmp_path / "job"), b"/run/fairbed/job",
        b"r", bytes(kernel), b"/run/fairbed/kernel",
        b"w", b"/out", b"/in", b"",
    ]  # fmt: skip
    assert content["modules"] == b"/run/fairbed/kernel/ndm_tcp.ko\0"
    assert "tty" not in content


def test_a_guest_larger_than_the_machine_is_refused() -> None:
    with pytest.raises(UsageError, match=r"needs 99999999 MB.*this machine has only \d+ MB.*--memory"):
        guest.check_memory(99_999_999)


def test_an_incomplete_kernel_is_named(tmp_path: Path) -> None:
    (tmp_path / "linux").touch()
    with pytest.raises(GuestError, match=r"lacks init, seeded_random.so; run `make setup`"):
        Guest(LabKernel(tmp_path), job())


def test_only_the_remains_of_dead_guests_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    for name in ("fairbed-dead", "fairbed-alive", "fairbed-worked-in", "other"):
        (tmp_path / name / "job").mkdir(parents=True)
        (tmp_path / name / "job" / "entropy").touch()
    (tmp_path / "fairbed-notes").mkdir()
    lock = os.open(tmp_path / "fairbed-alive", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path / "fairbed-worked-in") as process:
        assert remove_remains() == [f"directory {tmp_path / 'fairbed-dead'}"]
        process.kill()
    os.close(lock)
    kept = {"fairbed-alive", "fairbed-worked-in", "fairbed-notes", "other"}
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_a_guest_removes_nothing_of_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fairbed-x" / "job").mkdir(parents=True)
    (tmp_path / "fairbed-x" / "job" / "entropy").touch()
    (tmp_path / "inside" / "job").mkdir(parents=True)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(guest, "GUEST", tmp_path / "inside")
    assert remove_remains() == []
