"""What a pop takes of one partition."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from forebay.broker.delivery.addressing import for_others
from forebay.broker.delivery.state import (
    EXPIRED,
    WAITED,
    DeadLetter,
    DeliveryState,
    Pending,
    advanced,
    dead_letter,
    is_early,
    without_lease,
)
from forebay.clock import SECOND_US
from forebay.model.queue import QueueOptions


class Undelivered(Protocol):
    """Messages of the partition that were not delivered to the group yet, in order, a column for each property."""

    @property
    def seqs(self) -> Sequence[int]: ...
    @property
    def transaction_ids(self) -> Sequence[str]: ...
    @property
    def created_us(self) -> Sequence[int]: ...
    @property
    def headers(self) -> Sequence[bytes]: ...


class Candidates(NamedTuple):
    """Undelivered messages, where there are no more of them."""

    seqs: Sequence[int] = ()
    transaction_ids: Sequence[str] = ()
    created_us: Sequence[int] = ()
    headers: Sequence[bytes] = ()


class Claim(NamedTuple):
    """What a pop does to one partition."""

    taken: Sequence[Pending]
    """The messages handed out, in order."""
    dead: tuple[DeadLetter, ...]
    state: DeliveryState

    @property
    def delivered(self) -> tuple[tuple[int, int], ...]:
        """seq and attempt of each message handed out."""
        return tuple([(pending.seq, pending.attempts) for pending in self.taken])


def claim(
    state: DeliveryState,
    fresh: Undelivered,
    options: QueueOptions,
    *,
    group: str,
    now_us: int,
    batch: int,
    lease_id: str,
    auto_ack: bool,
    lease_seconds: int = 0,
    is_whole: bool = False,
) -> Claim | None:
    """Take up to `batch` messages; None when the partition has nothing for the group now, and nothing to pass.

    The lease lasts `lease_seconds`, or as long as the options say. With `is_whole` what the lost lease covered is
    taken, and nothing else.
    """
    if is_held(state, options, now_us):
        return None
    left = {pending.seq for pending in state.pending if not pending.is_leased} if is_whole else set()
    state = _open_again(state)
    delivered: list[Pending] = []
    dead: list[DeadLetter] = []
    after: list[Pending] = []
    is_held_up = False
    for pending in state.pending:
        is_held_up = is_held_up or (not pending.is_finished and is_early(pending.not_before_us, options, now_us))
        if pending.is_finished or is_held_up or len(delivered) >= batch or pending.seq in left:
            after.append(pending)
        elif pending.attempts >= options.attempts_max:
            reason = pending.error or f"not answered in {pending.attempts} attempts"
            dead.append(dead_letter(pending, reason, options))
            after.append(replace(pending, is_finished=True))
        else:
            taken = replace(pending, attempts=pending.attempts + 1, is_leased=True)
            delivered.append(taken)
            after.append(taken)
    if not is_held_up and not is_whole:
        _take_fresh(fresh, group, options, now_us, batch, delivered, dead, after)
    if not delivered and not dead and len(after) == len(state.pending):
        return None
    if auto_ack:
        after = [replace(p, is_leased=False, is_finished=p.is_finished or p.is_leased) for p in after]
    state = replace(state, pending=tuple(after))
    if delivered and not auto_ack:
        until_us = lease_end_us(options, now_us, lease_seconds)
        state = replace(state, lease_id=lease_id, lease_granted_us=now_us, lease_until_us=until_us)
    return Claim(delivered, tuple(dead), advanced(state))


def lease_end_us(options: QueueOptions, now_us: int, lease_seconds: int = 0) -> int:
    """Of a lease that lasts so long, or as long as the options say."""
    return now_us + (lease_seconds or options.lease_seconds) * SECOND_US


def takes_all(state: DeliveryState, fresh: Undelivered, options: QueueOptions) -> bool:
    """Whether a claim is of the new messages, each of them and nothing else: for every batch that has room for them.

    So it is where nothing was delivered before, no message can die of its age, and none is for another group (whether
    one is stands in its headers).
    """
    return bool(fresh.seqs) and not (state.pending or options.is_age_limited or any(fresh.headers))


def _open_again(state: DeliveryState) -> DeliveryState:
    """After a lease ended without an answer: nothing is leased. The attempts stay counted, unless it was yielded."""
    back = 1 if state.yielded_us else 0
    pending = [replace(p, is_leased=False, attempts=p.attempts - back) if p.is_leased else p for p in state.pending]
    return without_lease(state, pending)


def _take_fresh(
    fresh: Undelivered,
    group: str,
    options: QueueOptions,
    now_us: int,
    batch: int,
    delivered: list[Pending],
    dead: list[DeadLetter],
    after: list[Pending],
) -> None:
    others = for_others(fresh.seqs, fresh.headers, group)
    if not others and not options.is_age_limited:
        taken = list(map(Pending, fresh.seqs[: batch - len(delivered)], fresh.transaction_ids, repeat(1), repeat(True)))
        delivered += taken
        after += taken
        return
    for seq, transaction_id, created_us in zip(fresh.seqs, fresh.transaction_ids, fresh.created_us, strict=True):
        if len(delivered) >= batch:
            return
        letter = None if seq in others else _died_of_age(seq, now_us - created_us, options)
        if letter is not None:
            dead.append(letter)
        if seq in others or letter is not None:
            after.append(Pending(seq, transaction_id, attempts=0, is_finished=True))
        else:
            delivered.append(Pending(seq, transaction_id, attempts=1, is_leased=True))
            after.append(delivered[-1])


def _died_of_age(seq: int, age_us: int, options: QueueOptions) -> DeadLetter | None:
    if is_expired(age_us, options):
        return DeadLetter(seq, 0, f"older than its time to live of {options.ttl_seconds} s", True, EXPIRED)
    if 0 < options.max_wait_seconds * SECOND_US < age_us:
        reason = f"waited longer than {options.max_wait_seconds} s"
        return DeadLetter(seq, 0, reason, not options.dead_letter_queue, WAITED)
    return None


def is_expired(age_us: int, options: QueueOptions) -> bool:
    """Whether a message has outlived its queue's `ttl`: it is delivered no more, however often it was before."""
    return 0 < options.ttl_seconds * SECOND_US < age_us


def is_held(state: DeliveryState, options: QueueOptions, now_us: int) -> bool:
    """Whether a lease keeps all other consumers away."""
    if not state.is_leased_at(now_us):
        return False
    return not state.yielded_us or is_early(state.yielded_us, options, now_us)


def lost_lease(state: DeliveryState, options: QueueOptions, now_us: int) -> str:
    """The last lease, if it ended or was given back with messages unanswered; else nothing."""
    if is_held(state, options, now_us) or not any(pending.is_leased for pending in state.pending):
        return ""
    return state.lease_id


def is_due(since_us: int, seconds: int, *, now_us: int) -> bool:
    """Whether so many seconds have passed since then. If then is in the future, the clock was set back: do not wait."""
    return since_us > now_us or since_us + seconds * SECOND_US <= now_us
