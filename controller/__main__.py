"""The controller process: `python -m controller --plan FILE`.

Installs a plan's queues and rules on the switches that connect, follows the plan's changes of policy, and stays until
SIGTERM, which removes exactly the queues it set. Its imports are few because its start-up time counts.
"""

import argparse
import ipaddress
import signal
import sys
import threading
from pathlib import Path

from controller import frameworks, ovsdb, plan
from controller.app import leave
from controller.process import Options, Process
from controller.start import check_free
from topologies.errors import FairbedError, UsageError

END_SIGNALS = {signal.SIGTERM, signal.SIGINT}
DEFAULT_LISTEN = "127.0.0.1:6653"


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="python -m controller", description="Install a plan on switches.")
    parser.add_argument("--plan", required=True, type=Path, help="JSON file with the rules and queues")
    parser.add_argument("--listen", default=DEFAULT_LISTEN, help="loopback address and port (%(default)s)")
    parser.add_argument("--framework", default="ryu", choices=sorted(frameworks.PACKAGES))
    parser.add_argument("--application", help="your own application's file, in place of the plan's rules")
    parser.add_argument("--events", help="file to append events to, one JSON object a line")
    parser.add_argument("--ready-fd", type=int, help='open descriptor to write "ready" to')
    parser.add_argument("--begin-fd", type=int, help="open descriptor to read from when the run begins")
    parser.add_argument("--ovsdb", default=ovsdb.LOCAL, help="where queues are set (%(default)s)")
    return parser.parse_args(arguments)


def loopback(listen: str) -> tuple[str, int]:
    """Return host and port of "HOST:PORT", refusing any address that others could reach."""
    host, _, port = listen.rpartition(":")
    try:
        address, number = ipaddress.IPv4Address(host), int(port)
    except ValueError as error:
        raise UsageError(f"--listen {listen!r} is not IPv4-ADDRESS:PORT") from error
    if not address.is_loopback:
        raise UsageError(f"--listen {listen}: only loopback addresses (127.0.0.0/8) are allowed")
    if not 0 < number < 65536:
        raise UsageError(f"--listen {listen}: the port must be from 1 to 65535")
    return host, number


def end_on_signal(process: Process) -> None:
    """End on a signal, waited for in a thread of its own.

    A handler would run in the main thread, which may be about to wait in its hub when the signal arrives, and
    then would notice it only when something else happens.
    """

    def wait() -> None:
        signal.sigwait(END_SIGNALS)
        process.finish(0)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Run, and turn errors into one line and an exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    try:
        given = parse(sys.argv[1:])
        options = Options(
            given.framework,
            loopback(given.listen),
            given.ovsdb,
            given.events,
            given.ready_fd,
            given.begin_fd,
            given.application,
        )
        process = Process(options, plan.read(given.plan))
        check_free(options.address)
        end_on_signal(process)
        process.run()
    except FairbedError as error:
        leave(error.exit_status, str(error))


if __name__ == "__main__":
    main()
