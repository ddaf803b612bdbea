"""Keeps one lab kernel: started by guest.py, outlives it for a moment, and leaves nothing behind.

Arguments: DIRECTORY LIFELINE STDERR PRELOAD SEED KERNEL ARGUMENTS…

LIFELINE is the reading end of a pipe whose other end only the caller holds: it reads as ended when the caller lets
go of it or dies, by SIGKILL too. Then the kernel is killed and DIRECTORY removed, though the caller can't do it any
more. STDERR is the descriptor for the command's standard error, or -1. PRELOAD replaces the host's random bytes by a
stream from SEED.
"""

import ctypes
import os
import select
import shutil
import signal
import socket
import sys

PR_SET_PDEATHSIG = 1


def claim_cpu():
    """Return a CPU for this guest, and the claim on it: one that no other guest has claimed, if there is one.

    A guest stays on one CPU: user-mode Linux hands every system call over between two threads, and across CPUs each
    hand-over wakes an idle core (the main job took 2.6 times as long). An abstract socket's name is a lock that
    dies with its owner and leaves no file.
    """
    cpus = sorted(os.sched_getaffinity(0), reverse=True)
    for cpu in cpus:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0fairbed-cpu{cpu}")
        except OSError:
            claim.close()
        else:
            return cpu, claim
    return cpus[os.getpid() % len(cpus)], None


def start(directory, stderr, preload, seed, argv):
    """Fork the kernel: its console in DIRECTORY/console, the command's standard error on descriptor 3.

    It works in DIRECTORY, and keeps its own files (~/.uml) there too.
    """
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(os.open(directory + "/console", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
    os.dup2(stderr if stderr >= 0 else 2, 3)
    os.closerange(4, 256)
    os.chdir(directory)
    kept = {name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}
    environment = {"HOME": directory, "PATH": os.defpath, "LD_PRELOAD": preload, "FAIRBED_SEED": seed, **kept}
    os.execve(argv[0], argv, environment)  # noqa: S606


def main():
    """Run the kernel until it ends or the caller does; the exit status says only that it ended."""
    directory, lifeline, stderr = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the caller decides, and tells by letting go
    cpu, _claim = claim_cpu()
    os.sched_setaffinity(0, {cpu})
    pid = start(directory, stderr, sys.argv[4], sys.argv[5], sys.argv[6:])
    if stderr >= 0:
        os.close(stderr)
    os.close(1)
    kernel = os.pidfd_open(pid)
    ready, _, _ = select.select([kernel, lifeline], [], [])
    if lifeline in ready:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if lifeline not in select.select([lifeline], [], [], 0)[0]:
        return  # the caller is there: it reads the status, then removes the directory itself
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
