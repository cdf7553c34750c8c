"""Token buckets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.dispatch.definition import RateLimit
from forebay.dispatch.rates import Bucket, filled_to_now, full_bucket, is_open, spend, us_until_open

LIMIT = RateLimit(amount=100, seconds=10)
SECOND_US = 1_000_000


def test_a_bucket_is_full_at_first_and_fills_within_the_limits_time() -> None:
    bucket = spend(full_bucket(LIMIT, 0), 100)
    assert not is_open(bucket)
    assert filled_to_now(bucket, LIMIT, 5 * SECOND_US) == Bucket(50.0, 5 * SECOND_US)
    assert filled_to_now(bucket, LIMIT, 60 * SECOND_US) == Bucket(100.0, 60 * SECOND_US)


def test_a_parcel_larger_than_the_bucket_passes_and_is_paid_for_afterwards() -> None:
    bucket = spend(full_bucket(LIMIT, 0), 1000)
    assert us_until_open(bucket, LIMIT) == 90 * SECOND_US + 1
    assert not is_open(filled_to_now(bucket, LIMIT, 90 * SECOND_US))
    assert is_open(filled_to_now(bucket, LIMIT, 90 * SECOND_US + 1))


def test_a_clock_that_steps_back_neither_gives_nor_blocks() -> None:
    bucket = spend(full_bucket(LIMIT, 3600 * SECOND_US), 100)
    back = filled_to_now(bucket, LIMIT, 0)
    assert back == Bucket(0.0, 0)
    assert is_open(filled_to_now(back, LIMIT, SECOND_US)), "the hour of the step is not waited for"


def test_a_smaller_limit_counts_at_once() -> None:
    assert filled_to_now(Bucket(100.0, 0), RateLimit(amount=3), 0).tokens == 3


@given(
    st.integers(1, 10_000),
    st.floats(0.1, 3600),
    st.lists(st.tuples(st.integers(0, 10_000_000), st.integers(1, 5_000)), min_size=1, max_size=50),
)
def test_no_more_passes_than_the_limit_and_one_parcel(
    amount: int, seconds: float, steps: list[tuple[int, int]]
) -> None:
    limit = RateLimit(amount=amount, seconds=seconds)
    bucket, now_us, passed, largest = full_bucket(limit, 0), 0, 0, 0
    for elapsed_us, size in steps:
        now_us += elapsed_us
        bucket = filled_to_now(bucket, limit, now_us)
        if is_open(bucket):
            bucket = spend(bucket, size)
            passed, largest = passed + size, max(largest, size)
    assert passed <= amount * (1 + now_us / (seconds * SECOND_US)) + largest + 1e-6 * passed


@given(st.floats(-1e9, 1e6), st.integers(1, 10_000), st.floats(0.1, 3600))
def test_a_bucket_is_open_after_the_time_it_says(tokens: float, amount: int, seconds: float) -> None:
    limit = RateLimit(amount=amount, seconds=seconds)
    wait_us = us_until_open(Bucket(tokens, 0), limit)
    # A microsecond of slack for the rounding of large numbers.
    assert is_open(filled_to_now(Bucket(tokens, 0), limit, wait_us + wait_us // 10**12 + 1))
