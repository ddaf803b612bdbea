"""A plan's network to look at: ``python -m lab.up PLAN``, as root, where Open vSwitch runs.

PLAN is what ``--explain`` prints, or a run's ``raw/plan.json``. The network waits for a controller
(``python -m controller --plan PLAN``) and gives Mininet's prompt; with it, at its end, everything goes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mininet.cli import CLI
from mininet.log import setLogLevel

from lab.claim import claimed
from lab.commandline import fail
from lab.network import Network
from topologies.errors import FairbedError, UsageError

LISTEN = ("127.0.0.1", 6653)


def main(path: str) -> int:
    """Build the network, give the prompt, return the exit status."""
    try:
        plan = _read(Path(path))
        with claimed(plan), Network(plan, LISTEN) as network:
            network.add_leaves()
            network.mininet.controllers.clear()  # ours is a process of its own, which the prompt can't ask
            setLogLevel("output")  # what commands at the prompt say
            CLI(network.mininet)
    except FairbedError as error:
        return fail(str(error), error.exit_status)
    return 0


def _read(path: Path) -> dict[str, object]:
    try:
        plan: dict[str, object] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the plan {path}: {error}") from error
    if not isinstance(plan, dict) or "topo" not in plan:
        raise UsageError(f"{path} is not a run's plan: make one with python -m experiments.dumbbell --explain")
    return plan


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(fail("usage: python -m lab.up PLAN", 2))
    sys.exit(main(sys.argv[1]))
