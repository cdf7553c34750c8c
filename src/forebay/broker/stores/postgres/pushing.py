"""The way in: several requests, one transaction.

The queues are locked in the order of their numbers, then everything is decided here (seqs, positions, duplicates,
whether there is room), then written with one statement per table. Requests that share a transaction share nothing
else: one that is refused leaves no trace, and the others go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from psycopg.types.json import Jsonb

from forebay.broker.encryption import is_sealed
from forebay.broker.store import Pushed, PushItem
from forebay.broker.stores.postgres.arrays import Bigints, Blobs, Booleans, Texts
from forebay.broker.stores.postgres.connections import Connection, rows, send
from forebay.broker.stores.postgres.names import stored_options, wire_id
from forebay.broker.stores.postgres.queries import query
from forebay.errors import PayloadInClear, QueueFull
from forebay.model.queue import QueueOptions, namespace_and_task_of, options_to_wire

RECEIPT = "postgres"
Outcome = list[Pushed] | QueueFull | PayloadInClear


class MissingQueues(Exception):
    """The push names queues that do not exist yet: make them, then come again."""

    def __init__(self, items: list[PushItem]) -> None:
        self.items = items


class Availability(NamedTuple):
    """What a commit made available, to be told after it."""

    counts: dict[str, int]
    wanted_elsewhere: set[str]


@dataclass(slots=True)
class _Queue:
    queue_id: int
    options: QueueOptions
    next_seq: int
    kept: int
    is_wanted_elsewhere: bool
    waiting: int | None = None
    added: int = 0
    added_bytes: int = 0


@dataclass(slots=True)
class _Partition:
    partition_id: int
    position: int
    last_seq: int = 0
    ids: dict[str, int] = field(default_factory=dict)
    """The producers' own ids that are known to be there, with their seqs."""


class Push:
    """The requests of one transaction."""

    def __init__(self, connection: Connection, now_us: int | None, server_id: str) -> None:
        self._connection = connection
        self._now_us = now_us
        self._server_id = server_id
        self._queues: dict[str, _Queue] = {}
        self._partitions: dict[tuple[str, str], _Partition] = {}
        self._new: list[tuple[int, int, int, int, PushItem]] = []
        """queue, seq, partition, position and the message."""
        self._time_us = 0

    async def store(self, requests: Sequence[Sequence[PushItem]]) -> tuple[list[Outcome], Availability]:
        items = [item for request in requests for item in request]
        if not items:
            return [[] for _ in requests], Availability({}, set())
        await self._lock_queues(items)
        await self._find_partitions(items)
        await self._find_duplicates(items)
        outcomes = [await self._decide(request) for request in requests]
        if self._new:
            await self._write()
        told = {name: queue.added for name, queue in self._queues.items() if queue.added}
        return outcomes, Availability(told, {name for name in told if self._queues[name].is_wanted_elsewhere})

    async def _lock_queues(self, items: Sequence[PushItem]) -> None:
        names = sorted({item.queue for item in items})
        values: dict[str, object] = {"names": names, "server_id": self._server_id}
        found = cast("list[tuple[Any, ...]]", await rows(self._connection, query("push_lock_queues"), values))
        for queue_id, name, options, next_seq, kept, is_wanted in found:
            self._queues[name] = _Queue(queue_id, stored_options(options), next_seq, kept, is_wanted)
        missing = [item for item in items if item.queue not in self._queues]
        if missing:
            raise MissingQueues(missing)

    async def _find_partitions(self, items: Sequence[PushItem]) -> None:
        wanted = list(dict.fromkeys((item.queue, item.partition) for item in items))
        values: dict[str, object] = {
            "queues": Texts([queue for queue, _ in wanted]),
            "names": Texts([name for _, name in wanted]),
            "now_us": self._now_us,
        }
        found = cast("list[tuple[Any, ...]]", await rows(self._connection, query("push_find_partitions"), values))
        missing = []
        for queue, name, partition_id, position, time_us in found:
            self._time_us = time_us
            if partition_id is None:
                missing.append((queue, name))
            else:
                self._partitions[queue, name] = _Partition(partition_id, position)
        if missing:
            await self._make_partitions(missing)

    async def _make_partitions(self, missing: Sequence[tuple[str, str]]) -> None:
        names_by_id = {queue.queue_id: name for name, queue in self._queues.items()}
        values: dict[str, object] = {
            "queue_ids": [self._queues[queue].queue_id for queue, _ in missing],
            "names": [name for _, name in missing],
        }
        for made in await rows(self._connection, query("push_make_partitions"), values):
            queue_id, name, partition_id = cast("tuple[int, str, int]", made)
            self._partitions[names_by_id[queue_id], name] = _Partition(partition_id, 0)

    async def _find_duplicates(self, items: Sequence[PushItem]) -> None:
        own = [item for item in items if not item.is_minted]
        if not own:
            return
        values: dict[str, object] = {
            "partition_ids": Bigints([self._partitions[item.queue, item.partition].partition_id for item in own]),
            "transaction_ids": Texts([item.transaction_id for item in own]),
        }
        found = cast("list[tuple[int, int]]", await rows(self._connection, query("push_find_duplicates"), values))
        for place, seq in found:
            item = own[place - 1]
            self._partitions[item.queue, item.partition].ids[item.transaction_id] = seq

    async def _decide(self, request: Sequence[PushItem]) -> Outcome:
        for item in request:
            if self._queues[item.queue].options.encryption_enabled and not is_sealed(item.payload):
                return PayloadInClear(item.queue)
        fresh = Counter(item.queue for item in request if not self._is_known(item))
        for name, count in fresh.items():
            queue = self._queues[name]
            # What is kept is at least what waits, so most pushes need not count.
            if 0 < queue.options.max_size < queue.kept + queue.added + count:
                if queue.waiting is None:
                    queue.waiting = await self._count_waiting(queue)
                size = queue.waiting + queue.added
                if size + count > queue.options.max_size:
                    return QueueFull(name, size, queue.options.max_size)
        return [self._number(item) for item in request]

    def _is_known(self, item: PushItem) -> bool:
        return not item.is_minted and item.transaction_id in self._partitions[item.queue, item.partition].ids

    async def _count_waiting(self, queue: _Queue) -> int:
        found = await rows(self._connection, query("push_count_waiting"), {"queue_id": queue.queue_id})
        return cast("int", found[0][0]) if found else queue.kept

    def _number(self, item: PushItem) -> Pushed:
        queue = self._queues[item.queue]
        partition = self._partitions[item.queue, item.partition]
        shown_id = wire_id(queue.queue_id, partition.partition_id)
        if not item.is_minted and (earlier := partition.ids.get(item.transaction_id)) is not None:
            return Pushed("duplicate", earlier, shown_id, RECEIPT)
        seq = queue.next_seq + queue.added
        queue.added += 1
        queue.added_bytes += len(item.payload)
        partition.position += 1
        partition.last_seq = seq
        if not item.is_minted:
            partition.ids[item.transaction_id] = seq
        self._new.append((queue.queue_id, seq, partition.partition_id, partition.position, item))
        return Pushed("queued", seq, shown_id, RECEIPT)

    async def _write(self) -> None:
        queue_ids, seqs, partition_ids, positions, items = map(list, zip(*self._new, strict=True))
        messages = cast("list[PushItem]", items)
        changed = [partition for partition in self._partitions.values() if partition.last_seq]
        grown = [queue for queue in self._queues.values() if queue.added]
        values: dict[str, object] = {
            "now_us": self._time_us,
            "queue_ids": Bigints(queue_ids),
            "seqs": Bigints(seqs),
            "partition_ids": Bigints(partition_ids),
            "positions": Bigints(positions),
            "are_binary": Booleans([item.is_binary for item in messages]),
            "are_minted": Booleans([item.is_minted for item in messages]),
            "transaction_ids": Texts([item.transaction_id for item in messages]),
            "trace_ids": Texts([item.trace_id for item in messages]),
            "headers": Blobs([item.headers for item in messages]),
            "payloads": Blobs([item.payload for item in messages]),
            "changed_ids": Bigints([partition.partition_id for partition in changed]),
            "last_seqs": Bigints([partition.last_seq for partition in changed]),
            "last_positions": Bigints([partition.position for partition in changed]),
            "grown_ids": Bigints([queue.queue_id for queue in grown]),
            "next_seqs": Bigints([queue.next_seq + queue.added for queue in grown]),
            "more_bytes": Bigints([queue.added_bytes for queue in grown]),
        }
        await send(self._connection, query("push_write"), values)


def queues_to_make(items: Sequence[PushItem], now_us: int | None) -> dict[str, object]:
    """What `push_make_queues` is to make: with default options, in the namespace and task that the first item says."""
    first = {item.queue: item for item in reversed(items)}
    own = {name: namespace_and_task_of(name) for name in first}
    options = QueueOptions()
    return {
        "names": list(first),
        "namespaces": [item.namespace or own[name][0] for name, item in first.items()],
        "tasks": [item.task or own[name][1] for name, item in first.items()],
        "options": Jsonb(options_to_wire(options)),
        "priority": options.priority,
        "now_us": now_us,
    }
