"""Halving a batch finds the records that fail, and only those."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.flows.narrowing import Bad, TooManyFail, narrow


class Batch:
    """Records of which some fail; every try is noted."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad
        self.tries: list[tuple[int, int]] = []

    def attempt(self, start: int, end: int) -> str | None:
        self.tries.append((start, end))
        failing = sorted(self.bad & set(range(start, end)))
        return f"seq {failing[0]} fails" if failing else None


@given(st.integers(1, 1000), st.integers(1, 300), st.sets(st.integers(0, 299), max_size=20))
def test_exactly_the_records_that_fail_are_found_in_order(start: int, size: int, places: set[int]) -> None:
    bad = {start + place for place in places if place < size}
    found = narrow(start, start + size, Batch(bad).attempt)
    assert found == [Bad(seq, f"seq {seq} fails") for seq in sorted(bad)]


@given(st.integers(1, 500_000))
def test_one_bad_record_takes_a_try_per_halving(place: int) -> None:
    batch = Batch({place})
    assert [bad.seq for bad in narrow(1, 500_001, batch.attempt)] == [place]
    assert len(batch.tries) <= 2 * math.ceil(math.log2(500_000)) + 1


def test_no_record_is_tried_alone_twice() -> None:
    batch = Batch({1, 2, 5})
    narrow(1, 9, batch.attempt)
    singles = [tried for tried in batch.tries if tried[1] - tried[0] == 1]
    assert len(singles) == len(set(singles))


def test_records_that_fail_only_together_are_not_called_bad() -> None:
    assert narrow(1, 101, lambda start, end: "the sum is too large" if end - start > 40 else None) == []


def test_search_ends_where_too_many_fail() -> None:
    batch = Batch(set(range(1, 5001)))
    with pytest.raises(TooManyFail, match="more than 10 records of the batch fail, seq 1 first"):
        narrow(1, 5001, batch.attempt, bad_max=10)
    with pytest.raises(TooManyFail, match="too many fail"):
        narrow(1, 5001, batch.attempt, tries_max=7)
    assert len(batch.tries) < 100
