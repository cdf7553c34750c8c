"""On-error sources: errors of other flows become parcels that read the same messages.

A step that goes into ERROR for good (nothing queues it again by itself) is noted in `parcel_errors` by a trigger in the
transaction that failed it. One transaction takes notes out, makes a parcel for each flow that wants the error, and
removes the note: each error is seen once, by every source that there is at the time.

The new parcel has the failed one as its parent, and annotations that say what failed. Errors of flows that have an
on-error source themselves are only for flows that name them: two such flows would otherwise feed each other for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from forebay.broker.room_work import Ask, Now, Work
from forebay.dispatch.definition import ErrorFilter, FlowDefinition
from forebay.dispatch.dids import new_dids
from forebay.dispatch.flow_control import stop_at_max_errors
from forebay.dispatch.ledger.enqueue import NOTHING_ENQUEUED, Enqueued
from forebay.dispatch.ledger.flows import decoded
from forebay.dispatch.ledger.holding import hold_ranges
from forebay.dispatch.ledger.starting import NewParcel, start_parcels
from forebay.dispatch.tables import SQL
from forebay.dispatch.values import Range

ERROR_CHARS_MAX = 1_000
"""Of the error's text in an annotation."""


class Caught(NamedTuple):
    enqueued: Enqueued = NOTHING_ENQUEUED
    errors: int = 0
    """How many were looked at."""
    parcels: int = 0
    stopped: Sequence[tuple[str, str]] = ()
    """Flows whose sources were stopped, and why."""


class _Failed(NamedTuple):
    did: str
    flow: str
    action: str
    error: str
    ranges: str
    messages: int
    size: int


class _Catcher(NamedTuple):
    definition: FlowDefinition
    version: int


def catch_errors(capacity: int, limit: int) -> Work[Caught]:
    """Make parcels of errors that no source has seen, up to so many errors."""
    now_us = yield Now()
    notes = yield Ask(SQL["errors_take"], {"limit": limit})
    if not notes:
        return Caught()
    sources = yield Ask(SQL["error_sources_lock"])
    catchers = [_Catcher(decoded(text), version) for text, version in sources]
    names = {catcher.definition.name for catcher in catchers}
    rows = yield Ask(SQL["errors_find"], {"steps": [list(note) for note in notes]})
    failed = [_Failed(*row) for row in rows]
    caught = Caught(errors=len(notes))
    for catcher in catchers:
        stopped = yield from stop_at_max_errors(catcher.definition, now_us)
        if stopped:
            caught = caught._replace(stopped=[*caught.stopped, (catcher.definition.name, stopped)])
            continue
        wanted = [each for each in failed if is_wanted(catcher.definition, each.flow, each.action, each.error, names)]
        if wanted:
            enqueued = yield from _start(catcher, wanted, capacity, now_us)
            caught = caught._replace(enqueued=caught.enqueued.plus(enqueued), parcels=caught.parcels + len(wanted))
    yield Ask(SQL["errors_forget"], {"steps": [list(note) for note in notes]})
    return caught


def is_wanted(definition: FlowDefinition, flow: str, action: str, error: str, catchers: set[str]) -> bool:
    """Whether an error of a flow is one for this flow's on-error source."""
    wanted = definition.source.errors or ErrorFilter()
    if flow == definition.name or (flow in catchers and flow not in wanted.flows):
        return False
    return (
        wanted.text in error
        and (not wanted.flows or flow in wanted.flows)
        and (not wanted.actions or action in wanted.actions)
    )


def _start(catcher: _Catcher, failed: Sequence[_Failed], capacity: int, now_us: int) -> Work[Enqueued]:
    parcels = []
    for did, each in zip(new_dids(len(failed), now_us), failed, strict=True):
        ranges = msgspec.json.decode(each.ranges, type=list[Range])
        noted = {
            "error.did": each.did,
            "error.flow": each.flow,
            "error.action": each.action,
            "error.text": each.error[:ERROR_CHARS_MAX],
        }
        parcels.append(NewParcel(did, ranges, each.messages, each.size // max(each.messages, 1), each.did, noted))
    enqueued = yield from start_parcels(catcher.definition, catcher.version, parcels, capacity)
    yield from hold_ranges(catcher.definition.name, [reading for parcel in parcels for reading in parcel.ranges])
    return enqueued
