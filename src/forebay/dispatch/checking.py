"""What must hold of a flow's definition before it is kept. Pure: all faults at once, each with its field named as in
JSON, so that one refusal is enough to put a file right.

Types and unknown fields were refused when the JSON was read; here it is names, limits, and what makes no sense
together.
Every option counts: one that a source of the kind does not read is refused, not kept in silence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from forebay.dispatch.definition import FlowDefinition, Join, RateLimit, Retry, Source, Step
from forebay.dispatch.faults import FieldFault, FlowRefused
from forebay.dispatch.schedule import CronRefused, parse_cron
from forebay.model.flow_names import ACTION_NAME, FLOW_NAME
from forebay.model.message import SEQ_MAX
from forebay.model.queue import NAME_CHARACTERS_MAX

STEPS_MAX = 100
ACTIONS_MAX = 1_000
"""Of one step."""
PARCEL_MESSAGES_MAX = 10_000_000
JOIN_MAX = 100_000
ATTEMPTS_MAX = 1_000_000
SECONDS_MAX = 366 * 86_400.0
AMOUNT_MAX = 1 << 50
SPEC_BYTES_MAX = 256 * 1024
"""Of `spec`, as JSON: it is given out with every lease."""


def check_flow(definition: FlowDefinition) -> None:
    """Raise `FlowRefused` with everything that is wrong with the definition."""
    faults = list(flow_faults(definition))
    if faults:
        raise FlowRefused(definition.name, faults)


def flow_faults(definition: FlowDefinition) -> Iterator[FieldFault]:
    if not FLOW_NAME.fullmatch(definition.name):
        yield FieldFault("name", f"{definition.name!r} is refused: letters, digits, '.', '_' and '-', at most 64")
    yield from _source_faults(definition.source, definition.name)
    yield from _rate_faults("rateLimit", definition.rate_limit)
    if not definition.steps:
        yield FieldFault("steps", "at least one is needed")
    if len(definition.steps) > STEPS_MAX:
        yield FieldFault("steps", f"has {len(definition.steps)}, allowed are {STEPS_MAX}")
    for number, step in enumerate(definition.steps[:STEPS_MAX]):
        yield from _step_faults(f"steps[{number}]", step)
    size = len(msgspec.json.encode(definition.spec))
    if size > SPEC_BYTES_MAX:
        yield FieldFault("spec", f"has {size} bytes of JSON, allowed are {SPEC_BYTES_MAX}")


def _source_faults(source: Source, flow: str) -> Iterator[FieldFault]:
    if source.kind == "queue":
        if not 0 < len(source.queue) <= NAME_CHARACTERS_MAX:
            yield FieldFault(
                "source.queue", f"has {len(source.queue)} characters, allowed are 1 to {NAME_CHARACTERS_MAX}"
            )
        yield from _start_faults(source)
    else:
        given = {
            "queue": source.queue,
            "group": source.group,
            "start": source.start != "earliest",
            "startSeq": source.start_seq is not None,
        }
        for name, is_given in given.items():
            if is_given:
                yield FieldFault(f"source.{name}", f"a source of kind {source.kind} has none")
    if source.kind == "timer":
        yield from _cron_faults(source.cron)
    elif source.cron:
        yield FieldFault("source.cron", f"a source of kind {source.kind} has none")
    if source.errors is not None:
        if source.kind != "errors":
            yield FieldFault("source.errors", f"a source of kind {source.kind} has none")
        if flow in source.errors.flows:
            yield FieldFault("source.errors.flows", "a flow cannot read its own errors")
    if source.kind != "queue" and source.rate_limit is not None:
        yield FieldFault("source.rateLimit", f"a source of kind {source.kind} has none: give the flow one")
    yield from _whole("source.parcelMessages", source.parcel_messages, 1, PARCEL_MESSAGES_MAX)
    yield from _seconds("source.parcelWaitSeconds", source.parcel_wait_seconds, is_zero_allowed=True)
    yield from _whole("source.maxErrors", source.max_errors, 0, ATTEMPTS_MAX)
    yield from _rate_faults("source.rateLimit", source.rate_limit)


def _start_faults(source: Source) -> Iterator[FieldFault]:
    if len(source.group) > NAME_CHARACTERS_MAX:
        yield FieldFault(
            "source.group", f"has {len(source.group)} characters, allowed are at most {NAME_CHARACTERS_MAX}"
        )
    if source.start_seq is not None:
        yield from _whole("source.startSeq", source.start_seq, 1, SEQ_MAX)
        if source.start != "earliest":
            yield FieldFault("source.startSeq", "start and startSeq are not given together")


def _cron_faults(cron: str) -> Iterator[FieldFault]:
    try:
        parse_cron(cron)
    except CronRefused as fault:
        yield FieldFault("source.cron", str(fault))


def _step_faults(field: str, step: Step) -> Iterator[FieldFault]:
    yield from _name(f"{field}.action", step.action)
    yield from _name(f"{field}.actionClass", step.action_class)
    if len(step.actions) > ACTIONS_MAX:
        yield FieldFault(f"{field}.actions", f"has {len(step.actions)}, allowed are {ACTIONS_MAX}")
    if step.actions and step.actions[0] != step.action:
        yield FieldFault(f"{field}.actions", f"begins with {step.actions[0]!r}, not with the step's {step.action!r}")
    for number, action in enumerate(step.actions[:ACTIONS_MAX]):
        yield from _name(f"{field}.actions[{number}]", action)
    yield from _retry_faults(f"{field}.retry", step.retry)
    if step.join is not None:
        yield from _join_faults(f"{field}.join", step.join)
    if step.lease_seconds is not None:
        yield from _seconds(f"{field}.leaseSeconds", step.lease_seconds)


def _retry_faults(field: str, retry: Retry) -> Iterator[FieldFault]:
    yield from _whole(f"{field}.maxAttempts", retry.max_attempts, 1, ATTEMPTS_MAX)
    yield from _seconds(f"{field}.delaySeconds", retry.delay_seconds, is_zero_allowed=True)
    yield from _seconds(f"{field}.maxDelaySeconds", retry.max_delay_seconds, is_zero_allowed=True)
    if not (math.isfinite(retry.multiplier) and retry.multiplier >= 1):
        yield FieldFault(f"{field}.multiplier", f"{retry.multiplier} is below 1")
    if not 0 <= retry.jitter <= 1:
        yield FieldFault(f"{field}.jitter", f"{retry.jitter} is not between 0 and 1")


def _join_faults(field: str, join: Join) -> Iterator[FieldFault]:
    yield from _seconds(f"{field}.maxAgeSeconds", join.max_age_seconds)
    yield from _whole(f"{field}.min", join.min, 1, JOIN_MAX)
    yield from _whole(f"{field}.max", join.max, 1, JOIN_MAX)
    if join.min > join.max:
        yield FieldFault(f"{field}.min", f"{join.min} is more than max, {join.max}")
    if len(join.key) > NAME_CHARACTERS_MAX:
        yield FieldFault(f"{field}.key", f"has {len(join.key)} characters, allowed are {NAME_CHARACTERS_MAX}")


def _rate_faults(field: str, limit: RateLimit | None) -> Iterator[FieldFault]:
    if limit is not None:
        yield from _whole(f"{field}.amount", limit.amount, 1, AMOUNT_MAX)
        yield from _seconds(f"{field}.seconds", limit.seconds)


def _name(field: str, name: str) -> Iterator[FieldFault]:
    if not ACTION_NAME.fullmatch(name):
        yield FieldFault(field, f"{name!r} is refused: letters, digits and '_.:/$-', 1 to 255")


def _whole(field: str, number: int, least: int, most: int) -> Iterator[FieldFault]:
    if not least <= number <= most:
        yield FieldFault(field, f"{number} is refused, allowed are {least} to {most}")


def _seconds(field: str, seconds: float, *, is_zero_allowed: bool = False) -> Iterator[FieldFault]:
    if not (0 <= seconds <= SECONDS_MAX) or (seconds == 0 and not is_zero_allowed):
        least = "0" if is_zero_allowed else "more than 0"
        yield FieldFault(field, f"{seconds} is refused, allowed is {least} to {SECONDS_MAX:.0f} seconds")
