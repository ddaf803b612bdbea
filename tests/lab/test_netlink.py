"""Netlink messages against the layouts in linux/inet_diag.h and linux/rtnetlink.h, byte by byte."""

import struct

from lab import netlink


def test_socket_request_has_the_kernels_layout() -> None:
    data = netlink.socket_request(("10.0.0.1", 20000), ("10.0.0.2", 5001), sequence=7)
    length, kind, flags, sequence, pid = struct.unpack_from("=IHHII", data)
    assert (length, kind, sequence, pid) == (len(data), 20, 7, 0)
    assert len(data) == 16 + 56  # nlmsghdr and struct inet_diag_req_v2
    assert flags & 0x300 == 0  # no NLM_F_DUMP: one socket, not all
    family, protocol, extensions = data[16], data[17], data[18]
    assert (family, protocol) == (2, 6)
    assert extensions == 1 << 1 | 1 << 2 | 1 << 3  # INFO, VEGASINFO, CONG, each at bit kind - 1
    assert struct.unpack_from("!HH", data, 24) == (20000, 5001)
    assert data[28:32] == bytes([10, 0, 0, 1])
    assert data[44:48] == bytes([10, 0, 0, 2])
    assert data[-8:] == b"\xff" * 8  # INET_DIAG_NOCOOKIE


def test_qdisc_request_asks_for_an_answer_to_itself() -> None:
    data = netlink.qdisc_request(ifindex=5, parent=0x10001, sequence=3)
    length, kind, flags, sequence, _ = struct.unpack_from("=IHHII", data)
    assert (length, kind, sequence) == (16 + 20, 38, 3)
    assert flags & 0x8  # NLM_F_ECHO
    assert struct.unpack_from("=iII", data, 20) == (5, 0, 0x10001)
