"""What went wrong, as HTTP: the one table of errors and statuses, and the body that explains them.

A problem is `application/problem+json` (RFC 9457) with four members more: `error`, the sentence that Queen's clients
show; `code`, its kind in one word; `field`, the part of the request that is wrong, where there is one; and, where the
store could not answer, `outcomeUnknown`: false when nothing was done, true when everything may have been. Where
messages are gone, `firstSeq` is the oldest that is kept, or `missingFrom` and `missingTo` say where they were.
Where a queue was made again, `identity` is that of the new one.

What the request is not to blame for is 5xx. It is in the log, once, with all that is known; the answer leaves out where
on the server's machine it happened.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from forebay.errors import (
    AppendFailed,
    BatchRefused,
    BufferExhausted,
    CommitDiffers,
    DiskFull,
    ForebayError,
    InvariantBroken,
    LogClosed,
    LogUnopenable,
    PayloadInClear,
    PayloadSealed,
    QueueFull,
    QueueReplaced,
    RangeGone,
    RangeIncomplete,
    SegmentDamaged,
    SendQueueFull,
    StageUnknown,
    StoreUnavailable,
    Transient,
    UnknownQueue,
)

RETRY_SECONDS = 1
"""What `Retry-After` says where nothing better is known."""

TITLES = {
    400: "The request is wrong",
    401: "Who are you",
    403: "Not with this key",
    404: "Not found",
    405: "Not with this method",
    408: "Too slow",
    409: "Not as things stand",
    410: "Gone",
    413: "Too large",
    415: "Cannot read this encoding",
    429: "Queue full",
    431: "Head too large",
    500: "The server's own fault",
    501: "Not here",
    503: "Not now",
    507: "Disk full",
}

# The first row that the error is an instance of counts: the special before the general.
STATUSES: tuple[tuple[type[ForebayError], int, str], ...] = (
    (QueueFull, 429, "queue_full"),
    (SendQueueFull, 429, "send_queue_full"),
    (UnknownQueue, 404, "unknown_queue"),
    (RangeGone, 410, "range_gone"),
    (RangeIncomplete, 410, "range_incomplete"),
    (QueueReplaced, 409, "queue_replaced"),
    (StageUnknown, 409, "stage_unknown"),
    (CommitDiffers, 409, "commit_differs"),
    (BatchRefused, 413, "too_large"),
    (DiskFull, 507, "disk_full"),
    (BufferExhausted, 507, "buffer_full"),
    (AppendFailed, 503, "not_stored"),
    (StoreUnavailable, 503, "store_unavailable"),
    (LogClosed, 503, "stopping"),
    (PayloadInClear, 503, "no_key"),
    (PayloadSealed, 503, "no_key"),
    (SegmentDamaged, 500, "damaged"),
    (LogUnopenable, 503, "log_unusable"),
    (InvariantBroken, 500, "bug"),
    (Transient, 503, "try_again"),
    (ForebayError, 500, "fault"),
)

JSON_PROBLEM = b"application/problem+json"


class Problem(Exception):
    """A request that is answered with an error. Raise it anywhere below the app."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str = "refused",
        field: str | None = None,
        is_outcome_unknown: bool | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code
        self.field = field
        self.is_outcome_unknown = is_outcome_unknown
        self.headers = headers
        self.members = members or {}

    def body(self) -> bytes:
        detail = self.detail if self.field is None else f"{self.field}: {self.detail}"
        document: dict[str, Any] = {
            "type": f"/docs#{self.code}",
            "title": TITLES[self.status],
            "status": self.status,
            "detail": detail,
            "error": detail,
            "code": self.code,
        }
        if self.field is not None:
            document["field"] = self.field
        if self.is_outcome_unknown is not None:
            document["outcomeUnknown"] = self.is_outcome_unknown
        document.update(self.members)
        return msgspec.json.encode(document)


def wrong(field: str | None, detail: str) -> Problem:
    """Bad input: 400, with the field named."""
    return Problem(400, detail, code="bad_request", field=field)


def not_found(what: str) -> Problem:
    return Problem(404, what, code="not_found")


def not_here(detail: str, field: str | None = None) -> Problem:
    """501: something that Queen does and Forebay does not."""
    return Problem(501, detail, code="not_here", field=field)


def unavailable(detail: str, code: str) -> Problem:
    """503 with the advice to come back."""
    return Problem(503, detail, code=code, headers=_retry_after())


def problem_of(error: ForebayError) -> Problem:
    """The answer to an error that came out of the rooms below."""
    for kind, status, code in STATUSES:
        if isinstance(error, kind):
            headers = _retry_after() if isinstance(error, Transient) else ()
            is_unknown = error.is_outcome_unknown if isinstance(error, StoreUnavailable | AppendFailed) else None
            members = _members_of(error)
            return Problem(
                status, str(error), code=code, is_outcome_unknown=is_unknown, headers=headers, members=members
            )
    raise InvariantBroken(f"no status for {type(error).__name__}")  # the last row is every error's


def _members_of(error: ForebayError) -> dict[str, object] | None:
    if isinstance(error, RangeGone):
        return {"firstSeq": error.first_seq}
    if isinstance(error, RangeIncomplete):
        return {"missingFrom": error.first_seq, "missingTo": error.last_seq, "reason": error.reason}
    return {"identity": error.found} if isinstance(error, QueueReplaced) else None


def problem_of_system(error: OSError) -> Problem:
    """The answer where the operating system refuses unexpectedly: no disk, no handles, no permission."""
    reason = error.strerror or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Problem(507, f"disk full: {reason}", code="disk_full", is_outcome_unknown=True, headers=_retry_after())
    detail = f"the server's operating system refuses: {reason}"
    return Problem(503, detail, code="system", is_outcome_unknown=True, headers=_retry_after())


_ABSOLUTE_PATH = re.compile(r"(?<![\w./:])/(?:[^\s:'\"`]*/)?([^\s:'\"`/]+)")


def without_paths(text: str, folders: Iterable[str]) -> str:
    """What clients are told of a fault of ours: where on this machine it happened is for the log alone."""
    for folder in sorted(folders, key=len, reverse=True):
        text = text.replace(f"{folder}/", "").replace(folder, "the data directory")
    return _ABSOLUTE_PATH.sub(r"\1", text)


def _retry_after() -> tuple[tuple[bytes, bytes], ...]:
    return ((b"retry-after", b"%d" % RETRY_SECONDS),)
