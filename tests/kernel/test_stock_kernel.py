"""NDM-TCP, and whole runs, on the kernels that Debian ships, booted in QEMU: ``make test-stock``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis import compare
from experiments.stock import CCAS, overlap, rows
from lab.record import Run
from tests.kernel.ndm_harness import CORE, ROOT

pytestmark = [pytest.mark.system, pytest.mark.slow]

STOCK = ROOT / "kernel" / "stock"
SECONDS = 20
RATE_MBIT = 50.0
SHARE_SLACK = 0.02
"""Of the link, that intervals of shares may lie apart: the lab kernel's release is another."""
RELEASES = sorted(image.name.removeprefix("vmlinuz-") for image in Path("/boot").glob("vmlinuz-*"))


def boot(release: str, *command: str, **settings: str) -> tuple[int, str]:
    """Return the exit status and the output of a command on that kernel."""
    argv = [str(STOCK / "boot.sh"), release, *command]
    environment = os.environ | {"STEADY": "2"} | settings  # figures do not depend on how busy this machine is
    done = subprocess.run(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def require(release: str | None) -> str:
    """Return the release, or skip and say what is missing."""
    if release is None:
        pytest.skip("no kernel in /boot (apt-get install linux-image-amd64 linux-headers-amd64)")
    if not Path("/lib/modules", release, "build", "Makefile").exists():
        pytest.skip(f"no headers of {release} (apt-get install linux-headers-{release})")
    for tool, package in (("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static"), ("cpio", "cpio")):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed (apt-get install {package})")
    return release


@pytest.mark.parametrize("release", RELEASES or [None], ids=str)
def test_module_on_a_stock_kernel(release: str | None, tmp_path: Path) -> None:
    """Built against its headers, loaded, 20 s of iperf3 over 20 ms +- 5 ms, 0.5 % loss, 50 Mbit/s; unloaded."""
    release = require(release)
    build = ["make", "-s", "-C", str(CORE), f"KDIR=/lib/modules/{release}/build", f"BUILD={tmp_path}"]
    subprocess.run(build, check=True, capture_output=True)
    status, said = boot(release, str(STOCK / "check.sh"), str(tmp_path / "ndm_tcp.ko"), str(SECONDS))
    assert status == 0, said
    assert f"release {release}" in said
    assert "ndm_tcp: state of a connection: ndm_tcp 72, ndm2 80 of at most 104 bytes" in said
    assert said.count("published behaviour: window is not bounded by use") == 1
    assert "unloaded yes" in said
    assert "complaints 0" in said
    reports = dict(report(line) for line in said.splitlines() if line.startswith("report "))
    for name in ("ndm_tcp", "ndm2", "cubic"):
        assert reports[name]["sender_tcp_congestion"] == name
        assert 0.5 < reports[name]["sum_received"]["bits_per_second"] / 1e6 < RATE_MBIT
        print(
            f"{release} {name}: {reports[name]['sum_received']['bits_per_second'] / 1e6:.2f} Mbit/s, "
            f"{reports[name]['sum_sent']['retransmits']} retransmissions"
        )


@pytest.mark.parametrize("release", RELEASES or [None], ids=str)
def test_module_and_bpf_program_on_one_kernel(release: str | None, tmp_path: Path) -> None:
    """The same 30 s over 20 Mbit/s, 40 ms, one BDP of buffer, nothing random but timing: the same figures from both.

    A timer's phase decides when slow start overshoots: each of the two gets 19.04 or, now and then, 18.83 Mbit/s. That
    they compute the same is tested ACK by ACK (test_twins.py).
    """
    release = require(release)
    if not Path("/sys/kernel/btf/vmlinux").exists() or not all(map(shutil.which, ("clang", "bpftool", "llvm-strip"))):
        pytest.skip("building the BPF program needs BTF of some kernel, clang, llvm and bpftool")
    build = ["make", "-s", "-C", str(CORE), f"KDIR=/lib/modules/{release}/build", f"BUILD={tmp_path}", "module", "bpf"]
    subprocess.run(build, check=True, capture_output=True)
    files = [str(tmp_path / name) for name in ("ndm_tcp.ko", "ndm_bpf.o")]
    status, said = boot(release, str(STOCK / "twins.sh"), *files, "30")
    assert status == 0, said
    found = dict(figures(line) for line in said.splitlines() if line.startswith("report "))
    for name, twin in (("ndm2", "bpf_ndm2"), ("ndm_tcp", "bpf_ndm")):
        print(f"{release} {name}: {found[name]}, {twin}: {found[twin]}")
        assert found[name]["goodput_mbit"] > 18
        assert found[twin]["goodput_mbit"] == pytest.approx(found[name]["goodput_mbit"], rel=0.02)
        assert found[twin]["mean_cwnd"] == pytest.approx(found[name]["mean_cwnd"], rel=0.1)
        assert found[twin]["retransmits"] == pytest.approx(found[name]["retransmits"], rel=0.1, abs=2)


@pytest.mark.parametrize("release", RELEASES or [None], ids=str)
def test_the_dumbbell_agrees_with_the_lab_kernels(release: str | None, tmp_path: Path) -> None:
    """Five runs in each: every verdict valid; each flow's share and the queueing delay agree (docs/stock.md)."""
    release = require(release)
    if not shutil.which("dkms"):
        pytest.skip("dkms is not installed (apt-get install dkms)")
    out, page = tmp_path / "runs", tmp_path / "stock.md"
    command = [sys.executable, "-m", "experiments.stock", "--repeats", "5", "--release", release]
    subprocess.run([*command, "--out", str(out), "--page", str(page)], cwd=ROOT, check=True)
    lab, stock = ([Run.open(path) for path in sorted((out / kernel).glob("seed*"))] for kernel in ("lab", "stock"))
    assert [run.verdict for run in (*lab, *stock)] == [{"status": "valid", "reasons": []}] * 10
    assert {run.info["environment"]["kernel"] for run in stock} == {release}
    assert {cca for run in stock for cca in run.flows["cca"]} == set(CCAS)
    print(page.read_text())
    found = list(rows(compare(lab, stock)))
    slack = {row: SHARE_SLACK if row.measure == "share" else row.resolution for row, _ in found}
    compared = [(row, difference) for row, difference in found if slack[row]]
    assert len(compared) == len(CCAS) + 3  # and the delay's percentiles
    assert [row.label for row, difference in compared if not overlap(difference, slack[row])] == []


@pytest.mark.parametrize("release", RELEASES or [None], ids=str)
def test_a_killed_run_leaves_no_module_loaded(release: str | None, tmp_path: Path) -> None:
    """And nothing else: this kernel plays the host (tests/host/test_kills.py), and has netem as a module."""
    release = require(release)
    build = ["make", "-s", "-C", str(CORE), f"KDIR=/lib/modules/{release}/build", f"BUILD={tmp_path}"]
    subprocess.run(build, check=True, capture_output=True)
    inside = [str(STOCK / "host.sh"), str(tmp_path / "ndm_tcp.ko"), sys.executable]
    tests = ["-s", "-m", "system", "-k", "unloaded", "tests/host/test_kills.py"]
    status, said = boot(release, *inside, *tests, STEADY="0", MEMORY="2G")
    print(said)
    assert status == 0, said
    assert "1 passed, " in said


def figures(line: str) -> tuple[str, dict[str, float]]:
    """Return the algorithm and what its 30 s came to, from one line of twins.sh; the window is from 5 s on."""
    _, name, text = line.split(" ", 2)
    said = json.loads(text)
    assert said["end"]["sender_tcp_congestion"] == name
    windows = [interval["streams"][0]["snd_cwnd"] / 1448 for interval in said["intervals"][5:]]
    return name, {
        "goodput_mbit": round(said["end"]["sum_received"]["bits_per_second"] / 1e6, 2),
        "retransmits": said["end"]["sum_sent"]["retransmits"],
        "mean_cwnd": round(sum(windows) / len(windows), 1),
    }


def report(line: str) -> tuple[str, dict[str, Any]]:
    """Return the algorithm and the end of iperf3's report from one line of check.sh."""
    _, name, text = line.split(" ", 2)
    return name, json.loads(text)["end"]


def test_exit_status_and_errors_come_through() -> None:
    """The guest's status is boot.sh's; a kernel that is not there is named, with the package that has it."""
    status, said = boot("9.9.9-none", "true")
    assert (status, "apt-get install linux-image-9.9.9-none" in said) == (125, True)
    if RELEASES:
        status, said = boot(require(RELEASES[-1]), "/bin/sh", "-c", "echo root is $(id -u) on $(uname -r); exit 7")
        assert (status, said) == (7, f"root is 0 on {RELEASES[-1]}\n")
