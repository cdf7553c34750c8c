"""What the facade shows of flows, parcels and queues, and the filters of its calls.

Values only: times are microseconds since 1970 UTC, and whatever turns them into JSON or Prometheus text does so outside
of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from forebay.dispatch.definition import FlowDefinition, FlowState
from forebay.dispatch.values import Range


class FlowStatus(NamedTuple):
    """A flow, how far its source is cut, and how many of its parcels wait, run or failed."""

    name: str
    version: int
    definition: FlowDefinition
    state: FlowState
    reason: str
    """Why the state is what it is: a person's words, or the server's where it stopped the source by itself."""
    updated_us: int
    queue_id: int = 0
    """The source queue's identity when it was last cut; 0: not cut yet, or no queue."""
    next_seq: int = 1
    """The first message of the source that is in no parcel."""
    waits_us: int | None = None
    """Since when messages wait to be cut."""
    tick_us: int | None = None
    """When a timed source is due."""
    queued: int = 0
    cold: int = 0
    leased: int = 0
    joining: int = 0
    errors: int = 0
    """Parcels in ERROR, those that are to be queued again by themselves included."""
    exporting: int = 0
    """Parcels whose results wait for their destination."""
    lost: int = 0
    """Messages that it did not get because they were gone: before they were cut, or when a parcel was read."""


class FlowWork(NamedTuple):
    """What workers did for a flow since it was defined, and what stands in its way."""

    leases: int
    rows: int
    """Messages that its first step has read, each once."""
    bad: int
    skipped: int
    errors: int
    """Steps in ERROR."""
    error: str
    """What the newest of them says."""
    lost: int = 0
    """Messages that it went on without, because they were gone before they were cut or read."""


class ParcelFilter(NamedTuple):
    """Which parcels are meant. Everything that is given has to fit; an empty filter means all of them."""

    flow: str = ""
    state: str = ""
    """One of `PARCEL_STATES`, or a step's own state such as COLD_QUEUED or LEASED."""
    action: str = ""
    action_class: str = ""
    error: str = ""
    """A part of the error's text, in the same case."""
    since_us: int | None = None
    """Cut at this time or later."""
    before_us: int | None = None
    """Cut before this time."""
    did: str = ""
    """What the did begins with."""


class ParcelInfo(NamedTuple):
    """A parcel and the step that it has come to."""

    did: str
    flow: str
    version: int
    parent: str
    queue: str
    first_seq: int
    last_seq: int
    messages: int
    size: int
    place: int
    """Also the page's mark: ask for the next page with the last parcel's `(place, did)`."""
    state: str
    annotations: Mapping[str, str]
    created_us: int
    updated_us: int
    finished_us: int | None
    step: int = 0
    step_state: str = ""
    """QUEUED, COLD_QUEUED, LEASED, JOINING, EXPORTING, or how the step ended."""
    action: str = ""
    action_class: str = ""
    attempts: int = 0
    due_us: int | None = None
    """When an ERROR is queued again by itself."""
    error: str = ""
    worker: str = ""
    """Of the lease that it is in."""


class StepInfo(NamedTuple):
    """One step of a parcel as it stands."""

    step: int
    flow_type: str
    action: str
    action_class: str
    state: str
    attempts: int
    lease_id: str
    ranges: Sequence[Range]
    messages: int
    size: int
    queued_us: int
    due_us: int | None
    error: str
    join_key: str


class ParcelEvent(NamedTuple):
    """Something that happened to a parcel: what an action did to it, or a change of its state."""

    number: int
    step: int
    action: str
    event: str
    at_us: int
    started_us: int | None = None
    worker: str = ""
    attempt: int = 0
    rows_in: int | None = None
    rows_out: int | None = None
    filtered: int | None = None
    bad: int | None = None
    text: str = ""


class ParcelHistory(NamedTuple):
    """A parcel with all that is known of it."""

    parcel: ParcelInfo
    steps: Sequence[StepInfo]
    events: Sequence[ParcelEvent]
    children: Sequence[str] = ()
    """The dids of parcels that it was split, joined or replayed into."""
    joined: Sequence[str] = ()
    """The dids of parcels that it was joined from."""


class WarmQueue(NamedTuple):
    action_class: str
    flow: str
    flow_type: str
    action: str
    count: int  # type: ignore[assignment]  # as the JSON has it; a tuple's own count is not used
    oldest_queued_us: int | None
    oldest_did: str


class ColdQueue(NamedTuple):
    action_class: str
    flow: str
    flow_type: str
    action: str
    count: int  # type: ignore[assignment]  # as the JSON has it; a tuple's own count is not used
    oldest_queued_us: int | None


class QueueDetails(NamedTuple):
    """What waits, by action class, flow and action. A row with nothing in it is left out."""

    warm: Sequence[WarmQueue]
    cold: Sequence[ColdQueue]
    at_us: int


class RunningTask(NamedTuple):
    """A parcel under a lease."""

    action_class: str
    flow: str
    action: str
    did: str
    started_us: int
    running_us: int
    worker: str
    beat_us: int
    """The last heartbeat of the lease."""


class ClassFigures(NamedTuple):
    action_class: str
    queued: int
    cold: int
    leased: int
    oldest_wait_seconds: float
    """How long the oldest parcel, warm or cold, has waited; 0 where none waits."""
    is_served: bool
    """A worker that was seen lately serves the class."""
    is_cold: bool
    went_cold: int
    went_warm: int


class HeldQueue(NamedTuple):
    """The oldest message of a queue that retention spares for a flow."""

    queue_id: int
    flow: str
    seq: int


class DispatchFigures(NamedTuple):
    """Counts for metrics and health checks."""

    classes: Sequence[ClassFigures]
    queued: int
    cold: int
    leased: int
    joining: int
    errors: int
    """Parcels in ERROR."""
    requeues: int
    """How often a step was queued again, since the store was made."""
    expiries: int
    """How many leases ended without a completion, since the store was made."""
    holds: Sequence[HeldQueue] = ()
    at_us: int = 0
    exporting: int = 0
    """Steps whose results wait for their destination."""
    untaken: Sequence[str] = ()
    """`queue@group` of what some of them wait for, and nothing takes."""
    lost: Mapping[str, int] = {}
    """Messages that flows did not get because they were gone, by flow; only where there were any."""
