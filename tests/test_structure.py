"""Who may import whom: the design's arrows, held."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
ALLOWED = {
    "topologies": {"topologies"},
    "controller": {"topologies", "controller"},
    "lab": {"topologies", "controller", "lab"},
    "analysis": {"topologies", "lab", "analysis"},
    "experiments": {"topologies", "controller", "lab", "analysis", "experiments"},
}
OURS = set(ALLOWED)
OF_THE_LAB_FOR_ANALYSIS = {"lab.commandline", "lab.environment", "lab.execute", "lab.record", "lab.scenario"}
"""The record's format; how commands end; and, for `replay` alone, running a scenario again."""

NETWORK_BUILDERS = {"topologies/mininet_topo.py", "lab/network.py", "lab/nodes.py", "lab/up.py"}


def imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, in functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files(package: str) -> list[Path]:
    return sorted((CHECKOUT / package).rglob("*.py"))


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_go_one_way(package: str) -> None:
    wrong = [
        f"{path.relative_to(CHECKOUT)} imports {name}"
        for path in files(package)
        for name in imports(path)
        if (top := name.split(".")[0]) in OURS and top not in ALLOWED[package]
    ]
    assert wrong == []


def test_analysis_needs_only_the_record_of_the_lab() -> None:
    wrong = [
        f"{path.name} imports {name}"
        for path in files("analysis")
        for name in imports(path)
        if name.startswith("lab.") and not any(name.startswith(allowed) for allowed in OF_THE_LAB_FOR_ANALYSIS)
    ]
    assert wrong == []


def test_mininet_is_imported_only_where_the_network_is_built() -> None:
    found = {
        str(path.relative_to(CHECKOUT))
        for package in OURS
        for path in files(package)
        if any(name.split(".")[0] == "mininet" for name in imports(path))
    }
    assert found and found <= NETWORK_BUILDERS


def test_the_openflow_framework_is_the_controllers_alone() -> None:
    found = {
        package
        for package in OURS
        for path in files(package)
        if any(name.split(".")[0] in ("ryu", "os_ken", "eventlet") for name in imports(path))
    }
    assert found <= {"controller"}


@pytest.mark.parametrize("module", ["lab.runner", "lab.inside", "controller.__main__"])
def test_what_runs_in_the_lab_kernel_imports_little(module: str) -> None:
    heavy = {"networkx", "pydantic", "polars", "numpy", "matplotlib", "typer", "rich"}
    code = f"import sys, {module}; print(sorted({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["analysis", "topologies", "lab.record", "lab.scenario"])
def test_what_needs_no_root_needs_no_mininet(package: str) -> None:
    code = f"import sys, {package}; print('mininet' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
