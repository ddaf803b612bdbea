"""Leaves that tc can't set: what the kernel is told for a line of tc's."""

import struct

import pytest

from controller import leaves
from controller.netlink import attributes
from topologies.errors import FairbedError

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
