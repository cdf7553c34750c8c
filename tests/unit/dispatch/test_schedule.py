"""Cron expressions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.dispatch.schedule import CronRefused, next_tick_us, parse_cron

SECOND_US = 1_000_000


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * SECOND_US)


def ticks(expression: str, after: str, count: int) -> list[str]:
    cron, at_us, found = parse_cron(expression), us(after), []
    for _ in range(count):
        at_us = next_tick_us(cron, at_us)
        found.append(datetime.fromtimestamp(at_us / SECOND_US, UTC).strftime("%Y-%m-%d %H:%M:%S"))
    return found


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("* * * * *", "2026-01-01 00:00:00", ["2026-01-01 00:01:00", "2026-01-01 00:02:00"]),
        ("*/15 * * * *", "2026-01-01 00:59:59.5", ["2026-01-01 01:00:00", "2026-01-01 01:15:00"]),
        ("0 4 * * *", "2026-01-01 04:00:00", ["2026-01-02 04:00:00"]),
        ("0 4 * * *", "2026-01-01 03:59:59.999", ["2026-01-01 04:00:00"]),
        ("30 9-11,14 * * *", "2026-01-01 11:30:00", ["2026-01-01 14:30:00", "2026-01-02 09:30:00"]),
        ("0 0 31 * *", "2026-01-31 00:00:00", ["2026-03-31 00:00:00", "2026-05-31 00:00:00"]),
        ("0 0 29 2 *", "2026-01-01 00:00:00", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        ("0 0 29 feb *", "2096-03-01 00:00:00", ["2104-02-29 00:00:00"]),
        # 2026-01-01 is a Thursday.
        ("0 12 * * mon-fri", "2026-01-02 12:00:00", ["2026-01-05 12:00:00"]),
        ("0 12 * * 0", "2026-01-01 00:00:00", ["2026-01-04 12:00:00", "2026-01-11 12:00:00"]),
        ("0 12 * * 7", "2026-01-01 00:00:00", ["2026-01-04 12:00:00"]),
        ("0 12 * * FRI-MON", "2026-01-01 00:00:00", ["2026-01-02 12:00:00", "2026-01-03 12:00:00"]),
        ("0 0 1 nov-feb *", "2026-01-15 00:00:00", ["2026-02-01 00:00:00", "2026-11-01 00:00:00"]),
        # Both kinds of day are restricted: either is enough, as in cron.
        ("0 0 13 * fri", "2026-01-01 00:00:00", ["2026-01-02 00:00:00", "2026-01-09 00:00:00", "2026-01-13 00:00:00"]),
        # A field that begins with * does not restrict: both have to match.
        ("0 0 */2 * fri", "2026-01-01 00:00:00", ["2026-01-09 00:00:00", "2026-01-23 00:00:00"]),
        ("0 0 ? * fri", "2026-01-01 00:00:00", ["2026-01-02 00:00:00"]),
        ("5/20 * * * *", "2026-01-01 00:00:00", ["2026-01-01 00:05:00", "2026-01-01 00:25:00", "2026-01-01 00:45:00"]),
        ("*/10 * * * * *", "2026-01-01 00:00:55", ["2026-01-01 00:01:00", "2026-01-01 00:01:10"]),
        ("30 59 23 31 12 *", "2026-01-01 00:00:00", ["2026-12-31 23:59:30", "2027-12-31 23:59:30"]),
    ],
)
def test_next_ticks(expression: str, after: str, expected: list[str]) -> None:
    assert ticks(expression, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("* * * * * * *", "7 fields"),
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day of week"),
        ("*/0 * * * *", "step"),
        ("9-5 * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("x * * * *", "minute"),
        ("-1 * * * *", "minute"),
        ("*-5 * * * *", "minute"),
        ("²5 * * * *", "minute"),
        ("0 0 30 2 *", "never"),
        ("0 0 31 4,6,9,11 *", "never"),
        ("* " * 200, "characters"),
    ],
)
def test_refused(expression: str, named: str) -> None:
    with pytest.raises(CronRefused, match=named):
        parse_cron(expression)


FIELD = st.integers(0, 59).map(str) | st.sampled_from(["*", "*/7", "3-50/9", "1,2,40"])


@given(FIELD, FIELD, st.integers(0, 4_000_000_000))
def test_a_tick_is_after_the_time_given_and_nothing_is_between(second: str, minute: str, after: int) -> None:
    cron = parse_cron(f"{second} {minute} * * * *")
    found = next_tick_us(cron, after * SECOND_US) // SECOND_US
    assert after < found <= after + 3600
    between = range(after + 1, found)
    assert not any(at % 60 in cron.seconds and at // 60 % 60 in cron.minutes for at in between), (
        "an earlier one was passed over"
    )
    assert found % 60 in cron.seconds
    assert found // 60 % 60 in cron.minutes
