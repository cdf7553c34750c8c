"""Where a source is cut: how many messages make a parcel, and when fewer do. Pure.

Full parcels are cut at once. What is left over waits until it is full or has waited for `parcel_wait_seconds`, counted
from when it was first seen to wait. A clock that steps back starts the wait anew, rather than making it longer.
"""

from __future__ import annotations

from typing import NamedTuple


class Uncut(NamedTuple):
    """What of a source is in no parcel."""

    next_seq: int
    end_seq: int
    """The first seq that is not there yet."""
    waits_us: int | None
    """Since when messages wait; None: none did at the last look."""


class CutRule(NamedTuple):
    parcel_messages: int
    wait_us: int
    parcels_max: int


class CutPlan(NamedTuple):
    ranges: list[tuple[int, int]]
    """First and last seq of each new parcel, in order."""
    next_seq: int
    waits_us: int | None
    is_more: bool
    """There is enough for another full parcel, beyond the number that may be cut together."""


def plan_cut(uncut: Uncut, rule: CutRule, now_us: int) -> CutPlan:
    size = rule.parcel_messages
    waiting = uncut.end_seq - uncut.next_seq
    full = min(waiting // size, rule.parcels_max)
    ranges = [(seq, seq + size - 1) for seq in range(uncut.next_seq, uncut.next_seq + full * size, size)]
    left = waiting - full * size
    if left == 0:
        return CutPlan(ranges, uncut.end_seq, None, False)
    next_seq = uncut.end_seq - left
    if left >= size:
        return CutPlan(ranges, next_seq, now_us, True)
    # What was left behind full parcels is newer than what waited before them.
    since_us = now_us if full or uncut.waits_us is None else min(uncut.waits_us, now_us)
    if now_us - since_us >= rule.wait_us and full < rule.parcels_max:
        return CutPlan([*ranges, (next_seq, uncut.end_seq - 1)], uncut.end_seq, None, False)
    return CutPlan(ranges, next_seq, since_us, False)
