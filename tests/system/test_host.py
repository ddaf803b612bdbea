"""Runs on a host's kernel, with a lab kernel as the host; `make test-host` does more of the same."""

import subprocess
import sys

import pytest

from tests.system.conftest import CHECKOUT

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


def test_a_hosts_kernel_carries_runs_and_is_left_as_it_was() -> None:
    in_guest = [
        sys.executable,
        "-m",
        "lab",
        "run",
        "--clock",
        "real",
        "--openvswitch",
        "--",
        "sh",
        "tests/host/in_guest.sh",
    ]
    done = subprocess.run([*in_guest, "-s", "tests/host"], cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout.splitlines()[-1]
