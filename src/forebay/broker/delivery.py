"""Who gets which message: the decisions of pop and acknowledge, as pure functions of values and a time.

A *delivery state* belongs to one partition and one group:

- `cursor_seq`: every message of the partition up to here is finished for the group;
- `pending`: messages behind the cursor that were delivered at least once, in order, each with its attempts;
- the lease: its token and when it ends. One lease at a time; it covers the pending messages marked `is_leased`;
- `yielded_us`: from when on others may claim the partition although the lease has not ended; 0 for never.

The rules, and why:

- *Attempts are counted when a message is leased*, not when it fails. A worker that crashes, or is frozen past its
  lease, has used an attempt, so a message that kills its workers ends as a dead letter and not in an endless loop.
- *The cursor moves only over finished messages.* Acks may come in any order; what is finished out of order waits in
  `pending` and is not delivered again.
- *Order is kept.* A message that waits for its retry holds up those behind it in its partition, and no others.
- *Only the holder of the lease may answer.* An old or foreign token, or one whose time is over, changes nothing.
- *A failure gives the rest of its batch back.* Order is kept, so a consumer whose message failed can do little with
  those behind it, and most drop them. When an answer leaves a message that comes again while others of the lease are
  not answered, the lease is *yielded*: from the moment the failed message is due, the partition may be claimed again.
  Until somebody does, and as long as its own time lasts, the holder may still answer the rest; when it extends the
  lease it takes the yield back ("I still work on it"). When somebody does, the old token is worth nothing, and those
  that were not answered get the attempt back that the yielded lease had counted: they did not fail. There is never
  more than one lease.
- *What was given to nobody is not an attempt.* A claim whose consumer has gone away before it was told is undone by
  `released`.

What the yield costs: a message that crashes its consumer after another one of the batch failed keeps its attempt that
time. The other one has used one of its own, so this comes to an end.

Stores keep a state as the bytes of `encode_state`; nothing but this module looks inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from forebay.model.queue import QueueOptions

COMPLETED, FAILED, RETRY, DEAD = "completed", "failed", "retry", "dlq"
STATUSES = (COMPLETED, FAILED, RETRY, DEAD)

ERROR_CHARACTERS_MAX = 4096

LEASE_INVALID = "Invalid or expired lease"
NOT_IN_LEASE = "Message not found"

_SECOND_US = 1_000_000


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
        """Messages that a consumer has for itself. What a yielded lease covers waits for whoever comes first."""
        if self.yielded_us or not self.is_leased_at(now_us):
            return 0
        return sum(pending.is_leased for pending in self.pending)

    def open_count(self) -> int:
        """Messages that were delivered and are not finished."""
        return sum(not pending.is_finished for pending in self.pending)


encode_state = msgspec.msgpack.Encoder().encode
decode_state = msgspec.msgpack.Decoder(DeliveryState).decode


class Undelivered(Protocol):
    """Messages of the partition that were not delivered to the group yet, in order, a column for each property."""

    @property
    def seqs(self) -> Sequence[int]: ...
    @property
    def transaction_ids(self) -> Sequence[str]: ...
    @property
    def created_us(self) -> Sequence[int]: ...


class Candidates(NamedTuple):
    """Undelivered messages, for who has no more of them."""

    seqs: Sequence[int] = ()
    transaction_ids: Sequence[str] = ()
    created_us: Sequence[int] = ()


class DeadLetter(NamedTuple):
    seq: int
    attempts: int
    reason: str
    is_dropped: bool = False
    """True when the queue does not keep dead letters: the message is gone, and counted."""


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


def _without_lease(state: DeliveryState, pending: Sequence[Pending]) -> DeliveryState:
    return replace(state, pending=tuple(pending), lease_id="", lease_granted_us=0, lease_until_us=0, yielded_us=0)


def _open_again(state: DeliveryState) -> DeliveryState:
    """After a lease ended without an answer: nothing is leased. The attempts stay counted, unless it was yielded."""
    back = 1 if state.yielded_us else 0
    pending = [replace(p, is_leased=False, attempts=p.attempts - back) if p.is_leased else p for p in state.pending]
    return _without_lease(state, pending)


def released(state: DeliveryState) -> DeliveryState:
    """The lease's claim undone, as far as it was not answered: no attempt counted, and what was new is new again."""
    pending = [replace(p, is_leased=False, attempts=p.attempts - 1) if p.is_leased else p for p in state.pending]
    while pending and not pending[-1].attempts and not pending[-1].is_finished:
        pending.pop()
    return _without_lease(state, pending)


def due_us(state: DeliveryState, now_us: int) -> int | None:
    """When something of what was delivered already may be claimed again, now at the earliest; None: nothing is left."""
    if state.lease_id and not state.yielded_us:
        return max(state.lease_until_us, now_us)
    for pending in state.pending:
        if not pending.is_finished:
            due = max(state.yielded_us, 0 if pending.is_leased else pending.not_before_us)
            return max(min(due, state.lease_until_us) if state.lease_id else due, now_us)
    return None


def claim(
    state: DeliveryState,
    fresh: Undelivered,
    options: QueueOptions,
    *,
    now_us: int,
    batch: int,
    lease_id: str,
    auto_ack: bool,
) -> Claim | None:
    """Take up to `batch` messages; None when the partition has nothing for the group now."""
    if is_held(state, options, now_us):
        return None
    state = _open_again(state)
    delivered: list[Pending] = []
    dead: list[DeadLetter] = []
    after: list[Pending] = []
    is_held_up = False
    for pending in state.pending:
        is_held_up = is_held_up or (not pending.is_finished and _is_early(pending.not_before_us, options, now_us))
        if pending.is_finished or is_held_up or len(delivered) >= batch:
            after.append(pending)
        elif pending.attempts >= options.attempts_max:
            reason = pending.error or f"not answered in {pending.attempts} attempts"
            dead.append(_dead(pending, reason, options))
            after.append(replace(pending, is_finished=True))
        else:
            taken = replace(pending, attempts=pending.attempts + 1, is_leased=True)
            delivered.append(taken)
            after.append(taken)
    if not is_held_up:
        _take_fresh(fresh, options, now_us, batch, delivered, dead, after)
    if not delivered and not dead:
        return None
    if auto_ack:
        after = [replace(p, is_leased=False, is_finished=p.is_finished or p.is_leased) for p in after]
    state = replace(state, pending=tuple(after))
    if delivered and not auto_ack:
        until = now_us + options.lease_seconds * _SECOND_US
        state = replace(state, lease_id=lease_id, lease_granted_us=now_us, lease_until_us=until)
    return Claim(delivered, tuple(dead), advanced(state))


def is_due(since_us: int, seconds: int, *, now_us: int) -> bool:
    """Whether so many seconds have passed since then. If then is in the future, the clock was set back: do not wait."""
    return since_us > now_us or since_us + seconds * _SECOND_US <= now_us


def is_held(state: DeliveryState, options: QueueOptions, now_us: int) -> bool:
    """Whether a lease keeps everybody else away."""
    if not state.is_leased_at(now_us):
        return False
    return not state.yielded_us or _is_early(state.yielded_us, options, now_us)


def _is_early(not_before_us: int, options: QueueOptions, now_us: int) -> bool:
    """Whether it is too early for the next attempt. A time further off than the delay is of a clock set back since."""
    return now_us < not_before_us <= now_us + options.retry_delay_ms * 1000


def _take_fresh(
    fresh: Undelivered,
    options: QueueOptions,
    now_us: int,
    batch: int,
    delivered: list[Pending],
    dead: list[DeadLetter],
    after: list[Pending],
) -> None:
    wait_max_us = options.max_wait_seconds * _SECOND_US
    if not wait_max_us:
        taken = list(map(Pending, fresh.seqs[: batch - len(delivered)], fresh.transaction_ids, repeat(1), repeat(True)))
        delivered += taken
        after += taken
        return
    for seq, transaction_id, created_us in zip(fresh.seqs, fresh.transaction_ids, fresh.created_us, strict=True):
        if len(delivered) >= batch:
            return
        if wait_max_us < now_us - created_us:
            dead.append(DeadLetter(seq, 0, f"waited longer than {options.max_wait_seconds} s"))
            after.append(Pending(seq, transaction_id, attempts=0, is_finished=True))
        else:
            delivered.append(Pending(seq, transaction_id, attempts=1, is_leased=True))
            after.append(delivered[-1])


class Answer(msgspec.Struct, frozen=True, gc=False):
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
    state: DeliveryState, lease_id: str, answers: Sequence[Answer], options: QueueOptions, *, now_us: int
) -> tuple[list[Answered], list[DeadLetter], DeliveryState]:
    """Judge answers of one consumer to one partition. A refused answer changes nothing."""
    if not lease_id or state.lease_id != lease_id or not state.is_leased_at(now_us):
        return [Answered(answer.transaction_id, False, LEASE_INVALID) for answer in answers], [], state
    if _completes_all(state.pending, answers):
        judged = [Answered(answer.transaction_id, True, "", False, True) for answer in answers]
        return judged, [], _passed(_without_lease(state, state.pending), len(judged))
    return judged_one_by_one(state, answers, options, now_us)


def completed(state: DeliveryState) -> tuple[int, DeliveryState]:
    """All that is under the lease finished, and how many messages that were; the caller knows that it is held."""
    held = [pending.is_leased for pending in state.pending].count(True)
    if held == len(state.pending):
        return held, _passed(_without_lease(state, state.pending), held)
    after = [replace(p, is_leased=False, is_finished=True) if p.is_leased else p for p in state.pending]
    return held, advanced(_without_lease(state, after))


def judged_one_by_one(
    state: DeliveryState, answers: Sequence[Answer], options: QueueOptions, now_us: int
) -> tuple[list[Answered], list[DeadLetter], DeliveryState]:
    """Answers of the lease's holder, whatever they are."""
    places = {pending.transaction_id: place for place, pending in enumerate(state.pending) if pending.is_leased}
    after = list(state.pending)
    is_released = places.keys() <= {answer.transaction_id for answer in answers}
    judged: list[Answered] = []
    dead: list[DeadLetter] = []
    for answer in answers:
        name = answer.transaction_id
        place = places.pop(name, None)
        if place is None:
            judged.append(Answered(name, False, NOT_IN_LEASE, False, is_released))
            continue
        after[place], letter = _settle(after[place], answer, options, now_us)
        if letter is not None:
            dead.append(letter)
        judged.append(Answered(name, True, "", letter is not None, is_released))
    state = _without_lease(state, after) if is_released else _yielded(state, after)
    return judged, dead, advanced(state)


def _completes_all(pending: Sequence[Pending], answers: Sequence[Answer]) -> bool:
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


def _yielded(state: DeliveryState, after: Sequence[Pending]) -> DeliveryState:
    """With these answers; given back if one of them leaves a message that comes again."""
    failed = [
        new.not_before_us
        for new, old in zip(after, state.pending, strict=True)
        if old.is_leased and not new.is_leased and not new.is_finished
    ]
    yielded_us = state.yielded_us or min(failed, default=0)
    return replace(state, pending=tuple(after), yielded_us=yielded_us)


def _settle(pending: Pending, answer: Answer, options: QueueOptions, now_us: int) -> tuple[Pending, DeadLetter | None]:
    if answer.status == COMPLETED:
        return Pending(pending.seq, pending.transaction_id, pending.attempts, False, True), None
    if answer.status == DEAD or pending.attempts >= options.attempts_max:
        reason = _plain(answer.error) or pending.error or "no reason given"
        letter = _dead(pending, reason, options, always_kept=answer.status == DEAD)
        return replace(pending, is_leased=False, is_finished=True), letter
    not_before = now_us + options.retry_delay_ms * 1000
    return replace(pending, is_leased=False, not_before_us=not_before, error=_plain(answer.error)), None


def _plain(text: str) -> str:
    """What a consumer says of its error, as every store can keep it: not too long, no NUL, no half characters."""
    return text[:ERROR_CHARACTERS_MAX].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _dead(pending: Pending, reason: str, options: QueueOptions, *, always_kept: bool = False) -> DeadLetter:
    is_dropped = not (always_kept or options.dlq_after_max_retries)
    return DeadLetter(pending.seq, pending.attempts, reason, is_dropped)


def advanced(state: DeliveryState) -> DeliveryState:
    """Move the cursor over everything at its front that is finished."""
    passed = 0
    for pending in state.pending:
        if not pending.is_finished:
            break
        passed += 1
    return _passed(state, passed) if passed else state


def _passed(state: DeliveryState, count: int) -> DeliveryState:
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
        return advanced(_without_lease(state, pending))
    return advanced(replace(state, pending=tuple(pending)))


def extended(state: DeliveryState, *, now_us: int, seconds: int) -> DeliveryState:
    """A lease that lasts at least `seconds` from now and is not yielded; the caller knows that it is held."""
    until_us = max(state.lease_until_us, now_us + seconds * _SECOND_US)
    return replace(state, lease_until_us=until_us, yielded_us=0)
