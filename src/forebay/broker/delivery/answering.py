"""What the answers of a lease's holder do to one partition, and what ends or extends the lease besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from forebay.broker.delivery.state import (
    DeadLetter,
    DeliveryState,
    Pending,
    advanced,
    advanced_by,
    dead_letter,
    without_lease,
)
from forebay.clock import SECOND_US
from forebay.model.queue import QueueOptions

COMPLETED, FAILED, RETRY, DEAD = "completed", "failed", "retry", "dlq"
STATUSES = (COMPLETED, FAILED, RETRY, DEAD)

ERROR_CHARACTERS_MAX = 4096

Lease = str | frozenset[str]
"""What a consumer shows: the token of its lease; nothing (an empty token), for whatever lease is alive now; or several
tokens of which one has to be the partition's."""

LEASE_INVALID = "Invalid or expired lease"
NOT_IN_LEASE = "Message not found"


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What a consumer says of one message."""

    transaction_id: str
    status: str
    error: str = ""


class Answered(msgspec.Struct, frozen=True, gc=False):
    """What came of it."""

    transaction_id: str
    is_accepted: bool
    error: str = ""
    is_dead: bool = False
    is_released: bool = False
    """Whether the lease is over, because nothing in it is left to answer."""


def acknowledge(
    state: DeliveryState, lease: Lease, answers: Sequence[Verdict], options: QueueOptions, *, now_us: int
) -> tuple[list[Answered], list[DeadLetter], DeliveryState]:
    """Judge answers of one consumer to one partition. A refused answer changes nothing."""
    if not _is_holder(state, lease, now_us):
        return [Answered(answer.transaction_id, False, LEASE_INVALID) for answer in answers], [], state
    if _completes_all(state.pending, answers):
        judged = [Answered(answer.transaction_id, True, "", False, True) for answer in answers]
        return judged, [], advanced_by(without_lease(state, state.pending), len(judged))
    return judged_one_by_one(state, answers, options, now_us)


def _is_holder(state: DeliveryState, lease: Lease, now_us: int) -> bool:
    """Whether the partition is leased now, and under a lease that the consumer may answer for."""
    if not state.is_leased_at(now_us):
        return False
    return state.lease_id in lease if isinstance(lease, frozenset) else lease in ("", state.lease_id)


def _completes_all(pending: Sequence[Pending], answers: Sequence[Verdict]) -> bool:
    """Whether all that is pending is under the lease, and each of it is answered once, in order, as completed.

    So is nearly every batch, and it can be finished in one step.
    """
    names = [each.transaction_id for each in pending]
    return (
        bool(names)
        and names == [answer.transaction_id for answer in answers]
        and [each.is_leased for each in pending].count(True) == len(pending)
        and [answer.status for answer in answers].count(COMPLETED) == len(answers)
        and len(set(names)) == len(names)
    )


def judged_one_by_one(
    state: DeliveryState, answers: Sequence[Verdict], options: QueueOptions, now_us: int
) -> tuple[list[Answered], list[DeadLetter], DeliveryState]:
    """Answers of the lease's holder, whatever they are."""
    # Several messages of a lease may have one id: each answer is for the first of them that has none yet.
    places: dict[str, list[int]] = {}
    for place, pending in enumerate(state.pending):
        if pending.is_leased:
            places.setdefault(pending.transaction_id, []).append(place)
    after = list(state.pending)
    given = Counter(answer.transaction_id for answer in answers)
    is_released = all(given[name] >= len(own) for name, own in places.items())
    judged: list[Answered] = []
    dead: list[DeadLetter] = []
    for answer in answers:
        name = answer.transaction_id
        own = places.get(name)
        if not own:
            judged.append(Answered(name, False, NOT_IN_LEASE, False, is_released))
            continue
        place = own.pop(0)
        after[place], letter = _settle(after[place], answer, options, now_us)
        if letter is not None:
            dead.append(letter)
        judged.append(Answered(name, True, "", letter is not None, is_released))
    state = without_lease(state, after) if is_released else _yielded(state, after)
    return judged, dead, advanced(state)


def _settle(pending: Pending, answer: Verdict, options: QueueOptions, now_us: int) -> tuple[Pending, DeadLetter | None]:
    if answer.status == COMPLETED:
        return Pending(pending.seq, pending.transaction_id, pending.attempts, False, True), None
    if answer.status == DEAD or pending.attempts >= options.attempts_max:
        reason = _plain(answer.error) or pending.error or "no reason given"
        letter = dead_letter(pending, reason, options, always_kept=answer.status == DEAD)
        return replace(pending, is_leased=False, is_finished=True), letter
    not_before = now_us + options.retry_delay_ms * 1000
    return replace(pending, is_leased=False, not_before_us=not_before, error=_plain(answer.error)), None


def _plain(text: str) -> str:
    """What a consumer says of its error, as every store can keep it: not too long, no NUL, no half characters."""
    return text[:ERROR_CHARACTERS_MAX].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _yielded(state: DeliveryState, after: Sequence[Pending]) -> DeliveryState:
    """With these answers; given back if one of them leaves a message that comes again."""
    failed = [
        new.not_before_us
        for new, old in zip(after, state.pending, strict=True)
        if old.is_leased and not new.is_leased and not new.is_finished
    ]
    yielded_us = state.yielded_us or min(failed, default=0)
    return replace(state, pending=tuple(after), yielded_us=yielded_us)


def open_attempts(state: DeliveryState, seq: int) -> int | None:
    """How often a message was delivered that the group has not finished; None for one that it has."""
    if seq <= state.cursor_seq:
        return None
    pending = next((pending for pending in state.pending if pending.seq == seq), None)
    if pending is None:
        return 0
    return None if pending.is_finished else pending.attempts


def completed(state: DeliveryState) -> tuple[int, DeliveryState]:
    """All that is under the lease finished, and how many messages that were; the caller knows that it is held."""
    held = [pending.is_leased for pending in state.pending].count(True)
    if held == len(state.pending):
        return held, advanced_by(without_lease(state, state.pending), held)
    after = [replace(p, is_leased=False, is_finished=True) if p.is_leased else p for p in state.pending]
    return held, advanced(without_lease(state, after))


def released(state: DeliveryState) -> DeliveryState:
    """The lease's claim undone, as far as it was not answered: no attempt counted, and what was new is new again."""
    pending = [replace(p, is_leased=False, attempts=p.attempts - 1) if p.is_leased else p for p in state.pending]
    while pending and not pending[-1].attempts and not pending[-1].is_finished:
        pending.pop()
    return without_lease(state, pending)


def given_back(state: DeliveryState, *, now_us: int) -> DeliveryState:
    """The lease yielded at once: no attempt is counted, and what it covered is still known to belong together."""
    return replace(state, yielded_us=now_us)


def extended(state: DeliveryState, *, now_us: int, seconds: int) -> DeliveryState:
    """A lease that lasts at least `seconds` from now and is not yielded; the caller knows that it is held."""
    until_us = max(state.lease_until_us, now_us + seconds * SECOND_US)
    return replace(state, lease_until_us=until_us, yielded_us=0)
