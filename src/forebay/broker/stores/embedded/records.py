"""Records of a queue's log as the store uses them: decoded once, kept while they are in demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar

import pyarrow as pa

from forebay.broker.message_columns import MessageColumns, Run
from forebay.commitlog import CommitLog
from forebay.model.message import PAYLOAD_IS_BINARY

_CACHE_BYTES = 64 << 20
_USED_UP_BYTES = 8 << 20
"""Of these, for records that were delivered whole: memory that is free soon is used again while it is in the caches."""
_MESSAGE_OVERHEAD_BYTES = 400
"""What a message costs in memory beside its payload, roughly: five Python objects."""
T = TypeVar("T")


class StoredRecord:
    """The messages of one record, by their place in it."""

    __slots__ = ("_has_binary", "_payloads", "count", "created_us", "first_seq", "flags", "headers", "ids",
                 "left", "partitions", "size", "tag", "traces")  # fmt: skip

    def __init__(self, tag: bytes, batch: pa.RecordBatch) -> None:
        columns = batch.columns
        self.tag = tag
        self.count = batch.num_rows
        self.left = self.count
        """How many of its messages nobody has fetched since it was read."""
        self.first_seq: int = columns[0][0].as_py()
        self.created_us: list[int] = memoryview(columns[1].buffers()[1]).cast("q").tolist()
        self.flags: list[int] = memoryview(columns[2].buffers()[1])[: self.count].tolist()
        self._has_binary = any(flags & PAYLOAD_IS_BINARY for flags in set(self.flags))
        self.partitions: list[str] = columns[3].to_pylist()
        self.ids: list[str] = columns[4].to_pylist()
        self.traces: list[str] = _texts(columns[5])
        headers = _texts(columns[6])
        self.headers: list[bytes] = [text.encode() for text in headers] if any(headers) else [b""] * self.count
        # A copy: a view would keep alive all that was read together with the record, which may be much more.
        copied = [pa.py_buffer(buffer.to_pybytes()) for buffer in columns[7].buffers()[1:]]
        self._payloads: pa.Array = pa.Array.from_buffers(columns[7].type, self.count, [None, *copied])
        self.size = self._payloads.nbytes + _MESSAGE_OVERHEAD_BYTES * self.count

    def add_to(self, found: MessageColumns, run: Run, places: Sequence[int], attempts: int) -> None:
        """Put the messages at these places, all of one partition, behind what is found already."""
        if not places:
            return
        first_seq = self.first_seq
        if places[-1] - places[0] == len(places) - 1:
            places = range(places[0], places[-1] + 1)
            found.seqs += range(first_seq + places.start, first_seq + places.stop)
        else:
            found.seqs += [first_seq + place for place in places]
        found.runs.append(run)
        found.transaction_ids += _picked(self.ids, places)
        found.trace_ids += _picked(self.traces, places)
        found.created_us += _picked(self.created_us, places)
        found.payloads += self._payloads_at(places)
        found.headers += _picked(self.headers, places)
        found.attempts += [attempts] * len(places)
        if self._has_binary:
            found.are_binary += [flags & PAYLOAD_IS_BINARY != 0 for flags in _picked(self.flags, places)]
        else:
            found.are_binary += [False] * len(places)

    def _payloads_at(self, places: Sequence[int]) -> list[bytes]:
        if isinstance(places, range):
            return self._payloads[places.start : places.stop].to_pylist()  # type: ignore[no-any-return]
        return self._payloads.take(pa.array(places)).to_pylist()  # type: ignore[no-any-return]

    def payload_size(self, place: int) -> int:
        return len(self._payloads[place].as_buffer())

    def places(self, partition: str, first_seq: int, last_seq: int, count: int) -> Sequence[int]:
        """Where the partition's messages between those seqs stand; `count` of them, as the index says."""
        start, stop = first_seq - self.first_seq, last_seq - self.first_seq + 1
        if count == stop - start:
            return range(start, stop)
        partitions = self.partitions
        return [place for place in range(start, stop) if partitions[place] == partition]


def _picked(column: list[T], places: Sequence[int]) -> list[T]:
    if isinstance(places, range):
        return column[places.start : places.stop]
    return [column[place] for place in places]


def _texts(column: pa.Array) -> list[str]:
    """Most messages have no trace and no headers."""
    _, offsets, _ = column.buffers()
    if not memoryview(offsets).cast("i")[len(column)]:
        return [""] * len(column)
    return column.to_pylist()  # type: ignore[no-any-return]


class RecordCache:
    """The records used last, of all queues together, up to a number of bytes.

    One whose messages were all fetched is wanted again by another group, if at all: such records have a smaller share.
    """

    def __init__(self, limit_bytes: int = _CACHE_BYTES, used_up_bytes: int = _USED_UP_BYTES) -> None:
        self._in_use = _Kept(limit_bytes)
        self._used_up = _Kept(used_up_bytes)

    def get(self, queue_id: int, log: CommitLog, record_seq: int, position: int) -> StoredRecord:
        key = queue_id, record_seq
        found = self._in_use.get(key) or self._used_up.get(key)
        if found is None:
            found = StoredRecord(*log.read_record(record_seq, position).tag_and_batch())
            self._in_use.put(key, found)
        return found

    def retire(self, queue_id: int, record: StoredRecord) -> None:
        """All of it was fetched."""
        key = queue_id, record.first_seq
        if self._in_use.drop(key):
            self._used_up.put(key, record)

    def forget(self, queue_ids: Sequence[int] | None = None) -> None:
        """Drop the records of deleted queues, or everything."""
        for kept in (self._in_use, self._used_up):
            for key in [key for key in kept.records if queue_ids is None or key[0] in queue_ids]:
                kept.drop(key)


class _Kept:
    """Records by queue and first seq, those used last at the end."""

    def __init__(self, limit_bytes: int) -> None:
        self.records: OrderedDict[tuple[int, int], StoredRecord] = OrderedDict()
        self._limit_bytes = limit_bytes
        self._bytes = 0

    def get(self, key: tuple[int, int]) -> StoredRecord | None:
        found = self.records.get(key)
        if found is not None:
            self.records.move_to_end(key)
        return found

    def put(self, key: tuple[int, int], record: StoredRecord) -> None:
        self.records[key] = record
        self._bytes += record.size
        while self._bytes > self._limit_bytes and len(self.records) > 1:
            _, oldest = self.records.popitem(last=False)
            self._bytes -= oldest.size

    def drop(self, key: tuple[int, int]) -> bool:
        found = self.records.pop(key, None)
        self._bytes -= found.size if found else 0
        return found is not None
