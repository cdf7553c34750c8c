"""Where in a queue a query begins and ends, and how a range of seqs becomes batches and tasks. Pure decisions.

An offset is a JSON object whose `seq` says that everything below it has been read. A batch is the half-open range from
one offset to the next. Beside `seq` an offset of a checkpoint has

| key       | what it is                                                                                           |
|-----------|------------------------------------------------------------------------------------------------------|
| `queue`   | the identity of the queue: seqs of one that was deleted and made again have nothing to do with these   |
| `reader`  | by which name the stream holds back retention, the same after a restart                              |
| `removed` | what retention removed up to this seq was gone when the stream began, and is no loss. Left out once   |
|           | the stream is behind it                                                                              |
| `began`   | where the batch before this offset begins, if that is not the offset before it: in the first batch of |
|           | a stream, which has none in the checkpoint, and in the first one of a queue that was made again       |

A checkpoint that was written before these were known has `seq` alone. The first batch after that adds the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

ROWS_PER_TASK = 100_000
ROWS_PER_TASK_MAX = 500_000


class Position(NamedTuple):
    """A place that a user named: exactly one of the three."""

    word: str | None = None
    seq: int | None = None
    time: str | None = None
    """RFC 3339."""


EARLIEST = Position(word="earliest")
LATEST = Position(word="latest")


class Bounds(NamedTuple):
    """What a queue holds: seqs from `first_seq` up to, without, `next_seq`."""

    first_seq: int
    next_seq: int
    seq_at_time: int | None = None
    bytes: int | None = None
    """What the kept messages take, where the server tells."""
    identity: str | None = None
    removed_seq: int = 0
    """The last message that retention removed, of the partitions that are read."""
    lost: tuple[SeqRange, ...] = ()
    """Where messages were that cannot be read any more."""


class SeqRange(NamedTuple):
    """Seqs from `start` up to, without, `end`."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


class Offset(NamedTuple):
    """See the module's essay for what each of them is."""

    seq: int
    queue: str | None = None
    reader: str | None = None
    removed: int = 0
    began: int | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Offset:
        """From a checkpoint, or from a user."""
        if not isinstance(given, Mapping) or "seq" not in given or not set(given) <= set(cls._fields):
            raise ValueError(f'an offset is {{"seq": n}}, not {given!r}')
        seq = given["seq"]
        if not isinstance(seq, int) or isinstance(seq, bool) or seq < 1:
            raise ValueError(f"a seq is a whole number from 1 on, not {seq!r}")
        return cls(**given)

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if value}


def loss(begin: Offset, bounds: Bounds) -> SeqRange | None:
    """Where messages are gone that a stream at that offset has not read; None when it has missed nothing."""
    if bounds.removed_seq >= begin.seq and bounds.removed_seq > begin.removed:
        return SeqRange(begin.seq, bounds.removed_seq + 1)
    behind = [span for span in bounds.lost if span.end > begin.seq]
    return SeqRange(max(behind[0].start, begin.seq), behind[-1].end) if behind else None


def offset_position(given: str) -> Position:
    """`earliest`, `latest` or `{"seq": n}`."""
    text = given.strip()
    if text.lower() in ("earliest", "latest"):
        return Position(word=text.lower())
    try:
        offset = json.loads(text)
        return Position(seq=Offset.read(offset).seq)
    except (ValueError, TypeError):
        if re.fullmatch(r'\{\s*"seq"\s*:\s*(0|-\d+)\s*\}', text):
            raise ValueError(f"seqs begin at 1, and {given!r} is before that") from None
        raise ValueError(f'it is earliest, latest or {{"seq": n}}, not {given!r}') from None


def time_position(given: str) -> Position:
    """RFC 3339, or milliseconds since 1970 as Kafka has it. A time without a zone is UTC."""
    text = given.strip()
    try:
        is_number = text.isdecimal()
        time = datetime.fromtimestamp(int(text) / 1000, UTC) if is_number else datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"it is a time such as 2026-01-31T12:00:00Z, or milliseconds, not {given!r}") from None
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return Position(time=rfc3339(time))


def rfc3339(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def resolve(position: Position, bounds: Bounds) -> int:
    """The seq at the position. A named seq is taken at its word: whether it is still kept is found out by reading."""
    if position.seq is not None:
        return position.seq
    if position.time is not None:
        return bounds.next_seq if bounds.seq_at_time is None else bounds.seq_at_time
    return bounds.first_seq if position == EARLIEST else bounds.next_seq


def batch_end(start: int, bounds: Bounds, rows_max: int | None, bytes_max: int | None) -> int:
    """Where a batch that begins at `start` ends: before what is not there yet, and within the limits.

    The average message stands for each of them: to know better, one would have to read them.
    """
    begin = max(start, bounds.first_seq)
    rows = bounds.next_seq - begin
    if rows_max is not None:
        rows = min(rows, rows_max)
    kept = bounds.next_seq - bounds.first_seq
    if bytes_max is not None and bounds.bytes and kept > 0:
        rows = min(rows, max(1, bytes_max * kept // bounds.bytes))
    return max(start, begin + rows)


def rows_per_task(size: int, cores: int | None) -> int:
    """How many messages a task gets of so many, where the user does not say.

    A task costs as much as reading 50,000 messages. So where the cores are known there are no more tasks than cores, or
    as many rounds of them as the limit asks for. Where they are not, small tasks use however many there turn out to be.
    """
    if cores is None or size <= cores * ROWS_PER_TASK:
        return ROWS_PER_TASK
    rounds = -(-size // (cores * ROWS_PER_TASK_MAX))
    return -(-size // (cores * rounds))


def split(span: SeqRange, tasks_min: int, rows_per_task_max: int) -> list[SeqRange]:
    """Ranges of nearly equal size that together are the span: one task each. None for an empty span."""
    if span.size == 0:
        return []
    tasks = max(min(tasks_min, span.size), -(-span.size // rows_per_task_max))
    edges = [span.start + span.size * index // tasks for index in range(tasks + 1)]
    return [SeqRange(start, end) for start, end in pairwise(edges)]
