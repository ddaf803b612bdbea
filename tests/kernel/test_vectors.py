"""Every row of the golden vectors, in every build of the core."""

from __future__ import annotations

import ctypes

from tests.kernel.ndm_harness import CONG, LOSS, SLOW_START, SS, V1, V2, Core, rows


def test_v1_activation_and_squash(core: Core) -> None:
    """The published cubic and the clipped line."""
    for x, act, squash in (map(int, row) for row in rows("v1_act.csv")):
        assert (core.v1_act(x), core.v1_squash(x)) == (act, squash), x


def test_v1_network(core: Core) -> None:
    """The published network for given inputs and hidden states."""
    for row in rows("v1_nn.csv"):
        min_rtt, rtt, entropy, ss, cong, loss, plast, *rest = map(int, row)
        hidden, delta, after = rest[:8], rest[8], rest[9:]
        state = V1(min_rtt_us=min_rtt, entropy=entropy, plast=plast, hid=(ctypes.c_int16 * 8)(*hidden))
        state.flags = SS * ss | CONG * cong | LOSS * loss
        assert core.v1_network(state, rtt) == delta, row
        assert list(state.hid) == after, row


def test_v1_trace(core: Core) -> None:
    """400 ACKs with losses; an event comes before the row's ACK, at the window left by the row before."""
    state = core.v1_state(cwnd=10)
    grown_cwnd = 10
    for number, row in enumerate(rows("v1_trace.csv")):
        cwnd, srtt_us_x8, acked = map(int, row[:3])
        if row[3] == "loss":
            assert core.v1_ssthresh(state, grown_cwnd) == int(row[13])
        how, segments = core.v1_acked(state, cwnd, srtt_us_x8 >> 3, acked)
        got = [how, segments, state.entropy, state.plast, state.cnt, state.min_rtt_us, state.flags]
        got += [state.hid[0], state.hid[7], state.ssthresh]
        assert got == [int(value) for value in row[4:]], f"row {number}: {row}"
        grown_cwnd = cwnd + segments if how == SLOW_START else cwnd


def test_v2_activation(core: Core) -> None:
    """The rational tanh."""
    for x, act in (map(int, row) for row in rows("v2_act.csv")):
        assert core.v2_act(x) == act, x


def test_v2_entropy(core: Core) -> None:
    """Entropy of RTT steps for given windows."""
    for row in rows("v2_entropy.csv"):
        base, *samples, entropy = map(int, row)
        assert core.v2_entropy(core.window(samples), base) == entropy, row


def test_v2_weights(core: Core) -> None:
    """Hidden weights and the output weights tied to them."""
    for i, row in enumerate(rows("v2_weights.csv")):
        assert [core.v2_weight(i, j) for j in range(8)] == [int(value) for value in row[:8]]
        assert row[8] == f"tie={core.v2_tie(i)}"


def test_v2_trace(core: Core) -> None:
    """600 ACKs with clean, noisy and congested phases, losses and a timeout."""
    state: V2 = core.v2_state()
    for number, row in enumerate(rows("v2_trace.csv")):
        rtt_us, acked, min_rtt_us, cwnd, prior, ss = map(int, row[:6])
        apply_v2_event(core, state, row[6], cwnd)
        segments = core.v2_row(state, rtt_us, acked, cwnd, prior, min_rtt_us, ss)
        got = [state.entropy, state.qd, state.y, state.flags, state.plast, segments, *state.rd]
        assert got == [int(value) for value in row[7:]], f"row {number}: {row}"


def apply_v2_event(core: Core, state: V2, event: str, cwnd: int) -> None:
    """Apply a trace row's loss or timeout."""
    if event == "loss":
        core.v2_ssthresh(state, cwnd)
    elif event == "rto":
        core.v2_timeout(state)
