"""Properties of the NDM-TCP core that its specification states, by formula or by enumeration."""

from __future__ import annotations

import ctypes
import math
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernel.ndm_harness import (
    ADDITIVE,
    CONG,
    CORE,
    DATA,
    LOSS,
    NOISE,
    SLOW_START,
    V1,
    V2,
    Core,
    compile_c,
)

POLICY = (2, 1, 0, 2, 0, 2, 1, 1)
U32 = st.one_of(
    st.sampled_from((0, 1, 2, 31, 32, 999, 1000, 65535, 65536, 2**20, 2**21, 2**31 - 1, 2**31, 2**32 - 1)),
    st.integers(0, 300_000),
    st.integers(0, 2**32 - 1),
)


def test_state_sizes(core: Core) -> None:
    """As loaded into a connection, and as ctypes sees them here; the kernel allows 104 bytes."""
    assert core.v1_size() == ctypes.sizeof(V1) == 72
    assert core.v2_size() == ctypes.sizeof(V2) == 80


def test_header_stands_alone() -> None:
    """The core includes nothing and has no floating point."""
    text = (CORE / "ndm_core.h").read_text()
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert "#include" not in code
    assert not re.search(r"\b(float|double)\b", code)


def test_32_bit_kernels_need_no_library_division(tmp_path: Path) -> None:
    """Every 64-bit division goes through NDM_DIV64, or a 32-bit kernel would not link."""
    output = compile_c(
        "gcc", "harness.c", tmp_path / "core32.o", "-m32", "-ffreestanding", "-c", "-DNDM_DIV64=div_u64",
        "-include", str(declaration(tmp_path)),
    )  # fmt: skip
    symbols = subprocess.run(["nm", "-u", str(output)], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"__u?divdi3|__u?moddi3", symbols) == []
    assert "div_u64" in symbols


def declaration(where: Path) -> Path:
    """Write a header declaring the division that 32-bit kernels provide."""
    path = where / "div.h"
    path.write_text("unsigned long long div_u64(unsigned long long n, unsigned int d);\n")
    return path


@given(n=st.integers(-(2**63) + 1, 2**63 - 1), d=st.integers(1, 2**32 - 1))
def test_sdiv_is_c_division(gcc_core: Core, n: int, d: int) -> None:
    """Toward zero, for either sign."""
    assert gcc_core.sdiv(n, d) == int(math.copysign(1, n)) * (abs(n) // d)


@given(n=st.integers(-(2**32) + 1, 2**32 - 1))
def test_milli_is_exact(gcc_core: Core, n: int) -> None:
    """The multiplication replaces n / 1000 in its whole range."""
    assert gcc_core.milli(n) == int(math.copysign(1, n)) * (abs(n) // 1000)


def test_milli_at_multiples_of_1000(core: Core) -> None:
    """Where an inexact reciprocal would show first."""
    for k in range(0, 2**32 // 1000, 997):
        assert core.milli(1000 * k) == k
        assert core.milli(-1000 * k - 999) == -k


def test_bit_length(gcc_core: Core) -> None:
    """Python's own, for every 16-bit value."""
    assert all(gcc_core.bit_length(x) == x.bit_length() for x in range(2**16))


@given(samples=st.lists(st.integers(0, 65535), min_size=16, max_size=40))
def test_window_keeps_the_newest_16_in_order(gcc_core: Core, samples: list[int]) -> None:
    """Age 0 is the last pushed."""
    window = gcc_core.window(samples[::-1])
    assert [gcc_core.window_at(window, age) for age in range(16)] == samples[::-1][:16]


# ---- published profile


def partitions(n: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """All ways to write n as a sum, parts not increasing."""
    if n == 0:
        yield ()
    for part in range(min(n, largest or n), 0, -1):
        for rest in partitions(n - part, part):
            yield (part, *rest)


def published_histogram_entropy(counts: tuple[int, ...]) -> int:
    """The published formula before its cap at 1000."""
    shares = [count * 10**6 // sum(counts) for count in counts]
    return sum(p * (p // 1000).bit_length() * 1000 // 10**6 for p in shares) // 4


def test_published_entropy_has_two_values() -> None:
    """Every histogram of 8 to 16 samples with more than one bin exceeds the cap: 1500 to 2449."""
    values = [published_histogram_entropy(counts) for n in range(8, 17) for counts in partitions(n) if len(counts) > 1]
    assert min(values) >= 1000
    assert (min(values), max(values)) == (1500, 2449)


@given(samples=st.lists(st.integers(1, 3), min_size=1, max_size=16))
def test_v1_entropy_predicate(gcc_core: Core, samples: list[int]) -> None:
    """1000 when the newest n of at least 8 samples differ, whatever older ones hold."""
    state = gcc_core.v1_state()
    state.rtt_ms = gcc_core.window([*samples, *[9] * (16 - len(samples))])
    state.n = len(samples)
    assert gcc_core.v1_entropy(state) == (1000 if len(samples) >= 8 and len(set(samples)) > 1 else 0)


def test_v1_slow_start_stalls_at_17(core: Core) -> None:
    """The published fault: constant RTT and one segment per ACK give acked / 2 = 0 after 8 ACKs."""
    state, cwnd = core.v1_state(cwnd=10), 10
    for _ in range(1000):
        how, segments = core.v1_acked(state, cwnd, 20_000, 1)
        assert how == SLOW_START
        cwnd += segments
    assert cwnd == 17


def test_v1_output_rarely_matters(core: Core) -> None:
    """With one segment acked the increment is 1 whatever the network says."""
    state = core.v1_state(cwnd=10, ssthresh=2)
    noise = random.Random(1)  # noqa: S311
    got = {core.v1_acked(state, 100, noise.randint(20_000, 90_000), 1) for _ in range(500)}
    assert {growth for growth in got if growth[0] == ADDITIVE} == {(ADDITIVE, 1)}


def test_v1_loss_and_undo(core: Core) -> None:
    """A half of the window in order, a third in noise; undo restores the window only."""
    state = core.v1_state()
    assert core.v1_ssthresh(state, 90) == 45
    state.flags, state.entropy = DATA, 1000
    assert core.v1_ssthresh(state, 90) == 30
    assert core.v1_undo_cwnd(state, 30) == 90
    assert (state.ssthresh, state.prior_cwnd) == (30, 90)
    assert core.v1_ssthresh(state, 1) == 2


def test_v1_inflation_saturates_without_wrapping(core: Core) -> None:
    """RTT inflation beyond 4000-fold changes nothing: all units are saturated."""
    states = []
    for rtt_us in (5_000, 2_000_000):
        state = core.v1_state()
        state.min_rtt_us = 1
        core.v1_network(state, rtt_us)
        states.append(list(state.hid))
    assert states[0] == states[1] == [-1000] * 8


# ---- fixed profile


def test_v2_weights_are_the_cosine_basis(core: Core) -> None:
    """Milli-cosines, row 0 scaled by 1/sqrt(2); rows orthogonal; ties are W times the policy."""
    weight = [[core.v2_weight(i, j) for j in range(8)] for i in range(8)]
    for i, row in enumerate(weight):
        scale = 1000 / math.sqrt(2) if i == 0 else 1000
        assert row == [round(scale * math.cos((2 * j + 1) * i * math.pi / 16)) for j in range(8)]
        assert core.v2_tie(i) == sum(p * w for p, w in zip(POLICY, row, strict=True))
        for other in weight[:i]:
            assert abs(sum(a * b for a, b in zip(row, other, strict=True))) < 4000
    assert core.v2_tie_sum() == sum(abs(core.v2_tie(i)) for i in range(8)) == 15574


def test_v2_clog2c(core: Core) -> None:
    """1024 c log2 c, rounded."""
    assert [core.v2_clog2c(c) for c in range(16)] == [round(1024 * c * math.log2(c)) if c else 0 for c in range(16)]


def test_v2_act_is_a_monotone_tanh(core: Core) -> None:
    """Odd, never falling, within 24/1000 of tanh, at most 1000."""
    values = [core.v2_act(x) for x in range(-3500, 3501)]
    assert values == sorted(values)
    assert all(a == -b for a, b in zip(values, reversed(values), strict=True))
    assert max(abs(v - 1000 * math.tanh(x / 1000)) for v, x in zip(values, range(-3500, 3501), strict=True)) <= 24
    assert core.v2_act(2**31 - 1) == -core.v2_act(-(2**31)) == 1000


def test_v2_inputs_move_the_output_by_policy(gcc_core: Core) -> None:
    """A full swing of x0..x7 moves y by 403, 201, 0, 402, 1, 403, 201, 201 on average."""
    draw = random.Random(1)  # noqa: S311
    swings = [0.0] * 8
    trials = 4000
    for _ in range(trials):
        x = [draw.randint(-1000, 1000) for _ in range(8)]
        for j in range(8):
            high, low = ([*x[:j], value, *x[j + 1 :]] for value in (1000, -1000))
            swings[j] += (network(gcc_core, high) - network(gcc_core, low)) / trials
    assert swings == pytest.approx([403, 201, 0, 402, 1, 403, 201, 201], abs=4)


def network(core: Core, inputs: list[int]) -> int:
    """Return the output of a fresh network for these inputs."""
    y: int = core.v2_network(core.v2_state(), (ctypes.c_int32 * 8)(*inputs))
    return y


def test_v2_step_bins(core: Core) -> None:
    """Bin 8 is less than a unit; each doubling is one bin further out, up to the ends."""
    up = [core.v2_step_bin(1000 + step, 1000, 10) for step in (0, 9, 10, 19, 20, 40, 80, 60_000)]
    assert up == [8, 8, 9, 9, 10, 11, 12, 15]
    down = [core.v2_step_bin(1000, 1000 + step, 10) for step in (9, 10, 20, 40, 60_000)]
    assert down == [8, 7, 6, 5, 0]


def test_v2_entropy_extremes(core: Core) -> None:
    """A constant RTT and a steady ramp have none; 15 steps in at least 14 bins have all."""
    assert core.v2_entropy(core.window([625] * 16), 625) == 0
    assert core.v2_entropy(core.window(range(2000, 400, -100)), 625) == 0
    zigzag = [30000]
    for k in range(15):
        zigzag.append(zigzag[-1] + (-1) ** k * (8 << (k // 2)))
    assert core.v2_entropy(core.window(zigzag), 1) == 1000


def evaluated(core: Core, rtts_us: list[int], min_rtt_us: int = 20_000) -> V2:
    """Return the state after these RTTs, one per ACK of two segments."""
    state = core.v2_state()
    for rtt_us in rtts_us:
        core.v2_sample(state, rtt_us)
        core.v2_ack(state, 2, 50, 0, min_rtt_us, 0)
    return state


def test_v2_tells_noise_from_queue(core: Core) -> None:
    """20 ms path: clear, with a standing queue of 10 ms, with 5 ms jitter, with both and more."""
    draw = random.Random(2)  # noqa: S311
    assert evaluated(core, [20_000 + draw.randint(0, 100) for _ in range(64)]).flags == DATA
    assert evaluated(core, [30_000 + 20 * k for k in range(64)]).flags == DATA | CONG
    assert evaluated(core, [20_000 + draw.randint(0, 10_000) for _ in range(64)]).flags == DATA | NOISE
    assert evaluated(core, [45_000 + draw.randint(0, 10_000) for _ in range(64)]).flags == DATA | CONG


def test_v2_gain_ranges(core: Core) -> None:
    """Milli segments per acked one: slow start 1000, noise 500..1500, clear ..1000, queue 250..500."""
    state = core.v2_state()

    def gains(flags: int, slow_start: int = 0) -> tuple[int, int]:
        got = []
        for state.y in (-1000, 0, 1000):
            state.flags = flags
            got.append(core.v2_gain(state, slow_start))
        assert got == sorted(got)
        return got[0], got[-1]

    assert gains(DATA, slow_start=1) == (1000, 1000)
    assert gains(DATA | NOISE) == (500, 1500)
    assert gains(DATA) == (500, 1000)
    assert gains(DATA | CONG) == (250, 500)


def test_v2_loss_and_timeout(core: Core) -> None:
    """Half the window, two thirds in noise; a timeout forgets the RTTs, a restart the losses too."""
    state = core.v2_state()
    assert (core.v2_ssthresh(state, 90), state.flags, state.plast) == (45, LOSS, 400)
    state.flags = NOISE
    assert core.v2_ssthresh(state, 90) == 60
    assert core.v2_ssthresh(state, 1) == 2
    core.v2_timeout(state)
    assert (state.n, state.flags, state.y, state.plast) == (0, LOSS, 0, 750)
    core.v2_restart(state)
    assert (state.n, state.flags, state.y, state.plast) == (0, 0, 0, 300)


@settings(deadline=None)
@given(acked=st.lists(st.integers(0, 65535), max_size=50), y=st.integers(-1000, 1000))
def test_v2_growth_is_bounded_by_what_was_acked(gcc_core: Core, acked: list[int], y: int) -> None:
    """At most 1.5 segments per acked one in all, at least 0.25; credit is neither lost nor made."""
    state = gcc_core.v2_state()
    state.y, state.flags = y, DATA | NOISE
    grown = sum(gcc_core.v2_credit(state, count, 0) for count in acked)
    assert 1000 * grown + state.credit == sum(acked) * gcc_core.v2_gain(state, 0)
    assert 0.25 * sum(acked) - 1 <= grown <= 1.5 * sum(acked)


# ---- both profiles under anything


def require_v1_bounds(state: V1) -> None:
    """Assert the published profile's invariants."""
    assert state.entropy in (0, 1000)
    assert 100 <= state.plast <= 1000
    assert 0 <= state.delta <= 1000
    assert state.n <= 16
    assert max(map(abs, state.hid)) <= 6000


def require_v2_bounds(state: V2) -> None:
    """Assert the fixed profile's invariants."""
    assert 0 <= state.entropy <= 1000
    assert 100 <= state.plast <= 1000
    assert abs(state.y) <= 1000
    assert state.credit < 1000
    assert state.n <= 16
    assert max(map(abs, state.hid)) <= 1000
    assert max(map(abs, state.rd)) <= 1000


EVENTS = st.lists(st.tuples(st.sampled_from(["ack"] * 9 + ["loss", "rto", "restart", "undo", "event"]), U32, U32, U32))


@settings(deadline=None, max_examples=150)
@given(events=EVENTS)
def test_v1_bounds_hold(gcc_core: Core, events: list[tuple[str, int, int, int]]) -> None:
    """Any order of ACKs, losses, timeouts, undos and restarts, any values."""
    state = gcc_core.v1_state()
    for what, a, b, c in events:
        if what == "ack" and c:
            gcc_core.v1_acked(state, a, b >> 3, c)
        elif what == "loss":
            assert gcc_core.v1_ssthresh(state, a) >= 2
        elif what == "undo":
            assert gcc_core.v1_undo_cwnd(state, a) >= a
        elif what != "ack":
            {"rto": gcc_core.v1_timeout, "restart": gcc_core.v1_restart, "event": gcc_core.v1_loss_event}[what](state)
        require_v1_bounds(state)


@settings(deadline=None, max_examples=150)
@given(events=EVENTS, slow_start=st.booleans())
def test_v2_bounds_hold(gcc_core: Core, events: list[tuple[str, int, int, int]], slow_start: bool) -> None:
    """Any order of ACKs, losses, timeouts and restarts, any values."""
    state = gcc_core.v2_state()
    for what, a, b, c in events * 3:
        if what == "ack":
            gcc_core.v2_sample(state, ctypes.c_int32(b).value)
            gcc_core.v2_ack(state, c, a, b, c, slow_start)
            assert gcc_core.v2_credit(state, c, slow_start) <= min(c, 65535) * 3 // 2 + 1
        elif what == "loss":
            assert gcc_core.v2_ssthresh(state, a) >= 2
        elif what == "rto":
            gcc_core.v2_timeout(state)
        elif what == "restart":
            gcc_core.v2_restart(state)
        require_v2_bounds(state)


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """200,000 steps of extreme values under the address and undefined-behaviour sanitizers."""
    fuzz = compile_c(
        "gcc", "fuzz.c", tmp_path / "fuzz", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"
    )
    for seed in ("1", "2"):
        done = subprocess.run([str(fuzz), seed, "100000"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "100000\n"), done.stderr
