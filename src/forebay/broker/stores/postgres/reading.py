"""Ranges of a queue as Arrow batches. PostgreSQL puts a page's values side by side, so that they come as buffers.

A page is a statement of its own. What retention removes between two pages would be missing in silence, so each page
tells how much was removed so far, and the bounds are looked at again when that has changed.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from forebay.broker.arrow import outgoing
from forebay.broker.bulk import QueueBounds, RangeRequest, identity_of
from forebay.broker.stores.postgres.connections import Database
from forebay.broker.stores.postgres.queries import query
from forebay.clock import SECOND_US
from forebay.errors import UnknownQueue
from forebay.model.message import CREATED_US_MAX

PAGE_BYTES = 4 << 20
_FIRST_PAGE_ROWS = 2000
_PAGE_ROWS_MIN = 100
_INT32, _INT64, _TEXT, _BYTES = pa.int32(), pa.int64(), pa.string(), pa.binary()


class _Bounds(NamedTuple):
    queue_id: int
    created_us: int
    first_seq: int
    next_seq: int
    size_bytes: int
    removed: int
    """How many messages are gone, for whatever reason."""
    removed_seq: int
    """The last that retention removed, of the requested partitions."""
    seq_at_time: int | None

    @property
    def identity(self) -> str:
        return identity_of(self.queue_id, self.created_us)


async def _look(database: Database, queue: str, partitions: Sequence[str] = (), time_us: int | None = None) -> _Bounds:
    values: dict[str, object] = {"queue": queue, "time_us": time_us, "partitions": list(partitions) or None}
    found = await database.ask(query("range_bounds"), values)
    if not found:
        raise UnknownQueue(queue)
    return _Bounds(*cast("tuple[Any, ...]", found[0]))


async def bounds(database: Database, queue: str, time_us: int | None, partitions: Sequence[str]) -> QueueBounds:
    found = await _look(database, queue, partitions, time_us)
    at_time = found.seq_at_time
    if at_time is not None:
        at_time = min(max(at_time, found.first_seq), found.next_seq)
    return QueueBounds(found.first_seq, found.next_seq, found.size_bytes, at_time, found.identity, found.removed_seq)


async def hold(database: Database, queue: str, reader: str, seq: int, seconds: float, now_us: int | None) -> bool:
    values: dict[str, object] = {
        "queue": queue,
        "reader": reader,
        "seq": seq,
        "held_us": round(seconds * SECOND_US),
        "now_us": now_us,
    }
    found = await database.ask(query("hold_set"), values)
    if not found:
        raise UnknownQueue(queue)
    return bool(found[0][0])


async def read_batches(database: Database, wanted: RangeRequest) -> AsyncIterator[pa.RecordBatch]:
    found = await _look(database, wanted.queue, wanted.partitions)
    return _pages(database, wanted, found, _checked(wanted, found))


def _checked(wanted: RangeRequest, found: _Bounds) -> int:
    """Where to begin, if the queue is the one that is meant, and what is wanted of it is there."""
    outgoing.check_identity(wanted, found.identity)
    first = outgoing.checked_start(wanted, found.first_seq, found.removed_seq)
    outgoing.check_complete(wanted, found.removed_seq)
    return first


async def _pages(database: Database, wanted: RangeRequest, found: _Bounds, first: int) -> AsyncIterator[pa.RecordBatch]:
    last = found.next_seq - 1 if wanted.to_seq is None else min(wanted.to_seq, found.next_seq - 1)
    removed, left = found.removed, wanted.bytes_max
    is_first, rows_max = True, _FIRST_PAGE_ROWS
    while first <= last and (left is None or left > 0):
        count, last_seq, removed_now, *columns = await _page(database, wanted, found.queue_id, first, last, rows_max)
        if removed_now != removed:
            _checked(wanted._replace(from_seq=first), await _look(database, wanted.queue, wanted.partitions))
            removed = removed_now
        if not count:
            return
        batch = _batch(count, columns)
        for part in outgoing.limited([batch], left, is_first=is_first):
            yield part
            is_first = False
        left = None if left is None else left - len(columns[-1])
        rows_max = _rows_of_a_page(count, len(columns[-1]))
        first = last_seq + 1


def _rows_of_a_page(count: int, size: int) -> int:
    """PostgreSQL looks at so many rows to find the end of the page: a few more than it has, if they are alike."""
    return min(max(PAGE_BYTES * count * 5 // (max(size, 1) * 4), _PAGE_ROWS_MIN), outgoing.BATCH_ROWS)


async def _page(
    database: Database, wanted: RangeRequest, queue_id: int, first: int, last: int, rows_max: int
) -> tuple[Any, ...]:
    values: dict[str, object] = {
        "queue_id": queue_id,
        "from_seq": first,
        "to_seq": last,
        "partitions": list(wanted.partitions) or None,
        "created_from_us": wanted.created_from_us or 0,
        "created_to_us": CREATED_US_MAX + 1 if wanted.created_to_us is None else wanted.created_to_us,
        "rows_max": rows_max,
        "bytes_max": PAGE_BYTES,
    }
    [page] = await database.ask(query("range_read"), values)
    return page


def _batch(count: int, columns: list[bytes]) -> pa.RecordBatch:
    seqs, times, *texts = columns
    created = pa.Array.from_buffers(outgoing.WIRE_SCHEMA.field("created_at").type, count, [None, _swapped("q", times)])
    names, ids, traces, headers, payloads = (
        _values(_BYTES if place == len(texts) - 2 else _TEXT, count, texts[place], texts[place + 1])
        for place in range(0, len(texts), 2)
    )
    arrays = [pa.Array.from_buffers(_INT64, count, [None, _swapped("q", seqs)]), names, ids, traces, headers, created]
    batch = pa.RecordBatch.from_arrays([*arrays, payloads], names=outgoing.WIRE_SCHEMA.names)
    return outgoing.on_the_wire(batch)


def _swapped(kind: str, big_endian: bytes) -> pa.Buffer:
    numbers = array(kind, big_endian)
    numbers.byteswap()
    return pa.py_buffer(numbers)


def _values(kind: pa.DataType, count: int, lengths: bytes, values: bytes) -> pa.Array:
    ends = pc.cumulative_sum(pa.Array.from_buffers(_INT32, count, [None, _swapped("i", lengths)]))
    offsets = pa.py_buffer(bytes(4) + memoryview(ends.buffers()[1])[: 4 * count])
    return pa.Array.from_buffers(kind, count, [None, offsets, pa.py_buffer(values)])
