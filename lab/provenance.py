"""What made a run: this checkout, this interpreter, the libraries that matter."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lab.kernels import CHECKOUT

LIBRARIES = ("networkx", "numpy", "polars", "ryu", "os-ken")


def now() -> str:
    """Return the date and time, ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def commit() -> str | None:
    """Return the checkout's commit, "+" at the end when files differ from it; None outside git."""
    git = ["git", "-C", str(CHECKOUT)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "")


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that a result may depend on."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def facts() -> dict[str, Any]:
    """Return what the outer side of a run knows of its environment."""
    return {"commit": commit(), "host_kernel": os.uname().release, "libraries": library_versions()}
