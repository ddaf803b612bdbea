"""Someone else's application in place of our rules: a file for the framework's manager."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import re
import sys
from pathlib import Path

from controller.frameworks import PACKAGES, Framework
from topologies.errors import UsageError

__all__ = ["check", "load"]


def check(path: Path, framework: str) -> None:
    """Raise a UsageError when the file can't be read, or is for the other framework."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the application {path}: {error}") from error
    for name, package in PACKAGES.items():
        if name != framework and re.search(rf"^\s*(from|import)\s+{package}\b", text, re.MULTILINE):
            raise UsageError(f"the application {path} imports {package}: it is run by --framework {name}")


def load(path: str, framework: Framework) -> str:
    """Load the file and return its module's name, or raise a UsageError with what is wrong with it."""
    check(Path(path), framework.name)
    name = f"controller_of_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"application {path} is not a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"application {path}: {type(error).__name__}: {error}") from error
    base = framework.app_class
    found = [cls for _, cls in inspect.getmembers(module, inspect.isclass) if issubclass(cls, base)]
    if not any(cls.__module__ == name for cls in found):
        raise UsageError(
            f"application {path} has no class derived from {base.__module__}.{base.__name__}: "
            f"it is run by --framework {framework.name}"
        )
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    return name
