"""A commit log for the tasks of an event loop: appends that wait at the same time become one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain

from forebay.commitlog import CommitLog
from forebay.model.batcher import Batcher
from forebay.model.message import MessageBatch

BATCH_BYTES_MAX = 4 << 20


class BatchedLog:
    """Messages that are appended through it have a partition and a transaction id each, and nothing else."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._appends: Batcher[MessageBatch, None] = Batcher(self._append, size_max=BATCH_BYTES_MAX)

    async def append(self, batch: MessageBatch) -> None:
        """Until the messages are durable."""
        await self._appends.submit(batch, batch.variable_bytes)

    async def _append(self, batches: Sequence[MessageBatch]) -> list[None]:
        await asyncio.to_thread(self._log.append, batches[0] if len(batches) == 1 else joined(batches))
        return [None] * len(batches)


def joined(batches: Sequence[MessageBatch]) -> MessageBatch:
    """One batch of all their messages."""
    return MessageBatch(
        payloads=[*chain.from_iterable(batch.payloads for batch in batches)],
        created_us=[*chain.from_iterable(batch.created_us for batch in batches)],
        partitions=[*chain.from_iterable(batch.partitions or () for batch in batches)],
        transaction_ids=[*chain.from_iterable(batch.transaction_ids or () for batch in batches)],
    )
