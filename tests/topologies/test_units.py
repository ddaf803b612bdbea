"""Units: what people write becomes the right number, and what is ambiguous is refused with a way out."""

import math
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import units
from topologies.errors import FairbedError, UsageError
from topologies.units import Buffer


def test_exit_statuses() -> None:
    """A fault ends with 1, a wrong request with 2, as command lines do."""
    assert (FairbedError.exit_status, UsageError.exit_status) == (1, 2)
    assert issubclass(UsageError, FairbedError)


@pytest.mark.parametrize(
    ("text", "rate_mbit"),
    [
        ("20mbit", 20.0),
        ("1.5 gbit", 1500.0),
        ("500kbit", 0.5),
        ("20Mbit/s", 20.0),
        ("  20 MBIT  ", 20.0),
        ("1e3bit", 0.001),
        (".5mbit", 0.5),
        ("100gbit", 100_000.0),
    ],
)
def test_rates(text: str, rate_mbit: float) -> None:
    """Rates are powers of 1000 bits, in any capitals."""
    assert units.parse_rate_mbit(text) == pytest.approx(rate_mbit, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("20mbps", ["ambiguous", "tc", "20mbit"]),
        ("20MBps", ["ambiguous", "20mbit"]),
        ("20bps", ["ambiguous", "20bit"]),
        ("20m", ["ambiguous", "20mbit"]),
        ("20MB/s", ["ambiguous", "20mbit"]),
        ("20", ["no unit", "20mbit"]),
        ("20furlong", ["unknown unit", "kbit, mbit, gbit"]),
        ("", ["not a number", "20mbit"]),
        ("mbit", ["not a number"]),
        ("1,5mbit", ["not a number"]),
        ("nanmbit", ["not a number"]),
        ("infmbit", ["not a number"]),
        ("\u0662mbit", ["not a number"]),
        ("-20mbit", ["from 0.001 to 100000 Mbit/s", "-20"]),
        ("0mbit", ["from 0.001"]),
        ("101gbit", ["100000 Mbit/s"]),
        ("1e999mbit", ["100000 Mbit/s", "inf"]),
        ("0.5bit", ["from 0.001"]),
    ],
)
def test_refused_rates(text: str, words: list[str]) -> None:
    """A rate that is ambiguous, absurd or no rate is refused, saying why and what would be right."""
    refused(units.parse_rate_mbit, text, words)


@pytest.mark.parametrize(
    ("text", "time_s"),
    [
        ("40ms", 0.04),
        ("60s", 60.0),
        ("2min", 120.0),
        ("500us", 0.0005),
        ("5\u00b5s", 5e-6),  # the micro sign
        ("5\u03bcs", 5e-6),  # the Greek letter
        ("1h", 3600.0),
        ("0s", 0.0),
        ("0.1 s", 0.1),
    ],
)
def test_times(text: str, time_s: float) -> None:
    """Both time parsers read the same units."""
    assert units.parse_time_s(text) == pytest.approx(time_s, rel=1e-12)
    assert units.parse_time_ms(text) == pytest.approx(time_s * 1e3, rel=1e-12)


def test_milliseconds_are_exact() -> None:
    """No rounding creeps in on the way through seconds."""
    assert [units.parse_time_ms(f"{n}ms") for n in range(1000)] == list(range(1000))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("40", ["no unit", "40ms", "40s"]),
        ("2m", ["ambiguous", "2min", "2ms"]),
        ("2days", ["unknown unit", "min"]),
        ("-1ms", ["from 0 to 3600 s"]),
        ("61min", ["from 0 to 3600 s"]),
        ("nan s", ["not a number"]),
    ],
)
def test_refused_times(text: str, words: list[str]) -> None:
    """A time without a unit, ambiguous, negative or over an hour is refused."""
    refused(units.parse_time_s, text, words)
    refused(units.parse_time_ms, text, words)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64KiB", 65536),
        ("100kB", 100_000),
        ("1500B", 1500),
        ("1.5kB", 1500),
        ("2 MiB", 2 * 2**20),
        ("1GB", 10**9),
        ("1GiB", 2**30),
        ("0.1kB", 100),
    ],
)
def test_sizes(text: str, size: int) -> None:
    """The kB is 1000 bytes, the KiB 1024."""
    assert units.parse_size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("64kb", ["ambiguous", "64kB", "64KiB"]),
        ("64KB", ["ambiguous", "64kB", "64KiB"]),
        ("64k", ["ambiguous", "64kB", "64KiB"]),
        ("2mb", ["ambiguous", "2MB", "2MiB"]),
        ("2Gb", ["ambiguous", "2GB", "2GiB"]),
        ("64kib", ["ambiguous", "64KiB"]),
        ("64", ["no unit", "64B"]),
        ("64b", ["unknown unit"]),
        ("64pages", ["unknown unit", "KiB"]),
        ("0B", ["from 1"]),
        ("-1kB", ["from 1"]),
        ("2000GB", ["1000000000000 bytes"]),
    ],
)
def test_refused_sizes(text: str, words: list[str]) -> None:
    """A size that could be bits or either kilo is refused, naming both readings."""
    refused(units.parse_size_bytes, text, words)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1bdp", 100_000),
        ("0.5 BDP", 50_000),
        ("64KiB", 65_536),
        ("100packets", 151_400),
        ("100pkt", 151_400),
        ("1packet", 1514),
        ("1514B", 1514),
    ],
)
def test_buffers(text: str, size: int) -> None:
    """At 20 Mbit/s and 40 ms a BDP is 100 000 bytes; a packet is 1514."""
    assert units.parse_buffer(text).resolve_bytes(rate_mbit=20, rtt_ms=40) == size


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1", ["no unit", "1bdp", "1packets", "1B"]),
        ("0bdp", ["above 0"]),
        ("-1packets", ["above 0"]),
        ("1.5packets", ["whole number"]),
        ("1e9bdp", ["1000 bdp"]),
        ("1e9packets", ["packets"]),
        ("5GB", ["4294967295 bytes"]),
        ("64KB", ["ambiguous"]),
        ("big", ["not a number", "1bdp"]),
    ],
)
def test_refused_buffers(text: str, words: list[str]) -> None:
    """A buffer without a unit, of nothing, of parts of a packet or absurd is refused."""
    refused(units.parse_buffer, text, words)


@pytest.mark.parametrize(
    ("buffer", "words"),
    [
        ("0.01bdp", ["0.01bdp", "1000 bytes", "20 Mbit/s", "40 ms", "one packet (1514)"]),
        ("1513B", ["1513 bytes", "one packet (1514)"]),
    ],
)
def test_buffer_below_one_packet(buffer: str, words: list[str]) -> None:
    """A queue that holds no packet would let nothing through."""
    refused(lambda text: units.parse_buffer(text).resolve_bytes(20, 40), buffer, words)


def test_resolved_buffer_fits_the_kernel() -> None:
    """A BDP of a rate and a time that are each allowed can still be above 32 bits."""
    refused(lambda text: units.parse_buffer(text).resolve_bytes(100_000, 3_600_000), "1bdp", ["4294967295"])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, 101, "5", None, True])
def test_check_range_refuses(value: object) -> None:
    """Neither NaN nor infinity nor what is no number passes a range."""
    with pytest.raises(UsageError, match="loss must be"):
        units.check_range("loss", value, 0, 100)


def test_check_range_ends() -> None:
    """Both ends belong to a range, the lower one unless told otherwise."""
    units.check_range("loss", 0, 0, 100)
    units.check_range("loss", 100, 0, 100)
    with pytest.raises(UsageError, match="above 0 and at most 100"):
        units.check_range("loss", 0, 0, 100, above=True)


@given(st.floats(units.MIN_RATE_MBIT, units.MAX_RATE_MBIT))
def test_rate_round_trip(rate_mbit: float) -> None:
    """A rate written exactly is read exactly, and one formatted for people to four digits."""
    assert units.parse_rate_mbit(f"{rate_mbit!r}mbit") == rate_mbit
    assert units.parse_rate_mbit(units.format_rate(rate_mbit)) == pytest.approx(rate_mbit, rel=1e-3)


@given(st.floats(0.001, units.MAX_TIME_MS * 0.999))
def test_time_round_trip(time_ms: float) -> None:
    """A time formatted for people is read back to four digits."""
    assert units.parse_time_ms(units.format_time(time_ms)) == pytest.approx(time_ms, rel=1e-3)


@given(st.integers(1, units.MAX_SIZE_BYTES))
def test_size_round_trip(size: int) -> None:
    """A size in bytes is read exactly, and one formatted for people to four digits."""
    assert units.parse_size_bytes(f"{size}B") == size
    assert units.parse_size_bytes(units.format_size(size)) == pytest.approx(size, rel=1e-3)


@given(
    st.floats(0.01, units.MAX_BUFFER_BDP).map(lambda n: Buffer(n, "bdp"))
    | st.integers(1, units.MAX_BUFFER_PACKETS).map(lambda n: Buffer(n, "packets"))
    | st.integers(1, units.MAX_BUFFER_BYTES).map(lambda n: Buffer(n, "bytes"))
)
def test_buffer_round_trip(buffer: Buffer) -> None:
    """A buffer is read back from how it is written."""
    assert units.parse_buffer(str(buffer)) == buffer


@given(st.floats(1, 1e4), st.floats(1, 1e3), st.floats(1, 10))
def test_bdp_scales(rate_mbit: float, rtt_ms: float, factor: float) -> None:
    """The BDP grows with either of its factors alike."""
    longer = units.bdp_bytes(rate_mbit, rtt_ms * factor)
    assert longer == pytest.approx(units.bdp_bytes(rate_mbit * factor, rtt_ms))
    assert longer == pytest.approx(units.bdp_bytes(rate_mbit, rtt_ms) * factor)


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever is written gives a number in range or our own error, and nothing else."""
    for parse in (units.parse_rate_mbit, units.parse_time_s, units.parse_size_bytes, units.parse_buffer):
        with suppress(UsageError):
            parse(text)


@given(
    st.from_regex(r"[+-]?[0-9]{1,4}(\.[0-9]{1,3})?(e[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(["", "mbit", "kbit", "mbps", "k", "ms", "m", "s", "B", "kB", "KB", "bdp", "pkt"]),
)
def test_any_quantity_is_read_or_refused(number: str, unit: str) -> None:
    """Numbers of any magnitude with any unit give a value in range or our own error."""
    with suppress(UsageError):
        assert units.MIN_RATE_MBIT <= units.parse_rate_mbit(number + unit) <= units.MAX_RATE_MBIT
    with suppress(UsageError):
        assert 1514 <= units.parse_buffer(number + unit).resolve_bytes(20, 40) <= units.MAX_BUFFER_BYTES


def refused(parse: Callable[[str], object], text: str, words: list[str]) -> None:
    """Check that a text is refused with a message that has the words."""
    with pytest.raises(UsageError) as raised:
        parse(text)
    assert not [word for word in words if word not in str(raised.value)], str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.format_rate(0.0), "0 Mbit/s"),
        (units.format_rate(9.5612345), "9.561 Mbit/s"),
        (units.format_rate(1000.0), "1 Gbit/s"),
        (units.format_time(0.0), "0 ms"),
        (units.format_time(0.0005), "0.5 us"),
        (units.format_size(0), "0 B"),
        (units.format_size(65536), "65.54 kB"),
        (units.format_time(math.nan), "nan ms"),
    ],
)
def test_formats(text: str, expected: str) -> None:
    """Four digits, in the largest unit that leaves a digit before the point."""
    assert text == expected
