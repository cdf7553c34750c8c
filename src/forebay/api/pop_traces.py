"""Spans of the time that messages have waited: noted when they are delivered, one for each trace of a batch."""

from __future__ import annotations

from forebay.broker.message_columns import MessageColumns
from forebay.broker.messages import Popped
from forebay.telemetry.tracing import Kind, Tracer, of_headers


def note_delivery(tracer: Tracer, popped: Popped, group: str) -> None:
    """The time is that of the first message in the batch."""
    messages = popped.messages
    headers = messages.headers if type(messages) is MessageColumns else [message.headers for message in messages]
    if not any(headers):
        return
    first = messages[0]
    for context in of_headers(headers):
        span = tracer.begin("queue", Kind.CONSUMER, context, start_ns=first.created_us * 1000)
        tracer.end(span, {"messaging.destination.name": first.queue, "messaging.consumer.group.name": group})
