"""A flow on parcels as dispatch sees it: steps, each of them a chain of actions that Spark does in one job. Pure.

    parse ── enrich ── geocode (isolate) ── round ── sink          two steps: "parse" and "geocode"

A chain begins at the first action, and again at each action that is marked `isolate: true` or that joins parcels; it
goes on to the next such action, or to the sinks. A step is known by its first action, and waits in the queue of that
action's class: the class's name, or `sql`. In front of a further chain the rows of the one before become messages of an
internal queue, `.flow.<flow>.<action>`, and the parcel goes on as a range of that.

The definition that dispatch keeps holds the flow itself (`spec`), so that parcels are worked on as they were cut,
whatever the file of a worker says by now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from forebay.errors import Permanent
from forebay.flows.definition import Action, ClassAction, Flow, Join, Retry
from forebay.flows.written import from_python, read
from forebay.model.internal_queues import step_queue

SQL_CLASS = "sql"
COPY = "copy"
"""The action and the class of a flow that has no actions."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Actions of a flow that are done in one job."""

    flow: Flow
    number: int
    first: int
    """The number of its first action in the flow."""
    actions: tuple[Action, ...]
    is_last: bool

    @property
    def name(self) -> str:
        return self.actions[0].name if self.actions else COPY

    @property
    def action_class(self) -> str:
        if not self.actions:
            return COPY
        first = self.actions[0]
        return first.class_name if isinstance(first, ClassAction) else SQL_CLASS

    @property
    def input_queue(self) -> str:
        """The internal queue in front of it; empty for the first chain, which reads the source."""
        return internal_queue(self.flow, self.actions[0]) if self.number else ""

    @property
    def output_queue(self) -> str:
        """The internal queue behind it; empty for the last chain, which writes to the sinks."""
        return "" if self.is_last else internal_queue(self.flow, self.flow.actions[self.first + len(self.actions)])

    @property
    def time_limit_seconds(self) -> float:
        """How long its job may take."""
        limits = [action.time_limit or self.flow.time_limit for action in self.actions] or [self.flow.time_limit]
        return sum(limits, timedelta(0)).total_seconds()


def internal_queue(flow: Flow, action: Action) -> str:
    return step_queue(flow.name, action.name)


def chains_of(flow: Flow) -> tuple[Chain, ...]:
    """The chains of a flow in order, at least one."""
    begins = [0, *(n for n, action in enumerate(flow.actions) if n and (action.isolate or action.join is not None))]
    ends = [*begins[1:], len(flow.actions)]
    return tuple(
        Chain(flow, number, first, flow.actions[first:end], end == len(flow.actions))
        for number, (first, end) in enumerate(zip(begins, ends, strict=True))
    )


def dispatch_definition(flow: Flow, start_seq: int | None = None) -> dict[str, Any]:
    """What `PUT /api/v1/dispatch/flows/{name}` takes. `start_seq`: where a source begins that is given by a time."""
    return {
        "source": _source(flow, start_seq),
        "steps": [_step(chain) for chain in chains_of(flow)],
        "spec": spec_of(flow),
    }


def _source(flow: Flow, start_seq: int | None) -> dict[str, Any]:
    source = flow.source
    more: dict[str, Any] = {"maxErrors": flow.max_errors} if flow.max_errors else {}
    if not source.fail_on_data_loss:
        more["failOnDataLoss"] = False
    if source.cron is not None:
        return {"kind": "timer", "cron": source.cron, **more}
    if source.errors is not None:
        found = source.errors
        filters = {"text": found.text, "flows": list(found.flows), "actions": list(found.actions)}
        return {"kind": "errors", "errors": {name: value for name, value in filters.items() if value}, **more}
    given: dict[str, Any] = {
        "queue": source.queue,
        "group": flow.group,
        "parcelMessages": source.parcel_messages,
        "parcelWaitSeconds": source.parcel_wait.total_seconds(),
        **more,
    }
    offsets = source.starting_offsets
    if start_seq is not None:
        given["startSeq"] = start_seq
    elif isinstance(offsets, dict):
        given["startSeq"] = offsets["seq"]
    else:
        given["start"] = offsets
    return given


def _step(chain: Chain) -> dict[str, Any]:
    first = chain.actions[0] if chain.actions else None
    step: dict[str, Any] = {
        "action": chain.name,
        "actionClass": chain.action_class,
        "actions": [action.name for action in chain.actions] or [COPY],
        "retry": _retry(chain.flow.retry_of(first)),
    }
    if first is not None and first.join is not None:
        step["join"] = _join(first.join)
    return step


def _retry(retry: Retry) -> dict[str, Any]:
    return {
        "maxAttempts": retry.max_attempts,
        "delaySeconds": retry.delay.total_seconds(),
        "multiplier": retry.multiplier,
    }


def _join(join: Join) -> dict[str, Any]:
    return {"maxAgeSeconds": join.max_age.total_seconds(), "min": join.min, "max": join.max, "key": join.key}


# --- the flow itself, in JSON ---


def spec_of(flow: Flow) -> dict[str, Any]:
    """The flow as a file would define it, without what is as it is by default."""
    found: dict[str, Any] = _plain(flow)
    return found


def flow_of_spec(spec: Mapping[str, Any]) -> Flow:
    """The flow that `spec_of` was made from. Raises Permanent if this version of Forebay cannot read it."""
    faults: list[str] = []
    written = from_python(dict(spec), lambda path: path)
    flow = read(written, Flow, "", lambda _, key, message: faults.append(f"{key}: {message}"))
    if faults or not isinstance(flow, Flow):
        raise Permanent(f"the flow's definition cannot be read: {'; '.join(faults)}")
    return flow


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        given = {field.encode_name: getattr(value, field.name) for field in fields}
        defaults = {field.encode_name: field.default for field in fields}
        return {name: _plain(item) for name, item in given.items() if defaults[name] != item and item is not None}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, timedelta):
        return f"{value // timedelta(milliseconds=1)}ms"
    return value
