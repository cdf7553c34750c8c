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

from collections.abc import Container, Sequence
from itertools import islice, repeat
from typing import Any, cast

from forebay.broker.messages import QUEUED, Pushed
from forebay.broker.stores.postgres import push_statements
from forebay.broker.stores.postgres.arrays import Bigints, Texts
from forebay.broker.stores.postgres.connections import Row
from forebay.broker.stores.postgres.names import wire_id
from forebay.broker.stores.postgres.pushing import RECEIPT, Availability, Decided, Outcome, PartitionNumbers
from forebay.broker.stores.postgres.queries import Statement, query
from forebay.model.push_run import PushRun

_Taken = tuple[int, int, int]
"""The place of a partition, how many messages of its queue came before these, and how many they are."""


class OneTripPush:
    def __init__(self, requests: Sequence[Sequence[PushRun]], now_us: int | None, server_id: str) -> None:
        self.requests = requests
        self._now_us = now_us
        self._server_id = server_id
        self._taken: list[_Taken] = []
        """Neighbours of one partition, of all requests."""
        self._counts: list[int] = []
        """How many of those are each request's."""
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
        requests: Sequence[Sequence[PushRun]],
        known: PartitionNumbers,
        free: Container[str],
        now_us: int | None,
        server_id: str,
    ) -> OneTripPush | None:
        """None when a partition is not known, or its queue is not known to be `free` to take everything."""
        push = cls(requests, now_us, server_id)
        for request in requests:
            before = len(push._taken)
            for run in request:
                for partition, count, size in run.spans():
                    if not push._take((run.queue, partition), count, size, known, free):
                        return None
            push._counts.append(len(push._taken) - before)
        return push

    def _take(self, key: tuple[str, str], count: int, size: int, known: PartitionNumbers, free: Container[str]) -> bool:
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
        self._taken.append((place, before, count))
        return True

    def statements(self) -> list[Statement]:
        values: dict[str, object] = {
            "now_us": self._now_us,
            "partition_ids": Bigints(self._partition_ids),
            "queues": Texts([queue for queue, _ in self._places]),
            "places": self._place_numbers,
            "before_in_queue": self._before_in_queue,
            "before_in_partition": self._before_in_partition,
            **push_statements.columns_of([run for request in self.requests for run in request]),
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
        pushed = [
            Pushed(QUEUED, firsts[place] + before, shown_ids[place], RECEIPT, count)
            for place, before, count in self._taken
        ]
        answers = iter(pushed)
        outcomes: list[Outcome] = [list(islice(answers, count)) for count in self._counts]
        wanted_elsewhere = {name for name, row in queues.items() if row[-1]}
        return Decided(outcomes, Availability(self._grown, wanted_elsewhere), [])
