"""When a failed parcel comes again by itself."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.dispatch.definition import Retry
from forebay.dispatch.retries import (
    Failure,
    ResumePolicy,
    by_priority,
    due_after,
    fits,
    policy_seconds,
    priority_of,
    retry_seconds,
)

SECOND_US = 1_000_000
STEADY = Retry(max_attempts=4, delay_seconds=10, multiplier=2, max_delay_seconds=25, jitter=0)
NO_RETRY = Retry(max_attempts=1)


def failure(attempts: int = 1, *, error: str = "connection refused by db", flow: str = "orders") -> Failure:
    return Failure(flow, "geocode", error, attempts)


def test_delays_grow_up_to_the_maximum_until_the_attempts_are_used_up() -> None:
    assert [retry_seconds(STEADY, attempts, 0.5) for attempts in range(1, 6)] == [10, 20, 25, None, None]


def test_jitter_is_a_share_of_the_delay_either_way() -> None:
    retry = Retry(delay_seconds=10, jitter=0.2)
    assert retry_seconds(retry, 1, 0.0) == pytest.approx(8)
    assert retry_seconds(retry, 1, 0.5) == pytest.approx(10)


@given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True))
def test_no_number_of_attempts_is_too_large(attempts: int, draw: float) -> None:
    seconds = retry_seconds(Retry(max_attempts=2 * 10**9, multiplier=1000.0), attempts, draw)
    assert seconds is not None
    assert 0 < seconds <= 330


def test_the_steps_own_retry_is_asked_before_any_policy() -> None:
    policy = ResumePolicy(name="slow", flow="orders", delay_seconds=3600)
    assert due_after(STEADY, [policy], failure(1), 0, 0.5) == 10 * SECOND_US


def test_a_policy_counts_attempts_from_where_the_retry_ended() -> None:
    policy = ResumePolicy(name="db", error_text="refused", max_attempts=7, delay_seconds=60, multiplier=2)
    due = [due_after(STEADY, [policy], failure(attempts), 0, 0.5) for attempts in range(4, 9)]
    assert due == [60 * SECOND_US, 120 * SECOND_US, 240 * SECOND_US, None, None]


def test_without_a_policy_that_fits_an_error_waits_for_a_person() -> None:
    assert due_after(NO_RETRY, [], failure(), 0, 0.5) is None
    other = ResumePolicy(name="other", flow="clicks")
    assert due_after(NO_RETRY, [other], failure(), 0, 0.5) is None


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (ResumePolicy(name="p", error_text="refused by"), True),
        (ResumePolicy(name="p", error_text="Refused"), False),
        (ResumePolicy(name="p", flow="orders"), True),
        (ResumePolicy(name="p", flow="order"), False),
        (ResumePolicy(name="p", action="geocode"), True),
        (ResumePolicy(name="p", action="geocode", flow="clicks"), False),
        (ResumePolicy(name="p", flow="orders", max_attempts=1), False),
    ],
)
def test_everything_that_a_policy_names_has_to_fit(policy: ResumePolicy, expected: bool) -> None:
    assert fits(policy, failure(1)) is expected


@pytest.mark.parametrize(
    ("policy", "points"),
    [
        (ResumePolicy(name="p", error_text="0123456789"), 50),
        (ResumePolicy(name="p", error_text="0123456789a"), 100),
        (ResumePolicy(name="p", action="a"), 100),
        (ResumePolicy(name="p", flow="f"), 50),
        (ResumePolicy(name="p", flow="f", action="a", error_text="0123456789a"), 250),
        (ResumePolicy(name="p", flow="f", priority=7), 7),
        (ResumePolicy(name="p", flow="f", priority=0), 0),
    ],
)
def test_a_policy_that_says_more_is_asked_first(policy: ResumePolicy, points: int) -> None:
    assert priority_of(policy) == points


def test_policies_of_one_priority_are_asked_by_name() -> None:
    names = [p.name for p in by_priority([ResumePolicy(name=n, flow="f") for n in "cab"])]
    assert names == ["a", "b", "c"]


def test_a_random_delay_is_drawn_between_the_two() -> None:
    policy = ResumePolicy(name="p", flow="f", delay_seconds=60, max_delay_seconds=120, random=True)
    assert policy_seconds(policy, 5, 0.0) == 60
    assert policy_seconds(policy, 1, 0.5) == 90


def test_a_policy_is_json_in_camel_case() -> None:
    text = b'{"name":"db","errorText":"refused","maxAttempts":5,"delaySeconds":30.0}'
    policy = msgspec.json.decode(text, type=ResumePolicy)
    assert policy == ResumePolicy(name="db", error_text="refused", max_attempts=5, delay_seconds=30)
    assert msgspec.json.encode(policy) == text


def test_transient_failure_is_tried_again_whatever_its_attempts() -> None:
    away = failure(attempts=50)._replace(is_transient=True)
    assert due_after(NO_RETRY, [], failure(attempts=50), 0, 0.5) is None
    assert due_after(STEADY, [], away, 0, 0.5) == 25 * SECOND_US
