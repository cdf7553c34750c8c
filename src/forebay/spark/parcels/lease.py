"""What a worker and the servers say to each other: a lease of parcels, and what became of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from forebay.errors import Permanent
from forebay.model.internal_queues import PRODUCER
from forebay.spark.options import Connection
from forebay.spark.server_calls import ServerCalls, ServerRefused

SILENCE_SECONDS_MAX = 5.0
"""How long a server may take over a heartbeat, or over a lease beyond the time that it may wait for parcels."""
_DISPATCH = "/api/v1/dispatch"
_CONFLICT, _NOT_FOUND = 409, 404


class LeaseLost(Permanent):
    """The lease has ended: its parcels are another worker's."""


class Range(msgspec.Struct, rename="camel", frozen=True):
    """Messages of a queue, both ends included."""

    queue: str
    first_seq: int
    last_seq: int
    identity: str = ""
    """Of the queue that is meant; empty where an older Forebay has cut the parcel."""
    removed_up_to: int | None = None
    """What was removed up to this seq was gone before the parcel was cut."""

    @property
    def messages(self) -> int:
        return self.last_seq - self.first_seq + 1


class Parcel(msgspec.Struct, rename="camel", frozen=True):
    did: str
    step: int
    flow: str
    version: int
    attempt: int
    ranges: tuple[Range, ...]
    messages: int

    @property
    def queue(self) -> str:
        """Where its messages are; a parcel of a timer has none."""
        return self.ranges[0].queue if self.ranges else ""


class Lease(msgspec.Struct, rename="camel", frozen=True):
    lease_id: str
    lease_seconds: float
    heartbeat_seconds: float
    parcels: tuple[Parcel, ...]
    definitions: dict[str, dict[str, Any]] = {}

    @property
    def first(self) -> Parcel:
        """All parcels of the lease are of its flow, version and step."""
        return self.parcels[0]

    @property
    def spec(self) -> dict[str, Any]:
        """The flow as it was when the parcels were cut."""
        found: dict[str, Any] = self.definitions[f"{self.first.flow}@{self.first.version}"].get("spec", {})
        return found

    @property
    def messages(self) -> int:
        return sum(parcel.messages for parcel in self.parcels)


class Await(msgspec.Struct, rename="camel", frozen=True):
    """Rows in an outbox: the parcel is EXPORTING until the group has passed them."""

    queue: str
    group: str
    partition: str
    rows: int


class Output(msgspec.Struct, frozen=True):
    """How many of the rows staged for a queue are this parcel's: its next step reads those."""

    queue: str
    rows: int


class ActionRun(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    action: str
    started_at: str
    finished_at: str
    rows_in: int | None = None
    rows_out: int | None = None
    filtered: int | None = None
    bad: int | None = None
    error: str = ""


class Missing(msgspec.Struct, rename="camel", frozen=True):
    """Messages that a parcel was to read and that are gone."""

    queue: str
    first_seq: int
    last_seq: int
    messages: int
    """How many of those between the two seqs, at the most."""
    cause: str


class Outcome(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    did: str
    state: str
    error: str = ""
    transient: bool = False
    """Of an ERROR: not the parcel's fault, so that it is tried again whatever its attempts."""
    rows_in: int | None = None
    rows_out: int | None = None
    filtered: int | None = None
    bad: int | None = None
    actions: Sequence[ActionRun] = ()
    annotations: dict[str, str] = {}
    output: Output | None = None
    awaits: Sequence[Await] = ()
    skipped: int | None = None
    """Of the filtered: those that failed and were left out, as `on_error: skip` says."""
    missing: Sequence[Missing] = ()
    """What it went on without, as `failOnDataLoss: false` says."""


class Completion(msgspec.Struct, frozen=True):
    """What is said of a lease: the outcomes of all its parcels, and the stages that count."""

    outcomes: Sequence[Outcome]
    stages: Sequence[str] = ()


class DispatchCalls:
    """The servers' dispatch, over HTTP. Every call may be made from any thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept = threading.local()

    def _calls(self, seconds: float | None = None) -> ServerCalls:
        connection = self._connection if seconds is None else self._connection._replace(retry_seconds=seconds)
        return ServerCalls(connection)

    def _own_calls(self, kind: str, silence_seconds_max: float) -> ServerCalls:
        """This thread's: it remembers which server answered last."""
        found: ServerCalls | None = getattr(self._kept, kind, None)
        if found is None:
            found = ServerCalls(self._connection, silence_seconds_max=silence_seconds_max)
            setattr(self._kept, kind, found)
        return found

    def define(self, name: str, definition: dict[str, Any]) -> None:
        """Define a flow, or change it. ServerRefused says what is wrong with it."""
        self._calls().request("PUT", f"{_DISPATCH}/flows/{quote(name, safe='')}", json.dumps(definition).encode())

    def flow(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._calls().request("GET", f"{_DISPATCH}/flows/{quote(name, safe='')}")
        except ServerRefused as refused:
            if refused.status != _NOT_FOUND:
                raise
            return None
        return found

    def lease(
        self, worker: str, classes: Sequence[str], *, parcels: int, messages: int, wait_seconds: float
    ) -> Lease | None:
        """Parcels of one step, or None if there are none within the time. ServersAway when no server answers."""
        body = {
            "worker": worker,
            "classes": list(classes),
            "parcels": parcels,
            "messages": messages,
            "wait": int(wait_seconds * 1000),
            "sameStep": True,
        }
        calls = self._own_calls("lease", wait_seconds + SILENCE_SECONDS_MAX)
        text = calls.request_once("POST", f"{_DISPATCH}/lease", json.dumps(body).encode())
        return msgspec.json.decode(text, type=Lease) if text else None

    def heartbeat(self, lease_id: str) -> bool:
        """Prolong a lease; False when it is lost. ServersAway when no server answers."""
        calls = self._own_calls("heartbeat", SILENCE_SECONDS_MAX)
        try:
            calls.request_once("POST", f"{_DISPATCH}/leases/{lease_id}/heartbeat", b"{}")
        except ServerRefused as refused:
            if refused.status != _CONFLICT:
                raise
            return False
        return True

    def complete(self, lease: Lease, completion: Completion) -> None:
        """Say what became of a lease; sent again while no server answers, for as long as the lease lasts."""
        body = {
            "outcomes": completion.outcomes,
            "producer": PRODUCER,
            "epoch": lease.lease_id,
            "stages": completion.stages,
        }
        path = f"{_DISPATCH}/leases/{lease.lease_id}/complete"
        try:
            self._calls(lease.lease_seconds).request("POST", path, msgspec.json.encode(body))
        except ServerRefused as refused:
            if refused.status != _CONFLICT:
                raise
            raise LeaseLost(f"lease {lease.lease_id}: {refused.detail}") from refused

    def release(self, lease_id: str) -> None:
        """Give parcels back unworked."""
        self._calls(5.0).request("POST", f"{_DISPATCH}/leases/{lease_id}/release", b"{}")
