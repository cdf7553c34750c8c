"""Every error Forebay raises on purpose. The docstring of each is the advice its reader needs.

Two kinds of trouble are kept apart. `InvariantBroken` is ours: a bug, never caught, raised with its numbers. The rest
is the world's: `Transient` may succeed when tried again, `Permanent` will not until something is changed. A caller
decides by type; a person reads `str(error)`, which names the thing, the numbers and, where there is one, the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504, 507})
"""Of HTTP: the answers that are `Transient`."""


class ForebayError(Exception):
    """The root of all errors that Forebay raises. Catch it to tell Forebay's refusals from your own bugs."""

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}. {self.remedy}" if self.remedy else self.message


class Transient(ForebayError):
    """Trying the same again may succeed: wait, then retry."""


class Permanent(ForebayError):
    """Trying the same again cannot succeed until the input, the settings or the machine is changed."""


class InvariantBroken(ForebayError):
    """A bug in Forebay. Nothing was written after it was noticed. Please report the message with its numbers."""

    def __init__(self, message: str) -> None:
        super().__init__(f"BUG: {message}")


# --- settings ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettingFault:
    """One thing wrong with the settings: which key, what stood there, what is allowed, and where it came from."""

    key: str
    value: object
    allowed: str
    origin: str

    def __str__(self) -> str:
        return f"{self.key}: {self.value!r} is refused ({self.origin}); allowed: {self.allowed}"


class SettingsRefused(Permanent):
    """The settings hold values Forebay will not start with. `faults` lists all of them, not just the first."""

    def __init__(self, faults: Sequence[SettingFault]) -> None:
        self.faults = tuple(faults)
        count = len(self.faults)
        lines = "\n".join(f"  {fault}" for fault in self.faults)
        super().__init__(f"{count} fault{'' if count == 1 else 's'} in the settings:\n{lines}")


# --- commit log: opening ----------------------------------------------------------------------------------------


class PathUnusable(Permanent):
    """A file or directory that a setting or an argument names cannot be used as it is. Nothing was changed."""


class LogUnopenable(Permanent):
    """The directory cannot be opened as a commit log. Nothing in it was changed."""

    def __init__(self, path: Path, message: str, *, remedy: str | None = None) -> None:
        super().__init__(f"{path}: {message}", remedy=remedy)
        self.path = path


def _salvage(base: Path) -> str:
    return f"Run `forebay log salvage {base}`; it deletes nothing"


class ManifestCorrupted(LogUnopenable):
    """The manifest that is in force cannot be trusted. The messages themselves are most likely whole: salvage."""

    def __init__(self, base: Path, file: str, reason: str) -> None:
        super().__init__(base / file, f"manifest corrupted: {reason}", remedy=_salvage(base))
        self.reason = reason


class UnsupportedManifestVersion(LogUnopenable):
    """The log was written by another version of the format. Open it with the Forebay that wrote it."""

    def __init__(self, base: Path, file: str, version: int, supported: int) -> None:
        super().__init__(
            base / file,
            f"manifest version {version} is not supported, this Forebay reads versions up to {supported}",
            remedy="Open the log with the Forebay that wrote it",
        )
        self.version = version


class ManifestNotFound(LogUnopenable):
    """Messages are here but the manifest that lists them is not, so this is no fresh log. Salvage rebuilds it."""

    def __init__(self, base: Path, file: str, found: str) -> None:
        super().__init__(base / file, f"manifest not found, although {found}", remedy=_salvage(base))


class SegmentMissing(LogUnopenable):
    """A segment that the manifest lists is gone. Put the file back, or salvage to go on without it."""

    def __init__(self, base: Path, file: str, message: str, damage: DamagedRange) -> None:
        super().__init__(base / file, message, remedy=f"Put the file back, or: {_salvage(base)}")
        self.damage = damage


class LogLocked(LogUnopenable):
    """Another process has this log open. One process owns a log at a time: stop that one, or use another directory."""

    def __init__(self, base: Path, owner: str) -> None:
        super().__init__(base, f"the log is open in {owner}", remedy="Stop that process, or choose another directory")
        self.owner = owner


class LogNotAccessible(LogUnopenable):
    """The operating system does not let this process read or write here: check owner, mode and mount."""


class TooManyOpenFiles(Transient):
    """The process has as many files open as it may. Nothing was written; raise the limit, or try again later."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path}: cannot be opened, the process has as many files open as it may",
            remedy="Raise the limit of open files (ulimit -n, LimitNOFILE), or try again later",
        )


# --- commit log: reading ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Bytes of a segment that hold no readable record, and the seq range that is lost with them.

    `last_seq` is None when nothing after the damage says where it ends; `first_seq > last_seq` means that no
    message is lost (the bytes never held one).
    """

    segment: str
    position: int
    size: int
    first_seq: int
    last_seq: int | None
    reason: str

    @property
    def is_stray(self) -> bool:
        """Whether the bytes stand between two records that follow on each other: no message is lost with them."""
        return self.last_seq is not None and self.last_seq < self.first_seq

    def __str__(self) -> str:
        if self.last_seq is None:
            lost = f"messages from seq {self.first_seq}"
        elif self.is_stray:
            lost = "no message"
        else:
            lost = f"messages {self.first_seq}-{self.last_seq}"
        return f"{self.segment} bytes {self.position}-{self.position + self.size}: {self.reason}; {lost} lost"


class SegmentDamaged(Permanent):
    """A record cannot be read. `damage` says which messages; reading with `on_damage` goes on behind them."""

    def __init__(self, base: Path, damage: DamagedRange) -> None:
        super().__init__(f"{base}: {damage}", remedy=_salvage(base))
        self.damage = damage


class RangeGone(Permanent):
    """The requested messages were removed by retention. `first_seq` is the oldest that is still there."""

    def __init__(self, place: Path | str, wanted_seq: int, first_seq: int) -> None:
        super().__init__(
            f"{place}: messages {wanted_seq}-{first_seq - 1} are gone (removed by retention)",
            remedy=f"The oldest message kept is {first_seq}",
        )
        self.wanted_seq = wanted_seq
        self.first_seq = first_seq


class RangeIncomplete(Permanent):
    """Messages of the range are gone, and the reader wants to know. `reason` is `retention` or `damage`.

    `first_seq` and `last_seq`: where they were. Between them there may be others that are kept, or that are of
    partitions which the reader did not ask for.
    """

    def __init__(self, queue: str, first_seq: int, last_seq: int, reason: str) -> None:
        cause = {"retention": "retention removed them", "damage": "they cannot be read any more"}[reason]
        super().__init__(f"queue {queue!r}: messages between seq {first_seq} and {last_seq} are gone: {cause}")
        self.first_seq = first_seq
        self.last_seq = last_seq
        self.reason = reason


# --- commit log: writing ----------------------------------------------------------------------------------------


class AppendFailed(Transient):
    """The append is not durable and was not acknowledged. Nothing of it will be read in this process; append again.

    Except when `is_outcome_unknown`: the disk refused to take its bytes back too, and the next opening may find them.
    """

    def __init__(self, path: Path, message: str, *, remedy: str | None = None) -> None:
        super().__init__(f"{path}: {message}", remedy=remedy)
        self.path = path
        self.is_outcome_unknown = False


class DiskFull(AppendFailed):
    """No room left. Reading goes on; appends succeed again as soon as there is room: nothing has to be restarted."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(path, f"disk full: {message}", remedy="Free space; writing resumes by itself")


class SyncFailed(AppendFailed):
    """The disk did not confirm the write. The segment was sealed before it; check the disk's health."""


class BatchRefused(Permanent):
    """The batch breaks a limit of the log: too many messages, too many bytes, or columns of unequal length."""


class LogClosed(Permanent):
    """The log was closed. Open it again to go on."""

    def __init__(self, base: Path) -> None:
        super().__init__(f"{base}: the log is closed")


# --- broker -----------------------------------------------------------------------------------------------------


class StoreUnavailable(Transient):
    """The store cannot answer now: its database is away, or its disk refuses. Nothing of the request was done.

    Except when `is_outcome_unknown`: then it may have been done, as a whole. A push is safe to send again with the same
    transactionId; a lease that was made meanwhile ends by itself; an ack that is sent again is refused if it counted.
    """

    def __init__(self, message: str, *, remedy: str | None = None, is_outcome_unknown: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        self.is_outcome_unknown = is_outcome_unknown


class BufferExhausted(Transient):
    """Neither the store nor the buffer takes the messages. Nothing of them was accepted; try again later."""

    def __init__(self, message: str) -> None:
        super().__init__(message, remedy="Try again later, or free space; what is buffered is not lost")


class QueueFull(Transient):
    """The queue holds as many waiting messages as it may. Nothing of the request was stored; try again later."""

    def __init__(self, queue: str, size: int, max_size: int) -> None:
        super().__init__(f"queue {queue!r} is full: {size} of {max_size} messages wait", remedy="Try again later")
        self.queue = queue


class UnknownQueue(Permanent):
    """There is no queue of that name. It is made by its first push, or by configure."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"no queue {queue!r}", remedy="A queue is made by its first push, or by configure")
        self.queue = queue


class QueueReplaced(Permanent):
    """The queue of this name is another one than the reader means: it was deleted and made again."""

    def __init__(self, queue: str, expected: str, found: str) -> None:
        super().__init__(
            f"queue {queue!r} is another one than expected (identity {found}, not {expected}): it was deleted and made "
            "again",
            remedy="Its seqs have nothing to do with those of the other one: begin anew",
        )
        self.expected = expected
        self.found = found


class PayloadInClear(Permanent):
    """The queue is encrypted and the payload is not. Nothing was stored. The server needs the queue's key."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"queue {queue!r} is encrypted, and this server has no key",
            remedy="Start the server with FOREBAY_ENCRYPTION_KEY",
        )
        self.queue = queue


class PayloadSealed(Permanent):
    """A message is encrypted and this server cannot open it. It was not claimed; start the server with its key."""

    def __init__(self, queue: str, how: str) -> None:
        super().__init__(
            f"a message of queue {queue!r} is encrypted {how}",
            remedy="Start the server with the key that sealed it: see server.encryption_key_file",
        )
        self.queue = queue


class StageUnknown(Permanent):
    """The commit names stages that are not there: expired, aborted, or of another producer or epoch. Nothing was done.

    Stage the rows again, then commit.
    """

    def __init__(self, stages: Sequence[str], producer: str, epoch: str) -> None:
        shown = ", ".join(stages[:3]) + (f" and {len(stages) - 3} more" if len(stages) > 3 else "")
        super().__init__(
            f"no stage {shown} of producer {producer!r}, epoch {epoch!r}", remedy="Stage the rows again, then commit"
        )


class CommitDiffers(Permanent):
    """The producer's epoch is committed to this queue with other rows. Nothing was done: what was committed stays.

    Either it is another write of the same batch: give it a name of its own (`write`; in Spark `writeName`). Or the
    batch was computed again with another result: then what is in the queue is its first result. See the remedy.
    """

    def __init__(self, queue: str, producer: str, epoch: str, write: str, known: str, found: str) -> None:
        named = f", write {write!r}" if write else ""
        super().__init__(
            f"producer {producer!r}, epoch {epoch!r}{named} is committed to queue {queue!r} with {known}; this commit "
            f"has {found}, and was refused",
            remedy="If it is another write of the same batch, name it (Spark: writeName). If the batch was computed "
            "again with another result, the first one is in the queue: keep it (Spark: onDifferentRepeat=keep)",
        )
        self.queue = queue


# --- dispatch ---------------------------------------------------------------------------------------------------


class LeaseLost(Permanent):
    """The lease is not the worker's any more: it ended, was given back, or never was. Nothing of the request was done.

    What the worker had staged under it is dropped. Its parcels are queued again, or leased by another worker: lease
    anew.
    """

    def __init__(self, lease_id: str, reason: str) -> None:
        super().__init__(f"lease {lease_id!r} is lost: {reason}", remedy="Lease again; send heartbeats in time")
        self.lease_id = lease_id


# --- send queue -------------------------------------------------------------------------------------------------


class SendQueueFull(Transient):
    """The send queue holds as many batches or bytes as it may. The batch was not accepted."""

    def __init__(self, batches: int, batches_max: int, in_bytes: int, bytes_max: int) -> None:
        super().__init__(f"the send queue is full: {batches} of {batches_max} batches, {in_bytes} of {bytes_max} bytes")


class BatchTooLarge(Permanent):
    """The batch alone is larger than the send queue may become. Send smaller batches, or raise the limit."""

    def __init__(self, size: int, bytes_max: int) -> None:
        super().__init__(
            f"a batch of {size} bytes never fits into a send queue of {bytes_max} bytes",
            remedy="Send smaller batches, or raise exporter.queue.max_bytes",
        )


class SendQueueWriteFailed(Transient):
    """The disk under the send queue refused. What the caller offered was not accepted; what was accepted is kept."""

    def __init__(self, directory: Path, error: OSError, *, is_disk_full: bool) -> None:
        super().__init__(
            f"{directory}: cannot be written: {error.strerror or error}",
            remedy="Free space; writing resumes by itself" if is_disk_full else "Check the disk",
        )
        self.is_disk_full = is_disk_full


class SendQueueLocked(Permanent):
    """Another process has this send queue open. One process owns a directory at a time."""

    def __init__(self, directory: Path, owner: str) -> None:
        super().__init__(
            f"{directory}: the send queue is open in {owner or 'another process'}",
            remedy="Stop that process, or choose another directory (exporter.queue.path)",
        )
        self.owner = owner


class UnsupportedSendQueueVersion(Permanent):
    """The send queue was written by a newer version of the format. Nothing was changed."""

    def __init__(self, path: Path, version: int, supported: int) -> None:
        super().__init__(
            f"{path}: version {version} is not supported, this Forebay reads versions up to {supported}",
            remedy="Open the queue with the Forebay that wrote it",
        )
        self.version = version
