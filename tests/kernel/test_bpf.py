"""The BPF build on the running kernel: its arithmetic against the golden vectors, and a real transfer.

Needs root, a kernel with BTF, clang, bpftool and iproute2; says which is missing otherwise. Everything made
here (programs, namespaces named `ndmtest...`) is gone afterwards.
"""

from __future__ import annotations

import ctypes
import os
import platform
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kernel import test_vectors
from tests.kernel.ndm_harness import ADDITIVE, CONG, CORE, SLOW_START, V1, V2, Core, Window

pytestmark = pytest.mark.system

BTF = Path("/sys/kernel/btf/vmlinux")
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
SYSCALL_BPF = {"x86_64": 321, "aarch64": 280}.get(platform.machine())
MAP_LOOKUP, MAP_UPDATE, OBJ_GET, TEST_RUN = 1, 2, 7, 10
NAMES = ("bpf_ndm", "bpf_ndm2")
RATE_MBIT = 40.0


def run(*command: str) -> str:
    """Return a command's output; a failure shows what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


def require_bpf() -> None:
    """Skip, saying what is missing."""
    if os.geteuid() != 0:
        pytest.skip("loading BPF programs needs root")
    if not BTF.exists():
        pytest.skip(f"this kernel has no BTF ({BTF})")
    if SYSCALL_BPF is None:
        pytest.skip(f"the number of bpf(2) on {platform.machine()} is not known here")
    for tool in ("clang", "llvm-strip", "bpftool", "ip", "tc", "make"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    if not Path("/usr/include/bpf/bpf_helpers.h").exists():
        pytest.skip("libbpf-dev is not installed")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with ndm_bpf.o and vmlinux.h, made by `make bpf` without a warning."""
    require_bpf()
    where = tmp_path_factory.mktemp("bpf")
    done = subprocess.run(
        ["make", "-s", "-C", str(CORE), "bpf", f"BUILD={where}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return where


# ---- arithmetic


class Call(ctypes.Structure):
    """`struct call` of ndm_calls.bpf.c."""

    _fields_ = (
        ("v1", V1),
        ("v2", V2),
        ("win", Window),
        ("arg", ctypes.c_uint32 * 6),
        ("result", ctypes.c_int32),
        ("how", ctypes.c_uint32),
    )


class TestRun(ctypes.Structure):
    """`union bpf_attr` for BPF_PROG_TEST_RUN."""

    __test__ = False
    _fields_ = (("prog_fd", ctypes.c_uint32), ("rest", ctypes.c_uint32 * 19))


class MapElement(ctypes.Structure):
    """`union bpf_attr` for BPF_MAP_LOOKUP_ELEM and BPF_MAP_UPDATE_ELEM."""

    _fields_ = (
        ("map_fd", ctypes.c_uint32),
        ("key", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
    )


class ObjGet(ctypes.Structure):
    """`union bpf_attr` for BPF_OBJ_GET."""

    _fields_ = (("pathname", ctypes.c_uint64), ("fd", ctypes.c_uint32), ("flags", ctypes.c_uint32))


def bpf(command: int, attributes: ctypes.Structure) -> int:
    """bpf(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    result: int = libc.syscall(SYSCALL_BPF, command, ctypes.byref(attributes), ctypes.sizeof(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf command {command}")
    return result


class BpfCore(Core):
    """The same calls as `Core`, each run in the kernel by BPF_PROG_TEST_RUN."""

    def __init__(self, pinned: dict[str, int], user_space: Core) -> None:
        """Take descriptors of the programs and of their variable; user space initialises states."""
        self.pinned = pinned
        for name in ("v1_init", "v2_init", "push"):  # fills states; nothing computed
            setattr(self, name, getattr(user_space, name))

    def _call(self, name: str, *arguments: int, **states: Any) -> Call:
        call = Call(arg=(ctypes.c_uint32 * 6)(*arguments), **states)
        key = ctypes.c_uint32(0)
        element = MapElement(self.pinned["bss"], ctypes.addressof(key), ctypes.addressof(call))
        bpf(MAP_UPDATE, element)
        bpf(TEST_RUN, TestRun(self.pinned[name]))
        bpf(MAP_LOOKUP, element)
        return call

    def __getattr__(self, name: str) -> Any:
        """Functions without a state: one argument in, one value out."""
        if name not in ("v1_act", "v1_squash", "v2_act"):
            raise AttributeError(name)
        return lambda x: self._call(f"c_{name}", x).result

    def _on(self, field: str, state: V1 | V2, name: str, *arguments: int) -> Call:
        call = self._call(name, *arguments, **{field: state})
        ctypes.memmove(ctypes.byref(state), ctypes.byref(getattr(call, field)), ctypes.sizeof(state))
        return call

    def v1_network(self, state: V1, rtt_us: int) -> int:
        """Return the published network's output."""
        return int(self._on("v1", state, "c_v1_network", rtt_us).result)

    def v1_ssthresh(self, state: V1, cwnd: int) -> int:
        """Return the published profile's ssthresh."""
        return int(self._on("v1", state, "c_v1_ssthresh", cwnd).result)

    def v1_acked(self, state: V1, cwnd: int, srtt_us: int, acked: int) -> tuple[int, int]:
        """Return (how, segments) of one ACK."""
        call = self._on("v1", state, "c_v1_ack", cwnd, srtt_us, acked)
        return call.how, call.result

    def v2_entropy(self, window: Window, base: int) -> int:
        """Return the fixed profile's entropy."""
        return int(self._call("c_v2_entropy", base, win=window).result)

    def v2_ssthresh(self, state: V2, cwnd: int) -> int:
        """Return the fixed profile's ssthresh."""
        return int(self._on("v2", state, "c_v2_ssthresh", cwnd).result)

    def v2_timeout(self, state: V2) -> None:
        """Apply a retransmission timeout."""
        self._on("v2", state, "c_v2_timeout")

    def v2_row(
        self, state: V2, rtt_us: int, acked: int, cwnd: int, prior_cwnd: int, min_rtt_us: int, slow_start: int
    ) -> int:
        """Return the segments of growth credited for one RTT sample and one ACK."""
        arguments = (rtt_us, acked, cwnd, prior_cwnd, min_rtt_us, slow_start)
        return int(self._on("v2", state, "c_v2_row", *arguments).result)


def loaded_programs(source: Path, build: Path) -> dict[str, int]:
    """Return descriptors of all programs of a C file and of its variables ("bss"), which keep them alive."""
    target, pins = build / "calls.o", build / "pins"
    include = (f"-I{build}", f"-I{CORE}")
    run(
        "clang", "-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", *include, "-c", str(source),
        "-o", str(target),
    )  # fmt: skip
    run("llvm-strip", "-g", str(target))
    pins.mkdir()
    run("mount", "-t", "bpf", "ndmtest", str(pins))
    try:
        run("bpftool", "prog", "loadall", str(target), str(pins / "calls"), "pinmaps", str(pins / "maps"))
        (bss,) = (pins / "maps").glob("*bss")
        return {"bss": pinned_fd(bss)} | {pin.name: pinned_fd(pin) for pin in (pins / "calls").iterdir()}
    finally:
        run("umount", str(pins))


def pinned_fd(pin: Path) -> int:
    """Return a descriptor of a pinned program or map."""
    path = ctypes.create_string_buffer(os.fsencode(pin))
    return bpf(OBJ_GET, ObjGet(pathname=ctypes.addressof(path)))


@pytest.fixture(scope="module")
def bpf_core(build: Path, built: dict[str, Core]) -> Iterator[BpfCore]:
    """The core as the BPF compiler translated it."""
    pinned = loaded_programs(Path(__file__).with_name("ndm_calls.bpf.c"), build)
    yield BpfCore(pinned, built["gcc"])
    for descriptor in pinned.values():
        os.close(descriptor)


@pytest.mark.parametrize(
    "check",
    [
        test_vectors.test_v1_activation_and_squash,
        test_vectors.test_v1_network,
        test_vectors.test_v1_trace,
        test_vectors.test_v2_activation,
        test_vectors.test_v2_entropy,
        test_vectors.test_v2_trace,
    ],
)
def test_golden_vectors_in_the_kernel(bpf_core: BpfCore, check: Callable[[Core], None]) -> None:
    """Every row that user space reproduces, the BPF programs reproduce."""
    check(bpf_core)


@dataclass
class Path20Mbit:
    """A sender's view of 20 Mbit/s, 40 ms, one BDP of buffer: an RTT for each ACK, losses when the queue is full."""

    seed: int
    jitter_us: int
    loss: float
    bdp_segments: int = 69

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)  # noqa: S311

    def rtt_us(self, cwnd: int) -> int:
        """Return what an ACK measures with this window in flight."""
        queue_us = max(0, min(cwnd, 2 * self.bdp_segments) - self.bdp_segments) * 580
        return 40_000 + queue_us + self._draw.randint(0, self.jitter_us)

    def loses(self, cwnd: int) -> bool:
        """Say whether this ACK tells of a loss."""
        return cwnd > 2 * self.bdp_segments or self._draw.random() < self.loss


@dataclass
class Connection:
    """TCP's own part: window, its counter, ssthresh."""

    cwnd: int = 10
    cnt: int = 0
    ssthresh: int = 0x7FFFFFFF
    prior_cwnd: int = 0

    def slow_start(self, acked: int) -> int:
        """Grow up to ssthresh; return what is left."""
        grown = min(self.cwnd + acked, self.ssthresh) - self.cwnd
        self.cwnd += grown
        return acked - grown

    def additive(self, acked: int) -> None:
        """One segment for each window that was acked."""
        self.cnt += acked
        if self.cnt >= self.cwnd:
            grown, self.cnt = divmod(self.cnt, self.cwnd)
            self.cwnd += grown


def live_v1(core: Core, path: Path20Mbit, acks: int) -> list[bytes]:
    """Return the connection and the published profile's state after each ACK."""
    state, tcp, seen = core.v1_state(), Connection(), []
    srtt_us_x8 = 8 * 40_000
    for _ in range(acks):
        if path.loses(tcp.cwnd):
            tcp.prior_cwnd, tcp.ssthresh = tcp.cwnd, core.v1_ssthresh(state, tcp.cwnd)
            tcp.cwnd = tcp.ssthresh
        srtt_us_x8 += path.rtt_us(tcp.cwnd) - (srtt_us_x8 >> 3)
        how, segments = core.v1_acked(state, tcp.cwnd, srtt_us_x8 >> 3, 2)
        if how == SLOW_START:
            tcp.slow_start(segments)
        elif left := segments if how == ADDITIVE or tcp.cwnd >= tcp.ssthresh else tcp.slow_start(segments):
            tcp.additive(left)
        seen.append(repr(tcp).encode() + bytes(state))
    return seen


def live_v2(core: Core, path: Path20Mbit, acks: int) -> list[bytes]:
    """Return the connection and the fixed profile's state after each ACK."""
    state, tcp, seen = core.v2_state(), Connection(), []
    for number in range(acks):
        if path.loses(tcp.cwnd):
            tcp.prior_cwnd, tcp.ssthresh = tcp.cwnd, core.v2_ssthresh(state, tcp.cwnd)
            tcp.cwnd = tcp.ssthresh
        if number % 1500 == 1499:
            tcp.prior_cwnd, tcp.ssthresh = tcp.cwnd, core.v2_ssthresh(state, tcp.cwnd)
            core.v2_timeout(state)
            tcp.cwnd = 1
        slow_start = tcp.cwnd < tcp.ssthresh
        left = core.v2_row(state, path.rtt_us(tcp.cwnd), 2, tcp.cwnd, tcp.prior_cwnd, 40_000, slow_start)
        if slow_start and state.flags & CONG:
            tcp.ssthresh = tcp.cwnd
        elif left and slow_start:
            left = tcp.slow_start(left)
        if left:
            tcp.additive(left)
        seen.append(repr(tcp).encode() + bytes(state))
    return seen


@pytest.mark.parametrize("live", [live_v1, live_v2])
@pytest.mark.parametrize(("jitter_us", "loss"), [(100, 0.0), (10_000, 0.002)], ids=["clean", "noisy"])
def test_a_connection_lives_the_same(
    bpf_core: BpfCore,
    built: dict[str, Core],
    live: Callable[[Core, Path20Mbit, int], list[bytes]],
    jitter_us: int,
    loss: float,
) -> None:
    """5000 ACKs of one seeded path: every window and every byte of state, from BPF in the kernel and from gcc."""
    lives = [live(core, Path20Mbit(7, jitter_us, loss), 5000) for core in (bpf_core, built["gcc"])]
    differing = [number for number, (ours, theirs) in enumerate(zip(*lives, strict=True)) if ours != theirs]
    assert differing == []
    assert len(set(lives[0])) > 4000


# ---- transfer

SINK = """
import socket, sys
server = socket.create_server(("10.213.2.2", 5001))
print("ready", flush=True)
connection, _ = server.accept()
total = 0
while block := connection.recv(1 << 16):
    total += len(block)
print(total)
"""
SOURCE = """
import socket, sys, time
sender = socket.socket()
sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[1].encode())
sender.connect(("10.213.2.2", 5001))
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    sender.send(bytes(16384))
print(sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(bytes(1))[0].decode())
sender.close()
"""


@contextmanager
def namespaces(rate_mbit: float) -> Iterator[tuple[str, str]]:
    """Sender and receiver joined by a router whose port to the receiver is the bottleneck.

    a 10.213.1.2 --- 10.213.1.1 r 10.213.2.1 [tbf] --- 10.213.2.2 b
    """
    a, r, b = (f"ndmtest{os.getpid()}{end}" for end in "arb")
    with ExitStack() as made:
        for name in (a, r, b):
            run("ip", "netns", "add", name)
            made.callback(run, "ip", "netns", "delete", name)
        for host, port, net in ((a, "ra", 1), (b, "rb", 2)):
            run("ip", "-n", r, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            for ns, device, end in ((r, port, 1), (host, "eth0", 2)):
                run("ip", "-n", ns, "address", "add", f"10.213.{net}.{end}/24", "dev", device)
                run("ip", "-n", ns, "link", "set", device, "up")
            run("ip", "-n", host, "route", "add", "default", "via", f"10.213.{net}.1")
        run("ip", "netns", "exec", r, "sysctl", "-q", "net.ipv4.ip_forward=1")
        tbf = f"tc qdisc add dev rb root tbf rate {rate_mbit}mbit burst 10k limit 100k".split()
        shaped = subprocess.run(["ip", "netns", "exec", r, *tbf], capture_output=True, text=True, check=False)
        if shaped.returncode:
            pytest.skip(f"no tbf queue on this kernel: {shaped.stderr.strip()}")
        yield a, b


def transfer(sender: str, receiver: str, cca: str, duration_s: float) -> tuple[str, float]:
    """Return the congestion control that the socket had at its end, and the goodput in Mbit/s."""
    python = [sys.executable, "-c"]
    with subprocess.Popen(["ip", "netns", "exec", receiver, *python, SINK], stdout=subprocess.PIPE, text=True) as sink:
        try:
            assert sink.stdout is not None
            assert sink.stdout.readline() == "ready\n"
            began = time.monotonic()
            used = run("ip", "netns", "exec", sender, *python, SOURCE, cca, str(duration_s)).strip()
            received, _ = sink.communicate(timeout=30)
            return used, int(received) * 8e-6 / (time.monotonic() - began)
        finally:
            with suppress(ProcessLookupError):
                sink.kill()


def available() -> set[str]:
    """Return the names of the registered congestion controls."""
    return set(AVAILABLE.read_text().split())


def test_transfer_through_a_bottleneck(build: Path) -> None:
    """Register both, fill a tbf bottleneck with each, unregister; a second load is refused politely."""
    if available() & set(NAMES):
        pytest.skip("someone else has registered bpf_ndm or bpf_ndm2")
    make = ("make", "-s", "-C", str(CORE), f"BUILD={build}")
    with ExitStack() as made:
        run(*make, "bpf-load")
        made.callback(run, *make, "bpf-unload")
        assert available() >= set(NAMES)
        again = subprocess.run([*make, "bpf-load"], capture_output=True, text=True, check=False)
        assert again.returncode != 0
        assert "registered already" in again.stderr
        assert available() >= set(NAMES)
        with namespaces(RATE_MBIT) as (sender, receiver):
            for name in NAMES:
                used, goodput_mbit = transfer(sender, receiver, name, duration_s=2.0)
                assert used == name
                assert 0.6 * RATE_MBIT < goodput_mbit < RATE_MBIT
    assert not available() & set(NAMES)


def test_unload_while_connections_use_it(build: Path) -> None:
    """The names go, the connections live on; nothing is in the way of loading again."""
    if available() & set(NAMES):
        pytest.skip("someone else has registered bpf_ndm or bpf_ndm2")
    make = ("make", "-s", "-C", str(CORE), f"BUILD={build}")
    with ExitStack() as made:
        run(*make, "bpf-load")
        made.callback(run, *make, "bpf-unload")
        sender = made.enter_context(socket.socket())
        server = made.enter_context(socket.create_server(("127.0.0.1", 0)))
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAMES[1].encode())
        sender.connect(server.getsockname())
        receiver = made.enter_context(server.accept()[0])
        assert "keep them until they end" in run(*make, "bpf-unload")
        assert not available() & set(NAMES)
        run(*make, "bpf-load")
        sender.sendall(bytes(100_000))
        assert len(receiver.recv(100_000, socket.MSG_WAITALL)) == 100_000
        assert sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(bytes(1)) == b"bpf_ndm2"


@pytest.mark.parametrize("clang", ["clang-14", "clang-16", "clang-18", "clang-19"])
def test_every_compiler_makes_what_the_verifier_takes(clang: str, tmp_path: Path) -> None:
    """No warning, and the running kernel loads it."""
    require_bpf()
    if not shutil.which(clang):
        pytest.skip(f"{clang} is not installed")
    if available() & set(NAMES):
        pytest.skip("someone else has registered bpf_ndm or bpf_ndm2")
    make = ("make", "-s", "-C", str(CORE), f"BUILD={tmp_path}", f"CLANG={clang}")
    done = subprocess.run([*make, "bpf"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    run(*make, "bpf-load")
    run(*make, "bpf-unload")
