"""What a flow is to dispatch: where its parcels come from, and the steps that they go through.

A definition is kept as JSON under a version; a parcel keeps the version that it was cut with, so a change concerns the
parcels that are cut from then on. Part of it is `spec`, which only workers read: what they run. Dispatch keeps it,
gives it out with every lease, and makes a new version of it when it changes.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

SourceKind = Literal["queue", "timer", "errors"]
FlowState = Literal["RUNNING", "PAUSED", "STOPPED"]


class CamelStruct(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """As it stands in JSON: names in camel case, unknown ones refused."""


class RateLimit(CamelStruct, frozen=True, kw_only=True):
    """A token bucket: so many messages or bytes per time, shared by all servers on a store."""

    unit: Literal["messages", "bytes"] = "messages"
    amount: int
    seconds: float = 1.0


class Retry(CamelStruct, frozen=True, kw_only=True):
    """What happens to a parcel whose step failed: it is queued again after a delay, so many times."""

    max_attempts: int = 3
    delay_seconds: float = 10.0
    multiplier: float = 2.0
    max_delay_seconds: float = 300.0
    jitter: float = 0.1
    """A share of the delay by which it is drawn longer or shorter."""


class Join(CamelStruct, frozen=True, kw_only=True):
    """Parcels wait in front of a step until there are enough of one key, or the oldest has waited long enough."""

    max_age_seconds: float
    min: int = 1
    """With fewer than these when the time is up, all of them go into ERROR."""
    max: int = 1000
    key: str = ""
    """The annotation by whose value parcels are distinguished; empty: all of the flow together."""


class Step(CamelStruct, frozen=True, kw_only=True):
    """A chain of actions that a worker does under one lease. It is known by its first action."""

    action: str
    action_class: str
    actions: tuple[str, ...] = ()
    """All actions of the chain, in order, where there are more than the first."""
    retry: Retry = field(default_factory=Retry)
    join: Join | None = None
    lease_seconds: float | None = None
    """None: as the settings say."""


class ErrorFilter(CamelStruct, frozen=True, kw_only=True):
    """Which errors of other flows become parcels of this one. Everything that is given has to fit."""

    text: str = ""
    """A part of the error's text."""
    flows: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()


class Source(CamelStruct, frozen=True, kw_only=True):
    kind: SourceKind = "queue"
    queue: str = ""
    parcel_messages: int = 10_000
    parcel_wait_seconds: float = 0.2
    group: str = ""
    """The consumer group whose cursor follows the flow's oldest unfinished message; empty: the flow's name."""
    start: Literal["earliest", "latest"] = "earliest"
    start_seq: int | None = None
    """In place of `start`: the first message that is the flow's."""
    cron: str = ""
    """Of a timer: minute, hour, day of month, month, day of week; with six fields the first is the second."""
    errors: ErrorFilter | None = None
    rate_limit: RateLimit | None = None
    max_errors: int = 0
    """The source is stopped when so many parcels of the flow are in ERROR; 0: never."""
    fail_on_data_loss: bool = True
    """Messages that are gone before they were cut, or read, stop the source, or put the parcel into ERROR. If false the
    flow goes on without them, and says so."""


class FlowDefinition(CamelStruct, frozen=True, kw_only=True):
    name: str
    source: Source
    steps: tuple[Step, ...]
    rate_limit: RateLimit | None = None
    """How fast parcels of the flow may be leased."""
    spec: dict[str, Any] = {}
    """What workers run, as they understand it."""

    @property
    def group(self) -> str:
        """The consumer group whose cursor shows how far the flow is."""
        return self.source.group or self.name
