"""Attempts that came to nothing: leases that ended, parcels that a completion left out, errors that are due.

A worker that is dead, frozen or cut off does not tell. Its lease ends, the step is queued again at its old place, and
the attempt counts, since it was counted when the lease began. When the step's `max_attempts` are used up the parcel
goes into ERROR with its history: what kills every worker that takes it would otherwise go round for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from forebay.broker.room_work import Ask, Now, Work
from forebay.dispatch.definition import FlowDefinition, Retry
from forebay.dispatch.ledger.classes import Modes, lock_classes
from forebay.dispatch.ledger.enqueue import NOTHING_ENQUEUED, Enqueued, WaitingStep, enqueue_again, enqueue_again_locked
from forebay.dispatch.ledger.flows import definitions
from forebay.dispatch.ledger.history import LEASE_EXPIRIES, Event, count, history
from forebay.dispatch.retries import Failure
from forebay.dispatch.routing import LeasedStep
from forebay.dispatch.tables import SQL

NextDue = Callable[[Retry, Failure, int], int | None]
"""When a failed step is queued again by itself, in microseconds since 1970: from its retry, the failure, and now."""


class Attempt(NamedTuple):
    """A lease that has ended for some of its steps."""

    worker: str
    started_us: int


class Expired(NamedTuple):
    leases: int
    enqueued: Enqueued


def expire(capacity: int, next_due: NextDue, leases_max: int) -> Work[Expired]:
    """End leases whose time is up; their steps are queued again, or go into ERROR when their attempts are used up."""
    now_us = yield Now()
    found = yield Ask(SQL["leases_expired"], {"now_us": now_us, "leases_max": leases_max})
    if not found:
        return Expired(0, NOTHING_ENQUEUED)
    steps = yield from leased_steps([lease_id for [lease_id] in found])
    modes = yield from lock_classes(step.action_class for step in steps)
    # Under the lock: a lease that was prolonged or completed since it was found is not ended.
    ended = yield Ask(SQL["leases_end"], {"leases": [list(row) for row in found], "now_us": now_us})
    attempts = {lease_id: Attempt(worker, started_us) for lease_id, worker, started_us in ended}
    lost = [step for step in steps if step.lease_id in attempts and step.state == "LEASED"]
    enqueued = yield from end_attempts(lost, attempts, "EXPIRED", capacity, modes, next_due)
    yield from count({LEASE_EXPIRIES: len(attempts)})
    return Expired(len(attempts), enqueued)


def leased_steps(lease_ids: Sequence[str]) -> Work[list[LeasedStep]]:
    """The steps that leases hold, and those that they finished."""
    rows = yield Ask(SQL["lease_steps"], {"leases": [[lease_id] for lease_id in lease_ids]})
    return [LeasedStep(*row) for row in rows]


def end_attempts(
    steps: Sequence[LeasedStep],
    attempts: Mapping[str, Attempt],
    event: str,
    capacity: int,
    modes: Modes,
    next_due: NextDue,
) -> Work[Enqueued]:
    """Queue steps again whose lease came to nothing (`event`: why), or fail them when their attempts are used up."""
    if not steps:
        return NOTHING_ENQUEUED
    now_us = yield Now()
    known = yield from definitions(sorted({(step.flow, step.version) for step in steps}))
    again = [step for step in steps if step.attempts < _retry(step, known).max_attempts]
    failed = [step for step in steps if step.attempts >= _retry(step, known).max_attempts]
    enqueued = yield from enqueue_again_locked([WaitingStep(*step[:9]) for step in again], capacity, modes)
    yield from _fail(failed, event, known, next_due, now_us)
    events = [
        Event(
            s.did,
            s.step,
            s.action,
            event,
            now_us,
            attempts[s.lease_id].started_us,
            attempts[s.lease_id].worker,
            s.attempts,
        )
        for s in steps
    ]
    used_up = [
        Event(s.did, s.step, s.action, "ERROR", now_us, attempt=s.attempts, text=_used_up(s, event)) for s in failed
    ]
    yield from history(events + used_up)
    return enqueued


def _fail(
    steps: Sequence[LeasedStep],
    event: str,
    known: Mapping[tuple[str, int], FlowDefinition],
    next_due: NextDue,
    now_us: int,
) -> Work[None]:
    if not steps:
        return
    rows = []
    for step in steps:
        error = _used_up(step, event)
        due_us = next_due(_retry(step, known), Failure(step.flow, step.action, error, step.attempts), now_us)
        rows.append((step.did, step.step, "ERROR", error, due_us, step.lease_id, "LEASED"))
    yield Ask(SQL["steps_finish"], {"steps": rows, "now_us": now_us})
    yield Ask(SQL["parcels_move"], {"parcels": [(step.did, "ERROR") for step in steps], "now_us": now_us})


def _used_up(step: LeasedStep, event: str) -> str:
    how = "its lease expired" if event == "EXPIRED" else "its worker left it out"
    return f"all {step.attempts} attempts are used up; in the last one {how}"


def _retry(step: LeasedStep, known: Mapping[tuple[str, int], FlowDefinition]) -> Retry:
    definition = known.get((step.flow, step.version))
    return definition.steps[step.step].retry if definition is not None else Retry()


def requeue_due(capacity: int, steps_max: int) -> Work[tuple[int, Enqueued]]:
    """Queue errors again whose time has come; how many were due. A clock that was set back makes none of them wait."""
    now_us = yield Now()
    yield Ask(SQL["retries_clock_back"], {"now_us": now_us})
    keys = yield Ask(SQL["steps_due"], {"now_us": now_us, "steps_max": steps_max})
    enqueued = yield from enqueue_again([(did, step) for did, step in keys], capacity, reset_attempts=False)
    return len(keys), enqueued
