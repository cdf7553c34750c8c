"""Arguments and results of what dispatch does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from forebay.broker.bulk import StagesOf
from forebay.dispatch.definition import FlowDefinition

OutcomeState = Literal["COMPLETE", "FILTERED", "ERROR"]
PARCEL_STATES = ("IN_FLIGHT", "COMPLETE", "FILTERED", "ERROR", "CANCELLED")


class Range(NamedTuple):
    """Messages of a queue, both ends included. The tables hold it as a JSON array, older ones one of three items."""

    queue: str
    first_seq: int
    last_seq: int
    identity: str = ""
    """Of the queue that is meant: one that is made again has other messages under these seqs. Empty: not known."""
    removed_up_to: int | None = None
    """What was removed up to this seq was gone when the parcel was cut, and is no loss. None: not known."""

    @property
    def messages(self) -> int:
        return max(0, self.last_seq - self.first_seq + 1)


class Missing(NamedTuple):
    """Messages that a parcel was to read and that are gone; it went on without them."""

    queue: str
    first_seq: int
    last_seq: int
    messages: int
    """How many of those between the two seqs, at the most."""
    cause: str

    def __str__(self) -> str:
        count = f"{self.messages} of " if self.messages < self.last_seq - self.first_seq + 1 else ""
        return f"queue {self.queue!r}: {count}messages {self.first_seq}-{self.last_seq} are gone: {self.cause}"


class Loss(NamedTuple):
    """Parcels of a flow that lack messages, for the log."""

    flow: str
    did: str
    text: str
    is_error: bool
    """The parcel is in ERROR for it; else it went on with the rest."""


class NewStep(NamedTuple):
    """A parcel that comes to a step: it is to be queued, warm or cold."""

    did: str
    step: int
    flow: str
    flow_type: str
    action: str
    action_class: str
    place: int
    ranges: Sequence[Range]
    messages: int
    size: int


class StepRecord(NamedTuple):
    """A row in front of a step, as the step reads it."""

    did: str
    """The parcel that it was in."""
    key: str
    """What the record is known by in that parcel: sent again with it, it does not start again."""
    payload: bytes
    """A JSON object."""


class StartRecords(NamedTuple):
    """Records that are to go through a step of a flow, and what follows it, without their parcels."""

    flow: str
    step: str
    """Its first action."""
    records: Sequence[StepRecord]


class RecordsStarted(NamedTuple):
    dids: Sequence[str]
    """Of the new parcels: one for each parcel that records were in."""
    records: int
    """How many started."""
    repeated: int
    """How many had started before."""


class LeaseRequest(NamedTuple):
    worker: str
    classes: Sequence[str]
    """Patterns (`geo.*`): which action classes the worker serves."""
    parcels_max: int = 100
    messages_max: int = 0
    """0: no limit. The first parcel is given whatever its size."""
    wait_seconds: float = 0.0
    plugin: str = ""
    same_step: bool = False
    """All parcels are of one flow, version and step: the worker runs them as one job."""


class LeasedParcel(NamedTuple):
    did: str
    step: int
    flow: str
    version: int
    action: str
    action_class: str
    attempt: int
    """From 1."""
    ranges: Sequence[Range]
    messages: int
    size: int
    joined: Sequence[str] = ()
    """Parcels that this one was joined from."""


class Lease(NamedTuple):
    lease_id: str
    until_us: int
    parcels: Sequence[LeasedParcel]
    definitions: Mapping[str, FlowDefinition]
    """By `flow@version`, each once."""


class ActionRun(NamedTuple):
    """What one action of a chain did to a parcel, for its history."""

    action: str
    started_us: int
    finished_us: int
    rows_in: int | None = None
    rows_out: int | None = None
    filtered: int | None = None
    bad: int | None = None
    error: str = ""


class Child(NamedTuple):
    """A part of a parcel that was split: it goes on by itself."""

    ranges: Sequence[Range]
    messages: int
    annotations: Mapping[str, str] = {}


class Await(NamedTuple):
    """Rows that were staged with a completion, which a group has to pass before the parcel is complete."""

    queue: str
    group: str
    partition: str
    rows: int
    """0: nothing to wait for."""


class Outcome(NamedTuple):
    """What became of a parcel under a lease."""

    did: str
    state: OutcomeState
    error: str = ""
    rows_in: int | None = None
    rows_out: int | None = None
    filtered: int | None = None
    bad: int | None = None
    actions: Sequence[ActionRun] = ()
    annotations: Mapping[str, str] = {}
    children: Sequence[Child] = ()
    """Not empty: the parcel is split, and these take its place."""
    output: tuple[str, int] | None = None
    """A queue, and how many of the rows staged for it, in the order of the outcomes, are this parcel's: the next step
    reads those in place of what this one read."""
    is_transient: bool = False
    """Of an ERROR: not the parcel's fault, so that it is tried again whatever its attempts."""
    awaits: Sequence[Await] = ()
    """Of a flow's last step: the parcel is EXPORTING until all of these are passed."""
    skipped: int | None = None
    """Of the filtered: those that failed and were left out, as the action's `on_error` says."""
    missing: Sequence[Missing] = ()
    """What the parcel was to read and is gone, where it went on without it."""


class Completion(NamedTuple):
    is_repeated: bool
    """The lease was completed with the same outcomes before."""
    parcels: int
    messages: int
    """How many messages the stages became."""


class CompleteRequest(NamedTuple):
    lease_id: str
    outcomes: Sequence[Outcome]
    """Of all parcels of the lease: one that is left out is queued again, and its attempt counts."""
    wanted: StagesOf | None = None
    stage_ids: Sequence[str] = ()
