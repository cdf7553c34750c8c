"""Sizes and durations: exact, reversible, and refused with what would help."""

from __future__ import annotations

import contextlib
import re
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.config.units import (
    DURATION_MAX,
    DURATION_UNITS,
    SIZE_BYTES_MAX,
    SIZE_UNITS,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

MICROSECOND = timedelta(microseconds=1)
sizes = st.integers(min_value=0, max_value=SIZE_BYTES_MAX)
durations = st.integers(min_value=0, max_value=DURATION_MAX // MICROSECOND).map(lambda n: n * MICROSECOND)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("10_000", 10_000),
        ("17B", 17),
        ("3k", 3000),
        ("3K", 3000),
        ("10MB", 10_000_000),
        ("2G", 2_000_000_000),
        ("1TB", 10**12),
        ("4Ki", 4096),
        ("256Mi", 256 * 1024**2),
        ("512MiB", 512 * 1024**2),
        ("512 MiB", 512 * 1024**2),
        (" 1.5Gi ", 3 * 1024**3 // 2),
        ("2Ti", 2 * 1024**4),
        ("0.1Gi", 107_374_182),
        ("0.3M", 300_000),
        (str(SIZE_BYTES_MAX), SIZE_BYTES_MAX),
    ],
)
def test_size_is_read_exactly(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "not a number with a unit"),
        ("Mi", "not a number with a unit"),
        ("nan", "not a number with a unit"),
        ("1e9", "not a number with a unit"),
        ("1,5Gi", "not a number with a unit"),
        ("١٢", "not a number with a unit"),
        ("1__0", "not a number with a unit"),
        ("-1", "0 or more"),
        ("-5Mi", "0 or more"),
        ("5 apples", "'apples' is no unit of size; use k, M, G, T (1000s) or Ki, Mi, Gi, Ti (1024s)"),
        ("5m", "'m' is no unit of size"),
        ("5mb", "'mb' is no unit of size"),
        ("5BB", "'BB' is no unit of size"),
        ("1.5", "a fraction needs a unit"),
        ("010", "leading zero"),
        ("0.0001k", "less than one byte"),
        (str(SIZE_BYTES_MAX + 1), f"more than {SIZE_BYTES_MAX} bytes"),
        ("9000000Ti", f"more than {SIZE_BYTES_MAX} bytes"),
        ("9" * 5000, "at most 64 characters"),
    ],
)
def test_wrong_size_is_refused_with_what_helps(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(hint)):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1000, "1k"),
        (1024, "1Ki"),
        (1500, "1500"),
        (536_870_912, "512Mi"),
        (64_000_000, "64M"),
        (1_024_000, "1000Ki"),
        (3 * 1024**3 // 2, "1536Mi"),
    ],
)
def test_size_is_written_in_the_shortest_exact_unit(size: int, text: str) -> None:
    assert format_size(size) == text


@given(sizes)
@settings(deadline=None)
def test_every_size_survives_writing_and_reading(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.integers(0, 9999), st.integers(0, 999), st.sampled_from(sorted(SIZE_UNITS, key=SIZE_UNITS.__getitem__)[1:]))
@settings(deadline=None)
def test_size_with_a_fraction_is_the_exact_product_cut_to_a_byte(whole: int, thousandths: int, unit: str) -> None:
    exact = (whole + Fraction(thousandths, 1000)) * SIZE_UNITS[unit]
    text = f"{whole}.{thousandths:03d}{unit}"
    if exact and exact < 1:
        with pytest.raises(ValueError, match="less than one byte"):
            parse_size(text)
    else:
        assert parse_size(text) == exact.numerator // exact.denominator


@given(st.text(max_size=80))
@settings(deadline=None)
def test_no_text_breaks_the_reading_of_sizes_and_durations(text: str) -> None:
    for parse in (parse_size, parse_duration):
        with contextlib.suppress(ValueError):
            assert parse(text) is not None


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("0", timedelta()),
        ("0s", timedelta()),
        ("30s", timedelta(seconds=30)),
        ("200ms", timedelta(milliseconds=200)),
        ("500us", timedelta(microseconds=500)),
        ("5m", timedelta(minutes=5)),
        ("1h", timedelta(hours=1)),
        ("2d", timedelta(days=2)),
        ("1h30m", timedelta(minutes=90)),
        ("1h 05m", timedelta(minutes=65)),
        ("0.1s", timedelta(milliseconds=100)),
        ("1.5h", timedelta(minutes=90)),
        ("36500d", DURATION_MAX),
    ],
)
def test_duration_is_read_exactly(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "not a number with a unit"),
        ("s", "not a number with a unit"),
        ("nan", "not a number with a unit"),
        ("1:30", "not a number with a unit"),
        ("5s!", "not a number with a unit"),
        ("-5s", "0 or more"),
        ("30", "add a unit: 30s"),
        ("1.5", "add a unit"),
        ("5 weeks", "'weeks' is no unit of time; use d, h, m, s, ms, us"),
        ("5M", "'M' is no unit of time"),
        ("30m1h", "the largest first"),
        ("1h1h", "name each unit once"),
        ("0.1us", "less than one microsecond"),
        ("36501d", "more than 36500d"),
        ("9" * 5000 + "s", "at most 64 characters"),
    ],
)
def test_wrong_duration_is_refused_with_what_helps(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(hint)):
        parse_duration(text)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(seconds=30), "30s"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(microseconds=1_500), "1ms500us"),
        (timedelta(hours=36), "1d12h"),
    ],
)
def test_duration_is_written_with_the_largest_unit_first(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(durations)
@settings(deadline=None)
def test_every_duration_survives_writing_and_reading(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.integers(1, 999), st.sampled_from(list(DURATION_UNITS)))
@settings(deadline=None)
def test_duration_in_one_unit_is_its_exact_multiple(count: int, unit: str) -> None:
    assert parse_duration(f"{count}{unit}") == count * DURATION_UNITS[unit] * MICROSECOND


def test_negative_values_are_never_written() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        format_size(-1)
    with pytest.raises(ValueError, match="0 or more"):
        format_duration(timedelta(seconds=-1))
