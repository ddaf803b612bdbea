"""Every queue management in the lab kernel: its parameters as asked for, its buffer's end, ECN on and off."""

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from analysis import Run
from analysis.settings import settings

pytestmark = pytest.mark.system

RATE_MBIT = 5.0
BUFFER_BYTES = 66 * 1514
CODEL = {"target_ms": 10.0, "interval_ms": 80.0}
PIE = {"target_ms": 20.0, "tupdate_ms": 16.0, "alpha": 3.0, "beta": 25.0}

QUEUES: list[tuple[str, dict[str, float], bool]] = [
    ("fifo", {}, False),
    ("codel", CODEL, False),
    ("codel", CODEL, True),
    ("fq_codel", CODEL | {"flows": 64.0, "quantum": 300.0}, False),
    ("fq_codel", CODEL | {"ce_threshold_ms": 60.0}, True),
    ("pie", PIE, False),
    ("pie", PIE, True),
    ("fq_pie", PIE | {"flows": 64.0, "quantum": 3028.0}, False),
    ("fq_pie", PIE, True),
    ("red", {"probability": 0.1}, False),
    ("red", {"min": 10_000.0, "max": 30_000.0}, True),
    ("cake", {"rtt_ms": 50.0}, True),
    ("dualpi2", {"target_ms": 10.0, "tupdate_ms": 20.0}, True),
    ("fq", {"quantum": 3000.0, "initial_quantum": 15_000.0}, False),
    ("sfq", {"quantum": 1514.0, "divisor": 512.0, "perturb": 10.0}, False),
]
"""AQM, parameters, whether ECN is on."""

WITH_SOJOURN = {"codel", "pie", "cake", "dualpi2"}


def star() -> dict[str, Any]:
    """Return a network in which each pair has a queue of its own: snd1 - a1 - hub - rcv1; one is at a host."""
    nodes = [{"id": "hub", "role": "switch"}]
    edges = []
    for k, (aqm, params, ecn) in enumerate(QUEUES, 1):
        nodes += [{"id": f"snd{k}", "role": "sender"}, {"id": f"rcv{k}", "role": "receiver"}]
        nodes += [{"id": f"a{k}", "role": "switch"}]
        queue = {"rate_mbit": RATE_MBIT, "buffer_bytes": BUFFER_BYTES, "aqm": aqm, "aqm_params": params, "ecn": ecn}
        at_host = aqm == "dualpi2"  # then it is on a wire, and set by the network, not by the controller
        for u, v in ((f"snd{k}", f"a{k}"), (f"a{k}", "hub"), ("hub", f"rcv{k}")):
            queued = queue if u == (f"snd{k}" if at_host else f"a{k}") else {}
            edges += [{"source": u, "target": v, "delay_ms": 4.0 if u != f"a{k}" else 0.0} | queued]
            edges += [{"source": v, "target": u}]
    return {"directed": True, "nodes": nodes, "edges": edges}


@pytest.fixture(scope="module")
def run(command: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the record of one CUBIC flow through each queue."""
    place = tmp_path_factory.mktemp("aqms")
    (place / "star.json").write_text(json.dumps(star()))
    options = ("--flows", f"cubic:{len(QUEUES)}", "--duration", "8s", "--warmup", "3s", "--sample", "20ms")
    done = command(
        "experiments.graph", place / "star.json", *options, "--kernel", "lab", "--out", place / "run", "--json"
    )
    assert done.status == 0, done.stderr
    return Run.open(place / "run")


def test_the_kernel_has_what_was_asked_for(run: Run) -> None:
    assert run.verdict["status"] == "valid", run.verdict["reasons"]
    found = settings(run)
    assert [one for one in found if one.differs] == []
    not_shown = {one.name.split(" ", 1)[1] for one in found if one.found is None}
    assert not_shown <= {"red avpkt", "red burst", "red bandwidth", "red probability"}
    kinds = {one.name.split()[1] for one in found if one.name[0].isdigit()}
    assert kinds == {"htb", "bfifo", *(aqm for aqm, _, _ in QUEUES)} - {"fifo"}


@pytest.mark.parametrize(
    "k", range(1, len(QUEUES) + 1), ids=[f"{aqm}-{'ecn' if e else 'drop'}" for aqm, _, e in QUEUES]
)
def test_a_queue_sends_at_its_rate_and_holds_its_buffer(run: Run, k: int) -> None:
    """The rate within 2 %; never more than the buffer; marks only where ECN is on, drops where it is not."""
    aqm, _, ecn = QUEUES[k - 1]
    name = f"snd{k}->a{k}" if aqm == "dualpi2" else f"a{k}->hub"
    samples = run.queues.filter(pl.col("queue_id") == name)
    busy = samples.filter(pl.col("t_s") > 3)
    sent_mbit = (busy["sent_bytes"][-1] - busy["sent_bytes"][0]) * 8e-6 / (busy["t_s"][-1] - busy["t_s"][0])
    assert abs(sent_mbit / RATE_MBIT - 1) < 0.02
    assert 3 * 1514 <= max(samples["backlog_bytes"]) <= BUFFER_BYTES
    marks = samples["ecn_marks"][-1] or 0
    assert (marks > 0) == ecn
    assert samples["drops"][-1] > 0 or ecn or aqm == "fq"  # through which TCP overtakes itself: docs/topologies.md
    assert (samples["sojourn_ms"].null_count() == 0) == (aqm in WITH_SOJOURN)
    if aqm in WITH_SOJOURN:
        assert 0.5 < max(busy["sojourn_ms"]) < BUFFER_BYTES * 8e-3 / RATE_MBIT
