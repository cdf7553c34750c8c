"""What a store keeps of one partition and one group, and the steps that pop and acknowledge have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.model.queue import QueueOptions


class Pending(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that was delivered and is not passed by the cursor yet."""

    seq: int
    transaction_id: str
    attempts: int
    is_leased: bool = False
    is_finished: bool = False
    not_before_us: int = 0
    """When it may be delivered again."""
    error: str = ""
    """What its last consumer said."""


class DeliveryState(msgspec.Struct, frozen=True, array_like=True):
    cursor_seq: int
    pending: tuple[Pending, ...] = ()
    lease_id: str = ""
    lease_granted_us: int = 0
    lease_until_us: int = 0
    finished: int = 0
    """Messages that the cursor has passed, for the lag."""
    yielded_us: int = 0
    """From when on others may claim what the lease covers; 0: not before it ends."""

    def is_leased_at(self, now_us: int) -> bool:
        """A lease that begins in the future was granted by a clock that has been set back since: it is over."""
        return bool(self.lease_id) and self.lease_granted_us <= now_us < self.lease_until_us

    def last_seen_seq(self) -> int:
        """The last message that was ever delivered; new ones come behind it."""
        return self.pending[-1].seq if self.pending else self.cursor_seq

    def leased_count(self, now_us: int) -> int:
        """Messages that a consumer has for itself. What a yielded lease covers waits for the next consumer."""
        if self.yielded_us or not self.is_leased_at(now_us):
            return 0
        return sum(pending.is_leased for pending in self.pending)

    def finished_count(self) -> int:
        """Messages that are finished, passed by the cursor or not."""
        return self.finished + [pending.is_finished for pending in self.pending].count(True)

    def open_count(self) -> int:
        """Messages that were delivered and are not finished."""
        return sum(not pending.is_finished for pending in self.pending)


encode_state = msgspec.msgpack.Encoder().encode
decode_state = msgspec.msgpack.Decoder(DeliveryState).decode


ATTEMPTS, EXPIRED, WAITED = "attempts", "ttl", "max_wait"


class DeadLetter(NamedTuple):
    seq: int
    attempts: int
    reason: str
    is_dropped: bool = False
    """True when the queue does not keep dead letters: the message is gone, and counted."""
    kind: str = ATTEMPTS
    """Why it died, in one word: for counting."""


def dropped_by_kind(dead: Iterable[DeadLetter]) -> Counter[str]:
    return Counter(letter.kind for letter in dead if letter.is_dropped)


def dead_letter(pending: Pending, reason: str, options: QueueOptions, *, always_kept: bool = False) -> DeadLetter:
    is_kept = options.dead_letter_queue and (always_kept or options.dlq_after_max_retries)
    return DeadLetter(pending.seq, pending.attempts, reason, is_dropped=not is_kept)


def without_lease(state: DeliveryState, pending: Sequence[Pending]) -> DeliveryState:
    return replace(state, pending=tuple(pending), lease_id="", lease_granted_us=0, lease_until_us=0, yielded_us=0)


def advanced(state: DeliveryState) -> DeliveryState:
    """Move the cursor over everything at its front that is finished."""
    passed = 0
    for pending in state.pending:
        if not pending.is_finished:
            break
        passed += 1
    return advanced_by(state, passed) if passed else state


def advanced_by(state: DeliveryState, count: int) -> DeliveryState:
    """With the cursor behind the first so many messages."""
    return replace(
        state,
        cursor_seq=state.pending[count - 1].seq,
        pending=state.pending[count:],
        finished=state.finished + count,
    )


def without_gone(state: DeliveryState, is_kept: Callable[[int], bool]) -> DeliveryState:
    """Count as finished what was delivered once and has been removed since: it cannot be delivered again."""
    if all(is_kept(pending.seq) for pending in state.pending):
        return state
    pending = [p if is_kept(p.seq) else replace(p, is_leased=False, is_finished=True) for p in state.pending]
    if not any(p.is_leased for p in pending):
        return advanced(without_lease(state, pending))
    return advanced(replace(state, pending=tuple(pending)))


def without_lost(state: DeliveryState, is_lost: Callable[[int], bool]) -> DeliveryState:
    """Forget what was delivered once and cannot be read any more."""
    pending = [p for p in state.pending if not is_lost(p.seq)]
    if len(pending) == len(state.pending):
        return state
    if not pending:
        # Everything that was delivered is finished or lost: new messages come behind it.
        return without_lease(replace(state, cursor_seq=state.last_seen_seq()), ())
    if not any(p.is_leased for p in pending):
        return advanced(without_lease(state, pending))
    return advanced(replace(state, pending=tuple(pending)))


def is_early(not_before_us: int, options: QueueOptions, now_us: int) -> bool:
    """Whether it is too early for the next attempt. A time further off than the delay is of a clock set back since."""
    return now_us < not_before_us <= now_us + options.retry_delay_ms * 1000


def due_us(state: DeliveryState, options: QueueOptions, now_us: int) -> int | None:
    """When something of what was delivered already may be claimed again, now at the earliest; None: nothing is left.

    It is what a claim goes by: a lease or a delay of a clock that was ahead and has been set right keeps nothing back.
    """
    is_leased = state.is_leased_at(now_us)
    if is_leased and not state.yielded_us:
        return state.lease_until_us
    for pending in state.pending:
        if not pending.is_finished:
            waits = (state.yielded_us if is_leased else 0, 0 if pending.is_leased else pending.not_before_us)
            due = max([wait for wait in waits if is_early(wait, options, now_us)], default=now_us)
            return min(due, state.lease_until_us) if is_leased else due
    return None


def review_us(state: DeliveryState, now_us: int) -> int | None:
    """When to look at the state again, where the queue's options are not at hand: now, unless nothing is left."""
    return now_us if state.lease_id or state.open_count() else None
