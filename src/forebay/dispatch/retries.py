"""When a parcel whose step failed is queued again by itself. Pure.

The step's own `Retry` decides first. When its attempts are used up, the resume policies do: the first that fits, in
the order of their priority. Neither: the parcel stays in ERROR until a person resumes it. Attempts are counted from
when the parcel was last queued by its flow or by a person, and a policy's `max_attempts` counts those of the
`Retry` too.

Delays grow exponentially: `delay * multiplier ** (failures so far - 1)`, up to the maximum. Randomness is a number that
the caller draws, from 0 up to but not including 1.

A failure that is *transient* uses up nothing: it is tried again with growing delays until what was away has answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from forebay.clock import SECOND_US
from forebay.dispatch.definition import CamelStruct, Retry

EXPONENT_MAX = 64
"""Beyond it every delay is the maximum, and the power would overflow."""
LONG_ERROR_TEXT = 10


class Failure(NamedTuple):
    flow: str
    action: str
    error: str
    attempts: int
    """How many leases the step has had, this one included."""
    is_transient: bool = False
    """Something that the worker called did not answer: it is tried again whatever its attempts."""


class ResumePolicy(CamelStruct, frozen=True, kw_only=True):
    """Which errors are resumed by themselves, how often and how soon. At least one of the first three is given."""

    name: str
    error_text: str = ""
    """A part of the error's text."""
    flow: str = ""
    action: str = ""
    max_attempts: int = 10
    priority: int | None = None
    """Higher ones are tried first. None: the more a policy says, the higher (`priority_of`)."""
    delay_seconds: float = 60.0
    multiplier: float = 1.0
    max_delay_seconds: float = 3600.0
    random: bool = False
    """The delay is drawn between `delay_seconds` and `max_delay_seconds`; there is no multiplier then."""


def priority_of(policy: ResumePolicy) -> int:
    """What is given, or points for what a policy says."""
    if policy.priority is not None:
        return policy.priority
    points = 0
    if policy.error_text:
        points += 100 if len(policy.error_text) > LONG_ERROR_TEXT else 50
    if policy.flow:
        points += 50
    if policy.action:
        points += 100
    return points


def by_priority(policies: Iterable[ResumePolicy]) -> list[ResumePolicy]:
    """In the order in which they are tried; those of one priority by name."""
    return sorted(policies, key=lambda policy: (-priority_of(policy), policy.name))


def fits(policy: ResumePolicy, failure: Failure) -> bool:
    """Whether everything that the policy names is so."""
    return (
        failure.attempts < policy.max_attempts
        and policy.error_text in failure.error
        and policy.flow in ("", failure.flow)
        and policy.action in ("", failure.action)
    )


def retry_seconds(retry: Retry, attempts: int, draw: float) -> float | None:
    """The delay after so many failed attempts; None: they are used up."""
    if attempts >= retry.max_attempts:
        return None
    delay = _grown(retry.delay_seconds, retry.multiplier, attempts, retry.max_delay_seconds)
    return delay * (1 + retry.jitter * (2 * draw - 1))


def policy_seconds(policy: ResumePolicy, failures: int, draw: float) -> float:
    """The delay after so many failures that were the policy's to resume, from 1."""
    if policy.random:
        span = max(0.0, policy.max_delay_seconds - policy.delay_seconds)
        return policy.delay_seconds + span * draw
    return _grown(policy.delay_seconds, policy.multiplier, failures, policy.max_delay_seconds)


def due_after(retry: Retry, policies: Iterable[ResumePolicy], failure: Failure, now_us: int, draw: float) -> int | None:
    """When the parcel is queued again, in microseconds since 1970; None: not by itself."""
    if failure.is_transient:
        retry = msgspec.structs.replace(retry, max_attempts=failure.attempts + 1)
    seconds = retry_seconds(retry, failure.attempts, draw)
    if seconds is None:
        policy = next((policy for policy in by_priority(policies) if fits(policy, failure)), None)
        if policy is None:
            return None
        seconds = policy_seconds(policy, failure.attempts - max(retry.max_attempts, 1) + 1, draw)
    return now_us + int(seconds * SECOND_US)


def _grown(delay: float, multiplier: float, failures: int, max_delay: float) -> float:
    return min(delay * multiplier ** min(max(failures - 1, 0), EXPONENT_MAX), max_delay)
