"""When a timed source is due: cron expressions. Pure, in UTC.

Five fields: minute, hour, day of month, month, day of week. Six: the second stands before them. A field is `*` (or
`?`), a number, a range `a-b`, any of these with a step `/n`, or a list of them with commas. Months and days of the week
may be named (`jan`, `mon`), in any case; 0 and 7 are Sunday; a range of days or months may go round
the end (`fri-mon`).

As in cron, a day matches when either of day of month and day of week does, if both are restricted; a field that begins
with `*` or `?` does not restrict.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from forebay.clock import SECOND_US
from forebay.errors import Permanent

YEARS_AHEAD = 9
"""29 February comes again within eight years: what does not come within nine never does."""
EXPRESSION_CHARS_MAX = 200

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_PART = re.compile(r"(?P<first>\*|\?|\w+)(-(?P<last>\w+))?(/(?P<step>\d+))?")


class CronRefused(Permanent):
    """A cron expression that cannot be understood, or that never comes due. It says which part is wrong."""


class _Field(NamedTuple):
    name: str
    lowest: int
    highest: int
    names: dict[str, int]
    goes_round: bool = False


_SECOND = _Field("second", 0, 59, {})
_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of month", 1, 31, {}),
    _Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}, goes_round=True),
    _Field("day of week", 0, 7, {name: number for number, name in enumerate(_DAYS)}, goes_round=True),
)


class Cron(NamedTuple):
    """What an expression means: the numbers at which it is due."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    is_either_day: bool
    """Both kinds of day are restricted: either of them is enough."""


@lru_cache(maxsize=1024)
def parse_cron(expression: str) -> Cron:
    """Raises CronRefused, which says what is wrong with it."""
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise CronRefused(f"a cron expression of {len(expression)} characters; {EXPRESSION_CHARS_MAX} are allowed")
    fields = expression.split()
    if len(fields) not in (5, 6):
        raise CronRefused(
            f"cron {expression!r} has {len(fields)} fields",
            remedy="Give five (minute, hour, day of month, month, day of week), or six with the second first",
        )
    seconds = _numbers(_SECOND, fields[0]) if len(fields) == 6 else {0}
    minutes, hours, days, months, weekdays = map(_numbers, _FIELDS, fields[-5:])
    is_either_day = not fields[-3].startswith(("*", "?")) and not fields[-1].startswith(("*", "?"))
    cron = Cron(
        tuple(sorted(seconds)),
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(number % 7 for number in weekdays),
        is_either_day,
    )
    if not is_either_day and not any(min(days) <= monthrange(2024, month)[1] for month in months):
        raise CronRefused(f"cron {expression!r} is never due: none of its months has day {min(days)}")
    return cron


def next_tick_us(cron: Cron, after_us: int) -> int:
    """The first time after this one at which it is due, in microseconds since 1970."""
    moment = datetime.fromtimestamp(after_us // SECOND_US, UTC) + timedelta(seconds=1)
    for _ in range(YEARS_AHEAD * 366):
        if _is_day(cron, moment) and (found := _time_of_day(cron, moment)) is not None:
            return int(found.timestamp()) * SECOND_US
        moment = (moment + timedelta(days=1)).replace(hour=0, minute=0, second=0)
    raise CronRefused(f"the cron expression is not due within {YEARS_AHEAD} years")


def _is_day(cron: Cron, moment: datetime) -> bool:
    if moment.month not in cron.months:
        return False
    of_month, of_week = moment.day in cron.days, moment.isoweekday() % 7 in cron.weekdays
    return of_month or of_week if cron.is_either_day else of_month and of_week


def _time_of_day(cron: Cron, start: datetime) -> datetime | None:
    """The first due time of the day that is not before `start`."""
    for hour in cron.hours:
        if hour < start.hour:
            continue
        earliest_minute = start.minute if hour == start.hour else 0
        for minute in cron.minutes:
            if minute < earliest_minute:
                continue
            is_first = hour == start.hour and minute == start.minute
            for second in cron.seconds:
                if not is_first or second >= start.second:
                    return start.replace(hour=hour, minute=minute, second=second)
    return None


def _numbers(field: _Field, text: str) -> set[int]:
    numbers: set[int] = set()
    for part in text.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise _refused(field, part, "it is no number, range or list")
        step = int(found["step"] or 1)
        if step == 0:
            raise _refused(field, part, "the step is 0")
        if found["first"] in ("*", "?"):
            if found["last"] is not None:
                raise _refused(field, part, "a range has two numbers")
            numbers.update(range(field.lowest, field.highest + 1, step))
            continue
        first = _number(field, part, found["first"])
        # `5/10` means from 5 on, every tenth, as `5-59/10` does.
        last = first if found["step"] is None else field.highest
        if found["last"] is not None:
            last = _number(field, part, found["last"])
        numbers.update(_range(field, part, first, last)[::step])
    return numbers


def _range(field: _Field, part: str, first: int, last: int) -> list[int]:
    if first <= last:
        return list(range(first, last + 1))
    if not field.goes_round:
        raise _refused(field, part, "the range ends before it begins")
    size = 7 if field.lowest == 0 else 12
    return [(number - field.lowest) % size + field.lowest for number in range(first, last + size + 1)]


def _number(field: _Field, part: str, text: str) -> int:
    number = field.names.get(text.lower())
    if number is None:
        if not text.isascii() or not text.isdigit():
            raise _refused(field, part, f"{text!r} is no number")
        number = int(text)
    if not field.lowest <= number <= field.highest:
        raise _refused(field, part, f"{number} is not between {field.lowest} and {field.highest}")
    return number


def _refused(field: _Field, part: str, why: str) -> CronRefused:
    return CronRefused(f"cron: {field.name} {part!r} is refused: {why}")
