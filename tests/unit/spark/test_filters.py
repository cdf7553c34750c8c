"""Filters: what goes to the server, what stays with Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from forebay.spark.filters import Narrowing, push
from forebay.spark.positions import SeqRange

SEQ, PARTITION, CREATED = ("seq",), ("partition",), ("created_at",)
KINDS: dict[Any, Callable[[int, Any], bool]] = {
    EqualTo: lambda seq, value: seq == value,
    GreaterThan: lambda seq, value: seq > value,
    GreaterThanOrEqual: lambda seq, value: seq >= value,
    LessThan: lambda seq, value: seq < value,
    LessThanOrEqual: lambda seq, value: seq <= value,
    In: lambda seq, value: seq in value,
}
NUMBERS = st.integers(-5, 25)
ONE = st.builds(lambda kind, value: kind(SEQ, value), st.sampled_from([*KINDS][:-1]), NUMBERS)
SOME = st.builds(lambda values: In(SEQ, tuple(values)), st.lists(NUMBERS, min_size=1, max_size=4))


@given(st.lists(ONE | SOME, max_size=5))
def test_seqs_that_are_asked_for_and_kept_are_those_that_match(filters: list[Filter]) -> None:
    narrowing, left = push(filters, Narrowing())

    def holds(one: Filter, seq: int) -> bool:
        return KINDS[type(one)](seq, one.value)  # type: ignore[attr-defined]

    asked = narrowing.of(SeqRange(1, 20))
    kept = [seq for seq in range(asked.start, asked.end) if all(holds(one, seq) for one in left)]
    assert kept == [seq for seq in range(1, 20) if all(holds(one, seq) for one in filters)]


def test_exact_filters_are_taken_off_spark() -> None:
    filters = [GreaterThan(SEQ, 5), EqualTo(PARTITION, "a"), IsNotNull(SEQ), IsNotNull(PARTITION)]
    narrowing, left = push(filters, Narrowing())
    assert left == []
    assert (narrowing.seqs.start, narrowing.query()) == (6, [("partition", "a")])


def test_partitions_are_met_with_those_of_the_option() -> None:
    option = Narrowing(partitions=frozenset({"a", "b"}))
    assert push([In(PARTITION, ("b", "c"))], option)[0].query() == [("partition", "b")]
    assert push([EqualTo(PARTITION, "c")], option)[0].is_nothing
    assert not option.is_nothing
    assert not Narrowing().is_nothing


def test_times_narrow_and_stay_with_spark() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    filters = [GreaterThan(CREATED, noon), LessThanOrEqual(CREATED, noon + timedelta(hours=1))]
    narrowing, left = push(filters, Narrowing())
    assert left == filters
    assert narrowing.query() == [
        ("createdFrom", "2026-01-01T09:59:59.999999Z"),
        ("createdTo", "2026-01-01T11:00:00.000001Z"),
    ]


def test_the_narrowest_time_counts() -> None:
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    narrowing, _ = push([GreaterThan(CREATED, time) for time in times], Narrowing())
    assert narrowing.query() == [("createdFrom", "2026-01-02T23:59:59.999999Z")]


@pytest.mark.parametrize(
    "other",
    [
        Not(EqualTo(SEQ, 5)),
        EqualTo(("payload",), b"x"),
        StringStartsWith(PARTITION, "a"),
        EqualTo(PARTITION, None),
        EqualTo(SEQ, 1.5),
        In(SEQ, ()),
        IsNotNull(("trace_id",)),
    ],
)
def test_what_is_not_understood_is_left_alone(other: Filter) -> None:
    assert push([other], Narrowing()) == (Narrowing(), [other])
