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


@pytest.mark.parametrize("size", [1514, 100_000, 2**32 - 1])
def test_reds_largest_threshold_fits_the_kernels_arithmetic(size: int) -> None:
    """fls(max) and the weight's log2, which burst / step gives, are below 32 (net/red.h): 26 bits and some 5."""
    words = qdiscs.leaf("red", size).split()
    value = {name: int(text) for name, text in zip(words[1::2], words[2::2], strict=True)}
    assert value["limit"] == size
    assert value["max"] <= 1 << 25
    assert value["min"] < value["max"]
    assert value["burst"] <= 36


def test_an_unknown_aqm_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown aqm 'blue': choose from fifo, codel"):
        qdiscs.leaf("blue", 100_000)
