"""Records start at a step by themselves: rows that failed there are sent through it again, without their parcel.

    lock the flow                       records that are sent twice at the same moment follow each other
    find what is new                    another sender may have been faster: `None`, and the caller stages anew
    lock places, then the step's class  the order in which everything else locks them
    commit the staged rows              they become messages of the queue in front of the step
    start a parcel of each parent's     over exactly these messages, at the end of the line, waiting or joining there
    spare the messages, write history   RETRIED on the parent, RECORDS on the new parcel

**Once.** A record is known by the parcel that it was in and by its `key`. The keys are in the event RECORDS of the
parcel that was started, so a record which is sent again starts nothing for as long as that parcel is kept.

**The definition** is the newest where the same actions lead to the step, as for a parcel that a person resumes; else
the one that the parent was cut with. Of a parent that is not kept any more nothing is known: then it is the newest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from forebay.broker.bulk import CommitOutcome, StagesOf
from forebay.broker.room_work import Ask, CommitStages, DropStages, Edge, Now, QueueEdge, Work
from forebay.dispatch.definition import FlowDefinition
from forebay.dispatch.dids import new_dids
from forebay.dispatch.faults import RecordsRefused, UnknownFlow
from forebay.dispatch.ledger.annotating import add_annotations
from forebay.dispatch.ledger.classes import lock_classes
from forebay.dispatch.ledger.enqueue import NOTHING_ENQUEUED, Enqueued
from forebay.dispatch.ledger.flows import definitions
from forebay.dispatch.ledger.history import Event, history
from forebay.dispatch.ledger.holding import hold_ranges
from forebay.dispatch.ledger.resuming import is_same_step
from forebay.dispatch.ledger.starting import NewParcel, start_parcels, take_places
from forebay.dispatch.tables import SQL
from forebay.dispatch.values import Range, RecordsStarted, StartRecords, StepRecord
from forebay.errors import InvariantBroken
from forebay.model.internal_queues import step_queue

RECORDS, RETRIED = "RECORDS", "RETRIED"
_keys = msgspec.json.Decoder(list[str])


class NewRecords(NamedTuple):
    """Records of one parent that were not sent before, and where they start."""

    parent: str
    version: int
    step: int
    records: Sequence[StepRecord]


class RecordsPlan(NamedTuple):
    new: Sequence[NewRecords]
    """In the order in which their rows are staged."""
    repeated: int
    """Records that started before."""

    @property
    def records(self) -> list[StepRecord]:
        return [record for group in self.new for record in group.records]


class RecordsDone(NamedTuple):
    started: RecordsStarted
    enqueued: Enqueued


def plan_records(request: StartRecords) -> Work[RecordsPlan]:
    """What of the request is new. Only reads. `UnknownFlow`, or `RecordsRefused` with the field."""
    rows = yield Ask(SQL["flow_versions"], {"flows": [[request.flow]]})
    if not rows:
        raise UnknownFlow(request.flow)
    newest = rows[0][1]
    by_parent: dict[str, list[StepRecord]] = defaultdict(list)
    for record in request.records:
        by_parent[record.did].append(record)
    parents = [[did] for did in by_parent]
    versions = yield from _versions(request, parents)
    known = yield from definitions([(request.flow, version) for version in {newest, *versions.values()}])
    places = {did: _place(request, known, newest, versions.get(did)) for did in by_parent}
    sent = yield from _sent(parents)
    new = [
        NewRecords(did, *places[did], tuple(record for record in records if record.key not in sent[did]))
        for did, records in by_parent.items()
    ]
    count = sum(len(group.records) for group in new)
    return RecordsPlan([group for group in new if group.records], len(request.records) - count)


def _versions(request: StartRecords, parents: Sequence[Sequence[str]]) -> Work[dict[str, int]]:
    """With which versions the parcels were cut that the records were in, as far as these are kept."""
    rows = yield Ask(SQL["records_parents"], {"dids": parents})
    foreign = {did for did, flow, _ in rows if flow != request.flow}
    for number, record in enumerate(request.records):
        if record.did in foreign:
            raise RecordsRefused(f"records[{number}].did", f"parcel {record.did!r} is not of flow {request.flow!r}")
    return {did: version for did, _, version in rows}


def _sent(parents: Sequence[Sequence[str]]) -> Work[dict[str, set[str]]]:
    """The keys of records that started before, by the parcel that they were in."""
    rows = yield Ask(SQL["records_sent"], {"dids": parents})
    sent: dict[str, set[str]] = defaultdict(set)
    for did, text in rows:
        if text is not None:
            sent[did].update(_keys.decode(text.partition("\n")[2]))
    return sent


def _place(
    request: StartRecords, known: dict[tuple[str, int], FlowDefinition], newest: int, version: int | None
) -> tuple[int, int]:
    """Version and number of the step for records of a parcel of this version; None: it is not kept any more."""
    now = known[request.flow, newest]
    was = now if version is None else known[request.flow, version]
    numbers = [number for number, step in enumerate(was.steps) if step.action == request.step]
    if not numbers:
        steps = ", ".join(step.action for step in was.steps)
        raise RecordsRefused("step", f"flow {request.flow!r} has no step {request.step!r}; it has {steps}")
    if numbers[0] == 0:
        raise RecordsRefused(
            "step", f"{request.step!r} is the first step, which reads the source", remedy="Push to the source's queue"
        )
    if version is None or is_same_step(was, now, numbers[0]):
        return newest, numbers[0]
    return version, numbers[0]


def start_records(
    request: StartRecords, staged: RecordsPlan, wanted: StagesOf, stage_ids: Sequence[str], capacity: int
) -> Work[RecordsDone | None]:
    """Start what was staged as `staged` says. None: it is not as things stand any more, and the stages are dropped."""
    now_us = yield Now()
    yield Ask(SQL["flow_lock"], {"flow": request.flow})
    plan = yield from plan_records(request)
    if plan.records != staged.records:
        yield DropStages(wanted)
        return None
    known = yield from definitions([(request.flow, group.version) for group in plan.new])
    # Of nothing: whatever cuts a source takes places before it locks a class, and so the line is locked here first.
    yield from take_places(0)
    yield from lock_classes(known[request.flow, group.version].steps[group.step].action_class for group in plan.new)
    committed: CommitOutcome = yield CommitStages(wanted, stage_ids)
    # Locked from here on, so that nothing else adds to the parents' histories meanwhile.
    annotations = yield from add_annotations({group.parent: {} for group in plan.new})
    edge: Edge | None = yield QueueEdge(step_queue(request.flow, request.step))
    ranges = _ranges(request, plan, committed, edge.identity if edge is not None else "")
    parcels = _parcels(plan, ranges, annotations, now_us)
    yield from history(_events(request, plan, parcels, annotations.keys(), now_us))
    enqueued = NOTHING_ENQUEUED
    for version, step in sorted({(group.version, group.step) for group in plan.new}):
        here = [
            one for one, group in zip(parcels, plan.new, strict=True) if (group.version, group.step) == (version, step)
        ]
        more = yield from start_parcels(known[request.flow, version], version, here, capacity, step=step)
        enqueued = enqueued.plus(more)
    yield from hold_ranges(request.flow, [reading for parcel in parcels for reading in parcel.ranges])
    started = RecordsStarted([parcel.did for parcel in parcels], len(plan.records), plan.repeated)
    return RecordsDone(started, enqueued)


def _ranges(request: StartRecords, plan: RecordsPlan, committed: CommitOutcome, identity: str) -> list[Range]:
    """What of the committed rows is each parent's, in the order in which they were staged."""
    queue = step_queue(request.flow, request.step)
    if committed.messages != len(plan.records):
        raise InvariantBroken(f"{len(plan.records)} records became {committed.messages} messages of {queue!r}")
    ranges = []
    next_seq = committed.queues[queue].first_seq
    for group in plan.new:
        ranges.append(Range(queue, next_seq, next_seq + len(group.records) - 1, identity, 0))
        next_seq += len(group.records)
    return ranges


def _parcels(
    plan: RecordsPlan, ranges: Sequence[Range], annotations: Mapping[str, Mapping[str, str]], now_us: int
) -> list[NewParcel]:
    """With the annotations of their parents, by which a join distinguishes them."""
    parcels = []
    for did, group, reading in zip(new_dids(len(ranges), now_us), plan.new, ranges, strict=True):
        size = sum(len(record.payload) for record in group.records) // len(group.records)
        noted = annotations.get(group.parent, {})
        parcels.append(NewParcel(did, (reading,), len(group.records), size, group.parent, noted))
    return parcels


def _events(
    request: StartRecords, plan: RecordsPlan, parcels: Sequence[NewParcel], kept: Collection[str], now_us: int
) -> list[Event]:
    """On the new parcels, and on their parents as far as these are kept."""
    events = []
    for group, parcel in zip(plan.new, parcels, strict=True):
        keys = msgspec.json.encode([record.key for record in group.records]).decode()
        text = f"{len(group.records)} of parcel {group.parent}\n{keys}"
        events.append(Event(parcel.did, group.step, request.step, RECORDS, now_us, text=text))
        if group.parent in kept:
            events.append(Event(group.parent, group.step, request.step, RETRIED, now_us, text=parcel.did))
    return events
