"""Where in a queue a query begins and ends, and how a range of seqs becomes batches and tasks. Pure decisions.

An offset is the JSON object `{"seq": next}`: everything below `next` has been read. A batch is the half-open range from
one offset to the next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

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


class SeqRange(NamedTuple):
    """Seqs from `start` up to, without, `end`."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def offset_position(given: str) -> Position:
    """`earliest`, `latest` or `{"seq": n}`."""
    text = given.strip()
    if text.lower() in ("earliest", "latest"):
        return Position(word=text.lower())
    try:
        offset = json.loads(text)
        return Position(seq=seq_of(offset))
    except (ValueError, TypeError):
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


def seq_of(offset: Mapping[str, object]) -> int:
    """The seq of an offset, from a user or from a checkpoint."""
    if not isinstance(offset, Mapping) or set(offset) != {"seq"}:
        raise ValueError(f'an offset is {{"seq": n}}, not {offset!r}')
    seq = offset["seq"]
    if not isinstance(seq, int) or isinstance(seq, bool) or seq < 1:
        raise ValueError(f"a seq is a whole number from 1 on, not {seq!r}")
    return seq


def offset_of(seq: int) -> dict[str, int]:
    return {"seq": seq}


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
