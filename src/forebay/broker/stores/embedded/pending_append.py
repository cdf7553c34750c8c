"""The messages of one queue that a cycle is to store, and the columns in which the log takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from forebay.broker.messages import PushItem
from forebay.broker.push_run import PushRun, payload_bytes
from forebay.broker.stores.embedded.unwritten_index import Span, spans_of
from forebay.commitlog.runs import MessageRun, RunBatch
from forebay.model.message import PAYLOAD_IS_BINARY, TRANSACTION_ID_IS_MINTED, MessageBatch

RECORD_BYTES_MAX = 16 << 20
"""What a queue gets in one cycle is cut into records of about this size."""
_ITEM_OVERHEAD_BYTES = 256


class PendingAppend:
    """Messages of one queue that are to be stored, in order: runs as they came, and lists of single ones."""

    def __init__(
        self,
        first_seq: int,
        taken_ids: dict[tuple[int, str], int],
        *,
        are_ids_new: bool = False,
        are_ids_indexed: bool = False,
    ) -> None:
        self.first_seq = first_seq
        self.taken_ids = taken_ids
        """Ids that producers gave, with the seq of their message: those that were there before, and the new ones."""
        self.are_ids_new = are_ids_new
        """Whether the ids of all messages were given, and are known to be new: then they are not in `taken_ids`."""
        self.are_ids_indexed = are_ids_indexed
        """Whether they are in the index already, with the seqs that their messages will get."""
        self.partition_ids: list[int] = []
        self._parts: list[PushRun | list[PushItem]] = []

    @property
    def count(self) -> int:
        return len(self.partition_ids)

    def __iter__(self) -> Iterator[PushItem]:
        return chain.from_iterable(self._parts)

    def add(self, items: list[PushItem], partition_ids: Iterable[int]) -> None:
        if not items:
            return  # none of the push was new
        self.partition_ids += partition_ids
        if self._parts and isinstance(self._parts[-1], list):
            self._parts[-1] += items
        else:
            self._parts.append(items)

    def add_run(self, run: PushRun, partition_id: int) -> None:
        self.partition_ids += [partition_id] * len(run)
        self._parts.append(run)

    def given_ids(self, stop_seq: int) -> Iterable[tuple[int, str, int]]:
        """Partition, id and seq of the messages below `stop_seq` whose producers gave an id."""
        if self.are_ids_new:
            ids = chain.from_iterable([_ids(part) for part in self._parts])
            return zip(self.partition_ids, ids, range(self.first_seq, stop_seq), strict=False)
        return [(*key, seq) for key, seq in self.taken_ids.items() if self.first_seq <= seq < stop_seq]

    def records(self, messages_max: int) -> Iterator[tuple[slice, list[PushRun | list[PushItem]]]]:
        """What goes into each record of so many messages at the most, and its places among all messages."""
        count = self.count
        size = sum(map(payload_bytes, self._parts)) + _ITEM_OVERHEAD_BYTES * count
        if count <= messages_max and size <= RECORD_BYTES_MAX:
            yield slice(0, count), self._parts
            return
        items = list(self)
        start, total = 0, 0
        for place, item in enumerate(items):
            size = len(item.payload) + _ITEM_OVERHEAD_BYTES
            if place > start and (total + size > RECORD_BYTES_MAX or place - start >= messages_max):
                yield slice(start, place), [items[start:place]]
                start, total = place, 0
            total += size
        yield slice(start, count), [items[start:]]

    def spans(self, places: slice, parts: Sequence[PushRun | list[PushItem]]) -> list[Span]:
        """Of what goes into a record."""
        spans: list[Span] = []
        start = places.start
        for part in parts:
            end = start + len(part)
            if type(part) is PushRun:
                spans.append((self.partition_ids[start], end - start, payload_bytes(part)))
            else:
                spans += spans_of(self.partition_ids[start:end], [len(item.payload) for item in part])
            start = end
        return spans


def _ids(part: PushRun | list[PushItem]) -> Sequence[str]:
    return part.transaction_ids if type(part) is PushRun else [item.transaction_id for item in part]


def as_runs(parts: Sequence[PushRun | list[PushItem]]) -> RunBatch | None:
    """None where there are single messages among them."""
    runs = [
        MessageRun(part.partition.encode(), TRANSACTION_ID_IS_MINTED * part.is_minted, part.id_block(), part.payloads)
        for part in parts
        if type(part) is PushRun
    ]
    return RunBatch(runs) if len(runs) == len(parts) else None


def as_columns(parts: Sequence[PushRun | list[PushItem]], created_us: int) -> MessageBatch:
    """One pass per column, because that is several times as fast as one pass per message."""
    if len(parts) == 1:
        columns = _columns_of(parts[0])
    else:
        columns = [list(chain.from_iterable(column)) for column in zip(*map(_columns_of, parts), strict=True)]
    payloads, partitions, ids, flags, traces, headers = columns
    return MessageBatch(
        payloads=payloads,
        created_us=[created_us] * len(payloads),
        partitions=partitions,
        transaction_ids=ids,
        trace_ids=traces if any(traces) else None,
        headers=headers if any(headers) else None,
        flags=flags,
    )


def _columns_of(part: PushRun | list[PushItem]) -> list[Sequence[Any]]:
    """Payloads, partitions, ids, flags, traces, headers."""
    count = len(part)
    if type(part) is PushRun:
        ids = [transaction_id.encode() for transaction_id in part.transaction_ids]
        nothing = [b""] * count
        flags = [TRANSACTION_ID_IS_MINTED * part.is_minted] * count
        return [part.payloads, [part.partition.encode()] * count, ids, flags, nothing, nothing]
    return [
        [item.payload for item in part],
        [item.partition.encode() for item in part],
        [item.transaction_id.encode() for item in part],
        [PAYLOAD_IS_BINARY * item.is_binary | TRANSACTION_ID_IS_MINTED * item.is_minted for item in part],
        [item.trace_id.encode() for item in part],
        [item.headers for item in part],
    ]
