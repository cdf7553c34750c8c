"""Arrow in and out of the embedded store: ranges, stages and their commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pyarrow as pa

from forebay.broker.arrow.staged_rows import check_sealed, content_of
from forebay.broker.bulk import (
    CommitOutcome,
    Content,
    QueueBounds,
    RangeRequest,
    Staged,
    StageFigures,
    StageName,
    StagesOf,
)
from forebay.broker.stores.embedded.reading import RangeReader
from forebay.broker.stores.embedded.store_calls import StoreCalls
from forebay.errors import StoreUnavailable


class StoreBulk(StoreCalls):
    """Many messages at once, as columns."""

    async def bounds(self, queue: str, time_us: int | None = None, partitions: Sequence[str] = ()) -> QueueBounds:
        place = await self._readable(queue)

        reader = await asyncio.to_thread(self._reader, place)
        try:
            return await asyncio.to_thread(reader.bounds, time_us, partitions)
        finally:
            await self._done_with(reader)

    async def hold(self, queue: str, reader: str, seq: int, seconds: float) -> bool:
        now_us = self._clock.now_us()
        return await self._call(lambda: self._engine.expiring.hold(queue, reader, seq, seconds, now_us))

    async def read_batches(self, wanted: RangeRequest) -> AsyncIterator[pa.RecordBatch]:
        reader = await asyncio.to_thread(self._reader, await self._readable(wanted.queue))
        try:
            batches = await asyncio.to_thread(reader.batches, wanted)
        except BaseException:
            await self._done_with(reader)
            raise
        return self._in_thread(batches, reader)

    async def _in_thread(self, batches: Iterator[pa.RecordBatch], reader: RangeReader) -> AsyncIterator[pa.RecordBatch]:
        """Batches as the caller iterates, each read in a thread."""
        try:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                yield batch
        finally:
            await self._done_with(reader)

    async def stage(
        self,
        queue: str,
        stage_id: str,
        name: StageName,
        batches: Sequence[pa.RecordBatch],
        content: Content | None = None,
    ) -> Staged:
        if content is None:
            content = await asyncio.to_thread(content_of, batches)
        staged = Staged(stage_id, content)
        stages = self._engine.stages
        found = self._engine.queues.by_name.get(queue)
        check_sealed(found.info if found else None, batches)
        await asyncio.to_thread(stages.write, stage_id, batches)
        try:
            return await self._call(lambda: stages.add(queue, name, staged), synced=True)
        except Exception as error:
            # Of a call that was cancelled, or whose commit was not confirmed, the stage may be there: its file stays.
            if not (isinstance(error, StoreUnavailable) and error.is_outcome_unknown):
                stages.discard(stage_id)
            raise

    async def commit_stages(self, wanted: StagesOf, stage_ids: Sequence[str]) -> CommitOutcome:
        return await self._call(lambda: self._engine.transactions.commit_stages(wanted, stage_ids), synced=True)

    async def abort_stages(self, wanted: StagesOf, *, all_writes: bool = False) -> int:
        return await self._call(lambda: self._engine.stages.forget(wanted, all_writes=all_writes), synced=True)

    async def stage_figures(self) -> StageFigures:
        return await self._call(self._engine.stages.figures)

    async def expire_stages(self, stage_seconds: float, commit_seconds: float) -> int:
        return await self._call(lambda: self._engine.stages.expire(stage_seconds, commit_seconds), synced=True)
