"""Queues and groups in numbers, counted beside the store's thread.

The store's thread is called once, for what it keeps in memory, and has settled the index by then. Everything else is
counted by SQLite in another thread, on a connection that can only read and without the interpreter's lock: with many
partitions and groups that takes a while, and no other request waits for it. Only partitions of which a group has
messages under way, or that lost single messages, are looked at one by one (`special_lags`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from forebay.broker.overview import GroupLag, QueueStatus, StoreFigures
from forebay.broker.stores.embedded.data_directory import read_only
from forebay.broker.stores.embedded.partition_lag import Lag, PartitionLag
from forebay.broker.stores.embedded.popping import PARTITIONS_BEHIND, ListToMake
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.reading import RangeReader, ReadableQueue
from forebay.broker.stores.embedded.records import StoredRecord
from forebay.broker.stores.embedded.special_lags import KnownPlaces, SpecialLags, special_partitions
from forebay.clock import SECOND_US
from forebay.errors import ForebayError
from forebay.model.queue import Queue


class CountedQueue(NamedTuple):
    """A queue as the store's thread saw it last."""

    info: Queue
    place: ReadableQueue
    last_active_us: dict[int, int]
    """When each group popped last, by the group's number."""


class _Group(NamedTuple):
    group_id: int
    name: str
    mode: str
    from_us: int
    created_us: int
    last_active_us: int


class Figures:
    """For one answer and one thread: a snapshot of the database."""

    def __init__(
        self, database: Path, queues: Sequence[CountedQueue], now_us: int, known: KnownPlaces | None = None
    ) -> None:
        self._queues = {queue.place.queue_id: queue for queue in queues}
        self._now_us = now_us
        self._known = known or KnownPlaces()
        self.used = KnownPlaces()
        """What the next count may know."""
        self._database = read_only(database)
        self._database.execute("BEGIN")

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Figures:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self, name: str) -> list[Any]:
        """The rows of a named query; of one queue where one alone is requested."""
        only = next(iter(self._queues)) if len(self._queues) == 1 else None
        values = {"queue_id": only, "after_partition": None, "last_partition": None}
        return self._database.execute(query(name), values).fetchall()

    def all(self) -> StoreFigures:
        """Queues and groups, of the same moment."""
        return StoreFigures(self.queues(), self.groups(), self._now_us)

    # --- queues ---

    def queues(self) -> list[QueueStatus]:
        sums = {row[0]: row[1:] for row in self._all("figures_queues")}
        dead, lost = dict(self._all("figures_dead_letters")), dict(self._all("figures_lost"))
        return [
            self._status(queue, sums.get(number, (0, 0, 0, 0, 0)), dead.get(number, 0), lost.get(number, 0))
            for number, queue in self._queues.items()
        ]

    def _status(self, queue: CountedQueue, sums: tuple[int, ...], dead: int, lost: int) -> QueueStatus:
        count, pushed, removed, newest_us, size = sums
        next_seq = queue.place.next_seq
        first_seq = next_seq
        if pushed > removed:
            first_seq = RangeReader(self._database, queue.place).first_seq()
        has_messages = first_seq < next_seq
        return QueueStatus(
            queue=queue.info,
            partitions=count,
            first_seq=first_seq,
            next_seq=next_seq,
            messages=pushed - removed,
            pushed=pushed,
            size_bytes=size,
            dead_letters=dead,
            oldest_us=self._created_us(queue, first_seq) if has_messages else 0,
            newest_us=newest_us if has_messages else 0,
            lost=lost,
        )

    # --- groups ---

    def groups(self) -> list[GroupLag]:
        lags = {row[0]: row[1:] for row in self._all("figures_lags")}
        partitions = {row[0]: row[1] for row in self._all("figures_queues")}
        dead = {row[:2]: row[2] for row in self._all("figures_group_dead_letters")}
        under_way = {row[:2]: row[2] for row in self._all("figures_under_way")}
        single = PartitionLag(self._database.execute, now_us=self._now_us)
        special_lags = SpecialLags(single, self._known, self.used, self._now_us)
        found: list[GroupLag] = []
        for queue_id, *columns in self._all("figures_groups"):
            queue, group = self._queues.get(queue_id), _Group(*columns)
            if queue is not None:
                left, behind, oldest_seq, special = lags.get(group.group_id, (0, 0, None, None))
                lag = Lag(left or 0, behind, oldest_seq)
                for place in special_partitions(special):
                    state = under_way.get((group.group_id, place.number))
                    lag = lag.joined(special_lags.of(queue.place.log, group.group_id, place, state))
                letters = dead.get((queue_id, group.name), 0)
                found.append(self._group_lag(queue, group, lag, partitions.get(queue_id, 0), letters))
        return sorted(found, key=lambda lag: (lag.queue, lag.group))

    def _group_lag(self, queue: CountedQueue, group: _Group, lag: Lag, partitions: int, dead: int) -> GroupLag:
        oldest_us = self._created_us(queue, lag.oldest_seq) if lag.oldest_seq is not None else 0
        return GroupLag(
            group=group.name,
            queue=queue.info.name,
            subscription_mode=group.mode,
            subscription_from_us=group.from_us,
            created_us=group.created_us,
            partitions=partitions,
            partitions_with_lag=lag.partitions,
            lag_messages=lag.messages,
            lag_seconds=(self._now_us - oldest_us) / SECOND_US if oldest_us else 0.0,
            leased=lag.leased,
            last_active_us=max(group.last_active_us, queue.last_active_us.get(group.group_id, 0)),
            dead_letters=dead,
        )

    def _created_us(self, queue: CountedQueue, seq: int) -> int:
        """When the message was accepted; 0 when it cannot be read, or is gone meanwhile."""
        key = (queue.place.queue_id, seq)
        created_us = self._known.created_us.get(key) or _read_created_us(queue, seq)
        if created_us:
            self.used.created_us[key] = created_us
        return created_us


def partitions_behind(database: Path, wanted: ListToMake) -> list[int]:
    """Partitions with messages that the group has not finished, as far as they are in the database."""
    with closing(read_only(database)) as connection:
        return [number for (number,) in connection.execute(PARTITIONS_BEHIND, wanted._asdict()).fetchall()]


def _read_created_us(queue: CountedQueue, seq: int) -> int:
    try:
        for record in queue.place.log.read_records(seq, seq):
            created = StoredRecord(record.plain()).created_us
            return created[max(seq - record.header.first_seq, 0)]
    except ForebayError:
        return 0
    return 0
