"""Sizes and durations as people write them: `256Mi`, `1.5Gi`, `10MB`, `30s`, `1h30m`. Pure functions of text.

A size is a whole number of bytes, held as int; a plain number means bytes. A duration is a whole number of
microseconds, held as `timedelta`: the standard type counts microseconds as integers, so arithmetic is exact, and a
timedelta can never be mistaken for seconds where milliseconds were meant. For the same reason a bare number is no
duration: it has to carry its unit.

    size      :=  number [" "] ["B" | ("k" | "K" | "M" | "G" | "T")["B"] | ("Ki" | "Mi" | "Gi" | "Ti")["B"]]
    duration  :=  "0"  |  (number ("d" | "h" | "m" | "s" | "ms" | "us"))+    largest unit first, each once
    number    :=  digits with optional "_" between them and an optional decimal fraction

k, M, G, T count in thousands, Ki, Mi, Gi, Ti in 1024s. Fractions are computed exactly and cut to a whole byte or
microsecond: `0.1Gi` is 107374182 bytes. Text that would become 0 by cutting is refused.

Reading what was written gives the same value: `parse_size(format_size(n)) == n`, likewise for durations.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

SIZE_BYTES_MAX = 2**63 - 1
"""What a signed 64-bit file offset can address."""

DURATION_MAX = timedelta(days=36_500)
"""A century. Longer ones are slips of the unit, and sums of such durations with dates would overflow."""

TEXT_LENGTH_MAX = 64
"""No honest size or duration is longer; the limit keeps arithmetic on huge digit strings out."""

SIZE_UNITS = {
    "": 1,
    "k": 1000,
    "M": 1000**2,
    "G": 1000**3,
    "T": 1000**4,
    "Ki": 1024,
    "Mi": 1024**2,
    "Gi": 1024**3,
    "Ti": 1024**4,
}
DURATION_UNITS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}

_NUMBER = r"[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?"
_SIZE = re.compile(rf"({_NUMBER})\s?([A-Za-z]*)")
_DURATION_PART = re.compile(rf"({_NUMBER})\s?([A-Za-z]+)\s?")
_MICROSECOND = timedelta(microseconds=1)


def parse_size(text: str) -> int:
    """Read a size in bytes. Raises ValueError, whose message tells the writer of `text` what to change."""
    stripped = _within_length(text, "size")
    match = _SIZE.fullmatch(stripped)
    if match is None:
        raise ValueError("not a number with a unit")
    number, unit = match.groups()
    factor = _size_factor(unit)
    if not unit and "." in number:
        raise ValueError("bytes are whole; a fraction needs a unit such as Mi")
    if not unit and len(number) > 1 and number.startswith("0"):
        raise ValueError("leave out the leading zero; elsewhere it means octal")
    size = _whole(number, factor, "byte")
    if size > SIZE_BYTES_MAX:
        raise ValueError(f"more than {SIZE_BYTES_MAX} bytes")
    return size


def format_size(size: int) -> str:
    """Write a size exactly, in the unit that makes it shortest; where two are as short, in 1024s."""
    if size < 0:
        raise ValueError(f"a size is 0 or more, not {size}")
    exact = [(str(size // factor), unit) for unit, factor in SIZE_UNITS.items() if size % factor == 0]
    number, unit = min(exact, key=lambda written: (len(written[0]), not written[1].endswith("i")))
    return number + unit if size else "0"


def parse_duration(text: str) -> timedelta:
    """Read a duration. Raises ValueError, whose message tells the writer of `text` what to change."""
    stripped = _within_length(text, "duration")
    if stripped == "0":
        return timedelta()
    if re.fullmatch(_NUMBER, stripped):
        raise ValueError(f"add a unit: {stripped}s, {stripped}ms, …")
    if not stripped:
        raise ValueError("not a number with a unit")
    microseconds, position, coarser = 0, 0, 0
    while position < len(stripped):
        part = _DURATION_PART.match(stripped, position)
        if part is None:
            raise ValueError("not a number with a unit")
        number, unit = part.groups()
        if unit not in DURATION_UNITS:
            raise ValueError(f"{unit!r} is no unit of time; use d, h, m, s, ms, us")
        if coarser and DURATION_UNITS[unit] >= coarser:
            raise ValueError("name each unit once, the largest first")
        microseconds += _whole(number, DURATION_UNITS[unit], "microsecond")
        position, coarser = part.end(), DURATION_UNITS[unit]
    if microseconds > DURATION_MAX // _MICROSECOND:
        raise ValueError(f"more than {format_duration(DURATION_MAX)}")
    return microseconds * _MICROSECOND


def format_duration(duration: timedelta) -> str:
    """Write a duration exactly, the largest unit first: `1h30m`, `200ms`, `0s`."""
    rest = duration // _MICROSECOND
    if rest < 0:
        raise ValueError(f"a duration is 0 or more, not {duration}")
    parts = []
    for unit, factor in DURATION_UNITS.items():
        count, rest = divmod(rest, factor)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _within_length(text: str, noun: str) -> str:
    stripped = text.strip()
    if len(stripped) > TEXT_LENGTH_MAX:
        raise ValueError(f"a {noun} has at most {TEXT_LENGTH_MAX} characters")
    if stripped.startswith("-"):
        raise ValueError(f"a {noun} is 0 or more")
    return stripped


def _size_factor(unit: str) -> int:
    short = unit.removesuffix("B")
    short = "k" if short == "K" else short
    if short not in SIZE_UNITS:
        raise ValueError(f"{unit!r} is no unit of size; use k, M, G, T (1000s) or Ki, Mi, Gi, Ti (1024s)")
    return SIZE_UNITS[short]


def _whole(number: str, factor: int, smallest: str) -> int:
    exact = Fraction(number.replace("_", "")) * factor
    whole = int(exact)
    if exact and not whole:
        raise ValueError(f"less than one {smallest}")
    return whole
