"""Pushes that are in a trace: the context goes into the messages' headers, the span around the push."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from forebay.broker.messages import PushItem
from forebay.telemetry.tracing import Context, Kind, Span, Tracer, context_of, in_headers


class TracedPush(NamedTuple):
    items: Sequence[PushItem]
    span: Span | None
    """To be ended; None if it is not noted here."""


def traced(tracer: Tracer, items: Sequence[PushItem], header: bytes) -> TracedPush:
    """`header`: the push's `traceparent`, if it has one. Without a trace the messages stay as they are.

    A message that has no `traceId` of its own gets the trace's, so that its consumers see it.
    """
    parent = context_of(header) if header else None
    span = tracer.begin("push", Kind.SERVER, parent) if items else None
    context = span.context if span else parent
    if context is None:
        return TracedPush(items, None)
    return TracedPush(_in_trace(items, context), span)


def _in_trace(items: Sequence[PushItem], context: Context) -> list[PushItem]:
    headers = in_headers(context)
    return [replace(item, headers=headers, trace_id=item.trace_id or context.trace_id) for item in items]


def end_push(tracer: Tracer, push: TracedPush, error: BaseException | None = None) -> None:
    if push.span is not None:
        attributes: dict[str, str | int] = {
            "messaging.destination.name": push.items[0].queue,
            "messaging.batch.message_count": len(push.items),
        }
        tracer.end(push.span, attributes, type(error).__name__ if error else "")
