"""ndm_core.h from Python: builds `harness.c` as a shared object and wraps it with ctypes."""

from __future__ import annotations

import csv
import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "kernel" / "ndm"
VECTORS = ROOT / "tests" / "data" / "ndm"
WARNINGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")

DATA, SS, CONG, LOSS, NOISE = 1, 2, 4, 8, 16
SLOW_START, ADDITIVE, RENO = 1, 2, 3


class Window(ctypes.Structure):
    """`struct ndm_window`: 16 samples of 16 bits, the newest in bits 0..15 of w[0]."""

    _fields_ = (("w", ctypes.c_uint64 * 4),)


class V1(ctypes.Structure):
    """`struct ndm_v1`, the published profile's state."""

    _fields_ = (
        ("rtt_ms", Window),
        ("hid", ctypes.c_int16 * 8),
        ("min_rtt_us", ctypes.c_uint32),
        ("prior_cwnd", ctypes.c_uint32),
        ("ssthresh", ctypes.c_uint32),
        ("entropy", ctypes.c_uint16),
        ("plast", ctypes.c_uint16),
        ("cnt", ctypes.c_uint16),
        ("delta", ctypes.c_uint16),
        ("n", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
    )


class V2(ctypes.Structure):
    """`struct ndm_v2`, the fixed profile's state."""

    _fields_ = (
        ("rtt", Window),
        ("hid", ctypes.c_int16 * 8),
        ("rd", ctypes.c_int16 * 8),
        ("entropy", ctypes.c_uint16),
        ("plast", ctypes.c_uint16),
        ("cnt", ctypes.c_uint16),
        ("credit", ctypes.c_uint16),
        ("qd", ctypes.c_uint16),
        ("y", ctypes.c_int16),
        ("n", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
    )


_u32, _s32, _s64 = ctypes.c_uint32, ctypes.c_int32, ctypes.c_longlong
_v1, _v2, _window = ctypes.POINTER(V1), ctypes.POINTER(V2), ctypes.POINTER(Window)

# name: (result, arguments), as declared in harness.c
SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "v1_size": (_u32, ()),
    "v2_size": (_u32, ()),
    "sdiv": (_s64, (_s64, _u32)),
    "milli": (_s64, (_s64,)),
    "bit_length": (_u32, (_u32,)),
    "push": (None, (_window, _u32)),
    "window_at": (_u32, (_window, _u32)),
    "v1_act": (_s32, (_s32,)),
    "v1_squash": (_s32, (_s32,)),
    "v1_entropy": (_u32, (_v1,)),
    "v1_network": (_u32, (_v1, _u32)),
    "v1_init": (None, (_v1, _u32, _u32)),
    "v1_ack": (_u32, (_v1, _u32, _u32, _u32, ctypes.POINTER(_u32))),
    "v1_ssthresh": (_u32, (_v1, _u32)),
    "v1_undo_cwnd": (_u32, (_v1, _u32)),
    "v1_loss_event": (None, (_v1,)),
    "v1_restart": (None, (_v1,)),
    "v1_timeout": (None, (_v1,)),
    "v2_act": (_s32, (_s32,)),
    "v2_weight": (_s32, (_u32, _u32)),
    "v2_tie": (_s32, (_u32,)),
    "v2_tie_sum": (_u32, ()),
    "v2_clog2c": (_u32, (_u32,)),
    "v2_step_bin": (_u32, (_u32, _u32, _u32)),
    "v2_entropy": (_u32, (_window, _u32)),
    "v2_network": (_s32, (_v2, ctypes.POINTER(_s32))),
    "v2_init": (None, (_v2,)),
    "v2_sample": (None, (_v2, _s32)),
    "v2_ack": (None, (_v2, _u32, _u32, _u32, _u32, _u32)),
    "v2_gain": (_u32, (_v2, _u32)),
    "v2_credit": (_u32, (_v2, _u32, _u32)),
    "v2_ssthresh": (_u32, (_v2, _u32)),
    "v2_restart": (None, (_v2,)),
    "v2_timeout": (None, (_v2,)),
}


class Core:
    """The compiled core: `core.v1_act(1500)` calls `h_v1_act` of harness.c."""

    def __init__(self, library: Path) -> None:
        """Load the shared object and give each function its signature."""
        loaded = ctypes.CDLL(str(library))
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(loaded, f"h_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        """Only names in `SIGNATURES` exist; tells type checkers that they are callable."""
        raise AttributeError(name)

    def v1_state(self, cwnd: int = 10, ssthresh: int = 0x7FFFFFFF) -> V1:
        """Return an initialised published-profile state."""
        state = V1()
        self.v1_init(state, cwnd, ssthresh)
        return state

    def v2_state(self) -> V2:
        """Return an initialised fixed-profile state."""
        state = V2()
        self.v2_init(state)
        return state

    def v1_acked(self, state: V1, cwnd: int, srtt_us: int, acked: int) -> tuple[int, int]:
        """Return (how, segments) of one ACK."""
        how = _u32()
        segments = self.v1_ack(state, cwnd, srtt_us, acked, how)
        return how.value, segments

    def v2_row(
        self, state: V2, rtt_us: int, acked: int, cwnd: int, prior_cwnd: int, min_rtt_us: int, slow_start: int
    ) -> int:
        """Return the segments of growth credited for one RTT sample and one ACK."""
        self.v2_sample(state, rtt_us)
        self.v2_ack(state, acked, cwnd, prior_cwnd, min_rtt_us, slow_start)
        segments: int = self.v2_credit(state, acked, slow_start)
        return segments

    def window(self, newest_first: Sequence[int]) -> Window:
        """Return a window holding these 16 samples."""
        window = Window()
        for sample in reversed(newest_first):
            self.push(window, sample)
        return window


def compile_c(compiler: str, source: str, output: Path, *options: str) -> Path:
    """Compile one C file of this folder against ndm_core.h; warnings are errors."""
    here = Path(__file__).parent
    command = [compiler, "-O2", *WARNINGS, *options, f"-I{CORE}", "-o", str(output), str(here / source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return output


def rows(name: str) -> list[list[str]]:
    """Return a golden vector file's rows without comment and header."""
    with (VECTORS / name).open(newline="") as lines:
        table = [row for row in csv.reader(lines) if not row[0].startswith("#")]
    return table if name == "v2_weights.csv" else table[1:]
