"""What went wrong, as HTTP: the one table of errors and statuses, and the body that explains them.

A problem is `application/problem+json` (RFC 9457) with four members more: `error`, the sentence that Queen's clients
show; `code`, its kind in one word; `field`, the part of the request that is wrong, where there is one; and, where the
store could not answer, `outcomeUnknown`: false when nothing was done, true when everything may have been. Where
messages are gone, `firstSeq` is the oldest that is kept, or `missingFrom` and `missingTo` say where they were.
Where a queue was made again, `identity` is that of the new one. Where a flow's definition is refused, `faults` lists
all that is wrong with it, each with its `field` and a `message`.

What the request is not to blame for is 5xx. It is in the log, once, with all that is known; the answer leaves out where
on the server's machine it happened.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from forebay.access.faults import KeyNameTaken, KeyRefused, KeysFull, LastAdminKey, UnknownKey
from forebay.dispatch.faults import (
    AnnotationKept,
    AnnotationsRefused,
    FlowRefused,
    FlowUnfinished,
    OutcomeRefused,
    PolicyRefused,
    RecordsRefused,
    UnknownFlow,
    UnknownParcel,
)
from forebay.errors import (
    AppendFailed,
    BatchRefused,
    BufferExhausted,
    CommitDiffers,
    DiskFull,
    ForebayError,
    InvariantBroken,
    LeaseLost,
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
    429: "Too much, too often",
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
    (LeaseLost, 409, "lease_lost"),
    (FlowRefused, 400, "flow_refused"),
    (PolicyRefused, 400, "policy_refused"),
    (OutcomeRefused, 400, "outcome_refused"),
    (AnnotationsRefused, 400, "annotations_refused"),
    (RecordsRefused, 400, "records_refused"),
    (UnknownFlow, 404, "unknown_flow"),
    (UnknownParcel, 404, "unknown_parcel"),
    (FlowUnfinished, 409, "flow_unfinished"),
    (AnnotationKept, 409, "annotation_kept"),
    (KeyRefused, 400, "key_refused"),
    (KeyNameTaken, 409, "key_name_taken"),
    (KeysFull, 409, "keys_full"),
    (LastAdminKey, 409, "last_admin_key"),
    (UnknownKey, 404, "unknown_key"),
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

CODES: tuple[tuple[str, int, str], ...] = (
    ("bad_request", 400, "A part of the request is wrong; `field` names it where it has a name."),
    ("unauthorized", 401, "No key, or one that is not known, has expired or is revoked."),
    ("forbidden", 403, "The key does not have the scope that this needs."),
    ("queue_forbidden", 403, "The key is for other queues."),
    ("wrong_host", 403, "The server is not called so: see `server.allowed_hosts`."),
    (
        "foreign_page",
        403,
        "A web page of another site sent it, or the header `X-Forebay: 1` is missing beside a cookie.",
    ),
    ("not_found", 404, "There is no such path, group, message or thing."),
    ("method_not_allowed", 405, "The path is there and the method is not; `Allow` says which are."),
    ("too_slow", 408, "The body did not arrive in `server.body_time`."),
    ("no_letters", 409, "The queue keeps no dead letters."),
    ("finished", 409, "Every group has finished the message."),
    ("no_keys", 409, "No keys are in force: there is nothing to sign in with."),
    ("too_large", 413, "The body, or one payload of it, is larger than allowed."),
    ("unknown_encoding", 415, "The body's `Content-Encoding` is not known."),
    ("too_many_attempts", 429, "Too many wrong keys came from this address."),
    ("head_too_large", 431, "The head of the request is larger than allowed."),
    ("bug", 500, "A fault of Forebay; the server's log has its traceback."),
    ("not_here", 501, "Something that Queen does and Forebay does not."),
    ("maintenance", 503, "Push maintenance is on, and this cannot be buffered."),
    ("recovering", 503, "The server has not yet read what an earlier process buffered, or is stopping."),
    (
        "busy",
        503,
        "Requests that are under way hold all the memory that there is for bodies: see `server.memory_size`.",
    ),
    ("system", 503, "The operating system refuses: no handles, no permission. The outcome is unknown."),
)
"""The problems that the API finds itself. Those of the rooms below are in `STATUSES`."""

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


_WITH_FIELD = (FlowRefused, PolicyRefused, RecordsRefused, KeyRefused)


def problem_of(error: ForebayError) -> Problem:
    """The answer to an error that came out of the rooms below."""
    for kind, status, code in STATUSES:
        if isinstance(error, kind):
            headers = _retry_after() if isinstance(error, Transient) else ()
            is_unknown = error.is_outcome_unknown if isinstance(error, StoreUnavailable | AppendFailed) else None
            field = error.field if isinstance(error, _WITH_FIELD) else None
            return Problem(
                status,
                error.reason if isinstance(error, KeyRefused) else str(error),
                code=code,
                field=field,
                is_outcome_unknown=is_unknown,
                headers=headers,
                members=_members_of(error),
            )
    raise InvariantBroken(f"no status for {type(error).__name__}")  # the last row is every error's


def _members_of(error: ForebayError) -> dict[str, object] | None:
    if isinstance(error, FlowRefused | PolicyRefused):
        return {"faults": [{"field": fault.field, "message": fault.message} for fault in error.faults]}
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
    """What clients read of a fault of ours: where on this machine it happened is for the log alone."""
    for folder in sorted(folders, key=len, reverse=True):
        text = text.replace(f"{folder}/", "").replace(folder, "the data directory")
    return _ABSOLUTE_PATH.sub(r"\1", text)


def _retry_after() -> tuple[tuple[bytes, bytes], ...]:
    return ((b"retry-after", b"%d" % RETRY_SECONDS),)
