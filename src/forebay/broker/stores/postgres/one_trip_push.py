"""A group of pushes in one trip, when nothing about it has to be looked up first.

Most pushes go to partitions that were pushed to before, in queues that take everything. Their rows can be numbered by
the database itself, in the statement that writes them: what comes back is only where each queue's numbers begin.

It is a bet. It is lost, and nothing is written, when a queue was deleted, or given a size or a key meanwhile (the
statement fails), or when an id is there already (the index refuses). Then the push is looked up before it is written
(`push_lookups`).

The statement locks a queue by changing it. Groups of several queues lock all of them first, in the order in which
every push does, so that no two wait for each other.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple, cast

from forebay.broker.messages import Pushed, PushItem
from forebay.broker.push_run import QUEUED, PushedRun, PushRun, payload_bytes
from forebay.broker.stores.postgres import push_statements
from forebay.broker.stores.postgres.arrays import Bigints, Blobs, Booleans, Texts
from forebay.broker.stores.postgres.connections import Row
from forebay.broker.stores.postgres.names import wire_id
from forebay.broker.stores.postgres.pushing import RECEIPT, Availability, Decided, Outcome, PartitionNumbers
from forebay.broker.stores.postgres.queries import Statement, query

_place_of = attrgetter("queue", "partition")


class _Run(NamedTuple):
    """Neighbours in a request that go to one partition: which, and how many of their queue came before them."""

    place: int
    before: int
    size: int


class OneTripPush:
    def __init__(self, requests: Sequence[Sequence[PushItem]], now_us: int | None, server_id: str) -> None:
        self.requests = requests
        self._now_us = now_us
        self._server_id = server_id
        self._runs: list[_Run | list[_Run]] = []
        """Of each request; of one with a single message, which most are, without the list."""
        self._places: dict[tuple[str, str], int] = {}
        """Of partitions, counted from 1 as PostgreSQL does."""
        self._partition_ids: list[int] = []
        self._added: list[int] = []
        self._last_before: list[int] = []
        self._grown: dict[str, int] = {}
        self._more_bytes: dict[str, int] = {}
        # For each message:
        self._place_numbers = Bigints()
        self._before_in_queue = Bigints()
        self._before_in_partition = Bigints()

    @classmethod
    def of(
        cls,
        requests: Sequence[Sequence[PushItem]],
        known: PartitionNumbers,
        free: Container[str],
        now_us: int | None,
        server_id: str,
    ) -> OneTripPush | None:
        """None when a partition is not known, or its queue is not known to be `free` to take everything."""
        push = cls(requests, now_us, server_id)
        for request in requests:
            if not push._take(request, known, free):
                return None
        return push

    def _take(self, request: Sequence[PushItem], known: PartitionNumbers, free: Container[str]) -> bool:
        if type(request) is not PushRun and len(request) == 1:
            item = request[0]
            run = self._taken((item.queue, item.partition), 1, len(item.payload), known, free)
            if run is None:
                return False
            self._runs.append(run)
            return True
        runs: list[_Run] = []
        for key, count, size in _runs(request):
            run = self._taken(key, count, size, known, free)
            if run is None:
                return False
            runs.append(run)
        self._runs.append(runs)
        return True

    def _taken(
        self, key: tuple[str, str], count: int, size: int, known: PartitionNumbers, free: Container[str]
    ) -> _Run | None:
        queue = key[0]
        place = self._places.get(key)
        if place is None:
            partition_id = known.get(key)
            if partition_id is None or queue not in free:
                return None
            self._partition_ids.append(partition_id)
            self._added.append(0)
            self._last_before.append(0)
            place = self._places[key] = len(self._partition_ids)
        before, before_here = self._grown.get(queue, 0), self._added[place - 1]
        self._grown[queue] = before + count
        self._more_bytes[queue] = self._more_bytes.get(queue, 0) + size
        self._added[place - 1] = before_here + count
        self._last_before[place - 1] = before + count - 1
        if count == 1:
            self._place_numbers.append(place)
            self._before_in_queue.append(before)
            self._before_in_partition.append(before_here)
        else:
            self._place_numbers += repeat(place, count)
            self._before_in_queue += range(before, before + count)
            self._before_in_partition += range(before_here, before_here + count)
        return _Run(place, before, count)

    def statements(self) -> list[Statement]:
        values: dict[str, object] = {
            "now_us": self._now_us,
            "partition_ids": Bigints(self._partition_ids),
            "queues": Texts([queue for queue, _ in self._places]),
            "places": self._place_numbers,
            "before_in_queue": self._before_in_queue,
            "before_in_partition": self._before_in_partition,
            **_columns(self.requests),
            "last_before": Bigints(self._last_before),
            "added": Bigints(self._added),
            "grown_queues": Texts(self._grown),
            "grown": Bigints(self._grown.values()),
            "more_bytes": Bigints(self._more_bytes.values()),
            "server_id": self._server_id,
        }
        write = Statement(query("push_write_known"), values)
        if len(self._grown) == 1:
            return [write]
        return [push_statements.lock_queues(self._grown, self._server_id), write]

    def decided(self, written: list[Row]) -> Decided:
        """What became of the requests, from what was answered to the last statement."""
        queues = {row[1]: row for row in cast("list[tuple[Any, ...]]", written)}
        firsts, shown_ids = [0], [""]
        for (queue, _), partition_id in zip(self._places, self._partition_ids, strict=True):
            queue_id, _, first_seq, _ = queues[queue]
            firsts.append(first_seq)
            shown_ids.append(wire_id(queue_id, partition_id))
        outcomes: list[Outcome] = []
        for runs in self._runs:
            if isinstance(runs, _Run):
                place, before, _ = runs
                outcomes.append([Pushed(QUEUED, firsts[place] + before, shown_ids[place], RECEIPT)])
                continue
            pushed = [
                PushedRun(range(firsts[place] + before, firsts[place] + before + count), shown_ids[place], RECEIPT)
                for place, before, count in runs
            ]
            outcomes.append(pushed[0] if len(pushed) == 1 else list(chain.from_iterable(pushed)))
        wanted_elsewhere = {name for name, row in queues.items() if row[-1]}
        return Decided(outcomes, Availability(self._grown, wanted_elsewhere), [])


def _columns(requests: Sequence[Sequence[PushItem]]) -> dict[str, object]:
    """The messages of a group, as they are sent. Single ones that stand together are taken together."""
    payloads, headers, are_binary = Blobs(), Blobs(), Booleans()
    transaction_ids, trace_ids = Texts(), Texts()
    for is_run, group in groupby(requests, lambda request: type(request) is PushRun):
        if is_run:
            for run in cast("Iterator[PushRun]", group):
                count = len(run)
                payloads += run.payloads
                transaction_ids += run.transaction_ids
                trace_ids += [""] * count
                headers += [b""] * count
                are_binary += [False] * count
        else:
            items = list(chain.from_iterable(group))
            payloads += [item.payload for item in items]
            transaction_ids += [item.transaction_id for item in items]
            trace_ids += [item.trace_id for item in items]
            headers += [item.headers for item in items]
            are_binary += [item.is_binary for item in items]
    return {
        "are_binary": are_binary,
        "transaction_ids": transaction_ids,
        "trace_ids": trace_ids,
        "headers": headers,
        "payloads": payloads,
    }


def _runs(request: Sequence[PushItem]) -> Iterator[tuple[tuple[str, str], int, int]]:
    """Neighbours that go to one partition of a queue: which, how many, and their bytes."""
    if type(request) is PushRun:
        yield (request.queue, request.partition), len(request), payload_bytes(request)
        return
    for place, neighbours in groupby(request, _place_of):
        together = list(neighbours)
        yield place, len(together), payload_bytes(together)
