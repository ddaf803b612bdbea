"""Quantities as people write them, to the units in the names and back: the one place that converts.

Rates are in Mbit/s (10⁶ bit/s), times in ms or s, sizes in bytes. A unit that two tools read differently is
refused, never guessed: `tc` reads "mbps" as megabytes per second, iperf3's users as megabits.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Literal

from topologies.errors import UsageError

__all__ = [
    "Buffer",
    "bdp_bytes",
    "check_range",
    "format_rate",
    "format_size",
    "format_time",
    "parse_buffer",
    "parse_rate_mbit",
    "parse_size_bytes",
    "parse_time_ms",
    "parse_time_s",
]

PACKET_BYTES = 1514
"""A full Ethernet frame as queues count it: 1500 bytes of IP and 14 of Ethernet header, no checksum."""

MIN_RATE_MBIT = 0.001
"""1 kbit/s, at which one full frame already takes 12 s."""
MAX_RATE_MBIT = 100_000.0
"""100 Gbit/s."""
MAX_TIME_S = 3600.0
"""One hour: longer is a slip of the unit."""
MAX_TIME_MS = MAX_TIME_S * 1e3
MAX_SIZE_BYTES = 10**12
"""1 TB."""
MAX_BUFFER_BYTES = 2**32 - 1
"""The kernel's queue limits (`tc_fifo_qopt.limit`) have 32 bits."""
MAX_BUFFER_BDP = 1000.0
MAX_BUFFER_PACKETS = MAX_BUFFER_BYTES // PACKET_BYTES

# Keys are lower case: "bit" is spelt out, so that capital letters make no difference.
RATE_UNITS_MBIT = {"bit": 1e-6, "kbit": 1e-3, "mbit": 1.0, "gbit": 1e3}
TIME_UNITS_S = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
# Capital letters matter here: kB is 1000 bytes, KiB 1024 (IEC 80000-13).
SIZE_UNITS_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
PACKET_UNITS = ("packets", "packet", "pkts", "pkt")

QUANTITY = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµμ/]*)\s*")


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    """Return the number and the unit of a quantity, the unit being "" for a bare number."""
    match = QUANTITY.fullmatch(text)
    if match is None:
        raise UsageError(f"{what} {text!r} is not a number with a unit: write it as {example}")
    return float(match[1]), match[2].replace("μ", "µ")  # Greek mu and the micro sign look the same


def check_range(what: str, value: object, low: float, high: float, unit: str = "", *, above: bool = False) -> None:
    """Refuse what is not a number from `low` to `high`, or, with `above`, not above `low`.

    Examples
    --------
    >>> check_range("loss", 120, 0, 100, " %")
    Traceback (most recent call last):
    topologies.errors.UsageError: loss must be from 0 to 100 %, not 120
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise UsageError(f"{what} must be a number{f' of{unit}' if unit else ''}, not {value!r}")
    number = float(value)
    if not (low < number if above else low <= number) or not number <= high:  # NaN fails both
        bounds = f"above {low:g} and at most" if above else f"from {low:g} to"
        raise UsageError(f"{what} must be {bounds} {high:.13g}{unit}, not {value}")


def parse_rate_mbit(text: str) -> float:
    """Return a rate in Mbit/s, from 1 kbit/s to 100 Gbit/s.

    Units are bit, kbit, mbit and gbit (powers of 1000); "/s" may follow, and capital letters make no
    difference.

    Examples
    --------
    >>> parse_rate_mbit("20mbit"), parse_rate_mbit("1.5 Gbit/s")
    (20.0, 1500.0)
    >>> parse_rate_mbit("20mbps")
    Traceback (most recent call last):
    topologies.errors.UsageError: rate '20mbps' is ambiguous: tc reads "bps" as bytes; for bits write 20mbit
    """
    number, unit = _split(text, "rate", "20mbit")
    factor = RATE_UNITS_MBIT.get(unit.lower().removesuffix("/s"))
    if factor is None:
        raise UsageError(_rate_refusal(text, number, unit))
    rate_mbit = number * factor
    check_range(f"rate {text!r}", rate_mbit, MIN_RATE_MBIT, MAX_RATE_MBIT, " Mbit/s")
    return rate_mbit


def _rate_refusal(text: str, number: float, unit: str) -> str:
    """Return why a rate's unit is refused, and what to write instead."""
    scale = unit[:1].lower() if unit[:1].lower() in ("k", "m", "g") else ""
    suggestion = f"{number:g}{scale}bit"
    if not unit:
        return f"rate {text!r} has no unit: write {number:g}mbit for Mbit/s"
    if re.fullmatch("[kmg]?bps", unit.lower()):
        return f'rate {text!r} is ambiguous: tc reads "bps" as bytes; for bits write {suggestion}'
    if re.fullmatch("[kmg]?(b|b/s)?", unit.lower()):
        return f"rate {text!r} is ambiguous, bits or bytes: for bits write {suggestion}"
    return f"rate {text!r} has the unknown unit {unit!r}: use one of {', '.join(RATE_UNITS_MBIT)}"


def parse_time_s(text: str) -> float:
    """Return a time in s, from 0 to one hour; units are us, ms, s, min and h.

    Examples
    --------
    >>> parse_time_s("60s"), parse_time_s("2min"), parse_time_s("40ms")
    (60.0, 120.0, 0.04)
    """
    return _time(text, 1.0)


def parse_time_ms(text: str) -> float:
    """Return a time in ms, from 0 to one hour; units are us, ms, s, min and h.

    Examples
    --------
    >>> parse_time_ms("40ms"), parse_time_ms("500us"), parse_time_ms("2s")
    (40.0, 0.5, 2000.0)
    """
    return _time(text, 1e3)


def _time(text: str, per_second: float) -> float:
    """Return a time in units of which a second has `per_second`."""
    number, unit = _split(text, "time", "40ms or 60s")
    factor = TIME_UNITS_S.get(unit)
    if factor is None:
        raise UsageError(_time_refusal(text, number, unit))
    check_range(f"time {text!r}", number * factor, 0.0, MAX_TIME_S, " s")
    return number * (factor * per_second)


def _time_refusal(text: str, number: float, unit: str) -> str:
    """Return why a time's unit is refused, and what to write instead."""
    if not unit:
        return f"time {text!r} has no unit: write {number:g}ms or {number:g}s"
    if unit.lower() == "m":
        return f"time {text!r} is ambiguous: write {number:g}min for minutes or {number:g}ms for milliseconds"
    return f"time {text!r} has the unknown unit {unit!r}: use one of us, ms, s, min, h"


def parse_size_bytes(text: str) -> int:
    """Return a size in whole bytes, from 1 to 10¹²; kB, MB, GB are powers of 1000, KiB, MiB, GiB of 1024.

    Examples
    --------
    >>> parse_size_bytes("64KiB"), parse_size_bytes("100kB"), parse_size_bytes("1500B")
    (65536, 100000, 1500)
    >>> parse_size_bytes("64KB")
    Traceback (most recent call last):
    topologies.errors.UsageError: size '64KB' is ambiguous: write 64kB for 1000s of bytes or 64KiB for 1024s
    """
    number, unit = _split(text, "size", "64KiB")
    factor = SIZE_UNITS_BYTES.get(unit)
    if factor is None:
        raise UsageError(_size_refusal(text, number, unit))
    check_range(f"size {text!r}", number * factor, 1, MAX_SIZE_BYTES, " bytes")
    return round(number * factor)


def _size_refusal(text: str, number: float, unit: str) -> str:
    """Return why a size's unit is refused, and what to write instead."""
    known = ", ".join(SIZE_UNITS_BYTES)
    if not unit:
        return f"size {text!r} has no unit: write {number:g}B for bytes"
    scale = unit[:1].upper()
    if re.fullmatch("[kmg](i?b)?", unit.lower()):
        decimal, binary = ("kB", "KiB") if scale == "K" else (f"{scale}B", f"{scale}iB")
        powers = {"K": ("1000s", "1024s"), "M": ("1000²s", "1024²s"), "G": ("1000³s", "1024³s")}[scale]
        return (
            f"size {text!r} is ambiguous: write {number:g}{decimal} for {powers[0]} of bytes "
            f"or {number:g}{binary} for {powers[1]}"
        )
    return f"size {text!r} has the unknown unit {unit!r}: use one of {known}"


def bdp_bytes(rate_mbit: float, rtt_ms: float) -> float:
    """Return the bandwidth-delay product in bytes: rate * 10⁶ / 8 * RTT / 10³.

    Examples
    --------
    >>> bdp_bytes(20, 40)
    100000.0
    """
    return rate_mbit * rtt_ms * 125.0


@dataclass(frozen=True)
class Buffer:
    """The length of a queue: bytes, packets of 1514 bytes, or bandwidth-delay products.

    Attributes
    ----------
    amount : float
        How many of the unit, above 0.
    unit : {"bdp", "bytes", "packets"}

    Examples
    --------
    >>> Buffer(1, "bdp").resolve_bytes(rate_mbit=20, rtt_ms=40)
    100000
    >>> str(Buffer(100, "packets"))
    '100packets'
    """

    amount: float
    unit: Literal["bdp", "bytes", "packets"]

    def __post_init__(self) -> None:
        """Refuse an amount that is not above 0, or absurd."""
        highest: Mapping[str, float] = {
            "bdp": MAX_BUFFER_BDP,
            "bytes": MAX_BUFFER_BYTES,
            "packets": MAX_BUFFER_PACKETS,
        }
        check_range("buffer", self.amount, 0, highest[self.unit], f" {self.unit}", above=True)

    def __str__(self) -> str:
        """Return the buffer as `parse_buffer` reads it."""
        return f"{self.amount!r}{'B' if self.unit == 'bytes' else self.unit}"

    def resolve_bytes(self, rate_mbit: float, rtt_ms: float) -> int:
        """Return the buffer in whole bytes at a rate and a round-trip time, at least one packet."""
        scale = {"bdp": bdp_bytes(rate_mbit, rtt_ms), "bytes": 1, "packets": PACKET_BYTES}
        size = round(self.amount * scale[self.unit])
        if size < PACKET_BYTES:
            at = f" at {format_rate(rate_mbit)} and {format_time(rtt_ms)}" if self.unit == "bdp" else ""
            raise UsageError(f"buffer {self} is {size} bytes{at}, below one packet ({PACKET_BYTES})")
        check_range(f"buffer {self}", size, PACKET_BYTES, MAX_BUFFER_BYTES, " bytes")
        return size


def parse_buffer(text: str) -> Buffer:
    """Return a queue's length, written in BDP, in packets or as a size.

    Examples
    --------
    >>> parse_buffer("1bdp"), parse_buffer("64KiB")
    (Buffer(amount=1.0, unit='bdp'), Buffer(amount=65536, unit='bytes'))
    >>> parse_buffer("100pkt")
    Buffer(amount=100, unit='packets')
    """
    number, unit = _split(text, "buffer", "1bdp, 64KiB or 100packets")
    if not unit:
        raise UsageError(f"buffer {text!r} has no unit: write {number:g}bdp, {number:g}packets or {number:g}B")
    if number <= 0:
        raise UsageError(f"buffer {text!r} must be above 0")
    if unit.lower() == "bdp":
        return Buffer(number, "bdp")
    if unit.lower() in PACKET_UNITS:
        return Buffer(_whole_packets(text, number), "packets")
    return Buffer(parse_size_bytes(text), "bytes")


def _whole_packets(text: str, number: float) -> int:
    """Return a number of packets, refusing parts of one."""
    if not number.is_integer():
        raise UsageError(f"buffer {text!r} must be a whole number of packets")
    return int(number)


def format_rate(rate_mbit: float) -> str:
    """Return a rate for people, as `parse_rate_mbit` reads it, to four digits.

    Examples
    --------
    >>> format_rate(20.0), format_rate(1500.0), format_rate(0.5)
    ('20 Mbit/s', '1.5 Gbit/s', '500 kbit/s')
    """
    return _scaled(rate_mbit, [(1e3, "Gbit/s"), (1.0, "Mbit/s"), (1e-3, "kbit/s")])


def format_time(time_ms: float) -> str:
    """Return a time given in ms for people, as `parse_time_ms` reads it, to four digits.

    Examples
    --------
    >>> format_time(40.0), format_time(1500.0), format_time(0.25)
    ('40 ms', '1.5 s', '250 us')
    """
    return _scaled(time_ms, [(1e3, "s"), (1.0, "ms"), (1e-3, "us")])


def format_size(size_bytes: float) -> str:
    """Return a size for people, as `parse_size_bytes` reads it, to four digits.

    Examples
    --------
    >>> format_size(100_000), format_size(1514), format_size(700)
    ('100 kB', '1.514 kB', '700 B')
    """
    return _scaled(size_bytes, [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")])


def _scaled(value: float, scales: list[tuple[float, str]]) -> str:
    """Return a value in the largest unit that it reaches, or the smallest; scales are in falling order."""
    factor, unit = next((scale for scale in scales if abs(value) >= scale[0]), scales[-1])
    if value == 0 or not math.isfinite(value):
        factor, unit = next(scale for scale in scales if scale[0] == 1.0)
    return f"{value / factor:.4g} {unit}"
