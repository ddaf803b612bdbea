"""Qdisc arguments: limits by formula."""

import re

import pytest

from lab import qdiscs
from topologies.errors import UsageError


def test_netem_holds_twice_what_the_delay_does_and_the_margin() -> None:
    # 20 Mbit/s x 20 ms = 50,000 bytes = 33.03 frames of 1514; twice that is 66.05
    assert qdiscs.netem(20, 20) == "netem delay 20000us limit 10067"


def test_netem_never_has_no_delay() -> None:
    assert qdiscs.netem(0, 20).startswith("netem delay 1us ")


def test_netem_grows_with_the_path() -> None:
    # 1 Gbit/s x 300 ms = 37.5 MB = 24769 frames: the kernel's default limit of 1000 would drop nearly all
    limit = int(re.search(r"limit (\d+)", qdiscs.netem(300, 1000))[1])  # type: ignore[index]
    assert limit >= 2 * 24_769


def test_fifo_is_exact_in_bytes() -> None:
    assert qdiscs.leaf("fifo", 100_000) == "bfifo limit 100000"


@pytest.mark.parametrize("aqm", sorted(qdiscs.LEAVES))
def test_every_leaf_names_its_qdisc_first(aqm: str) -> None:
    kind = {"fifo": "bfifo"}.get(aqm, aqm)
    assert qdiscs.leaf(aqm, 100_000).split()[0] == kind


def test_an_unknown_aqm_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown aqm 'blue': choose from fifo, codel"):
        qdiscs.leaf("blue", 100_000)
