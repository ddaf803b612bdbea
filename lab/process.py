"""What a process asks of the kernel for itself (prctl(2))."""

from __future__ import annotations

import ctypes
import signal

PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29

_libc = ctypes.CDLL(None)


def exact_timers() -> None:
    """Have sleeps of this process and its children end on time; by default the kernel may add 50 µs."""
    _libc.prctl(PR_SET_TIMERSLACK, 1)


def end_with_parent() -> None:
    """Have this process killed when the thread that forked it ends, in whatever way."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
