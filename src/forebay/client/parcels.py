"""Parcels as workers see them: what a lease holds, and what is said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal

from msgspec import Struct

from forebay.client.messages import Refused

_GAPS_NAMED_MAX = 10
"""In the text of an error."""


class MessageRange(Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    """Messages of a queue, both ends included."""

    queue: str
    first_seq: int
    last_seq: int
    identity: str = ""
    """Of the queue that is meant: one that is made again has other messages under these seqs. Empty: not known."""
    removed_up_to: int | None = None
    """What was removed up to this seq was gone before the parcel was cut. None: not known."""


class MissingMessages(Struct, rename="camel", frozen=True, gc=False):
    """Messages that a parcel was to read and that are gone."""

    queue: str
    first_seq: int
    last_seq: int
    messages: int
    """How many of those between the two seqs, at the most."""
    cause: str

    def __str__(self) -> str:
        count = f"{self.messages} of " if self.messages <= self.last_seq - self.first_seq else ""
        return f"queue {self.queue!r}: {count}messages {self.first_seq}-{self.last_seq} are gone: {self.cause}"


class MessagesGone(Refused):
    """Messages of the parcel are gone: its queue was deleted or made again, or they were removed or lost. `missing`
    says which. A flow with `failOnDataLoss: false` goes on with the rest."""

    def __init__(self, missing: Sequence[MissingMessages]) -> None:
        super().__init__(HTTPStatus.GONE, "; ".join(map(str, missing[:_GAPS_NAMED_MAX])))
        self.missing = tuple(missing)


class Parcel(Struct, rename="camel", frozen=True):
    """A parcel under a lease: which messages, and which action they are for."""

    did: str
    step: int
    flow: str
    version: int
    action: str
    action_class: str
    attempt: int
    """From 1. After a lease has ended without a completion the same parcel comes again: give side effects the did as
    idempotency key."""
    ranges: tuple[MessageRange, ...]
    messages: int
    size: int
    joined: tuple[str, ...] = ()
    """Parcels that this one was joined from."""


class ParcelLease(Struct, rename="camel", frozen=True):
    """Parcels that are the worker's until the lease ends. Prolong it with `heartbeat`, end it with `complete`."""

    lease_id: str
    until: str
    lease_seconds: float
    heartbeat_seconds: float
    """How often to send a heartbeat."""
    parcels: tuple[Parcel, ...]
    definitions: dict[str, dict[str, Any]] = {}
    """Of the parcels' flows, by `flow@version`."""

    def definition(self, parcel: Parcel) -> dict[str, Any]:
        """The definition that the parcel was cut with.

        Example: `lease.definition(lease.parcels[0])["source"]`
        """
        return self.definitions[f"{parcel.flow}@{parcel.version}"]


class ActionRun(Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """What one action did to a parcel, for its history. Times are ISO 8601."""

    action: str
    started_at: str
    finished_at: str
    rows_in: int | None = None
    rows_out: int | None = None
    filtered: int | None = None
    bad: int | None = None
    error: str = ""


class ParcelPart(Struct, rename="camel", frozen=True, omit_defaults=True):
    """A part of a parcel that is split: it goes on by itself."""

    ranges: Sequence[MessageRange]
    annotations: Mapping[str, str] = {}


class OutputRows(Struct, frozen=True):
    """How many of the rows staged for a queue are this parcel's: its next step reads those."""

    queue: str
    rows: int


class AwaitedRows(Struct, frozen=True):
    """Rows staged with a completion that a group has to pass before the parcel is complete: it is EXPORTING until then.

    0 rows: nothing to wait for.
    """

    queue: str
    group: str
    partition: str
    rows: int


class ParcelOutcome(Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """What became of a parcel. ERROR needs an `error`."""

    did: str
    state: Literal["COMPLETE", "FILTERED", "ERROR"]
    error: str = ""
    rows_in: int | None = None
    rows_out: int | None = None
    filtered: int | None = None
    bad: int | None = None
    actions: Sequence[ActionRun] = ()
    annotations: Mapping[str, str] = {}
    children: Sequence[ParcelPart] = ()
    output: OutputRows | None = None
    transient: bool = False
    """Of an ERROR: something that the worker called did not answer: it is tried again whatever its attempts."""
    awaits: Sequence[AwaitedRows] = ()
    """Only of a flow's last step."""
    skipped: int | None = None
    """Of the filtered: those that failed and were left out."""
    missing: Sequence[MissingMessages] = ()
    """What it went on without: the server notes, counts and logs it."""


class Completed(Struct, rename="camel", frozen=True):
    """What a completion did; with `repeated`, an earlier one of the same outcomes has done it."""

    lease_id: str
    repeated: bool
    parcels: int
    messages: int
    """How many messages the stages became."""
