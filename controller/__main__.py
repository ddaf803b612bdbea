"""The controller process: `python -m controller --plan FILE`.

Installs a plan's queues and rules on the switches that connect, and stays until SIGTERM, which removes
exactly the queues it set. Its imports are few because its start-up time counts.
"""

import argparse
import ipaddress
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from controller import frameworks, ovsdb, plan
from controller.app import Events, Switches, leave, messages, send, serve
from topologies.errors import FairbedError, UsageError

END_SIGNALS = {signal.SIGTERM, signal.SIGINT}
DEFAULT_LISTEN = "127.0.0.1:6653"
DEFAULT_OVSDB = "unix:/var/run/openvswitch/db.sock"


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="python -m controller", description="Install a plan on switches.")
    parser.add_argument("--plan", required=True, type=Path, help="JSON file with the rules and queues")
    parser.add_argument("--listen", default=DEFAULT_LISTEN, help="loopback address and port (%(default)s)")
    parser.add_argument("--framework", default="ryu", choices=sorted(frameworks.PACKAGES))
    parser.add_argument("--events", help="file to append events to, one JSON object a line")
    parser.add_argument("--ready-fd", type=int, help='open descriptor to write "ready" to')
    parser.add_argument("--ovsdb", default=DEFAULT_OVSDB, help="where queues are set (%(default)s)")
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


def check_free(address: tuple[str, int]) -> None:
    """Raise a FairbedError if the address is taken; the framework itself would share it or go on without."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen()
        except OSError as error:
            raise FairbedError(f"cannot listen on {address[0]}:{address[1]}: {error.strerror}") from error


class Process:
    """The controller as a process: sets the plan's queues once, and ends exactly once, without them."""

    def __init__(self, options: argparse.Namespace, content: plan.Plan) -> None:
        """Open the events."""
        self.events = Events(options.events, options.ready_fd)
        self.switches = Switches(content, self.events, self.set_queues, self.install)
        self._database = options.ovsdb
        self._content = content
        self._framework: frameworks.Framework | None = None
        self._busy = threading.Lock()

    def run(self, name: str, address: tuple[str, int]) -> None:
        """Serve switches until a signal or a failure ends the process."""
        threading.Thread(target=self._wait_for_signal, daemon=True).start()
        self._framework = frameworks.load(name)
        self.events.write("started", framework=name, rules=len(self._content["rules"]))
        serve(self._framework, address, self.switches, self.fail)
        self.finish(1, f"stopped listening on {address[0]}:{address[1]}")

    def set_queues(self) -> None:
        """Set the plan's queues, if it has any."""
        if not self._content["queues"]:
            return
        with self._busy:  # an end meanwhile waits, and then finds what it has to remove
            ovsdb.apply_queues(self._database, self._content["tag"], self._content["queues"])
        self.events.write("queues_set", ports=[setting["port"] for setting in self._content["queues"]])

    def install(self, datapath: Any, rules: list[plan.Rule]) -> None:
        """Send a switch its rules."""
        assert self._framework is not None  # noqa: S101 - switches come when it serves
        send(datapath, messages(self._framework, datapath, rules))

    def fail(self, error: FairbedError) -> None:
        """End for this reason."""
        self.finish(error.exit_status, str(error))

    def finish(self, status: int, message: str = "") -> None:
        """Remove our queues and end the process; whoever comes second waits for that end."""
        self._busy.acquire()
        try:
            if self._content["queues"]:
                ovsdb.remove_queues(self._database, self._content["tag"], wait=False)
        except FairbedError as error:
            status, message = status or error.exit_status, f"{message} {error}".strip()
        self.events.write("stopped", packet_ins=self.switches.packet_ins, status=status, message=message)
        leave(status, message)

    def _wait_for_signal(self) -> None:
        """End on a signal, waited for in a thread of its own.

        A handler would run in the main thread, which may be about to wait in its hub when the signal arrives, and
        then would notice it only when something else happens.
        """
        signal.sigwait(END_SIGNALS)
        self.finish(0)


def main() -> None:
    """Run, and turn errors into one line and an exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    try:
        options = parse(sys.argv[1:])
        address = loopback(options.listen)
        process = Process(options, plan.read(options.plan))
        check_free(address)
        process.run(options.framework, address)
    except FairbedError as error:
        leave(error.exit_status, str(error))


if __name__ == "__main__":
    main()
