"""What NDM-TCP costs beside Reno, CUBIC and BBR: ``python -m experiments.footprint``.

State of a connection: as the compiled core has it, and from the running kernel's own description of its types (BTF).
Time of an ACK: the core alone in user space (``kernel/bench/core_bench.c``); every algorithm's callbacks in the lab
kernel (``kernel/bench/cc_bench.c``); the BPF programs in this machine's kernel, by the kernel's own accounts.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lab.cca import NDM, TWINS, LoadError, loaded, survey
from lab.cca import load as load_ndm
from lab.cca import unload as unload_ndm
from lab.cca_commands import build_directory
from lab.commandline import run_app
from lab.kernels import CHECKOUT, lab_kernel
from topologies.errors import FairbedError

app = typer.Typer(add_completion=False, rich_markup_mode=None)

BENCH = CHECKOUT / "kernel" / "bench"
BTF = Path("/sys/kernel/btf/vmlinux")
ARTICLES = Path(__file__).with_name("footprint_articles.json")
ALGORITHMS = ("reno", "cubic", "bbr", "ndm_tcp", "ndm2")
STRUCTURES = {"cubic": "bictcp", "bbr": "bbr"}
"""Algorithm -> the kernel's name of its state; Reno has none."""

RATES_GBIT = (0.1, 1.0, 10.0, 100.0)
MSS_BYTES = 1448
DELAYED_ACK_SEGMENTS = 2
OFFLOADED_ACK_SEGMENTS = 44
"""Segments per ACK when the receiver's network card joins what it receives: 64 KB."""

BPF_SECONDS = 2.0
STATS_SWITCH = Path("/proc/sys/kernel/bpf_stats_enabled")


# ---- state


def btf_sizes(data: bytes) -> dict[str, int]:
    """Return the size in bytes of every named structure, and of inet_connection_sock's room for algorithms.

    Layout: Documentation/bpf/btf.rst. The room is under the name "icsk_ca_priv".
    """
    header = struct.unpack_from("<HBBIIIII", data)
    magic, header_bytes, types_at, types_bytes, names_at = header[0], header[3], header[4], header[5], header[6]
    if magic != 0xEB9F:
        raise FairbedError("this is no BTF data")
    names = header_bytes + names_at
    position, end = header_bytes + types_at, header_bytes + types_at + types_bytes
    sizes: dict[str, int] = {}
    room_type, arrays = 0, dict[int, int]()
    identity = 0
    while position < end:
        identity += 1
        name, info, size = struct.unpack_from("<III", data, position)
        kind, members = (info >> 24) & 31, info & 0xFFFF
        position += 12
        if kind == 3:  # array: type of elements, type of index, number
            arrays[identity] = struct.unpack_from("<III", data, position)[2]
        if kind == 4 and name:  # structure
            sizes.setdefault(_btf_name(data, names + name), size)
            if _btf_name(data, names + name) == "inet_connection_sock":
                for at in range(position, position + 12 * members, 12):
                    member, member_type, _ = struct.unpack_from("<III", data, at)
                    if _btf_name(data, names + member) == "icsk_ca_priv":
                        room_type = member_type
        position += _btf_extra(kind, members)
    if room_type in arrays:
        sizes["icsk_ca_priv"] = arrays[room_type] * 8  # an array of u64
    return sizes


def _btf_name(data: bytes, at: int) -> str:
    return data[at : data.index(0, at)].decode()


def _btf_extra(kind: int, members: int) -> int:
    """Return how many bytes follow a type's first twelve."""
    each = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}  # struct, union, enum, function type, section, 64-bit enum
    fixed = {1: 4, 3: 12, 14: 4, 17: 4}  # integer, array, variable, declaration tag
    return each.get(kind, 0) * members + fixed.get(kind, 0)


def kernel_sizes() -> dict[str, int]:
    """Return the state sizes that this machine's kernel tells, by algorithm, and the limit; nothing without BTF."""
    if not BTF.exists():
        return {}
    sizes = btf_sizes(BTF.read_bytes())
    found = {cca: sizes[name] for cca, name in STRUCTURES.items() if name in sizes}
    return found | {"reno": 0} | ({"limit": sizes["icsk_ca_priv"]} if "icsk_ca_priv" in sizes else {})


# ---- time


def core_figures() -> dict[str, float]:
    """Return what the core takes in user space, as core_bench.c tells.

    Raises
    ------
    FairbedError
        When it can't be compiled: with the compiler's words.
    """
    with tempfile.TemporaryDirectory() as where:
        program = Path(where, "core_bench")
        command = ["cc", "-std=gnu11", "-O2", f"-I{NDM}", "-o", str(program), str(BENCH / "core_bench.c")]
        _checked(command)
        figures: dict[str, float] = json.loads(_checked([str(program)]))
        return figures


def lab_cycles() -> dict[str, float]:
    """Return the TSC cycles that an ACK takes in each algorithm's callbacks in the lab kernel."""
    with tempfile.TemporaryDirectory() as where:
        build_bench(Path(where))
        return run_bench(Path(where), ALGORITHMS)


def build_bench(where: Path) -> None:
    """Build the benchmark's module for the lab kernel in an empty directory."""
    kernel = lab_kernel().path / "kernel"
    for source in ("Kbuild", "cc_bench.c"):
        shutil.copy(BENCH / source, where)
    _checked(["make", "-s", "-C", f"{kernel}/src", f"O={kernel}/build", "ARCH=um", f"M={where}", "modules"])


def run_bench(where: Path, ccas: Sequence[str]) -> dict[str, float]:
    """Return the cycles of an ACK by algorithm, measured in a lab kernel of its own; `where` has the module."""
    script = f"PATH=$PATH:/sbin; insmod cc_bench.ko names={','.join(ccas)} && dmesg --color=never"
    lab = [sys.executable, "-m", "lab", "run", "--clock", "virtual", "--", "/bin/sh", "-c", script]
    return bench_lines(_checked(lab, cwd=where))


def state_bytes() -> tuple[dict[str, int], dict[str, str]]:
    """Return the size of a connection's state by algorithm, as far as it can be known here, and where each is from."""
    core = core_figures()
    sizes = {"ndm_tcp": int(core["v1_bytes"]), "ndm2": int(core["v2_bytes"])}
    told = kernel_sizes()
    source = dict.fromkeys(sizes, "compiled core") | dict.fromkeys(told, "BTF") | ({"reno": "no state"} if told else {})
    return sizes | told, source


def bench_lines(messages: str) -> dict[str, float]:
    """Return cycles per ACK by algorithm from the kernel's messages.

    Examples
    --------
    >>> bench_lines("[ 1.0] cc_bench: reno 4063\\n[ 1.0] cc_bench: ndm3 error -2\\n")
    {'reno': 4.063}
    """
    found = {}
    for line in messages.splitlines():
        words = line.partition("cc_bench: ")[2].split()
        if len(words) == 2 and words[1].isdigit():
            found[words[0]] = int(words[1]) / 1000
    return found


def _checked(command: list[str], cwd: Path | None = None) -> str:
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FairbedError(f"`{' '.join(command)}` failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def bpf_figures() -> dict[str, float]:
    """Return the ns per ACK of each BPF program on this machine's kernel, over its loopback.

    Raises
    ------
    LoadError
        When they can't be loaded here.
    """
    before = survey()
    load_ndm(before, build_directory(), "bpf")
    try:
        with _bpf_stats():
            return {
                cca: _bpf_ns(twin, version) for (cca, twin), version in zip(TWINS.items(), ("v1", "v2"), strict=True)
            }
    finally:
        if "bpf" not in loaded(before.names):
            unload_ndm(survey(), build_directory())


@contextmanager
def _bpf_stats() -> Iterator[None]:
    """Have the kernel keep accounts of BPF programs inside the context."""
    usual = STATS_SWITCH.read_text()
    STATS_SWITCH.write_text("1")
    try:
        yield
    finally:
        STATS_SWITCH.write_text(usual)


def _bpf_ns(cca: str, version: str) -> float:
    """Return what the programs called for an ACK took together, in ns per call of cong_avoid."""
    before = _bpf_accounts(version)
    _transfer(cca)
    after = _bpf_accounts(version)
    calls = after["cong_avoid"][1] - before["cong_avoid"][1]
    if not calls:
        raise FairbedError(f"{cca} was never called; is the loopback interface up?")
    return sum(after[name][0] - before[name][0] for name in after) / calls


def _bpf_accounts(version: str) -> dict[str, tuple[int, int]]:
    """Return (time in ns, calls) of the programs that an ACK calls."""
    programs = json.loads(_checked(["bpftool", "-j", "prog", "list"]))
    accounts = {}
    for name in ("cong_avoid", "pkts_acked"):
        for program in programs:
            # Older bpftools show the first 15 characters.
            if f"ndm_{version}_cc_{name}"[:15] == program.get("name", "")[:15]:
                accounts[name] = (program.get("run_time_ns", 0), program.get("run_cnt", 0))
    return accounts


def _transfer(cca: str) -> None:
    """Send over the loopback for a while."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sender:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cca.encode())
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, MSS_BYTES)
        sender.connect(server.getsockname())
        receiver, _ = server.accept()
        drain = threading.Thread(target=_drain, args=(receiver,))
        drain.start()
        end = time.monotonic() + BPF_SECONDS
        while time.monotonic() < end:
            sender.send(bytes(1 << 16))
        sender.shutdown(socket.SHUT_WR)
        drain.join()


def _drain(receiver: socket.socket) -> None:
    with receiver:
        while receiver.recv(1 << 18):
            pass


# ---- what it means


def core_share_pct(ns_per_ack: float, rate_gbit: float, segments_per_ack: int) -> float:
    """Return the share of one core that the ACKs of a flow take, in percent.

    Examples
    --------
    >>> round(core_share_pct(175, 1, 1), 2)  # 86,326 packets of 1448 bytes a second
    1.51
    """
    acks_per_s = rate_gbit * 1e9 / 8 / MSS_BYTES / segments_per_ack
    return acks_per_s * ns_per_ack * 1e-9 * 100


@dataclass
class Footprint:
    """Everything that was measured; what could not be is absent, and ``notes`` says why.

    Attributes
    ----------
    state_bytes
        By algorithm, and "limit"; ``state_source`` says where each is from.
    core_ns, core_evaluation_ns
        User space, per ACK; an ACK that evaluates.
    lab_cycles, lab_ns
        The callbacks in the lab kernel, per ACK.
    bpf_ns
        The BPF programs in this machine's kernel, per ACK.
    """

    state_bytes: dict[str, int] = field(default_factory=dict)
    state_source: dict[str, str] = field(default_factory=dict)
    core_ns: dict[str, float] = field(default_factory=dict)
    core_evaluation_ns: dict[str, float] = field(default_factory=dict)
    lab_cycles: dict[str, float] = field(default_factory=dict)
    lab_ns: dict[str, float] = field(default_factory=dict)
    bpf_ns: dict[str, float] = field(default_factory=dict)
    tsc_mhz: float = 0.0
    notes: list[str] = field(default_factory=list)

    def shares(self) -> dict[str, dict[str, float]]:
        """Return the share of one core at each rate, by algorithm, in percent, with delayed ACKs."""
        return {
            cca: {f"{rate:g}": core_share_pct(ns, rate, DELAYED_ACK_SEGMENTS) for rate in RATES_GBIT}
            for cca, ns in self.lab_ns.items()
        }


def measure() -> Footprint:
    """Measure what this machine lets be measured."""
    found = Footprint()
    core = core_figures()
    found.tsc_mhz = core["tsc_mhz"]
    for cca, version in (("ndm_tcp", "v1"), ("ndm2", "v2")):
        found.core_ns[cca] = core[f"{version}_ns"]
    found.core_evaluation_ns["ndm2"] = core["v2_evaluation_ns"]
    found.state_bytes, found.state_source = state_bytes()
    if "limit" not in found.state_bytes:
        found.notes.append(f"this kernel has no BTF ({BTF}), so the sizes of other algorithms' states are not known")
    try:
        found.lab_cycles = lab_cycles()
        found.lab_ns = {cca: cycles * 1e3 / found.tsc_mhz for cca, cycles in found.lab_cycles.items()}
    except FairbedError as error:
        found.notes.append(f"nothing measured in the lab kernel: {error}")
    try:
        found.bpf_ns = bpf_figures()
    except (LoadError, OSError) as error:
        found.notes.append(f"no BPF program measured: {error}")
    return found


def tables(found: Footprint, articles: Mapping[str, Any]) -> list[Table]:
    """Return the tables to show: per algorithm, and per rate."""
    return [_costs(found, articles), _rates(found, articles)]


def _costs(found: Footprint, articles: Mapping[str, Any]) -> Table:
    table = Table(title="State of a connection, time of an ACK of two segments", title_justify="left")
    table.add_column("algorithm")
    for title in ("state, bytes", "article", "core, ns", "lab kernel, ns", "cycles", "article", "BPF here, ns"):
        table.add_column(title, justify="right")
    cycles = articles["cycles_per_ack"]
    for cca in ALGORITHMS:
        table.add_row(
            cca,
            str(found.state_bytes.get(cca, "–")),
            articles["state_bytes"].get(cca, "–"),
            _number(found.core_ns.get(cca)),
            _number(found.lab_ns.get(cca)),
            _number(found.lab_cycles.get(cca)),
            "{}–{}".format(*cycles[cca]) if cca in cycles else "–",
            _number(found.bpf_ns.get(cca)),
        )
    table.add_row("limit", str(found.state_bytes.get("limit", "–")), articles["state_bytes"]["limit"].split(" ")[0])
    return table


def _rates(found: Footprint, articles: Mapping[str, Any]) -> Table:
    table = Table(title="Share of one core, percent (lab kernel's figures)", title_justify="left")
    table.add_column("algorithm, segments per ACK")
    for rate in RATES_GBIT:
        table.add_column(f"{rate:g} Gbit/s", justify="right")
    for cca, ns in found.lab_ns.items():
        for segments in (DELAYED_ACK_SEGMENTS, OFFLOADED_ACK_SEGMENTS):
            shares = [core_share_pct(ns, rate, segments) for rate in RATES_GBIT]
            table.add_row(f"{cca}, {segments}", *map(_share, shares))
    said = articles["core_share_pct"]
    table.add_row("ndm_tcp in the article, 1", *(f"{said[f'{rate:g}']:g}" for rate in RATES_GBIT))
    return table


def _share(pct: float) -> str:
    return f"{pct:.3g}" if pct >= 0.001 else "<0.001"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


EXPLANATION = (
    "core: ndm_core.h alone, user space, warm, least of 15 rounds. lab kernel: the algorithm's own callbacks for an "
    "ACK (pkts_acked and cong_avoid, or cong_control), the loop around them taken off; the lab kernel's machine code "
    "runs natively, but without the mitigations of a kernel on bare hardware. CUBIC's figure is its short way, which "
    "it takes for all but the first ACK of a jiffy. BPF: this machine's kernel's own accounts over its loopback, "
    "which add some 20 ns to each program's run; there an ACK covers many segments, so ndm2 evaluates at each. "
    "Segments per ACK: 2 with delayed ACKs, 44 (64 KB) where the receiver's card joins packets. Articles' figures are"
    " their estimates; {source}."
)


@app.command(help="Show what NDM-TCP costs in memory and time, beside Reno, CUBIC and BBR.")
def footprint(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Measure and show."""
    articles = json.loads(ARTICLES.read_text())
    found = measure()
    if as_json:
        print(
            json.dumps({"measured": asdict(found) | {"core_share_pct": found.shares()}, "articles": articles}, indent=1)
        )
        return
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    for table in tables(found, articles):
        console.print(table)
    console.print(EXPLANATION.format(source=articles["source"]))
    for note in found.notes:
        console.print(f"note: {note}")


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments.footprint"))
