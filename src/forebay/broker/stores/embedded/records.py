"""Records of a queue's log as the store uses them: decoded once, kept while they are in demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar

from forebay.broker.message_columns import MessageColumns, Run
from forebay.broker.messages import count_within
from forebay.broker.payloads import size_of
from forebay.commitlog import CommitLog
from forebay.commitlog.plain import HEADERS, PARTITION, TRACE_ID, TRANSACTION_ID, Packed, PlainRecord
from forebay.model.message import PAYLOAD_IS_BINARY

_CACHE_BYTES = 64 << 20
_USED_UP_BYTES = 8 << 20
"""Of these, for records that were delivered whole: memory that is free soon is used again while it is in the caches."""
_MESSAGE_OVERHEAD_BYTES = 400
"""What a message costs in memory beside its payload, roughly: five Python objects."""
T = TypeVar("T")


class StoredRecord:
    """The messages of one record, by their place in it. Columns are made when they are first read."""

    __slots__ = ("_created_us", "_flags", "_has_binary", "_ids", "_partitions", "_plain", "count", "first_seq",
                 "left", "size")  # fmt: skip

    def __init__(self, plain: PlainRecord) -> None:
        self._plain = plain
        self.count = plain.count
        self.first_seq = plain.first_seq
        self.left = plain.count
        """How many of its messages were not fetched since it was read."""
        self.size = plain.size + _MESSAGE_OVERHEAD_BYTES * plain.count
        self._flags = plain.flags()
        self._has_binary = any(flags & PAYLOAD_IS_BINARY for flags in set(self._flags))
        self._created_us: list[int] | None = None
        self._ids: list[str] | None = None
        self._partitions: list[str] | None = None

    @property
    def tag(self) -> bytes:
        return self._plain.tag

    @property
    def created_us(self) -> list[int]:
        if self._created_us is None:
            self._created_us = self._plain.created_us()
        return self._created_us

    @property
    def ids(self) -> list[str]:
        if self._ids is None:
            self._ids = self._plain.texts(TRANSACTION_ID)
        return self._ids

    @property
    def partitions(self) -> list[str]:
        if self._partitions is None:
            self._partitions = self._plain.texts(PARTITION)
        return self._partitions

    def payload_sizes(self) -> list[int]:
        return self._plain.payload_sizes()

    def first_within(self, places: Sequence[int], bytes_max: float) -> Sequence[int]:
        """Those from the front on whose payloads are given out together."""
        if self.size < bytes_max:
            return places
        return places[: count_within(_picked(self.payload_sizes(), places), bytes_max)]

    def add_to(self, found: MessageColumns, run: Run, places: Sequence[int], attempts: int) -> int:
        """Put the messages at these places, all of one partition, behind what is found; returns their bytes."""
        if not places:
            return 0
        count = len(places)
        if places[-1] - places[0] == count - 1:
            places = range(places[0], places[-1] + 1)
            found.seqs += range(self.first_seq + places.start, self.first_seq + places.stop)
        else:
            found.seqs += [self.first_seq + place for place in places]
        found.runs.append(run)
        found.transaction_ids += _picked(self.ids, places)
        found.created_us += _picked(self.created_us, places)
        payloads = self._payloads_at(places)
        found.payloads.add(payloads)
        # Most messages have no trace and no headers, and are JSON.
        has_traces, has_headers = self._plain.has(TRACE_ID), self._plain.has(HEADERS)
        found.trace_ids += _picked(self._plain.texts(TRACE_ID), places) if has_traces else [""] * count
        headers = _picked(self._plain.texts(HEADERS), places) if has_headers else ()
        found.headers += [text.encode() for text in headers] if headers else [b""] * count
        found.attempts += [attempts] * count
        flags = _picked(self._flags, places) if self._has_binary else ()
        found.are_binary += [flag & PAYLOAD_IS_BINARY != 0 for flag in flags] if flags else [False] * count
        return size_of(payloads)

    def _payloads_at(self, places: Sequence[int]) -> Packed | list[bytes]:
        if isinstance(places, range):
            return self._plain.payloads(places.start, places.stop)
        data, start, offsets = self._plain.payloads(0, self.count)
        return [data[start + offsets[place] : start + offsets[place + 1]] for place in places]

    def places(self, partition: str, first_seq: int, last_seq: int, count: int) -> Sequence[int]:
        """Where the partition's messages between those seqs stand; `count` of them, as the index says."""
        start, stop = first_seq - self.first_seq, last_seq - self.first_seq + 1
        if count == stop - start:
            return range(start, stop)
        partitions = self.partitions
        return [place for place in range(start, stop) if partitions[place] == partition]


def _picked(column: Sequence[T], places: Sequence[int]) -> Sequence[T]:
    if isinstance(places, range):
        return column[places.start : places.stop]
    return [column[place] for place in places]


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
            found = StoredRecord(log.read_record(record_seq, position))
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
