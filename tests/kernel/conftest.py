"""Builds of the NDM-TCP core under test: gcc, clang where present, and one with the UB sanitizer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.kernel.ndm_harness import Core, compile_c

BUILDS = {
    "gcc": ("gcc",),
    "clang": ("clang",),
    "ubsan": ("gcc", "-O1", "-g", "-fsanitize=undefined"),
}


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Core]:
    """Cores by build name, each compiled once."""
    where = tmp_path_factory.mktemp("ndm")
    return {
        name: Core(compile_c(compiler, "harness.c", where / f"{name}.so", "-shared", "-fPIC", *options))
        for name, (compiler, *options) in BUILDS.items()
        if shutil.which(compiler)
    }


@pytest.fixture(params=BUILDS)
def core(request: pytest.FixtureRequest, built: dict[str, Core], capfd: pytest.CaptureFixture[str]) -> Iterator[Core]:
    """The core in each build; what the sanitizer reports fails the test."""
    if request.param not in built:
        pytest.skip(f"{BUILDS[request.param][0]} is not installed")
    yield built[request.param]
    assert "runtime error" not in capfd.readouterr().err


@pytest.fixture(scope="session")
def gcc_core(built: dict[str, Core]) -> Core:
    """One core for property tests, which repeat too often to run in every build."""
    return built["gcc"]
