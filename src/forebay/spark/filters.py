"""Filters that the server can apply, taken from the query: on `seq`, `partition` and `created_at`. See `pushFilters`.

What the server does exactly is taken off Spark's hands. What only narrows the range (times, a list of seqs) is
requested for and left with Spark as well, so that a filter can be wide here but never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from forebay.spark.positions import SeqRange, rfc3339

_NEVER_NULL = frozenset({("seq",), ("partition",), ("created_at",)})
_EQUAL = (EqualTo, EqualNullSafe)
_EVERY_SEQ = SeqRange(1, 1 << 62)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What a read is narrowed to. `partitions` None means all, empty means that nothing can match."""

    seqs: SeqRange = _EVERY_SEQ
    partitions: frozenset[str] | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None

    def query(self) -> list[tuple[str, str]]:
        """The part of the URL that says so, without the seqs."""
        found = [("partition", name) for name in sorted(self.partitions or ())]
        if self.created_from is not None:
            found.append(("createdFrom", rfc3339(self.created_from)))
        if self.created_to is not None:
            found.append(("createdTo", rfc3339(self.created_to)))
        return found

    def of(self, span: SeqRange) -> SeqRange:
        """What is left of the span."""
        start = max(span.start, self.seqs.start)
        return SeqRange(start, max(start, min(span.end, self.seqs.end)))

    @property
    def is_nothing(self) -> bool:
        return self.partitions is not None and not self.partitions


def push(filters: Iterable[Filter], narrowing: Narrowing) -> tuple[Narrowing, list[Filter]]:
    """The narrowing with the filters applied, and the filters that Spark still has to apply."""
    left: list[Filter] = []
    for given in filters:
        if isinstance(given, IsNotNull) and given.attribute in _NEVER_NULL:
            continue
        attribute = getattr(given, "attribute", None)
        value = getattr(given, "value", None)
        is_exact = False
        if attribute == ("seq",):
            narrowing, is_exact = _by_seq(given, value, narrowing)
        elif attribute == ("partition",):
            narrowing, is_exact = _by_partition(given, value, narrowing)
        elif attribute == ("created_at",) and isinstance(value, datetime):
            narrowing = _by_time(given, value, narrowing)
        if not is_exact:
            left.append(given)
    return narrowing, left


def _by_seq(given: Filter, value: Any, narrowing: Narrowing) -> tuple[Narrowing, bool]:
    values = value if isinstance(given, In) else (value,)
    if not values or not all(type(one) is int for one in values):
        return narrowing, False
    start, end = narrowing.seqs
    if isinstance(given, (*_EQUAL, In)):
        start, end = max(start, min(values)), min(end, max(values) + 1)
    elif isinstance(given, GreaterThan):
        start = max(start, value + 1)
    elif isinstance(given, GreaterThanOrEqual):
        start = max(start, value)
    elif isinstance(given, LessThan):
        end = min(end, value)
    elif isinstance(given, LessThanOrEqual):
        end = min(end, value + 1)
    else:
        return narrowing, False
    return replace(narrowing, seqs=SeqRange(start, end)), not isinstance(given, In)


def _by_partition(given: Filter, value: Any, narrowing: Narrowing) -> tuple[Narrowing, bool]:
    if not isinstance(given, (*_EQUAL, In)):
        return narrowing, False
    values = value if isinstance(given, In) else (value,)
    if not all(isinstance(one, str) for one in values):
        return narrowing, False
    wanted = frozenset(values)
    both = wanted if narrowing.partitions is None else narrowing.partitions & wanted
    return replace(narrowing, partitions=both), True


def _by_time(given: Filter, value: datetime, narrowing: Narrowing) -> Narrowing:
    # Spark gives a time without a zone in the zone of this process; one microsecond more on either side costs nothing.
    time = value.astimezone(UTC)
    wide = timedelta(microseconds=1)
    if isinstance(given, (*_EQUAL, GreaterThan, GreaterThanOrEqual)):
        before = narrowing.created_from
        narrowing = replace(narrowing, created_from=max(time - wide, before) if before else time - wide)
    if isinstance(given, (*_EQUAL, LessThan, LessThanOrEqual)):
        before = narrowing.created_to
        narrowing = replace(narrowing, created_to=min(time + wide, before) if before else time + wide)
    return narrowing
