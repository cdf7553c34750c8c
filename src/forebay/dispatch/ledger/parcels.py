"""One parcel: its history, its annotations, and a new parcel of the same messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from forebay.broker.room_work import Ask, Edge, Gaps, Now, QueueEdge, QueueGaps, Work
from forebay.dispatch.definition import FlowDefinition
from forebay.dispatch.dids import new_dids
from forebay.dispatch.faults import AnnotationKept, AnnotationsRefused, UnknownFlow, UnknownParcel
from forebay.dispatch.ledger.enqueue import Enqueued
from forebay.dispatch.ledger.finding import find_parcel
from forebay.dispatch.ledger.flows import decoded, definitions
from forebay.dispatch.ledger.history import Event, history
from forebay.dispatch.ledger.holding import hold_ranges
from forebay.dispatch.ledger.starting import NewParcel, start_parcels
from forebay.dispatch.tables import SQL
from forebay.dispatch.values import Range
from forebay.dispatch.views import ParcelEvent, ParcelHistory, ParcelInfo, StepInfo
from forebay.errors import QueueReplaced, RangeGone, RangeIncomplete, UnknownQueue

ANNOTATIONS_MAX = 100
ANNOTATION_CHARS_MAX = 1_000


def show(did: str) -> Work[ParcelHistory | None]:
    """The parcel with its steps and everything that happened to it; None when there is none."""
    found = yield from find_parcel(did)
    if found is None:
        return None
    steps = yield Ask(SQL["parcel_steps"], {"did": did})
    rows = yield Ask(SQL["parcel_events"], {"did": did})
    children = yield Ask(SQL["parcel_children"], {"did": did})
    events = [ParcelEvent(*row) for row in rows]
    joined = [did for event in events if event.event == "JOIN" for did in msgspec.json.decode(event.text)]
    into = [event.text for event in events if event.event == "JOINED"]
    return ParcelHistory(found, [_step(row) for row in steps], events, [*into, *(row[0] for row in children)], joined)


def _step(row: Sequence[object]) -> StepInfo:
    step = StepInfo(*row)  # type: ignore[arg-type]
    return step._replace(ranges=ranges_of(str(step.ranges)))


def ranges_of(text: str) -> list[Range]:
    return msgspec.json.decode(text, type=list[Range])


def annotate(did: str, annotations: Mapping[str, str], *, overwrite: bool) -> Work[ParcelInfo]:
    """Add annotations to a parcel. One that has another value already is refused, unless it may be overwritten."""
    _check_annotations(annotations)
    rows = yield Ask(SQL["annotations_lock"], {"dids": [[did]]})
    if not rows:
        raise UnknownParcel(did)
    known = msgspec.json.decode(rows[0][1], type=dict[str, str])
    if not overwrite:
        for key, value in annotations.items():
            if known.get(key, value) != value:
                raise AnnotationKept(did, key)
    merged = {**known, **annotations}
    if len(merged) > ANNOTATIONS_MAX:
        raise AnnotationsRefused("annotations", f"the parcel would have {len(merged)}, allowed are {ANNOTATIONS_MAX}")
    yield Ask(SQL["annotations_set"], {"parcels": [[did, msgspec.json.encode(merged).decode()]]})
    found = yield from find_parcel(did)
    if found is None:
        raise UnknownParcel(did)
    return found


def _check_annotations(annotations: Mapping[str, str]) -> None:
    for key, value in annotations.items():
        if not 0 < len(key) <= ANNOTATION_CHARS_MAX:
            raise AnnotationsRefused(
                "annotations", f"a name has {len(key)} characters, allowed are 1 to {ANNOTATION_CHARS_MAX}"
            )
        if len(value) > ANNOTATION_CHARS_MAX:
            raise AnnotationsRefused(
                f"annotations.{key}", f"has {len(value)} characters, allowed are {ANNOTATION_CHARS_MAX}"
            )


class Replayed(NamedTuple):
    did: str
    """Of the new parcel."""
    enqueued: Enqueued


class _Original(NamedTuple):
    flow: str
    version: int
    step: int
    ranges: str
    messages: int
    size: int
    annotations: str


def replay(did: str, capacity: int) -> Work[Replayed]:
    """A new parcel that reads what this one began with, at the end of the line.

    Refused where the queue is another one now (`QueueReplaced`) or not there, and where messages are gone
    (`RangeIncomplete`), unless the flow goes on without those.

    A parcel that began at the flow's first step goes through the flow as it is defined now; a part of a split or joined
    parcel begins where that one began, as its own version has it.
    """
    now_us = yield Now()
    rows = yield Ask(SQL["replay_find"], {"did": did})
    if not rows:
        raise UnknownParcel(did)
    parcel = _Original(*rows[0])
    known = yield Ask(SQL["flow_lock"], {"flow": parcel.flow})
    if not known:
        raise UnknownFlow(parcel.flow)
    version, definition = yield from _definition(parcel, known[0])
    ranges = ranges_of(parcel.ranges)
    for reading in ranges:
        yield from _check_there(reading, is_loss_fatal=definition.source.fail_on_data_loss)
    [new_did] = new_dids(1, now_us)
    new = NewParcel(
        new_did,
        ranges,
        parcel.messages,
        parcel.size // max(parcel.messages, 1),
        did,
        msgspec.json.decode(parcel.annotations, type=dict[str, str]),
    )
    enqueued = yield from start_parcels(definition, version, [new], capacity, step=parcel.step)
    yield from hold_ranges(parcel.flow, ranges)
    action = definition.steps[parcel.step].action
    yield from history([Event(did, parcel.step, action, "REPLAYED", now_us, text=new_did)])
    return Replayed(new_did, enqueued)


def _definition(parcel: _Original, newest: tuple[int, str]) -> Work[tuple[int, FlowDefinition]]:
    if parcel.step == 0:
        return newest[0], decoded(newest[1])
    kept = yield from definitions([(parcel.flow, parcel.version)])
    return parcel.version, kept[parcel.flow, parcel.version]


def _check_there(reading: Range, *, is_loss_fatal: bool) -> Work[None]:
    edge: Edge | None = yield QueueEdge(reading.queue)
    gaps: Gaps | None = yield QueueGaps(reading.queue, reading.first_seq, reading.last_seq)
    if edge is None or gaps is None:
        raise UnknownQueue(reading.queue)
    if reading.identity not in ("", edge.identity):
        raise QueueReplaced(reading.queue, reading.identity, edge.identity)
    if reading.last_seq >= edge.next_seq:
        # Of an older Forebay, which has not noted the queue's identity.
        raise RangeGone(f"queue {reading.queue!r}", reading.first_seq, edge.first_seq)
    if not is_loss_fatal:
        return
    if gaps.removed_seq >= reading.first_seq and gaps.removed_seq > (reading.removed_up_to or 0):
        raise RangeIncomplete(reading.queue, reading.first_seq, gaps.removed_seq, "retention")
    if gaps.lost:
        raise RangeIncomplete(reading.queue, reading.first_seq, reading.last_seq, "damage")
