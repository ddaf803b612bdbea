"""Set-up: what is done stays as it is, what was interrupted is taken up, what is wrong is said in one line."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
REQUIREMENTS = "ryu==4.34\n"
"""Enough for the environment's steps: it has dependencies, and is built from source with an older setuptools."""


def set_up(checkout: Path, *options: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(checkout / "lab/setup.sh"), *options],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def state(cache: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of what set-up makes; a kernel's source and objects (gigabytes) only as directories."""
    paths = [CHECKOUT / ".venv", *cache.iterdir()]
    for pattern in ("kernel/*", "kernel/lab-*/*", "venv-*/*", "venv-*/bin/*"):
        paths += cache.glob(pattern)
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths}


@pytest.mark.system
def test_a_second_time_it_changes_nothing() -> None:
    """How long that takes, `make bench` says."""
    cache = Path(set_up(CHECKOUT, "--where").stdout.strip())
    before = state(cache)
    done = set_up(CHECKOUT, "--tests")
    assert done.returncode == 0, done.stderr
    assert state(cache) == before
    assert not any(word in done.stderr for word in ("installing", "making", "building"))


def test_an_unknown_option_is_one_line() -> None:
    done = set_up(CHECKOUT, "--everything")
    assert done.returncode == 2
    assert done.stderr == "fairbed: unknown option --everything: lab/setup.sh [--tests | --vm | --where]\n"


def test_a_cache_that_no_kernel_can_be_built_in(tmp_path: Path) -> None:
    done = set_up(CHECKOUT, FAIRBED_CACHE=str(tmp_path / "my files"))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "set FAIRBED_CACHE to a path without" in done.stderr
    assert not (tmp_path / "my files").exists()


def test_a_cache_that_cannot_be_made() -> None:
    done = set_up(CHECKOUT, FAIRBED_CACHE="/proc/fairbed")
    assert done.returncode == 1
    assert "fairbed setup: can't write to /proc/fairbed; set FAIRBED_CACHE to a directory of yours" in done.stderr


@pytest.fixture
def small_checkout(tmp_path: Path) -> Path:
    """A checkout at a difficult path whose environment is small and whose lab kernel is this machine's."""
    checkout = tmp_path / "it's a checköut"
    (checkout / "lab").mkdir(parents=True)
    shutil.copy(CHECKOUT / "lab/setup.sh", checkout / "lab")
    shutil.copytree(CHECKOUT / "kernel", checkout / "kernel", ignore=shutil.ignore_patterns("build"))
    shutil.copy(CHECKOUT / "build-constraints.txt", checkout)
    (checkout / "requirements.txt").write_text(REQUIREMENTS)
    return checkout


@pytest.fixture
def cache_with_kernel(tmp_path: Path) -> Path:
    """A cache that has the kernel but not what is built with it."""
    cache = tmp_path / "cache"
    (cache / "kernel").mkdir(parents=True)
    for kernel in Path(set_up(CHECKOUT, "--where").stdout.strip(), "kernel").glob("kernel-*"):
        if kernel.is_dir():
            (cache / "kernel" / kernel.name).symlink_to(kernel)
    return cache


def killed_after(seconds: float, argv: list[str], **environment: str) -> str:
    """Run a command, kill it and all that it started after some seconds, and return what it said until then."""
    process = subprocess.Popen(
        argv, env=os.environ | environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        return process.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[1]


@pytest.mark.system
@pytest.mark.timeout(600)
def test_it_is_killed_and_taken_up(small_checkout: Path, cache_with_kernel: Path) -> None:
    cache = {"FAIRBED_CACHE": str(cache_with_kernel)}
    said = [killed_after(seconds, [str(small_checkout / "lab/setup.sh")], **cache) for seconds in (2, 5, 9)]
    assert sum("making the Python environment" in words for words in said) > 1, said
    done = set_up(small_checkout, **cache)
    assert done.returncode == 0, done.stderr
    subprocess.run([small_checkout / ".venv/bin/python", "-c", "import ryu, mininet"], check=True)
    again = set_up(small_checkout, **cache)
    assert "ready after" in again.stderr and "making" not in again.stderr


@pytest.mark.system
@pytest.mark.timeout(600)
def test_what_is_built_with_the_kernel_is_killed_and_taken_up(small_checkout: Path, cache_with_kernel: Path) -> None:
    build = [str(small_checkout / "kernel/uml/build.sh"), str(cache_with_kernel / "kernel")]
    for seconds in (0.3, 1, 2):
        killed_after(seconds, build)
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lab = Path(done.stdout.strip().splitlines()[-1])
    subprocess.run(["sha256sum", "--quiet", "--check", "checksums"], cwd=lab, check=True)
    assert not list(lab.parent.glob("*.part"))


def test_a_kernel_source_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    build = [str(CHECKOUT / "kernel/uml/build.sh"), str(tmp_path / "kernel")]
    environment = os.environ | {"LINUX_SOURCE": str(tmp_path / "linux-none.tar.xz")}
    done = subprocess.run(build, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if not line.startswith("  building")]
    assert said == [f"fairbed: LINUX_SOURCE={tmp_path}/linux-none.tar.xz can't be read"]
