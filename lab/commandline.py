"""How every command of Fairbed ends: one clear line for what went wrong, the right exit status, no traceback."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from topologies.errors import FairbedError

STORAGE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
"""What no program can do anything about: the disk is full, read-only or broken."""


def run_app(app: Callable[..., Any], program: str, arguments: Sequence[str] | None = None) -> int:
    """Run a typer application and return its exit status: 2 for usage, 1 for a failed run, 130 for Ctrl-C."""
    try:
        return app(args=arguments, prog_name=program, standalone_mode=False) or 0
    except FairbedError as error:
        return fail(str(error), error.exit_status)
    except (KeyboardInterrupt, typer.Abort):
        return fail("interrupted", 130)
    except typer.Exit as done:
        return done.exit_code
    except BrokenPipeError:
        # The reader has left; nothing more may reach the pipe, or the interpreter complains at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno not in STORAGE:
            return _bug(error)
        return fail(f"cannot write {error.filename or 'what is to be kept'}: {error.strerror}", 1)
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's own complaints about the command line have it
            return _bug(error)
        message = error.format_message()
        if message and type(error).__name__ == "NoArgsIsHelpError":  # the help, line by line; rich prints it itself
            print(message, file=sys.stderr)
            return 2
        return fail(message, 2)


def _bug(error: Exception) -> int:
    """Say what nobody expected; called while it is handled."""
    if os.environ.get("FAIRBED_TRACEBACK"):
        raise error
    return fail(f"a bug: {type(error).__name__}: {error} (FAIRBED_TRACEBACK=1 shows where)", 1)


def fail(message: str, status: int) -> int:
    """Print one line on standard error, unless there is nothing to say, and return the status."""
    if message:
        print(f"fairbed: {' '.join(message.split())}", file=sys.stderr)
    return status
