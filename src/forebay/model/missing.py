"""What of a range of messages is gone: for whatever reads a parcel, and has to say what it did not get. Pure.

A server tells of a queue its identity, the last seq that was removed of any partition, and where messages were lost.
The identity of a queue that was deleted never comes again. So a look *after* the reading is enough to know that all of
it came from the queue that was meant, and what of it was not there.

| what is gone | how it is known | how many |
|---|---|---|
| all of it | the queue is not there, or has another identity | all |
| a front | more was removed than what was known to be gone when the range was made | as many as may be |
| a record | the server has noted it as lost | as many as may be |

Messages that were deleted or buried one by one are no loss: nothing notes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

REPLACED = "the queue was deleted, or deleted and made again"
REMOVED = "they were removed"
DAMAGED = "they cannot be read any more"


class QueueState(NamedTuple):
    """What a server tells of a queue."""

    identity: str
    removed_seq: int = 0
    lost: Sequence[tuple[int, int, int]] = ()
    """First seq, last seq, and how many of the messages between them."""


class Gap(NamedTuple):
    """Messages that are gone, some of those between two seqs, both included."""

    first_seq: int
    last_seq: int
    messages: int
    """How many, at the most."""
    cause: str


def gaps_in(
    first_seq: int, last_seq: int, identity: str, removed_up_to: int | None, state: QueueState | None
) -> list[Gap]:
    """What of the range is gone, in the order of seqs. `identity`, `removed_up_to`: as the range has them, or empty and
    None where it is of before they were known. `state`: None where there is no such queue."""
    size = last_seq - first_seq + 1
    if size <= 0:
        return []
    if state is None or (identity and state.identity and identity != state.identity):
        return [Gap(first_seq, last_seq, size, REPLACED)]
    found: list[Gap] = []
    next_seq = first_seq
    if removed_up_to is not None and state.removed_seq >= first_seq and state.removed_seq > removed_up_to:
        next_seq = min(state.removed_seq, last_seq) + 1
        found.append(Gap(first_seq, next_seq - 1, next_seq - first_seq, REMOVED))
    for first, last, messages in sorted(state.lost):
        first, last = max(first, next_seq), min(last, last_seq)
        if first <= last:
            found.append(Gap(first, last, min(messages, last - first + 1), DAMAGED))
    return _together(found)


def _together(gaps: Sequence[Gap]) -> list[Gap]:
    """Gaps that overlap, as those of several partitions of one record do, as one."""
    found: list[Gap] = []
    for gap in gaps:
        before = found[-1] if found else None
        if before is None or gap.cause != before.cause or gap.first_seq > before.last_seq:
            found.append(gap)
            continue
        last_seq = max(before.last_seq, gap.last_seq)
        messages = min(before.messages + gap.messages, last_seq - before.first_seq + 1)
        found[-1] = Gap(before.first_seq, last_seq, messages, gap.cause)
    return found
