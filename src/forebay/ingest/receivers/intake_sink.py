"""Where receivers put what they took: the protocol, and what may go wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from forebay.errors import BatchTooLarge, BufferExhausted, ForebayError, QueueFull, SendQueueFull, Transient
from forebay.ingest.receivers.decoding import Telemetry

Accept = Callable[[Telemetry], Awaitable[str]]
"""Accept a request; the answer is its receipt (`log`, `postgres`, `buffer`, `memory`, `sent`). Raises ForebayError."""

RETRY_SECONDS = 5


def status_of(error: ForebayError) -> int:
    """The HTTP status for a request that could not be accepted."""
    if isinstance(error, SendQueueFull | QueueFull | BufferExhausted):
        return 429
    if isinstance(error, BatchTooLarge):
        return 413
    return 503 if isinstance(error, Transient) else 500
