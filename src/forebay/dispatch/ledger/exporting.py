"""EXPORTING: the rows of a flow's last step are messages, and the parcel waits until a group has passed them.

    complete, with `awaits`        the step is EXPORTING; what it waits for is written in the same transaction
    the group passes the rows      COMPLETE, with the event EXPORTED
    the queue is deleted           ERROR: what had not been passed is gone, and a person decides whether to run it again

What is waited for is the last seq that the completion committed to the queue, so all parcels of a lease are confirmed
together. *Passed* means that the group's cursor in the partition is behind it: delivered and acknowledged, set aside as
a dead letter (the event says how many), skipped by a seek, or removed by retention. A group that is not there is waited
for: the first consumer makes it, and one that was deleted begins anew.

A step that waits for several groups is complete when all of them have passed. Work that confirms locks the steps'
classes first, so that of two servers that see the last two groups pass at once, the second finds nothing left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from forebay.broker.bulk import CommitOutcome
from forebay.broker.room_work import Ask, DeadSeqs, Edge, GroupEdge, Now, Passed, QueueEdge, Work
from forebay.dispatch.ledger.classes import lock_classes
from forebay.dispatch.ledger.history import Event, history
from forebay.dispatch.routing import EXPORTING, Route
from forebay.dispatch.tables import SQL
from forebay.dispatch.values import Await

DEAD_SEQS_MAX = 1_000
"""How many dead letters are counted at a time: the history then says that there are at least so many."""
EVERYTHING = 1 << 62


class Awaited(NamedTuple):
    """A group in a partition of a queue that steps wait for."""

    queue: str
    queue_id: int
    group: str
    partition: str


FIRST = Awaited("", 0, "", "")


class Ready(NamedTuple):
    awaited: Awaited
    next_seq: int | None
    """Steps that wait for less than this go on. None: the queue is gone, and they fail."""


class Look(NamedTuple):
    awaited: Awaited | None
    """The next group and partition that steps wait for."""
    ready: Ready | None = None
    """What to do about it, if anything."""
    is_group_there: bool = True
    """If not, nothing takes what they wait for, or nothing has yet."""


class _Step(NamedTuple):
    did: str
    step: int
    first_seq: int
    last_seq: int
    action: str
    action_class: str
    attempts: int


def await_exports(plan: Route, committed: CommitOutcome) -> Work[Route]:
    """Write what the plan's EXPORTING steps wait for. Those of which nothing was committed are complete at once."""
    rows: dict[tuple[object, ...], None] = {}
    finished = []
    for step, state, outcome in plan.finished:
        wanted = outcome.awaits if state == EXPORTING else ()
        awaits = yield from _of_step(step.did, step.step, wanted, committed)
        rows.update(dict.fromkeys(awaits))
        finished.append((step, "COMPLETE" if state == EXPORTING and not awaits else state, outcome))
    if rows:
        yield Ask(SQL["awaits_add"], {"awaits": list(rows)})
    was = {step.did: state for step, state, _ in plan.finished}
    done = [(step.did, step.step, EXPORTING) for step, state, _ in finished if state != was[step.did]]
    if done:
        yield Ask(SQL["steps_exported"], {"steps": done})
    return plan._replace(finished=finished)


def _of_step(did: str, step: int, awaits: Sequence[Await], committed: CommitOutcome) -> Work[list[tuple[object, ...]]]:
    rows: list[tuple[object, ...]] = []
    for queue, group, partition, count in awaits:
        written = committed.queues.get(queue)
        if not count or written is None:
            continue  # none, or all of them were there already
        edge: Edge | None = yield QueueEdge(queue)
        if edge is not None:
            rows.append((queue, edge.queue_id, group, partition, written.last_seq, did, step, written.first_seq))
    return rows


def exports_ready(after: Awaited) -> Work[Look]:
    """The next group and partition that steps wait for. Only reads."""
    rows = yield Ask(SQL["awaits_next"], after._asdict())
    if not rows:
        return Look(None)
    awaited = Awaited(*rows[0])
    passed = yield from _passed(awaited)
    ready = Ready(awaited, _next_seq(passed))
    found = yield Ask(SQL["awaits_passed"], _values(ready, 1))
    return Look(awaited, ready if found else None, passed is None or passed.next_seq is not None)


def _passed(awaited: Awaited) -> Work[Passed | None]:
    """How far the group is; None: the queue is gone, or another one has its name."""
    passed: Passed | None = yield GroupEdge(awaited.queue, awaited.group, awaited.partition)
    return passed if passed is not None and passed.queue_id == awaited.queue_id else None


def _next_seq(passed: Passed | None) -> int | None:
    """Up to where steps are confirmed."""
    return None if passed is None else passed.next_seq or 0


def _values(ready: Ready, limit: int) -> dict[str, int | str]:
    next_seq = EVERYTHING if ready.next_seq is None else ready.next_seq
    return {**ready.awaited._asdict(), "next_seq": next_seq, "limit": limit}


def confirm_exports(awaited: Awaited, limit: int) -> Work[int]:
    """Let steps go on whose rows the group has passed, up to so many; of how many it was looked at."""
    found = yield Ask(SQL["awaits_passed"], _values(Ready(awaited, _next_seq((yield from _passed(awaited)))), limit))
    yield from lock_classes(_Step(*row).action_class for row in found)
    # Under the lock: what another server confirmed or cancelled since it was found is left out.
    ready = Ready(awaited, _next_seq((yield from _passed(awaited))))
    rows = yield Ask(SQL["awaits_passed"], _values(ready, limit))
    known = {(row[0], row[1]) for row in found}
    steps = [step for row in rows if ((step := _Step(*row)).did, step.step) in known]
    if not steps:
        return 0
    if ready.next_seq is None:
        yield from _fail(awaited, steps)
    else:
        yield from _pass(awaited, steps)
    return len(steps)


def _pass(awaited: Awaited, steps: Sequence[_Step]) -> Work[None]:
    now_us = yield Now()
    keys = [[step.did, step.step] for step in steps]
    yield Ask(SQL["awaits_remove"], {**awaited._asdict(), "steps": keys})
    moved = yield Ask(SQL["steps_exported"], {"steps": [[*key, EXPORTING] for key in keys]})
    yield Ask(SQL["parcels_move"], {"parcels": [[did, "COMPLETE"] for did, _ in moved], "now_us": now_us})
    first_seq, last_seq = min(step.first_seq for step in steps), max(step.last_seq for step in steps)
    queue, _, group, partition = awaited
    dead: list[int] = yield DeadSeqs(queue, group, partition, first_seq, last_seq, DEAD_SEQS_MAX)
    events = []
    for step in steps:
        text = f"group {group!r} has passed seq {step.last_seq} in partition {partition!r} of queue {queue!r}"
        of_step = sum(step.first_seq <= seq <= step.last_seq for seq in dead)
        if of_step:
            more = " or more" if len(dead) == DEAD_SEQS_MAX else ""
            text += f"; of what its lease had committed, {of_step}{more} became dead letters"
        events.append(Event(step.did, step.step, step.action, "EXPORTED", now_us, attempt=step.attempts, text=text))
    yield from history(events)


def _fail(awaited: Awaited, steps: Sequence[_Step]) -> Work[None]:
    """Not queued again by itself: a person has deleted the queue, and what was exported before would go out again."""
    now_us = yield Now()
    queue, _, group, partition = awaited
    text = (
        f"queue {queue!r} was deleted before group {group!r} had passed what this parcel gave to partition "
        f"{partition!r}; resume it to run the step again, or cancel it"
    )
    moved = yield Ask(SQL["exports_fail"], {"steps": [[step.did, step.step, EXPORTING, text] for step in steps]})
    yield Ask(SQL["parcels_move"], {"parcels": [[did, "ERROR"] for did, _ in moved], "now_us": now_us})
    failed = {(did, step) for did, step in moved}
    yield from history(
        [
            Event(step.did, step.step, step.action, "ERROR", now_us, attempt=step.attempts, text=text)
            for step in steps
            if (step.did, step.step) in failed
        ]
    )
