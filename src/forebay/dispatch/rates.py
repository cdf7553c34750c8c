"""Rate limits: a token bucket that servers share as one row. Pure.

A bucket holds as much as may pass in the limit's time, and fills up within that time. What passes takes its tokens, and
may take more than there are: a parcel is not divided, so the bucket goes below zero, and nothing passes until it is
above zero again. Over any time T no more passes than `amount * (1 + T / seconds)` and one parcel.

The row's time is always set to now. A clock that steps back gives nothing for the step; one that steps forward, or back
and forth, gives a full bucket at the most.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from forebay.clock import SECOND_US
from forebay.dispatch.definition import RateLimit


class Bucket(NamedTuple):
    tokens: float
    updated_us: int


def full_bucket(limit: RateLimit, now_us: int) -> Bucket:
    """For a limit that nothing has passed yet."""
    return Bucket(float(limit.amount), now_us)


def filled_to_now(bucket: Bucket, limit: RateLimit, now_us: int) -> Bucket:
    """With what came in since. A limit that was changed meanwhile counts from now on."""
    elapsed_us = max(0, now_us - bucket.updated_us)
    gained = limit.amount * (elapsed_us / (limit.seconds * SECOND_US))
    return Bucket(min(bucket.tokens + gained, float(limit.amount)), now_us)


def is_open(bucket: Bucket) -> bool:
    """Whether something may pass: of a bucket that was filled to now."""
    return bucket.tokens > 0


def spend(bucket: Bucket, amount: int) -> Bucket:
    """After so much has passed."""
    return Bucket(bucket.tokens - amount, bucket.updated_us)


def us_until_open(bucket: Bucket, limit: RateLimit) -> int:
    """How long nothing may pass, in microseconds, if nothing does meanwhile; 0: it is open."""
    if bucket.tokens > 0:
        return 0
    return math.floor(-bucket.tokens * limit.seconds * SECOND_US / limit.amount) + 1
