"""Resuming what is in ERROR: by a person, or by itself where an auto-resume policy says so.

A policy sets when an error is due (`due_us`): of a parcel that goes into ERROR (`next_due_of`, which completions and
expiries ask), and of those that are in ERROR when the policy is set. What is due is queued again at its old place, with
its attempts. A person's resume sets them back to zero, and takes the newest definition of the flow.

A parcel that failed because too few came to its join waits for the join again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from forebay.broker.room_work import Ask, Now, Value, Work
from forebay.dispatch.definition import FlowDefinition, Retry
from forebay.dispatch.faults import PolicyRefused
from forebay.dispatch.ledger.classes import lock_classes
from forebay.dispatch.ledger.enqueue import NOTHING_ENQUEUED, Enqueued, enqueue_again
from forebay.dispatch.ledger.finding import find_parcels
from forebay.dispatch.ledger.flows import definitions
from forebay.dispatch.ledger.history import Event, history
from forebay.dispatch.policy_checking import policy_faults
from forebay.dispatch.retries import Failure, ResumePolicy, by_priority, due_after
from forebay.dispatch.tables import SQL
from forebay.dispatch.views import ParcelFilter, ParcelInfo

APPLY_MAX = 10_000
"""How many errors a policy is applied to when it is set."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ResumePolicy)


class Resumed(NamedTuple):
    parcels: int
    enqueued: Enqueued


def resume(wanted: ParcelFilter, limit: int, capacity: int) -> Work[Resumed]:
    """Queue parcels in ERROR again that fit, up to so many; ask again while it is as many as the limit."""
    if wanted.state not in ("", "ERROR"):
        return Resumed(0, NOTHING_ENQUEUED)
    now_us = yield Now()
    found = yield from find_parcels(wanted._replace(state="ERROR"), limit)
    if not found:
        return Resumed(0, NOTHING_ENQUEUED)
    yield from lock_classes(parcel.action_class for parcel in found)
    yield from _take_newest(found)
    # Under the lock: what another server resumed or cancelled since it was found is left out.
    keys = yield Ask(SQL["steps_in_error"], {"steps": [[parcel.did, parcel.step] for parcel in found]})
    again = [(did, step) for did, step, _, join_key in keys if not join_key]
    to_join = [(did, step) for did, step, _, join_key in keys if join_key]
    enqueued = yield from enqueue_again(again, capacity, reset_attempts=True)
    if to_join:
        yield Ask(SQL["join_again"], {"steps": [list(key) for key in to_join], "now_us": now_us})
        moved = [[did, "IN_FLIGHT"] for did, _ in to_join]
        yield Ask(SQL["parcels_move"], {"parcels": moved, "now_us": now_us})
    yield from history([Event(did, step, action, "RESUMED", now_us) for did, step, action, _ in keys])
    return Resumed(len(keys), enqueued)


def _take_newest(found: Sequence[ParcelInfo]) -> Work[None]:
    """Let parcels go on under the newest definition of their flow, where their step is the same action there.

    A person resumes after mending: a flow whose SQL was wrong would fail for ever under the version it was cut with.
    """
    rows = yield Ask(SQL["flow_versions"], {"flows": [[flow] for flow in sorted({one.flow for one in found})]})
    newest: dict[str, int] = dict(rows)
    changed = [one for one in found if newest.get(one.flow, one.version) != one.version]
    if not changed:
        return
    keys = {(one.flow, one.version) for one in changed} | {(one.flow, newest[one.flow]) for one in changed}
    known = yield from definitions(sorted(keys))
    moved = []
    for one in changed:
        was, now = known.get((one.flow, one.version)), known.get((one.flow, newest[one.flow]))
        if was is not None and now is not None and is_same_step(was, now, one.step):
            moved.append([one.did, newest[one.flow]])
    if moved:
        yield Ask(SQL["parcels_set_version"], {"parcels": moved})


def is_same_step(was: FlowDefinition, now: FlowDefinition, step: int) -> bool:
    """Whether the same actions have led to the step, and it waits in the same queue."""
    if len(now.steps) <= step:
        return False
    before = [(one.action, one.action_class) for one in was.steps[: step + 1]]
    return before == [(one.action, one.action_class) for one in now.steps[: step + 1]]


def policies() -> Work[list[ResumePolicy]]:
    """All policies, in the order in which they are tried."""
    rows = yield Ask(SQL["policies"])
    return by_priority([_decoder.decode(text) for [text] in rows])


def set_policy(policy: ResumePolicy) -> Work[int]:
    """Keep a policy, and let it have what is in ERROR already; of how many parcels it set the time."""
    faults = list(policy_faults(policy))
    if faults:
        raise PolicyRefused(policy.name, faults)
    now_us = yield Now()
    text = _encoder.encode(policy).decode()
    yield Ask(SQL["policy_set"], {"name": policy.name, "policy": text, "now_us": now_us})
    return (yield from _apply(policy, now_us))


def remove_policy(name: str) -> Work[bool]:
    """False when there is none. What it set to be due stays due."""
    removed = yield Ask(SQL["policy_remove"], {"name": name})
    return bool(removed)


def _apply(policy: ResumePolicy, now_us: int) -> Work[int]:
    """Errors that no policy had and this one fits become due, up to a limit: a policy is for what comes, too."""
    values: dict[str, Value] = {
        "flow": policy.flow,
        "action": policy.action,
        "error": policy.error_text,
        "limit": APPLY_MAX,
    }
    rows = yield Ask(SQL["errors_without_time"], values)
    kept = yield from definitions(sorted({(flow, version) for _, _, flow, version, *_ in rows}))
    due = []
    for did, step, flow, version, action, error, attempts in rows:
        retry = kept[flow, version].steps[step].retry
        # The step's own retries are over, or it would have a time.
        over = Retry(max_attempts=min(retry.max_attempts, max(attempts, 1)))
        due_us = due_after(over, [policy], Failure(flow, action, error, max(attempts, 1)), now_us, random.random())
        if due_us is not None:
            due.append([did, step, due_us])
    changed = (yield Ask(SQL["errors_set_due"], {"steps": due, "now_us": now_us})) if due else []
    return len(changed)


def next_due_of(known: Sequence[ResumePolicy]) -> Callable[[Retry, Failure, int], int | None]:
    """What completions and expiries ask: when a failure is queued again by itself, under these policies."""
    return lambda retry, failure, now_us: due_after(retry, known, failure, now_us, random.random())
