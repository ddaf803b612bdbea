"""iperf3 over this kernel's loopback device, as people measure by hand: ``python -m lab.loopback DIRECTORY``.

It reads DIRECTORY/job.json (``cca``, ``seconds``, and ``tc``: lines for tc) and writes there iperf3.json (the client's
report), qdiscs.json (tc's) and counters.json (what the kernel's TCP counters grew by). Nothing is taken down: it is for
a kernel that ends with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from lab.cca import check_available
from lab.network import run
from lab.traffic import iperf3
from topologies.errors import FairbedError

ADDRESS = "127.0.0.1"
PORT = 5201
LISTENING = "0A"
DEADLINE_S = 30.0
GRACE_S = 120.0
"""How long after its time iperf3 may still exchange results, on the clock of this kernel: that connection loses too."""
COUNTERS = ("Tcp", "TcpExt")


def counters() -> dict[str, int]:
    """Return the kernel's TCP counters (RFC 4022 and Linux's own)."""
    found: dict[str, int] = {}
    for path in (Path("/proc/net/snmp"), Path("/proc/net/netstat")):
        lines = path.read_text().splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            if names.split(":")[0] in COUNTERS:
                found |= dict(zip(names.split()[1:], map(int, values.split()[1:]), strict=True))
    return found


def wait_for_listener() -> None:
    """Wait until something listens on iperf3's port; connecting to see would use up its one test."""
    ending = f":{PORT:04X}"
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for path in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
            rows = [line.split() for line in path.read_text().splitlines()[1:]] if path.exists() else []
            if any(row[1].endswith(ending) and row[3] == LISTENING for row in rows):
                return
        time.sleep(0.01)
    raise FairbedError("iperf3's server did not start")


def measure(directory: Path) -> None:
    """Carry out the job in a directory."""
    job = json.loads((directory / "job.json").read_text())
    name = check_available([{"kernel_cca": job["cca"]}])[job["cca"]]
    for line in job["tc"]:
        run(["tc", *line.split()])
    with subprocess.Popen(iperf3("-s", "-1"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for_listener()
            before = counters()
            client = iperf3("-J", "-c", ADDRESS, "-t", str(job["seconds"]), "-C", name)
            with (directory / "iperf3.json").open("xb") as report:
                subprocess.run(client, stdout=report, timeout=job["seconds"] + GRACE_S, check=False)
            grown = {key: value - before.get(key, 0) for key, value in counters().items()}
        finally:
            server.kill()
    (directory / "counters.json").write_text(json.dumps(grown, indent=1))
    (directory / "qdiscs.json").write_text(run(["tc", "-s", "-j", "qdisc", "show", "dev", "lo"]))


def main(directory: str) -> int:
    """Carry out the job; return the exit status, with one line on standard error for what went wrong."""
    try:
        measure(Path(directory))
    except FairbedError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    except subprocess.TimeoutExpired as error:
        print(f"iperf3 did not end within {error.timeout:g} s", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
