"""A group of pushes in one step, when nothing about it has to be asked first.

Most pushes go to partitions that were pushed to before, in queues that take everything. Their rows can be numbered by
the database itself, under the queues' locks, in the statement that writes them: what comes back is only what the lock
found, and which partitions were written. `KnownPush` is made while the database is busy with another group.

It is a bet. It is lost, and nothing may be committed, when a queue was deleted, or given a size or a key meanwhile
(`decided` says None), or when an id is there already (the index refuses). Then `PushPlan` asks before it writes.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple, cast

from forebay.broker.push_run import PushedRun, PushRun
from forebay.broker.store import PushItem
from forebay.broker.stores.postgres import push_statements
from forebay.broker.stores.postgres.arrays import Bigints, Blobs, Booleans, Texts
from forebay.broker.stores.postgres.connections import Row
from forebay.broker.stores.postgres.names import wire_id
from forebay.broker.stores.postgres.pushing import RECEIPT, Availability, Decided, Outcome, PartitionNumbers
from forebay.broker.stores.postgres.queries import Statement, query

_place_of = attrgetter("queue", "partition")
_payload_of = attrgetter("payload")
_transaction_id_of = attrgetter("transaction_id")
_trace_id_of = attrgetter("trace_id")
_headers_of = attrgetter("headers")
_is_binary_of = attrgetter("is_binary")


class _Run(NamedTuple):
    """Neighbours in a request that go to one partition."""

    place: int
    before_in_queue: int
    before_in_partition: int
    size: int


class _Columns:
    """The messages of a group, as they are sent."""

    def __init__(self) -> None:
        self.payloads = Blobs()
        self.transaction_ids = Texts()
        self.trace_ids = Texts()
        self.headers = Blobs()
        self.are_binary = Booleans()

    def add(self, request: Sequence[PushItem]) -> None:
        if type(request) is PushRun:
            count = len(request)
            self.payloads += request.payloads
            self.transaction_ids += request.transaction_ids
            self.trace_ids += [""] * count
            self.headers += [b""] * count
            self.are_binary += [False] * count
        else:
            self.payloads += map(_payload_of, request)
            self.transaction_ids += map(_transaction_id_of, request)
            self.trace_ids += map(_trace_id_of, request)
            self.headers += map(_headers_of, request)
            self.are_binary += map(_is_binary_of, request)


class KnownPush:
    def __init__(self, requests: Sequence[Sequence[PushItem]], now_us: int | None, server_id: str) -> None:
        self.requests = requests
        self._now_us = now_us
        self._server_id = server_id
        self._runs: list[list[_Run]] = []
        self._places: dict[tuple[str, str], int] = {}
        """Of partitions, counted from 1 as PostgreSQL does."""
        self._partition_ids: list[int] = []
        self._added: list[int] = []
        self._last_before: list[int] = []
        self._grown: dict[str, int] = {}
        self._more_bytes: dict[str, int] = {}

    @classmethod
    def of(
        cls,
        requests: Sequence[Sequence[PushItem]],
        known: PartitionNumbers,
        free: Container[str],
        now_us: int | None,
        server_id: str,
    ) -> KnownPush | None:
        """None when a partition is not known, or its queue is not known to be `free` to take everything."""
        push = cls(requests, now_us, server_id)
        for request in requests:
            if not push._take(request, known, free):
                return None
        return push

    def _take(self, request: Sequence[PushItem], known: PartitionNumbers, free: Container[str]) -> bool:
        runs: list[_Run] = []
        for key, sizes in _payload_sizes(request):
            queue = key[0]
            place = self._places.get(key)
            if place is None:
                partition_id = known.get(key)
                if partition_id is None or queue not in free:
                    return False
                self._partition_ids.append(partition_id)
                self._added.append(0)
                self._last_before.append(0)
                place = self._places[key] = len(self._partition_ids)
            count = len(sizes)
            before = self._grown.get(queue, 0)
            runs.append(_Run(place, before, self._added[place - 1], count))
            self._grown[queue] = before + count
            self._more_bytes[queue] = self._more_bytes.get(queue, 0) + sum(sizes)
            self._added[place - 1] += count
            self._last_before[place - 1] = before + count - 1
        self._runs.append(runs)
        return True

    def statements(self) -> list[Statement]:
        columns = _Columns()
        for request in self.requests:
            columns.add(request)
        runs = list(chain.from_iterable(self._runs))
        values: dict[str, object] = {
            "now_us": self._now_us,
            "partition_ids": Bigints(self._partition_ids),
            "queues": Texts([queue for queue, _ in self._places]),
            "places": Bigints(chain.from_iterable(repeat(place, count) for place, _, _, count in runs)),
            "before_in_queue": Bigints(
                chain.from_iterable(range(before, before + count) for _, before, _, count in runs)
            ),
            "before_in_partition": Bigints(
                chain.from_iterable(range(before, before + count) for _, _, before, count in runs)
            ),
            "are_binary": columns.are_binary,
            "transaction_ids": columns.transaction_ids,
            "trace_ids": columns.trace_ids,
            "headers": columns.headers,
            "payloads": columns.payloads,
            "last_before": Bigints(self._last_before),
            "added": Bigints(self._added),
            "grown_queues": Texts(self._grown),
            "grown": Bigints(self._grown.values()),
            "more_bytes": Bigints(self._more_bytes.values()),
        }
        return [
            push_statements.lock_queues(self._grown, self._server_id),
            Statement(query("push_write_known"), values),
        ]

    def decided(self, locked: list[Row], written: list[Row]) -> Decided | None:
        """What becomes of the requests once this is committed; None when it must not be."""
        queues = {row[1]: row for row in cast("list[tuple[Any, ...]]", locked)}
        is_free = not any(max_size or is_encrypted for _, _, max_size, is_encrypted, *_ in queues.values())
        if not is_free or len(written) != len(self._places):
            return None
        firsts, shown_ids = [0], [""]
        for (queue, _), partition_id in zip(self._places, self._partition_ids, strict=True):
            queue_id, _, _, _, next_seq, *_ = queues[queue]
            firsts.append(next_seq)
            shown_ids.append(wire_id(queue_id, partition_id))
        outcomes: list[Outcome] = []
        for runs in self._runs:
            pushed = [
                PushedRun(range(firsts[place] + before, firsts[place] + before + count), shown_ids[place], RECEIPT)
                for place, before, _, count in runs
            ]
            outcomes.append(pushed[0] if len(pushed) == 1 else list(chain.from_iterable(pushed)))
        wanted_elsewhere = {name for name, row in queues.items() if row[-1]}
        return Decided(outcomes, Availability(dict(self._grown), wanted_elsewhere), [])


def _payload_sizes(request: Sequence[PushItem]) -> Iterator[tuple[tuple[str, str], list[int]]]:
    """Of neighbours that go to one partition of a queue."""
    if type(request) is PushRun:
        yield (request.queue, request.partition), list(map(len, request.payloads))
        return
    for place, neighbours in groupby(request, _place_of):
        yield place, [len(item.payload) for item in neighbours]
