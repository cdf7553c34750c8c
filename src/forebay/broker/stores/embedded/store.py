"""`EmbeddedStore`: the coroutines that the broker calls. What they ask for is done by the store's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from forebay.broker.flow_rows import FlowRow
from forebay.broker.messages import (
    ANSWER_BYTES_MAX,
    Message,
)
from forebay.broker.overview import (
    DeadLetterFilter,
    DeadMessage,
    GroupLag,
    LostMessages,
    PartitionStatus,
    QueueStatus,
    SeekPreview,
    SeekTarget,
    StoreFigures,
    StoreTimes,
    TraceEvent,
)
from forebay.broker.stores.embedded.data_directory import DATABASE_FILE
from forebay.broker.stores.embedded.figures import Figures
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.seek_preview import SeekPreviews
from forebay.broker.stores.embedded.special_lags import KnownPlaces
from forebay.broker.stores.embedded.store_bulk import StoreBulk
from forebay.broker.stores.embedded.store_delivery import StoreDelivery
from forebay.broker.stores.embedded.store_removing import StoreRemoving
from forebay.broker.stores.embedded.store_rooms import StoreRooms
from forebay.model.queue import Queue, QueueOptions

T = TypeVar("T")


class EmbeddedStore(StoreDelivery, StoreRemoving, StoreBulk, StoreRooms):
    """The whole store: what is looked at stands here, the rest in its parts."""

    async def configure(self, queue: str, options: QueueOptions, namespace: str, task: str) -> Queue:
        return await self._call(lambda: self._engine.queues.configure(queue, options, namespace, task), synced=True)

    async def queue(self, name: str) -> Queue | None:
        found = self._engine.queues.by_name.get(name)
        return found.info if found else None

    async def lost_messages(self) -> list[LostMessages]:
        return await self._call(self._engine.losses.all)

    async def queues(self, name: str | None = None) -> list[QueueStatus]:
        return await self._counted(name, Figures.queues)

    async def partitions(self, queue: str, limit: int, offset: int) -> list[PartitionStatus]:
        engine = self._engine
        return await self._call(lambda: engine.browsing.partitions(engine.queues.existing(queue), limit, offset))

    async def groups(self, queue: str | None = None) -> list[GroupLag]:
        return await self._counted(queue, Figures.groups)

    def times(self) -> StoreTimes:
        log = self._options.times
        return StoreTimes(self._commit_times, log.append, log.sync)

    def dropped(self) -> Mapping[str, int]:
        return dict(self._engine.popper.dropped)

    async def figures(self) -> StoreFigures:
        queues = await self._call(lambda: self._engine.counted_queues(None))
        known, now_us = self._known_places, self._clock.now_us()

        def counted() -> tuple[StoreFigures, KnownPlaces]:
            with Figures(self._directory / DATABASE_FILE, queues, now_us, known) as figures:
                return figures.all(), figures.used

        found, self._known_places = await asyncio.to_thread(counted)
        return found

    async def _counted(self, queue: str | None, count: Callable[[Figures], list[T]]) -> list[T]:
        """What is counted beside the store's thread, of one queue or of all."""
        queues = await self._call(lambda: self._engine.counted_queues(queue))

        def counted() -> list[T]:
            with Figures(self._directory / DATABASE_FILE, queues, self._clock.now_us()) as figures:
                return count(figures)

        return await asyncio.to_thread(counted) if queues else []

    async def seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> int:
        seq = await self._seq_of(queue, target)
        total = 0
        after: int | None = 0
        while after is not None:
            moved, after = await self._call(
                partial(self._engine.seek, group, queue, partition, seq, after), synced=True
            )
            total += moved
        return total

    async def preview_seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> SeekPreview:
        target_seq = max(await self._seq_of(queue, target) - 1, 0)
        place = await self._readable(queue)

        def previewed() -> SeekPreview:
            with SeekPreviews(self._directory / DATABASE_FILE, place, self._clock.now_us()) as previews:
                return previews.of(group, partition, target_seq)

        return await asyncio.to_thread(previewed)

    async def _seq_of(self, queue: str, target: SeekTarget) -> int:
        if target.seq is not None:
            await self._readable(queue)  # or it is an error
            return target.seq
        bounds = await self.bounds(queue, target.time_us)
        return bounds.next_seq if bounds.seq_at_time is None else bounds.seq_at_time

    async def dead_letters(
        self, wanted: DeadLetterFilter, limit: int, offset: int, *, bytes_max: int = ANSWER_BYTES_MAX
    ) -> tuple[list[DeadMessage], int]:
        return await self._call(lambda: self._engine.letters.find(wanted, limit, offset, bytes_max))

    async def read(
        self,
        queue: str,
        from_seq: int,
        limit: int,
        partition: str | None = None,
        *,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> list[Message]:
        engine = self._engine
        return await self._call(
            lambda: engine.browsing.read(engine.queues.existing(queue), from_seq, limit, partition, bytes_max)
        )

    async def message(self, partition_id: str, transaction_id: str) -> Message | None:
        return await self._call(lambda: self._engine.browsing.message(partition_id, transaction_id))

    async def add_trace(self, event: TraceEvent) -> None:
        await self._call(lambda: self._engine.traces.add(event))

    async def traces(self, partition_id: str, transaction_id: str) -> list[TraceEvent]:
        return await self._call(lambda: self._engine.traces.of_message(partition_id, transaction_id))

    async def traces_named(self, name: str, limit: int, offset: int) -> tuple[list[TraceEvent], int]:
        return await self._call(lambda: self._engine.traces.named(name, limit, offset))

    async def trace_names(self, limit: int, offset: int) -> tuple[list[tuple[str, int]], int]:
        return await self._call(lambda: self._engine.traces.names(limit, offset))

    async def flows(self) -> list[FlowRow]:
        return await self._call(self._engine.flows.all)

    async def report_flow(
        self, name: str, worker: str, report: bytes, *, quiet_seconds: float, is_released: bool = False
    ) -> FlowRow:
        return await self._call(lambda: self._engine.flows.report(name, worker, report, quiet_seconds, is_released))

    async def pause_flow(self, name: str, is_paused: bool) -> FlowRow:
        return await self._call(lambda: self._engine.flows.pause(name, is_paused), synced=True)

    async def forget_flow(self, name: str) -> bool:
        return await self._call(lambda: self._engine.flows.forget(name))

    async def flag(self, name: str) -> bool:
        statement = query("flag_find")
        row = await self._call(lambda: self._engine.database.one(statement, (name,)))
        return bool(row and row[0])

    async def set_flag(self, name: str, is_set: bool) -> None:
        statement = query("flag_set")
        await self._call(lambda: self._engine.database.do(statement, (name, is_set)), synced=True)

    async def time_us(self) -> int:
        return self._clock.now_us()
