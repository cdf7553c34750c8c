"""Records of a queue's log as the store uses them: decoded once, kept while they are in demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import repeat
from typing import TypeVar

import pyarrow as pa

from forebay.broker.store import Message
from forebay.commitlog import CommitLog
from forebay.model.message import PAYLOAD_IS_BINARY

_CACHE_BYTES = 64 << 20
_MESSAGE_OVERHEAD_BYTES = 400
"""What a message costs in memory beside its payload, roughly: five Python objects."""
T = TypeVar("T")


class StoredRecord:
    """The messages of one record, by their place in it."""

    __slots__ = ("_offsets", "_payloads", "count", "created_us", "first_seq", "flags", "headers", "ids", "partitions",
                 "size", "tag", "traces")  # fmt: skip

    def __init__(self, tag: bytes, batch: pa.RecordBatch) -> None:
        columns = batch.columns
        self.tag = tag
        self.count = batch.num_rows
        self.first_seq: int = columns[0][0].as_py()
        self.created_us: list[int] = memoryview(columns[1].buffers()[1]).cast("q").tolist()
        self.flags: list[int] = memoryview(columns[2].buffers()[1])[: self.count].tolist()
        self.partitions: list[str] = columns[3].to_pylist()
        self.ids: list[str] = columns[4].to_pylist()
        self.traces: list[str] = _texts(columns[5])
        headers = _texts(columns[6])
        self.headers: list[bytes] = [text.encode() for text in headers] if any(headers) else [b""] * self.count
        _, offsets, values = columns[7].buffers()
        self._offsets: list[int] = memoryview(offsets).cast("i").tolist()
        # A copy: a view would keep alive all that was read together with the record, which may be much more.
        self._payloads: bytes = values.to_pybytes()
        self.size = len(self._payloads) + _MESSAGE_OVERHEAD_BYTES * self.count

    def messages(self, queue: str, wire_id: str, places: Sequence[int], attempts: int) -> list[Message]:
        """Those of one partition at these places. Every message that leaves is made here, hence column by column."""
        if places and places[-1] - places[0] == len(places) - 1:
            places = range(places[0], places[-1] + 1)
        payloads, offsets = self._payloads, self._offsets
        return list(
            map(
                Message,
                [self.first_seq + place for place in places],
                repeat(queue),
                _picked(self.partitions, places),
                repeat(wire_id),
                _picked(self.ids, places),
                _picked(self.traces, places),
                _picked(self.created_us, places),
                [payloads[offsets[place] : offsets[place + 1]] for place in places],
                _picked(self.headers, places),
                [flags & PAYLOAD_IS_BINARY != 0 for flags in _picked(self.flags, places)],
                repeat(attempts),
            )
        )

    def payload_size(self, place: int) -> int:
        return self._offsets[place + 1] - self._offsets[place]

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
    """The records used last, of all queues together, up to a number of bytes."""

    def __init__(self, limit_bytes: int = _CACHE_BYTES) -> None:
        self._records: OrderedDict[tuple[int, int], StoredRecord] = OrderedDict()
        self._limit_bytes = limit_bytes
        self._bytes = 0

    def get(self, queue_id: int, log: CommitLog, record_seq: int, position: int) -> StoredRecord:
        key = queue_id, record_seq
        found = self._records.get(key)
        if found is not None:
            self._records.move_to_end(key)
            return found
        record = StoredRecord(*log.read_record(record_seq, position).tag_and_batch())
        self._records[key] = record
        self._bytes += record.size
        while self._bytes > self._limit_bytes and len(self._records) > 1:
            _, oldest = self._records.popitem(last=False)
            self._bytes -= oldest.size
        return record

    def forget(self, queue_ids: Sequence[int] | None = None) -> None:
        """Drop the records of deleted queues, or everything."""
        for key in [key for key in self._records if queue_ids is None or key[0] in queue_ids]:
            self._bytes -= self._records.pop(key).size
