"""Leaves: what the kernel is told where tc can't set them, and that each kind is changed in place."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from controller import leaves
from controller.netlink import attributes
from controller.plan import leaf_line
from lab import links
from lab.qdiscs import LEAVES, NEVER_CHANGED
from topologies.errors import FairbedError
from topologies.schema import Edge

CHECKOUT = Path(__file__).resolve().parents[2]

LINE = "qdisc replace dev lo parent 1:a handle 1f: dualpi2 limit 66 target 15000us tupdate 16000us"


def test_a_line_becomes_a_message_of_the_kernels_layout() -> None:
    """struct tcmsg: family, interface, handle, parent; then the kind, and the options by TCA_DUALPI2_*'s numbers."""
    body = leaves.leaf_body(LINE.split())
    assert struct.unpack_from("=BxxxiII", body) == (0, 1, 0x1F0000, 0x1000A)
    found = attributes(memoryview(body), 20)
    assert bytes(found[1]) == b"dualpi2\0"
    options = {number: int.from_bytes(value, "little") for number, value in attributes(found[2], 0).items()}
    assert options == {1: 66, 3: 15_000, 4: 16_000}


def test_an_interface_that_is_not_there_is_named() -> None:
    with pytest.raises(FairbedError, match="cannot set the queue of s9-eth1: there is no such interface"):
        leaves.set_leaves([LINE.replace("dev lo", "dev s9-eth1")])


CHANGES = {
    "fifo": ({}, {}),
    "codel": ({"target_ms": 5.0}, {"target_ms": 20.0}),
    "fq_codel": ({"target_ms": 5.0}, {"target_ms": 20.0}),
    "pie": ({"target_ms": 15.0}, {"target_ms": 30.0}),
    "fq_pie": ({"target_ms": 15.0}, {"target_ms": 30.0}),
    "cake": ({"rtt_ms": 100.0}, {"rtt_ms": 20.0}),
    "fq": ({"quantum": 3028.0}, {"quantum": 1514.0}),
    "dualpi2": ({"target_ms": 15.0}, {"target_ms": 30.0}),
}
"""AQM -> a parameter's value before and after a change; all but `lab.qdiscs.NEVER_CHANGED`."""

PROBE = """
import json, socket, subprocess, sys
from controller.leaves import BY_NETLINK, read_back, set_leaves

def tc(*words):
    return subprocess.run(["tc", *words], capture_output=True, text=True, check=True).stdout

def state():
    text = tc("-s", "qdisc", "show", "dev", "a0").split("qdisc ")[2]
    return [text.split()[0], text.split("backlog ")[1].split()[1], text, *map(str, more())]

def more():
    kind = tc("qdisc", "show", "dev", "a0").split("qdisc ")[2].split()[0]
    return [read_back(kind, "a0", "1:1")] if kind in BY_NETLINK else []

subprocess.run("ip link add a0 type veth peer name b0; ip link set a0 up; ip link set b0 up", shell=True, check=True)
tc("qdisc", "add", "dev", "a0", "root", "handle", "1:", "htb", "default", "1")
tc("class", "add", "dev", "a0", "parent", "1:", "classid", "1:1", "htb", "rate", "1mbit", "quantum", "1514")
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sock.bind(("a0", 0x88B5))
found = {}
for aqm, lines in json.loads(sys.argv[1]).items():
    set_leaves(lines[:1])
    for _ in range(20):
        sock.send(bytes(12) + bytes([0x88, 0xB5]) + bytes(1500))
    before = state()
    set_leaves(lines[1:])
    found[aqm] = [before, state()]
    tc("qdisc", "del", "dev", "a0", "parent", "1:1")
json.dump(found, sys.stdout)
"""


@pytest.mark.system
def test_every_leaf_is_changed_in_place(tmp_path: Path) -> None:
    """On the virtual clock nothing leaves meanwhile: what waited before the change waits after it."""
    assert CHANGES.keys() | NEVER_CHANGED == LEAVES.keys()
    lines = {
        aqm: [leaf_line("a0", 0, queue_words(aqm, buffer_bytes, params)) for buffer_bytes, params in states]
        for aqm, (before, after) in CHANGES.items()
        for states in [((151_400, before), (302_800, after))]
    }
    (tmp_path / "probe.py").write_text(PROBE)
    argv = [sys.executable, "-m", "lab", "run", "--clock", "virtual", "--", sys.executable]
    done = subprocess.run(
        [*argv, tmp_path / "probe.py", json.dumps(lines)], cwd=CHECKOUT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for aqm, (before, after) in json.loads(done.stdout).items():
        assert before[0] == after[0] == {"fifo": "bfifo"}.get(aqm, aqm)
        assert before[1] == after[1], aqm
        assert int(after[1].removesuffix("p")) > 10, aqm
        assert before[2:] != after[2:], aqm


def queue_words(aqm: str, buffer_bytes: int, params: dict[str, float]) -> str:
    edge = {"rate_mbit": 1.0, "buffer_bytes": buffer_bytes, "aqm": aqm, "aqm_params": params}
    return links.queue_words(Edge.model_validate(edge))
