"""Pushes that are in a trace: the context goes into the messages' headers, the span around the push."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from forebay.model.push_run import PushRun, message_count
from forebay.telemetry.tracing import Context, Kind, Span, Tracer, context_of, in_headers


class TracedPush(NamedTuple):
    runs: Sequence[PushRun]
    span: Span | None
    """To be ended; None if it is not noted here."""


def traced(tracer: Tracer, runs: Sequence[PushRun], header: bytes) -> TracedPush:
    """`header`: the push's `traceparent`, if it has one. Without a trace the messages stay as they are.

    A message that has no `traceId` of its own gets the trace's, so that its consumers see it.
    """
    parent = context_of(header) if header else None
    span = tracer.begin("push", Kind.SERVER, parent) if runs else None
    context = span.context if span else parent
    if context is None:
        return TracedPush(runs, None)
    return TracedPush(_in_trace(runs, context), span)


def _in_trace(runs: Sequence[PushRun], context: Context) -> list[PushRun]:
    headers = in_headers(context)
    return [
        replace(
            run,
            headers=[headers] * len(run),
            trace_ids=[trace_id or context.trace_id for trace_id in run.trace_column()],
        )
        for run in runs
    ]


def end_push(tracer: Tracer, push: TracedPush, error: BaseException | None = None) -> None:
    if push.span is not None:
        attributes: dict[str, str | int] = {
            "messaging.destination.name": push.runs[0].queue,
            "messaging.batch.message_count": message_count(push.runs),
        }
        tracer.end(push.span, attributes, type(error).__name__ if error else "")
