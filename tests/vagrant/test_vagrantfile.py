"""Vagrant takes the Vagrantfile; ``make test-vagrant`` starts the machine."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not shutil.which("vagrant"), reason="vagrant is not installed")

VAGRANTFILE = Path(__file__).parents[2] / "Vagrantfile"


def validate(text: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    """Ask Vagrant about a Vagrantfile; the providers need not be here."""
    (directory / "Vagrantfile").write_text(text)
    return subprocess.run(
        ["vagrant", "validate", "--ignore-provider"],
        cwd=directory,
        env=os.environ | {"VAGRANT_HOME": str(directory / "home"), "VAGRANT_CHECKPOINT_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_vagrant_takes_it(tmp_path: Path) -> None:
    done = validate(VAGRANTFILE.read_text(), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "validated successfully" in done.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("config.vm.box =", "config.vm.bocks =", "settings shouldn't exist: bocks"),
        ('"shell", inline', '"shelf", inline', "'shelf' provisioner could not be found"),
    ],
)
def test_vagrant_names_what_is_wrong(right: str, wrong: str, words: str, tmp_path: Path) -> None:
    text = VAGRANTFILE.read_text()
    assert right in text
    done = validate(text.replace(right, wrong), tmp_path)
    assert done.returncode == 1
    assert words in re.sub(r"\s+", " ", done.stdout + done.stderr)
