"""What is removed from the embedded store: by request, by retention, in turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from forebay.broker.overview import (
    DeadLetterFilter,
)
from forebay.broker.stores.embedded.data_directory import DATABASE_FILE
from forebay.broker.stores.embedded.reading import ReadableQueue
from forebay.broker.stores.embedded.retention_plan import Plan, Planner
from forebay.broker.stores.embedded.store_calls import StoreCalls
from forebay.clock import SECOND_US
from forebay.errors import Permanent, TooManyOpenFiles

logger = logging.getLogger(__name__)


class StoreRemoving(StoreCalls):
    """Everything that takes something away."""

    async def delete_queue(self, name: str) -> bool:
        queue_id = await self._call(lambda: self._engine.deletion.delete(name), synced=True)
        if queue_id is not None:
            await self._purge(queue_id)
        return queue_id is not None

    async def _purge(self, queue_id: int) -> None:
        """Remove what a deleted queue has left behind, in turns."""
        while not await self._call(partial(self._engine.purger.purge, queue_id)):
            pass

    async def delete_group(self, group: str, queue: str | None) -> int:
        known, gone = await self._call(lambda: self._engine.groups.delete(group, queue), synced=True)
        await self._purge_groups(gone)
        return known

    async def _purge_groups(self, numbers: Sequence[int]) -> None:
        """Remove what deleted groups have left behind, in turns."""
        for number in numbers:
            while not await self._call(partial(self._engine.purger.purge_group, number)):
                pass

    async def replay_dead_letters(self, wanted: DeadLetterFilter, *, to_all_groups: bool = False) -> int:
        replay = partial(self._engine.transactions.replay_dead_letters, wanted, to_all_groups)
        return await self._piece_by_piece(replay)

    async def purge_dead_letters(self, wanted: DeadLetterFilter) -> int:
        return await self._piece_by_piece(partial(self._engine.letters.purge, wanted))

    async def _piece_by_piece(self, step: Callable[[int, int], list[int]]) -> int:
        """Go through the dead letters that there are now, so that others get their turn; returns how many it did."""
        last_id = await self._call(self._engine.letters.last_id)
        total, after_id = 0, 0
        while done := await self._call(partial(step, after_id, last_id), synced=True):
            total, after_id = total + len(done), done[-1]
        return total

    async def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        return await self._call(lambda: self._engine.delete_message(partition_id, transaction_id), synced=True)

    async def bury_message(self, partition_id: str, transaction_id: str, reason: str) -> int | None:
        return await self._call(lambda: self._engine.bury_message(partition_id, transaction_id, reason), synced=True)

    async def clear_queue(self, name: str, partition: str | None = None) -> int:
        place = await self._readable(name)
        plan = await asyncio.to_thread(self._planner().everything, place, partition)
        return await self._remove(place, plan)

    async def expire_traces(self, seconds: float) -> int:
        total = 0
        while removed := await self._call(lambda: self._engine.traces.expire(seconds)):
            total += removed
        return total

    async def apply_retention(self) -> int:
        total = 0
        for queue_id in await self._call(self._engine.purger.waste):
            await self._purge(queue_id)
        await self._purge_groups(await self._call(self._engine.purger.waste_of_groups))
        await self._call(self._engine.expiring.note_activity)
        now_us = self._clock.now_us()
        await self._call(lambda: self._engine.expiring.forget_holds(now_us))
        for name in await self._call(self._engine.retention.queues):
            try:
                total += await self._apply_retention(name)
            except (Permanent, TooManyOpenFiles) as error:
                # What is wrong with the log of one queue keeps no other from being cleared.
                logger.warning("retention passes a queue: %s", error, extra={"action": "store_retention_passed"})
        return total

    async def _apply_retention(self, name: str) -> int:
        queue = self._engine.queues.by_name.get(name)
        if queue is None:
            return 0
        place = await self._readable(name)
        while await self._call(partial(self._engine.retention.prune_tags, place.queue_id), synced=True):
            pass
        plan = await asyncio.to_thread(self._planner().expired, place, queue.info.options)
        return await self._remove(place, plan)

    async def expire_dead_letters(self, seconds: float) -> int:
        return await self.purge_dead_letters(DeadLetterFilter(to_us=self._before_us(seconds) - 1))

    async def expire_groups(self, seconds: float) -> int:
        total, before_us = 0, self._before_us(seconds)
        await self._call(self._engine.expiring.note_activity)
        for queue_id, name in await asyncio.to_thread(self._planner().idle_groups, before_us):
            forget = partial(self._engine.expiring.forget_group, queue_id, name, before_us)
            number = await self._call(forget, synced=True)
            if number is not None:
                await self._purge_groups([number])
                total += 1
        return total

    async def expire_partitions(self, seconds: float) -> int:
        total, before_us, expiring = 0, self._before_us(seconds), self._engine.expiring
        await self._call(lambda: None)  # what was pushed last is found in the database then
        found = await asyncio.to_thread(self._planner().empty_partitions, before_us)
        for queue_id, numbers in found.items():
            piece = expiring.partitions_at_once(queue_id)
            for start in range(0, len(numbers), piece):
                chosen = numbers[start : start + piece]
                total += await self._call(partial(expiring.remove_partitions, chosen, before_us), synced=True)
        for queue_id in await asyncio.to_thread(self._planner().with_removed_partitions):
            while await self._call(partial(expiring.prune_removed, queue_id)):
                pass
        return total

    def _planner(self) -> Planner:
        return Planner(self._directory / DATABASE_FILE, self._clock.now_us())

    async def _remove(self, place: ReadableQueue, plan: Plan) -> int:
        """Remove what is planned, in turns; returns how many messages that were."""
        total, next_seq = 0, min([span.first_seq for span in plan.spans.values()], default=None)
        if next_seq is None:
            return 0
        while next_seq is not None:
            remove = partial(self._engine.retention.remove, plan, next_seq, self._clock.now_us())
            removed, next_seq = await self._call(remove, synced=True)
            total += removed
        needed = await asyncio.to_thread(self._planner().first_needed, place)
        await self._call(partial(self._engine.retention.truncate, place.queue_id, needed))
        return total

    def _before_us(self, seconds: float) -> int:
        return self._clock.now_us() - round(seconds * SECOND_US)
