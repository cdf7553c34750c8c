"""What a seek would skip and repeat, counted beside the store's thread.

Three counts say it: what is behind where the group stands, what is behind the seq that it would be set to, and what is
behind the one of both that is further on, which waits before and after.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from forebay.broker.overview import SeekPreview
from forebay.broker.stores.embedded.data_directory import read_only
from forebay.broker.stores.embedded.partition_lag import Lag, PartitionLag
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.reading import ReadableQueue

_LAG_BEYOND = query("lag_beyond")


class _Wanted(NamedTuple):
    """Parameters of the query."""

    queue_id: int
    partition: str | None
    group_id: int | None
    beyond_seq: int


class SeekPreviews:
    """For one answer and one thread: a snapshot of the database."""

    def __init__(self, database: Path, queue: ReadableQueue, now_us: int) -> None:
        self._queue = queue
        self._database = read_only(database)
        self._database.execute("BEGIN")
        self._single = PartitionLag(self._database.execute, now_us=now_us)

    def __enter__(self) -> SeekPreviews:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def of(self, group: str, partition: str | None, target_seq: int) -> SeekPreview:
        """`target_seq`: the last seq that would be passed."""
        queue_id = self._queue.queue_id
        found = self._database.execute(query("group_find"), (queue_id, group))
        row = found.fetchone()
        group_id = row[0] if row else None
        values = {"queue_id": queue_id, "name": partition}
        [(partitions,)] = self._database.execute(query("partitions_count"), values)
        before = self._behind(_Wanted(queue_id, partition, group_id, 0))
        after = self._behind(_Wanted(queue_id, partition, None, target_seq))
        both = self._behind(_Wanted(queue_id, partition, group_id, target_seq))
        return SeekPreview(
            from_seq=target_seq + 1,
            is_new=group_id is None,
            partitions=partitions,
            waiting=before.messages,
            waiting_after=after.messages,
            skipped=before.messages - both.messages,
            repeated=after.messages - both.messages,
            leased=before.leased,
        )

    def _behind(self, wanted: _Wanted) -> Lag:
        messages, special = self._database.execute(_LAG_BEYOND, wanted._asdict()).fetchone()
        lag = Lag(messages, 0, None)
        for number in map(int, (special or "").split()):
            found = self._single.of(self._queue.log, wanted.group_id, number, beyond_seq=wanted.beyond_seq)
            lag = lag.joined(found)
        return lag
