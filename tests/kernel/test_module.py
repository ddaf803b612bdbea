"""The module's build against every kernel found here, and what `ndm.sh` says when it can't go on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lab.kernels import lab_kernel
from tests.kernel.ndm_harness import CORE, ROOT

HEADERS = sorted({build.resolve() for build in Path("/lib/modules").glob("*/build")})


def test_one_version_everywhere() -> None:
    """The module, DKMS and the project say the same version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f'MODULE_VERSION("{project}")' in (CORE / "ndm_tcp.c").read_text()
    assert f'PACKAGE_VERSION="{project}"' in (CORE / "dkms.conf").read_text()


def test_names_fit_and_have_aliases() -> None:
    """TCP_CA_NAME_MAX is 16 with the zero; the kernel autoloads tcp_<name>."""
    source = (CORE / "ndm_tcp.c").read_text()
    names = re.findall(r'\.name\s*= "(\w+)"', source)
    assert names == ["ndm_tcp", "ndm2"]
    for name in names + re.findall(r'\.name\s*= "(\w+)"', (CORE / "ndm_bpf.c").read_text()):
        assert len(name) <= 15
    assert re.findall(r'MODULE_ALIAS\("tcp_(\w+)"\)', source) == names


def require_clean(build: Path, done: subprocess.CompletedProcess[str]) -> None:
    """Assert a module and no compiler or sparse warning about our files."""
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "ndm_" in line and "BTF" not in line] == []
    assert (build / "ndm_tcp.ko").exists()


@pytest.mark.system
@pytest.mark.parametrize("headers", HEADERS or [None], ids=str)
def test_builds_against_distribution_kernels(headers: Path | None, tmp_path: Path) -> None:
    """No warning with W=1, nor from sparse; nothing is written into the checkout."""
    if headers is None or not (headers / "Makefile").exists():
        pytest.skip("no kernel headers here (apt-get install linux-headers-amd64)")
    before = sorted(CORE.rglob("*"))
    sparse = ["C=2"] if shutil.which("sparse") else []
    command = ["make", "-s", "-C", str(CORE), f"KDIR={headers}", f"BUILD={tmp_path}", "W=1", *sparse]
    require_clean(tmp_path, subprocess.run(command, capture_output=True, text=True, check=False))
    assert sorted(CORE.rglob("*")) == before


@pytest.fixture(scope="module")
def lab() -> Path:
    """The directory of the lab kernel."""
    return lab_kernel().path


@pytest.mark.system
def test_builds_for_the_lab_kernel(lab: Path, tmp_path: Path) -> None:
    """The same for user-mode Linux."""
    command = ["make", "-s", "-C", str(CORE), "lab", f"SRC={lab}/kernel/src", f"KBUILD_OUTPUT_DIR={lab}/kernel/build"]
    command += [f"BUILD={tmp_path}", "W=1"]
    require_clean(tmp_path, subprocess.run(command, capture_output=True, text=True, check=False))


@pytest.mark.system
@pytest.mark.parametrize("headers", HEADERS or [None], ids=str)
def test_dkms_builds_it(headers: Path | None, tmp_path: Path) -> None:
    """In trees of its own, so that the machine's are left alone."""
    if headers is None or not shutil.which("dkms"):
        pytest.skip("no kernel headers, or dkms is not installed (apt-get install dkms)")
    trees = tmp_path / "dkms", tmp_path / "source"
    for tree in trees:
        tree.mkdir()
    shutil.copytree(CORE, trees[1] / "ndm_tcp-0.1.0", ignore=shutil.ignore_patterns("build"))
    options = ["--dkmstree", str(trees[0]), "--sourcetree", str(trees[1]), "--kernelsourcedir", str(headers)]
    release = headers.name.removeprefix("linux-headers-")
    for what in ("add", "build"):
        command = ["dkms", what, "-m", "ndm_tcp", "-v", "0.1.0", "-k", release, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert list(trees[0].glob("ndm_tcp/0.1.0/*/*/module/ndm_tcp.ko*"))


IN_USE = """
import socket, subprocess
with socket.socket() as held:
    held.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"ndm2")
    print(subprocess.run(["{ndm}", "unload"], capture_output=True, text=True).stderr.splitlines()[-1])
"""

LAB_SCRIPT = """
PATH=$PATH:/sbin:/usr/sbin
names() {{ tr ' ' '\n' </proc/sys/net/ipv4/tcp_available_congestion_control | grep ndm | sort | tr '\n' ' '; }}
cp "{module}" ndm_tcp.ko
echo "load: $(BUILD=$PWD "{ndm}" load | head -n 1)"
echo "in use: $("{python}" in_use.py); $(names)"
echo "unload: $("{ndm}" unload) $(names)"
insmod namesake/namesake.ko
echo "taken: $(BUILD=$PWD "{ndm}" load 2>&1 | tail -n 1); $(names)"
insmod "{module}" 2>/dev/null && echo "insmod took it"
echo "half: $(names)"
echo "reason: $(dmesg --color=never | grep -o "ndm_tcp: ndm2 can't.*")"
rmmod namesake
echo "again: $(BUILD=$PWD "{ndm}" load >/dev/null 2>&1; names)"
"""


@pytest.mark.system
def test_refusals_in_a_real_kernel(lab: Path, tmp_path: Path) -> None:
    """In use, name taken: the reason, and all or nothing is registered."""
    shutil.copytree(Path(__file__).with_name("namesake"), tmp_path / "namesake")
    kernel = lab / "kernel"
    build = ["make", "-s", "-C", f"{kernel}/src", f"O={kernel}/build", "ARCH=um", f"M={tmp_path}/namesake", "modules"]
    subprocess.run(build, check=True, capture_output=True)
    places = {"ndm": CORE / "ndm.sh", "module": lab / "ndm_tcp.ko", "python": sys.executable}
    (tmp_path / "in_use.py").write_text(IN_USE.format(**places))
    (tmp_path / "script.sh").write_text(LAB_SCRIPT.format(**places))
    command = [sys.executable, "-m", "lab", "run", "--clock", "virtual", "--", "/bin/sh", "script.sh"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert said["load"] == "ndm: already loaded"
    assert "in use by 1 sockets, listeners included" in said["in use"]
    assert said["in use"].endswith("; ndm2 ndm_tcp ")
    assert said["unload"].strip() == ""
    assert "the name ndm2 is taken" in said["taken"]
    assert said["taken"].endswith("; ndm2 ")
    assert said["half"] == "ndm2 "
    assert said["reason"] == "ndm_tcp: ndm2 can't be registered (-17): the name is taken; unload what has it first"
    assert said["again"] == "ndm2 ndm_tcp "


# ---- ndm.sh on machines that are not this one


class Machine:
    """A fake kernel for ndm.sh: files under `root` for /proc and /sys, commands under `root/bin`."""

    def __init__(self, root: Path) -> None:
        """Make a 6.1 kernel with modules and reno, where root is everybody."""
        self.root = root
        self.file("proc/modules", "")
        self.available("reno")
        self.file("proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno\n")
        self.command("id", "echo 0")
        self.command("uname", "echo 6.1.0-57-amd64")
        self.command("insmod", "exit 1")

    def file(self, path: str, text: str) -> None:
        """Write a file below the root."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def available(self, *names: str) -> None:
        """Set the registered congestion controls."""
        self.file("proc/sys/net/ipv4/tcp_available_congestion_control", " ".join(names) + "\n")

    def command(self, name: str, script: str) -> None:
        """Replace a command."""
        self.file(f"bin/{name}", f"#!/bin/sh\n{script}\n")
        (self.root / "bin" / name).chmod(0o755)

    def ndm(self, what: str) -> tuple[int, str]:
        """Return exit status and everything said."""
        place = {name: str(self.root / name.lower()) for name in ("PROC", "BUILD", "KDIR", "BTF")}
        place |= {"SYSFS": str(self.root / "sys"), "PATH": f"{self.root}/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        done = subprocess.run([str(CORE / "ndm.sh"), what], env=place, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on which everything but insmod would work."""
    return Machine(tmp_path)


def test_refuses_without_root(machine: Machine) -> None:
    """Names the command that works."""
    machine.command("id", "echo 1000")
    for what in ("load", "unload", "bpf-load", "bpf-unload"):
        assert machine.ndm(what) == (1, f"ndm: {what} needs root: sudo make {what}\n")


def test_refuses_old_kernels(machine: Machine) -> None:
    """5.19 brought the helpers."""
    machine.command("uname", "echo 5.10.0-33-amd64")
    status, said = machine.ndm("load")
    assert (status, "too old: 5.19" in said) == (1, True)


def test_refuses_kernels_without_modules(machine: Machine) -> None:
    """Points to BPF and the lab kernel."""
    (machine.root / "proc" / "modules").unlink()
    status, said = machine.ndm("load")
    assert (status, "make bpf-load, or the lab kernel" in said) == (1, True)


def test_explains_lockdown(machine: Machine) -> None:
    """A refused module under lockdown comes with the reason."""
    machine.file("sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    status, said = machine.ndm("load")
    assert (status, "signed modules only" in said, "dmesg" in said) == (1, True, True)


def test_refuses_a_taken_name(machine: Machine) -> None:
    """The module is not even tried."""
    machine.command("insmod", f"touch {machine.root}/tried")
    machine.available("reno", "ndm2")
    status, said = machine.ndm("load")
    assert (status, "the name ndm2 is taken" in said) == (1, True)
    assert not (machine.root / "tried").exists()


def test_unload_in_use(machine: Machine) -> None:
    """Says how many sockets hold it and what to do."""
    machine.file("sys/module/ndm_tcp/refcnt", "3\n")
    machine.command("rmmod", "exit 1")
    status, said = machine.ndm("unload")
    assert (status, "in use by 3 sockets, listeners included" in said) == (1, True)


def test_missing_headers_and_btf(machine: Machine) -> None:
    """Names the package, and the other way."""
    status, said = machine.ndm("check-headers")
    assert (status, "apt-get install linux-headers-6.1.0-57-amd64" in said, "bpf-load" in said) == (
        1,
        True,
        True,
    )
    status, said = machine.ndm("check-btf")
    assert (status, "has no BTF" in said, "make load" in said) == (1, True, True)


def test_half_registered_bpf_is_taken_back(machine: Machine) -> None:
    """When bpftool registers one of two, that one is unregistered."""
    machine.file("btf", "")
    listing = f"{machine.root}/listing"
    machine.command(
        "bpftool",
        f'case "$2" in\n'
        f"register) echo '7: bpf_ndm         tcp_congestion_ops' >{listing}; exit 0 ;;\n"
        f"list) cat {listing} ;;\n"
        f'unregister) [ "$4" = 7 ] && : >{listing} ;;\nesac',
    )
    status, said = machine.ndm("bpf-load")
    assert (status, "nothing is left registered" in said) == (1, True)
    assert (machine.root / "listing").read_text() == ""


def test_status_names_what_is_allowed(machine: Machine) -> None:
    """Registered names that other users may not select are said to be for root."""
    machine.available("reno", "ndm_tcp", "ndm2")
    machine.file("proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno ndm2\n")
    status, said = machine.ndm("status")
    assert status == 0
    assert "ndm_tcp: available to root" in said
    assert "ndm2: available to everyone" in said
    assert "bpf_ndm: not available" in said
