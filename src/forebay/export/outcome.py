"""What a destination's answer means: decisions without I/O."""

from __future__ import annotations

import email.utils
import re
from datetime import UTC, datetime
from enum import StrEnum

from forebay.config.masking import masked

RETRY_AFTER_SECONDS_MAX = 3600.0
"""A destination may ask for an hour of rest at the most; it is tried again then."""
TEXT_SHOWN_MAX = 500

_TOO_LARGE = re.compile(r"too (large|big|long)|exceeds|max_request_size|max[a-z ]*size|entity too|message larger", re.I)


class ErrorClass(StrEnum):
    NETWORK = "network"
    TIMEOUT = "timeout"
    SERVER_ERROR = "server_error"
    RATE_LIMIT = "rate_limit"
    CLIENT_ERROR = "client_error"
    AUTH = "auth"
    TOO_LARGE = "too_large"
    UNKNOWN = "unknown"


RETRYABLE = frozenset({ErrorClass.NETWORK, ErrorClass.TIMEOUT, ErrorClass.SERVER_ERROR, ErrorClass.RATE_LIMIT})
"""Tried again for as long as it takes. The others become dead letters after `max_attempts`."""
AWAY = frozenset({ErrorClass.NETWORK, ErrorClass.TIMEOUT, ErrorClass.SERVER_ERROR})
"""What counts against the breaker: the destination as a whole does not work."""


class SendFailed(Exception):
    """A destination did not take a batch. `retry_after` is what it requested, in seconds."""

    def __init__(
        self, error: ErrorClass, message: str, *, retry_after: float | None = None, is_of_content: bool = False
    ) -> None:
        # It names the destination by its URL, and is shown in logs, listings and dead letters.
        self.message = masked(message)[:TEXT_SHOWN_MAX]
        super().__init__(self.message)
        self.error = error
        self.retry_after = retry_after
        self.is_of_content = is_of_content
        """Whether something in the batch is wrong, so that parts of it may be taken."""

    @property
    def is_retryable(self) -> bool:
        return self.error in RETRYABLE


def failure_of(status: int, text: str, retry_after: str | None = None, *, now_us: int = 0) -> SendFailed:
    """What an HTTP status other than 2xx means."""
    message = f"HTTP {status}: {' '.join(text.split())[:TEXT_SHOWN_MAX]}".rstrip(": ")
    return SendFailed(
        _class_of(status, text),
        message,
        retry_after=retry_after_seconds(retry_after, now_us),
        is_of_content=status in (400, 422),
    )


def _class_of(status: int, text: str) -> ErrorClass:
    if status == 413 or (status == 400 and _TOO_LARGE.search(text)):
        return ErrorClass.TOO_LARGE
    if status == 429:
        return ErrorClass.RATE_LIMIT
    if status in (401, 403, 407):
        return ErrorClass.AUTH
    if status == 408:
        return ErrorClass.TIMEOUT
    if 400 <= status < 500:
        return ErrorClass.CLIENT_ERROR
    return ErrorClass.SERVER_ERROR if 500 <= status < 600 else ErrorClass.UNKNOWN


def retry_after_seconds(value: str | None, now_us: int) -> float | None:
    """`Retry-After`: seconds, or a date. None for what is neither."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = email.utils.parsedate_to_datetime(value)
        except ValueError:
            return None
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        seconds = (when - datetime.fromtimestamp(now_us / 1_000_000, UTC)).total_seconds()
    return min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX) if seconds == seconds else None  # not a number
