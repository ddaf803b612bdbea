"""Is this interpreter the one that set-up made? Imports nothing that it may lack."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from lab.lack import Lack

PACKAGES = (
    *("matplotlib", "networkx", "numpy", "plotly", "polars", "pydantic", "rich", "typer"),
    *("ryu", "os_ken", "mininet"),
)
OLDEST_PYTHON = (3, 11)
CHECKOUT = Path(__file__).resolve().parent.parent
SETUP = "lab/setup.sh"
VENV = CHECKOUT / ".venv"
IN_VM = Path("/usr/local/bin/python")
"""Fairbed's interpreter in a virtual machine of ours, where the checkout's .venv is the outside's."""


def python() -> str:
    """Return what to type, in the checkout, for this environment's interpreter."""
    return "python" if IN_VM.exists() and not (VENV / "bin" / "python").exists() else ".venv/bin/python"


def lacks() -> list[Lack]:
    """Return what this interpreter lacks to run any of Fairbed's commands."""
    if sys.version_info < OLDEST_PYTHON:
        version = ".".join(map(str, sys.version_info[:2]))
        return [Lack(f"Python 3.11 or newer: this is {version}", "install a newer one as /usr/bin/python3")]
    missing = [name for name in PACKAGES if find_spec(name) is None]
    return [Lack(f"this Python ({sys.executable}) has no {', '.join(missing)}", _remedy())] if missing else []


def _remedy() -> str:
    """Return how to come to the environment: it may be there, unused, or damaged, in which case it is made anew."""
    if not VENV.exists():
        return SETUP
    if Path(sys.prefix).resolve() == VENV.resolve():
        return f"rm {VENV.resolve()}/complete; {SETUP}"
    return "source .venv/bin/activate"


def explain_failing_imports() -> None:
    """Have this program end with one line when it can't import what it needs: the environment is not, or half, made."""
    sys.excepthook = _explain


def _explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, ImportError) or os.environ.get("FAIRBED_TRACEBACK"):
        sys.__excepthook__(kind, error, trace)
        return
    found = lacks() or [Lack(f"this Python ({sys.executable}) has a damaged package: {error}", _remedy())]
    print(f"fairbed: {found[0]}; `python3 -m lab doctor` says all that is missing", file=sys.stderr)
