"""What dispatch answers with: flows, leases, parcels and their history, as JSON."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from forebay.access.scopes import Scope
from forebay.api.callers import Caller
from forebay.api.responses import iso
from forebay.config.masking import without_secrets
from forebay.dispatch.definition import FlowDefinition
from forebay.dispatch.values import Lease, LeasedParcel, Range
from forebay.dispatch.views import FlowStatus, ParcelEvent, ParcelHistory, ParcelInfo, StepInfo


class RangeShape(Struct, rename="camel", gc=False):
    """Messages of a queue, both ends included. `GET /api/v1/arrow/queues/{queue}` with this `identity` and
    `removedUpTo` refuses where some of them are gone."""

    queue: str
    first_seq: int
    last_seq: int
    identity: str
    """Of the queue; empty where an older Forebay has cut the parcel."""
    removed_up_to: int | None
    """What was removed up to this seq was gone before the parcel was cut."""


class LeasedShape(Struct, rename="camel"):
    did: str
    step: int
    flow: str
    version: int
    action: str
    action_class: str
    attempt: int
    ranges: list[RangeShape]
    messages: int
    size: int
    joined: list[str]


class LeaseShape(Struct, rename="camel"):
    lease_id: str
    until: str
    lease_seconds: float
    """How long it lasts from now on, for a worker whose clock is another."""
    heartbeat_seconds: float
    """How often the worker is to prolong it."""
    parcels: list[LeasedShape]
    definitions: dict[str, FlowDefinition]
    """By `flow@version`."""


class DispatchFlow(Struct, rename="camel"):
    name: str
    version: int
    state: str
    reason: str
    definition: FlowDefinition
    updated_at: str
    queue_id: int
    """Of the source's queue: the number that its identity begins with; 0: not cut yet, or no queue."""
    next_seq: int
    """The first message of the source that is in no parcel."""
    waiting_since: str | None
    """Since when messages wait to be cut."""
    due_at: str | None
    """When a timed source is due."""
    queued: int
    cold: int
    leased: int
    joining: int
    errors: int
    exporting: int
    """Parcels whose results wait for their destination."""
    lost: int
    """Messages that it did not get because they were gone before they were cut or read, as far as known."""
    finished_retention_seconds: float
    """How long parcels are kept that are over."""


class ParcelShape(Struct, rename="camel"):
    did: str
    flow: str
    version: int
    state: str
    parent: str | None
    queue: str
    first_seq: int
    last_seq: int
    messages: int
    size: int
    place: int
    annotations: dict[str, str]
    created_at: str
    updated_at: str
    finished_at: str | None
    step: int
    step_state: str
    action: str
    action_class: str
    attempts: int
    due_at: str | None
    """When an ERROR is queued again by itself."""
    error: str
    worker: str


class StepShape(Struct, rename="camel"):
    step: int
    flow_type: str
    action: str
    action_class: str
    state: str
    attempts: int
    lease_id: str
    ranges: list[RangeShape]
    messages: int
    size: int
    queued_at: str
    due_at: str | None
    error: str
    join_key: str


class EventShape(Struct, rename="camel"):
    number: int
    step: int
    action: str
    event: str
    at: str
    started_at: str | None
    worker: str
    attempt: int
    rows_in: int | None
    rows_out: int | None
    filtered: int | None
    bad: int | None
    text: str


class HistoryShape(Struct, rename="camel"):
    parcel: ParcelShape
    steps: list[StepShape]
    events: list[EventShape]
    children: list[str]
    joined: list[str]


def lease_shape(lease: Lease, now_us: int, heartbeat_seconds: float) -> LeaseShape:
    seconds = max(0.0, (lease.until_us - now_us) / 1_000_000)
    return LeaseShape(
        lease.lease_id,
        iso(lease.until_us),
        seconds,
        min(heartbeat_seconds, seconds / 2),
        [_leased(parcel) for parcel in lease.parcels],
        dict(lease.definitions),
    )


def flow_shape(status: FlowStatus, caller: Caller, finished_retention_seconds: float) -> DispatchFlow:
    """As the caller may see it: passwords in what workers run are for those that may work on it, or define it."""
    definition = status.definition
    if not caller.bits & Scope.CONSUME:
        definition = replace(definition, spec=without_secrets(definition.spec))
    return DispatchFlow(
        status.name,
        status.version,
        status.state,
        status.reason,
        definition,
        iso(status.updated_us),
        status.queue_id,
        status.next_seq,
        _time(status.waits_us),
        _time(status.tick_us),
        status.queued,
        status.cold,
        status.leased,
        status.joining,
        status.errors,
        status.exporting,
        status.lost,
        finished_retention_seconds,
    )


def parcel_shape(info: ParcelInfo) -> ParcelShape:
    return ParcelShape(
        info.did,
        info.flow,
        info.version,
        info.state,
        info.parent or None,
        info.queue,
        info.first_seq,
        info.last_seq,
        info.messages,
        info.size,
        info.place,
        dict(info.annotations),
        iso(info.created_us),
        iso(info.updated_us),
        _time(info.finished_us),
        info.step,
        info.step_state,
        info.action,
        info.action_class,
        info.attempts,
        _time(info.due_us),
        info.error,
        info.worker,
    )


def history_shape(history: ParcelHistory) -> HistoryShape:
    return HistoryShape(
        parcel_shape(history.parcel),
        [_step(step) for step in history.steps],
        [_event(event) for event in history.events],
        list(history.children),
        list(history.joined),
    )


def _leased(parcel: LeasedParcel) -> LeasedShape:
    return LeasedShape(
        parcel.did,
        parcel.step,
        parcel.flow,
        parcel.version,
        parcel.action,
        parcel.action_class,
        parcel.attempt,
        _ranges(parcel.ranges),
        parcel.messages,
        parcel.size,
        list(parcel.joined),
    )


def _step(step: StepInfo) -> StepShape:
    return StepShape(
        step.step,
        step.flow_type,
        step.action,
        step.action_class,
        step.state,
        step.attempts,
        step.lease_id,
        _ranges(step.ranges),
        step.messages,
        step.size,
        iso(step.queued_us),
        _time(step.due_us),
        step.error,
        step.join_key,
    )


def _event(event: ParcelEvent) -> EventShape:
    return EventShape(
        event.number,
        event.step,
        event.action,
        event.event,
        iso(event.at_us),
        _time(event.started_us),
        *event[6:],
    )


def _ranges(ranges: Iterable[Range]) -> list[RangeShape]:
    return [RangeShape(*each) for each in ranges]


def _time(us: int | None) -> str | None:
    return None if us is None else iso(us)
