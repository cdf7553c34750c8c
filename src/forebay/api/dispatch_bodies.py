"""What requests to dispatch carry, and what it becomes for the facade. Every list, name and number has a limit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from forebay.api.bodies import PAYLOAD_BYTES_MAX
from forebay.api.parameters import checked_name, time_us
from forebay.api.problems import Problem, wrong
from forebay.broker.bulk import StagesOf
from forebay.dispatch.checking import ACTIONS_MAX, SECONDS_MAX
from forebay.dispatch.definition import FlowDefinition, RateLimit, Source, Step
from forebay.dispatch.limits import DispatchLimits
from forebay.dispatch.retries import ResumePolicy
from forebay.dispatch.values import (
    ActionRun,
    Await,
    Child,
    CompleteRequest,
    LeaseRequest,
    Missing,
    Outcome,
    Range,
    StartRecords,
    StepRecord,
)
from forebay.model.message import SEQ_MAX

_LIMITS = DispatchLimits()
CLASSES_MAX = 100
OUTCOMES_MAX = 10_000
STAGES_MAX = 10_000
CHILDREN_MAX = 10_000
AWAITS_MAX = 100
RANGES_MAX = 10_000
MISSING_MAX = 10_000
RECORDS_MAX = 1_000
COUNT_MAX = 1 << 53
WAIT_MS_MAX = 3_600_000

_Name = Annotated[str, Meta(min_length=1, max_length=255)]
_Word = Annotated[str, Meta(max_length=255)]
_Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)] | None
_Time = Annotated[str, Meta(max_length=64)]
_Error = Annotated[str, Meta(max_length=1_000_000)]
"""A long one is cut when it is kept: an outcome matters more than its text."""
_Seconds = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
Annotations = Annotated[
    dict[_Name, Annotated[str, Meta(max_length=_LIMITS.annotation_chars_max)]], Meta(max_length=_LIMITS.annotations_max)
]


class LeaseBody(Struct, rename="camel", forbid_unknown_fields=True):
    """A worker that asks for parcels."""

    worker: _Name
    classes: Annotated[list[_Name], Meta(min_length=1, max_length=CLASSES_MAX)]
    """Patterns of action classes, such as `geo.*`."""
    parcels: Annotated[int, Meta(ge=1, le=_LIMITS.lease_parcels_max)] = 100
    messages: Annotated[int, Meta(ge=0, le=COUNT_MAX)] = 0
    """How many messages at the most, the first parcel's not counted; 0: no limit."""
    wait: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] = 0
    """How long to wait for a parcel, in milliseconds."""
    plugin: _Word = ""
    """What provides the worker's actions, such as `shop:1.2.0`."""
    same_step: bool = False
    """All parcels of the lease are of one flow, version and step, as many as wait."""


class RangeBody(Struct, rename="camel", forbid_unknown_fields=True):
    queue: _Name
    first_seq: Annotated[int, Meta(ge=1, le=SEQ_MAX)]
    last_seq: Annotated[int, Meta(ge=1, le=SEQ_MAX)]
    identity: Annotated[str, Meta(pattern=r"^(\d{1,19}-\d{1,19})?$")] = ""
    """Of the queue, as the lease has it; if left out, that of the parcel's range which holds this one."""
    removed_up_to: Annotated[int, Meta(ge=0, le=SEQ_MAX)] | None = None
    """As the lease has it."""


class ActionRunBody(Struct, rename="camel", forbid_unknown_fields=True):
    action: _Name
    started_at: _Time
    finished_at: _Time
    rows_in: _Count = None
    rows_out: _Count = None
    filtered: _Count = None
    bad: _Count = None
    error: _Error = ""


class ChildBody(Struct, rename="camel", forbid_unknown_fields=True):
    ranges: Annotated[list[RangeBody], Meta(min_length=1, max_length=RANGES_MAX)]
    annotations: Annotations = {}


class MissingBody(Struct, rename="camel", forbid_unknown_fields=True):
    """Messages that the parcel was to read and that are gone."""

    queue: _Name
    first_seq: Annotated[int, Meta(ge=1, le=SEQ_MAX)]
    last_seq: Annotated[int, Meta(ge=1, le=SEQ_MAX)]
    messages: Annotated[int, Meta(ge=0, le=COUNT_MAX)]
    """How many of those between the two seqs, at the most."""
    cause: Annotated[str, Meta(max_length=1_000)] = ""


class OutputBody(Struct, forbid_unknown_fields=True):
    """How many of the rows staged for the queue are this parcel's, in the order of the outcomes."""

    queue: _Name
    rows: Annotated[int, Meta(ge=0, le=COUNT_MAX)]


class AwaitBody(Struct, forbid_unknown_fields=True):
    """Rows staged with this completion that the group has to pass before the parcel is complete; 0 rows: nothing."""

    queue: _Name
    group: _Name
    partition: _Name
    rows: Annotated[int, Meta(ge=0, le=COUNT_MAX)]


class OutcomeBody(Struct, rename="camel", forbid_unknown_fields=True):
    did: _Name
    state: Literal["COMPLETE", "FILTERED", "ERROR"]
    error: _Error = ""
    rows_in: _Count = None
    rows_out: _Count = None
    filtered: _Count = None
    bad: _Count = None
    actions: Annotated[list[ActionRunBody], Meta(max_length=ACTIONS_MAX)] = []
    annotations: Annotations = {}
    children: Annotated[list[ChildBody], Meta(max_length=CHILDREN_MAX)] = []
    output: OutputBody | None = None
    transient: bool = False
    """Of an ERROR: something did not answer, so that it is tried again whatever its attempts."""
    awaits: Annotated[list[AwaitBody], Meta(max_length=AWAITS_MAX)] = []
    """Of a flow's last step: the parcel is EXPORTING until all of these are passed."""
    skipped: _Count = None
    """Of the filtered: those that failed and were left out."""
    missing: Annotated[list[MissingBody], Meta(max_length=MISSING_MAX)] = []
    """What it went on without, as a flow does that has `failOnDataLoss: false`: noted, counted and logged."""


class CompleteLeaseBody(Struct, rename="camel", forbid_unknown_fields=True):
    """What became of a lease's parcels; with `producer`, `epoch` and `stages`, rows that become messages with it."""

    outcomes: Annotated[list[OutcomeBody], Meta(max_length=OUTCOMES_MAX)]
    producer: _Name | None = None
    epoch: _Name | None = None
    write: _Word = ""
    stages: Annotated[list[_Name], Meta(max_length=STAGES_MAX)] = []


class FlowBody(Struct, rename="camel", forbid_unknown_fields=True):
    """A flow's definition; its name is in the path."""

    source: Source
    steps: Annotated[list[Step], Meta(max_length=_LIMITS.steps_max)]
    name: _Name | None = None
    rate_limit: RateLimit | None = None
    spec: dict[str, Any] = {}
    """What workers run, as they understand it: at most 256 KiB of JSON. Leases give it out with the definition."""


class PolicyBody(Struct, rename="camel", forbid_unknown_fields=True):
    """A resume policy; its name is in the path."""

    name: _Name | None = None
    error_text: Annotated[str, Meta(max_length=1_000)] = ""
    flow: _Word = ""
    action: _Word = ""
    max_attempts: Annotated[int, Meta(ge=2, le=1_000_000)] = 10
    priority: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    delay_seconds: _Seconds = 60.0
    multiplier: Annotated[float, Meta(ge=1, le=1_000)] = 1.0
    max_delay_seconds: _Seconds = 3600.0
    random: bool = False


class StepRecordBody(Struct, forbid_unknown_fields=True):
    """A row in front of the step, such as a letter of the flow's error queue holds it."""

    did: _Name
    """The parcel that it was in."""
    key: _Name
    """What it is known by in that parcel, such as the letter's queue and seq: with it, it starts once."""
    payload: Raw
    """A JSON object: the row as the step reads it."""


class RecordsBody(Struct, forbid_unknown_fields=True):
    """Records that are to go through a step again. All of them start, or none."""

    step: _Name
    """The step's first action."""
    records: Annotated[list[StepRecordBody], Meta(min_length=1, max_length=RECORDS_MAX)]


def start_records(flow: str, body: RecordsBody) -> StartRecords:
    checked_name(body.step, "step")
    known: set[tuple[str, str]] = set()
    found = []
    for number, record in enumerate(body.records):
        field = f"records[{number}]"
        checked_name(record.did, f"{field}.did")
        checked_name(record.key, f"{field}.key")
        payload = bytes(record.payload)
        if len(payload) > PAYLOAD_BYTES_MAX:
            detail = f"has {len(payload)} bytes, allowed are {PAYLOAD_BYTES_MAX}"
            raise Problem(413, detail, code="too_large", field=f"{field}.payload")
        if not payload.startswith(b"{"):
            raise wrong(f"{field}.payload", "is no JSON object: a step reads rows")
        if (record.did, record.key) in known:
            raise wrong(f"{field}.key", f"{record.key!r} is there twice")
        known.add((record.did, record.key))
        found.append(StepRecord(record.did, record.key, payload))
    return StartRecords(flow, body.step, found)


def lease_request(body: LeaseBody, wait_seconds_max: float) -> LeaseRequest:
    checked_name(body.worker, "worker")
    return LeaseRequest(
        body.worker,
        tuple(dict.fromkeys(body.classes)),
        body.parcels,
        body.messages,
        min(body.wait / 1000, wait_seconds_max),
        body.plugin,
        body.same_step,
    )


def complete_request(lease_id: str, body: CompleteLeaseBody) -> CompleteRequest:
    if (body.producer is None) != (body.epoch is None):
        missing = "producer" if body.producer is None else "epoch"
        raise wrong(missing, "producer and epoch are given together, or neither")
    if body.stages and body.producer is None:
        raise wrong("producer", "is missing: stages are of a producer and an epoch")
    known: set[str] = set()
    for number, outcome in enumerate(body.outcomes):
        if outcome.did in known:
            raise wrong(f"outcomes[{number}].did", f"{outcome.did!r} has an outcome already")
        known.add(outcome.did)
        if outcome.awaits and body.producer is None:
            raise wrong("producer", f"is missing: outcomes[{number}] awaits rows that are staged")
    outcomes = [_outcome(outcome, f"outcomes[{number}]") for number, outcome in enumerate(body.outcomes)]
    wanted = StagesOf(body.producer, body.epoch, body.write) if body.producer and body.epoch else None
    return CompleteRequest(lease_id, outcomes, wanted, tuple(body.stages))


def _outcome(body: OutcomeBody, field: str) -> Outcome:
    if body.state == "ERROR" and not body.error:
        raise wrong(f"{field}.error", "is missing: say what failed")
    if body.state != "ERROR" and body.error:
        raise wrong(f"{field}.error", f"an outcome that is {body.state} has none")
    if body.transient and body.state != "ERROR":
        raise wrong(f"{field}.transient", f"an outcome that is {body.state} is final")
    if body.children and body.state != "COMPLETE":
        raise wrong(f"{field}.children", f"an outcome that is {body.state} has none")
    if body.children and body.output is not None:
        raise wrong(f"{field}.output", "a parcel that is split has none: its children have ranges")
    if body.missing and body.state == "ERROR":
        raise wrong(f"{field}.missing", "an outcome that is ERROR has not gone on: its error says what is gone")
    if body.awaits and (body.state != "COMPLETE" or body.children):
        how = "is split" if body.children else f"is {body.state}"
        raise wrong(f"{field}.awaits", f"an outcome that {how} has none")
    return Outcome(
        body.did,
        body.state,
        body.error[: _LIMITS.error_chars_max],
        body.rows_in,
        body.rows_out,
        body.filtered,
        body.bad,
        [_run(run, f"{field}.actions[{number}]") for number, run in enumerate(body.actions)],
        body.annotations,
        [_child(child, f"{field}.children[{number}]") for number, child in enumerate(body.children)],
        None if body.output is None else (body.output.queue, body.output.rows),
        body.transient,
        tuple(Await(each.queue, each.group, each.partition, each.rows) for each in body.awaits),
        body.skipped,
        [_missing(each, f"{field}.missing[{number}]") for number, each in enumerate(body.missing)],
    )


def _missing(body: MissingBody, field: str) -> Missing:
    _check_seqs(body, field)
    return Missing(body.queue, body.first_seq, body.last_seq, body.messages, body.cause)


def _check_seqs(body: MissingBody | RangeBody, field: str) -> None:
    if body.last_seq < body.first_seq:
        raise wrong(f"{field}.lastSeq", f"{body.last_seq} is before firstSeq, {body.first_seq}")


def _run(body: ActionRunBody, field: str) -> ActionRun:
    started_us = time_us(body.started_at, f"{field}.startedAt")
    finished_us = time_us(body.finished_at, f"{field}.finishedAt")
    error = body.error[: _LIMITS.error_chars_max]
    return ActionRun(body.action, started_us, finished_us, body.rows_in, body.rows_out, body.filtered, body.bad, error)


def _child(body: ChildBody, field: str) -> Child:
    for number, each in enumerate(body.ranges):
        _check_seqs(each, f"{field}.ranges[{number}]")
    ranges = [
        Range(each.queue, each.first_seq, each.last_seq, each.identity, each.removed_up_to) for each in body.ranges
    ]
    return Child(ranges, sum(each.messages for each in ranges), body.annotations)


def flow_definition(name: str, body: FlowBody) -> FlowDefinition:
    if body.name not in (None, name):
        raise wrong("name", f"{body.name!r} is not the flow of the path, {name!r}")
    return FlowDefinition(
        name=name, source=body.source, steps=tuple(body.steps), rate_limit=body.rate_limit, spec=body.spec
    )


def resume_policy(name: str, body: PolicyBody) -> ResumePolicy:
    if body.name not in (None, name):
        raise wrong("name", f"{body.name!r} is not the policy of the path, {name!r}")
    if not (body.error_text or body.flow or body.action):
        raise wrong("errorText", "say which errors: errorText, flow or action")
    if body.max_delay_seconds < body.delay_seconds:
        raise wrong("maxDelaySeconds", f"{body.max_delay_seconds:g} is less than delaySeconds, {body.delay_seconds:g}")
    given = msgspec.structs.asdict(body)
    return ResumePolicy(**(given | {"name": name}))
