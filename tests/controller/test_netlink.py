"""Netlink messages against the layouts in linux/netlink.h, byte by byte."""

import struct

from controller import netlink


def test_messages_are_split_at_aligned_lengths() -> None:
    one = netlink.message(20, b"abcde", 1) + bytes(3)  # 21 bytes, padded to 24
    two = netlink.message(36, b"wxyz", 2)
    assert [(kind, sequence, bytes(body)) for kind, sequence, body in netlink.messages(one + two)] == [
        (20, 1, b"abcde"),
        (36, 2, b"wxyz"),
    ]


def test_a_truncated_message_ends_the_list() -> None:
    one, two = netlink.message(20, b"abcd", 1), netlink.message(20, b"efgh", 2)
    assert len(list(netlink.messages(one + two[:-1]))) == 1
    assert list(netlink.messages(b"\0" * 40)) == []  # a length of zero would never end


def test_attributes_drop_the_nested_flag_and_stop_at_nonsense() -> None:
    body = (
        b"HEAD"
        + struct.pack("=HH", 7, 0x8002)
        + b"abc\0"
        + struct.pack("=HH", 8, 3)
        + b"wxyz"
        + struct.pack("=HH", 0, 9)
    )
    found = netlink.attributes(memoryview(body), 4)
    assert {kind: bytes(value) for kind, value in found.items()} == {2: b"abc", 3: b"wxyz"}
