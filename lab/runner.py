"""Carries out a plan on the kernel it runs on, as root: ``python -m lab.runner RUN``.

The one code path of every run: in the lab kernel, in the Vagrant machine, on a Linux host. It reads RUN/raw/plan.json,
writes RUN/raw/…, and tells its caller what it is doing as one JSON object a line on standard output. It decides
nothing, and imports little.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from controller.start import check_free
from lab.calibration import bottleneck_rates_mbit, idle_rtt_ms
from lab.cca import check_available
from lab.claim import claimed
from lab.classes import htb_classes
from lab.control import Controller, break_on_time, guarded_switches, read_line
from lab.link_events import timeline
from lab.network import Network, check_queues, run
from lab.process import end_with_parent, exact_timers
from lab.telemetry import Sampler
from lab.traffic import Traffic
from topologies.errors import FairbedError

LISTEN = ("127.0.0.1", 6653)
TRAFFIC_DEADLINE_S = 30.0
LEAD_NS = 100_000_000
"""From telling the traffic when the run begins to its beginning, at least."""

SECOND_NS = 1_000_000_000

RECORDED_SYSCTLS = (
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_sack",
    "net.core.default_qdisc",
)


class CallerGoneError(Exception):
    """Nobody listens any more: the run ends, and takes down what it has made."""


def tell(**message: Any) -> None:
    """Tell the caller something."""
    try:
        os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        raise CallerGoneError from None


@contextmanager
def traffic(network: Network, flows: list[Mapping[str, Any]], raw: Path) -> Iterator[Callable[[int], None]]:
    """Run the traffic in a process of its own; gives the function that tells it when the run begins."""
    start_read, start_write = os.pipe()
    ready, ready_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_traffic(network, flows, raw, start_read, ready_write)
    os.close(start_read)
    os.close(ready_write)
    try:
        if read_line(ready, TRAFFIC_DEADLINE_S) != b"ready\n":
            raise FairbedError(f"the traffic did not start: {(raw / 'traffic.log').read_text().strip()}")
        yield lambda t0_ns: _write_and_close(start_write, t0_ns.to_bytes(8, sys.byteorder))
        if os.waitpid(pid, os.WNOHANG)[0]:
            pid = 0
            raise FairbedError(f"the traffic process died: {(raw / 'traffic.log').read_text().strip()}")
    finally:
        if pid:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)


def _write_and_close(fd: int, content: bytes) -> None:
    os.write(fd, content)
    os.close(fd)


def _be_traffic(network: Network, flows: list[Mapping[str, Any]], raw: Path, start_fd: int, ready_fd: int) -> None:
    """Be the traffic process until told to end; never returns."""
    end_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    made = Traffic(network.namespaces(), raw, network.popen)
    try:
        made.run(flows, start_fd, ready_fd)
    except SystemExit:
        made.close()
    except BaseException:
        (raw / "traffic.log").write_text(traceback.format_exc())
    finally:
        os._exit(0)


def cpu_times() -> list[int]:
    """Return the machine's processor times since its boot, in ticks: user, nice, system, idle, … (proc(5))."""
    return [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]


def write_safely(path: Path, text: str) -> None:
    """Write a file and force it to disk: a run that is killed later keeps it."""
    with path.open("x") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def next_second(t_ns: int) -> int:
    """Return the next whole second of the clock: a run then does not depend on how long its start took."""
    return -(-t_ns // SECOND_NS) * SECOND_NS


def environment() -> dict[str, Any]:
    """Return what this kernel and its tools are."""
    modules = Path("/proc/modules")
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "congestion_controls": Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split(),
        "modules": [line.split()[0] for line in modules.read_text().splitlines()] if modules.exists() else [],
        "sysctls": {
            name: path.read_text().strip()
            for name in RECORDED_SYSCTLS
            if (path := Path("/proc/sys", name.replace(".", "/"))).exists()
        },
        "openvswitch": run(["ovs-vsctl", "--version"]).splitlines()[0].rsplit(" ", 1)[-1],
        "iproute2": run(["tc", "-V"]).strip(),
    }


def carry_out(plan: Mapping[str, Any], raw: Path) -> None:
    """Run the plan; every phase is told before it begins."""
    scenario = plan["scenario"]
    with ExitStack() as stack:
        stack.enter_context(claimed(plan))
        check_free(LISTEN)
        names = check_available(plan["flows"])
        check_queues(queue["aqm"] for queue in plan["queues"].values())
        flows: list[Mapping[str, Any]] = [{**flow, "kernel_cca": names[flow["kernel_cca"]]} for flow in plan["flows"]]
        stack.enter_context(guarded_switches(raw))
        tell(phase="network")
        network = stack.enter_context(Network(plan, LISTEN, lambda ready: tell(nodes=ready, of=len(plan["nodes"]))))
        tell(phase="controller")
        controller = stack.enter_context(Controller(plan, raw, LISTEN, lambda words: tell(fault=words)))
        network.add_leaves()
        tell(phase="calibration")
        facts = {
            "environment": environment() | {"kernel_ccas": names},
            "idle_rtt_ms": idle_rtt_ms(network.namespaces(), flows),
            "rate_mbit": bottleneck_rates_mbit(network.namespaces(), plan),
        }
        tell(phase="flows", duration_s=scenario["duration_s"])
        begin = stack.enter_context(traffic(network, flows, raw))
        sampler = Sampler(network.namespaces(), plan["probes"], raw / "samples")
        t0_ns = next_second(time.monotonic_ns() + LEAD_NS)
        write_safely(raw / "facts.json", json.dumps({**facts, "t0_ns": t0_ns}, indent=1))
        busy = cpu_times()
        begin(t0_ns)
        controller.begin(t0_ns)
        break_on_time(scenario.get("faults", []), controller, t0_ns, raw)
        if plan["events"]:
            stack.enter_context(timeline(plan, network.namespaces(), t0_ns, raw))
        sampler.run(
            t0_ns,
            round(scenario["sample_ms"] * 1e6),
            round(scenario["duration_s"] * 1e9),
            lambda seconds: tell(t_s=seconds),
        )
        sampler.close()
        tell(phase="stop")
        (raw / "cpu.json").write_text(json.dumps([busy, cpu_times()]))
        shaped = {probe["qdisc"]["interface"]: None for probe in plan["probes"] if "qdisc" in probe}
        (raw / "classes.json").write_text(json.dumps(htb_classes(shaped), indent=1))
        (raw / "tc.json").write_text(json.dumps(network.tc_state(), indent=1))


def main(directory: str) -> int:
    """Run the plan in a run directory; return the exit status. Errors are told, not printed."""
    raw = Path(directory) / "raw"
    exact_timers()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that everything is taken down
    try:
        carry_out(json.loads((raw / "plan.json").read_text()), raw)
    except CallerGoneError:
        return 1
    except FairbedError as error:
        tell(error=str(error), exit_status=error.exit_status)
        return error.exit_status
    except KeyboardInterrupt:
        tell(error="interrupted", exit_status=130)
        return 130
    except Exception as error:
        traceback.print_exc()
        tell(error=f"{type(error).__name__}: {error}", exit_status=1)
        return 1
    tell(done=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
