"""Completing a lease: staged rows become messages, parcels move on, history is written; all of it, or nothing.

    lock the classes of the lease's parcels and of their next steps, in the order of names
    end the lease                     it has ended already, or was never there: LeaseLost, or it is the same again
    finish its steps                  fewer than the lease had: LeaseLost
    commit the staged rows            refused: nothing is done, and the lease lasts
    note what is awaited              of those rows, where a group has to pass them first (`exporting`)
    enqueue what comes next           reading what was committed, where the outcome says so
    write history, and count what was done for the flow

What can be refused is refused before the rows are committed. A worker that hears nothing (the connection broke, the
server was killed) sends the same completion again: it was done as a whole or not at all, and what was done is known
by the finished steps, which keep the id of their lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from forebay.broker.bulk import CommitOutcome
from forebay.broker.room_work import Ask, CommitStages, DropStages, Now, Work
from forebay.dispatch.definition import FlowDefinition
from forebay.dispatch.dids import new_dids
from forebay.dispatch.ledger.annotating import add_annotations
from forebay.dispatch.ledger.classes import Modes, lock_classes
from forebay.dispatch.ledger.enqueue import NOTHING_ENQUEUED, Enqueued, enqueue_locked
from forebay.dispatch.ledger.expiry import Attempt, NextDue, end_attempts, leased_steps
from forebay.dispatch.ledger.exporting import await_exports
from forebay.dispatch.ledger.flow_work import count_work
from forebay.dispatch.ledger.flows import definitions
from forebay.dispatch.ledger.history import LOST, Event, history
from forebay.dispatch.ledger.holding import edges_of, hold_ranges
from forebay.dispatch.ledger.joining import Entering, enter, key_of
from forebay.dispatch.ledger.starting import NewParcel, new_step
from forebay.dispatch.retries import Failure
from forebay.dispatch.routing import EXPORTING, LeasedStep, NewChild, Onward, Route, dealt, is_same, parcel_state, route
from forebay.dispatch.tables import SQL
from forebay.dispatch.values import CompleteRequest, Completion, Loss, Outcome
from forebay.errors import LeaseLost

Definitions = dict[tuple[str, int], FlowDefinition]


class CompletionDone(NamedTuple):
    completion: Completion
    enqueued: Enqueued
    is_exporting: bool = False
    """Steps wait for groups from now on."""
    losses: Sequence[Loss] = ()


def complete(request: CompleteRequest, capacity: int, next_due: NextDue) -> Work[CompletionDone]:
    """Do what the outcomes of a lease say. `LeaseLost`: nothing was done; `refuse` has to follow."""
    now_us = yield Now()
    steps = yield from leased_steps([request.lease_id])
    held = [step for step in steps if step.state == "LEASED"]
    if not held:
        return (yield from _repeated(request))
    _check(request, held)
    known = yield from definitions(sorted({(step.flow, step.version) for step in held}))
    children = sum(len(outcome.children) for outcome in request.outcomes)
    plan = route(held, request.outcomes, known, new_dids(children, now_us))
    modes = yield from lock_classes({step.action_class for step in held} | plan.classes())
    ended = yield Ask(SQL["lease_end"], {"lease_id": request.lease_id, "now_us": now_us})
    if not ended:
        return (yield from _repeated(request))
    attempt = Attempt(*ended[0])
    yield from _finish(request.lease_id, plan, known, next_due, now_us)
    committed = yield from _commit(request)
    plan = yield from await_exports(plan, committed)
    yield from _move_parcels(plan, now_us)
    edges = yield from edges_of(sorted({one.output[0] for one in plan.onward if one.output is not None}))
    identities = {queue: edge.identity for queue, edge in edges.items()}
    enqueued = yield from _go_on(dealt(plan.onward, committed.queues, identities), capacity, modes)
    yield from history(_events(plan, attempt, now_us))
    attempts = {request.lease_id: attempt}
    enqueued = enqueued.plus((yield from end_attempts(plan.left_out, attempts, "LEFT_OUT", capacity, modes, next_due)))
    yield from count_work(plan.finished)
    is_exporting = any(state == EXPORTING for _, state, _ in plan.finished)
    done = Completion(False, len(request.outcomes), committed.messages)
    return CompletionDone(done, enqueued, is_exporting, _losses(plan))


def refuse(request: CompleteRequest) -> Work[None]:
    """After `LeaseLost`, in a transaction of its own: drop what was staged, and let the lease expire if it has not.

    So parcels that the refused worker still holds are queued again at once, and the attempt counts.
    """
    now_us = yield Now()
    if request.wanted is not None:
        yield DropStages(request.wanted)
    yield Ask(SQL["lease_cut_short"], {"lease_id": request.lease_id, "now_us": now_us})


def _repeated(request: CompleteRequest) -> Work[CompletionDone]:
    """The lease is over. Either it was completed with these outcomes before, or it is lost."""
    steps = yield from leased_steps([request.lease_id])
    if not is_same(steps, request.outcomes):
        is_held = any(step.state == "LEASED" for step in steps)
        reason = (
            "its time is up" if is_held else "it was completed otherwise" if steps else "it has ended, or never was"
        )
        raise LeaseLost(request.lease_id, reason)
    return CompletionDone(Completion(True, len(request.outcomes), 0), NOTHING_ENQUEUED)


def _check(request: CompleteRequest, held: Sequence[LeasedStep]) -> None:
    dids = {step.did for step in held}
    for outcome in request.outcomes:
        if outcome.did not in dids:
            raise LeaseLost(request.lease_id, f"parcel {outcome.did!r} is not one of its {len(held)}, or is told twice")
        dids.discard(outcome.did)


def _finish(lease_id: str, plan: Route, known: Definitions, next_due: NextDue, now_us: int) -> Work[None]:
    rows = []
    for step, state, outcome in plan.finished:
        due_us = None
        if state == "ERROR":
            retry = known[step.flow, step.version].steps[step.step].retry
            failure = Failure(step.flow, step.action, outcome.error, step.attempts, outcome.is_transient)
            due_us = next_due(retry, failure, now_us)
        rows.append((step.did, step.step, state, outcome.error, due_us, lease_id, "LEASED"))
    moved = (yield Ask(SQL["steps_finish"], {"steps": rows, "now_us": now_us})) if rows else []
    if len(moved) < len(rows):
        raise LeaseLost(lease_id, f"{len(rows) - len(moved)} of its {len(rows)} parcels were taken from it")


def _commit(request: CompleteRequest) -> Work[CommitOutcome]:
    if request.wanted is None:
        return CommitOutcome(False, 0, 0, {})
    outcome: CommitOutcome = yield CommitStages(request.wanted, request.stage_ids)
    return outcome


def _move_parcels(plan: Route, now_us: int) -> Work[None]:
    going_on = {parcel.did for parcel in plan.onward}
    states = [(step.did, parcel_state(state, outcome, step.did in going_on)) for step, state, outcome in plan.finished]
    if states:
        yield Ask(SQL["parcels_move"], {"parcels": states, "now_us": now_us})
    noted = {step.did: outcome.annotations for step, _, outcome in plan.finished if outcome.annotations}
    yield from add_annotations(noted)
    yield from _add_children(plan.children, now_us)


def _add_children(children: Sequence[NewChild], now_us: int) -> Work[None]:
    rows: list[tuple[object, ...]] = []
    for did, parent, child, is_finished in children:
        first = child.ranges[0] if child.ranges else ("", 1, 0)
        state = "COMPLETE" if is_finished else "IN_FLIGHT"
        annotations = msgspec.json.encode(dict(child.annotations)).decode()
        rows.append((did, parent, *first[:3], child.messages, state, annotations))
    if rows:
        yield Ask(SQL["children_add"], {"children": rows, "now_us": now_us})


def _go_on(onward: Sequence[Onward], capacity: int, modes: Modes) -> Work[Enqueued]:
    """Queue parcels at their next steps, or let them wait for a join; their messages are spared by retention."""
    new = [
        new_step(p.definition, p.step, NewParcel(p.did, p.ranges, p.messages), p.place)._replace(size=p.size)
        for p in onward
    ]
    for flow in sorted({step.flow for step in new}):
        yield from hold_ranges(flow, [reading for step in new if step.flow == flow for reading in step.ranges])
    joins = {step.did: join for step, p in zip(new, onward, strict=True) if (join := p.definition.steps[p.step].join)}
    enqueued = yield from enqueue_locked([step for step in new if step.did not in joins], capacity, modes)
    if joins:
        annotations = yield from add_annotations({did: {} for did in joins})
        entering = [
            Entering(step, joins[step.did], key_of(joins[step.did], annotations[step.did]))
            for step in new
            if step.did in joins
        ]
        enqueued = enqueued.plus((yield from enter(entering, capacity)))
    return enqueued


def _losses(plan: Route) -> list[Loss]:
    return [
        Loss(step.flow, step.did, "; ".join(map(str, outcome.missing)), is_error=False)
        for step, _, outcome in plan.finished
        if outcome.missing
    ]


def _events(plan: Route, attempt: Attempt, now_us: int) -> list[Event]:
    """What a worker reported of each parcel: its actions, then how the step ended."""
    events: list[Event] = []
    for step, state, outcome in plan.finished:
        events += [
            Event(
                step.did,
                step.step,
                run.action,
                "ACTION",
                run.finished_us,
                run.started_us,
                attempt.worker,
                step.attempts,
                run.rows_in,
                run.rows_out,
                run.filtered,
                run.bad,
                run.error,
            )
            for run in outcome.actions
        ]
        noted = Event(step.did, step.step, step.action, LOST, now_us, None, attempt.worker, step.attempts)
        events += [noted._replace(text=str(missing)) for missing in outcome.missing]
        events.append(_ending(step, state, outcome, attempt, now_us))
    return events


def _ending(step: LeasedStep, state: str, outcome: Outcome, attempt: Attempt, now_us: int) -> Event:
    event, text = state, outcome.error
    if outcome.children and state == "COMPLETE":
        event, text = "SPLIT", f"into {len(outcome.children)} parcels"
    return Event(
        step.did,
        step.step,
        step.action,
        event,
        now_us,
        attempt.started_us,
        attempt.worker,
        step.attempts,
        outcome.rows_in,
        outcome.rows_out,
        outcome.filtered,
        outcome.bad,
        text,
    )
