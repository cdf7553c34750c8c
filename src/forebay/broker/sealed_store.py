"""A store whose encrypted queues are encrypted: wraps any other, seals on the way in and opens on the way out.

It need not know which queues are encrypted: the store refuses an unsealed payload for one that is, within the same
transaction that would have stored it. The refusal teaches the wrapper, which seals and tries again. So a queue that
another server has made encrypted a moment ago is safe too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

import pyarrow as pa
from msgspec.structs import replace

from forebay.broker.arrow.outgoing import has_marked, with_payloads
from forebay.broker.arrow.staged_rows import content_of
from forebay.broker.bulk import Content, RangeRequest, Staged, StageName
from forebay.broker.encryption import MARK, Address, Cipher, plain_form, stored_form
from forebay.broker.forwarding_store import ForwardingStore
from forebay.broker.message_columns import MessageColumns, columns_of
from forebay.broker.messages import (
    ANSWER_BYTES_MAX,
    Acknowledgement,
    Message,
    Popped,
    PopRequest,
    Pushed,
    TransactionOutcome,
)
from forebay.broker.overview import DeadLetterFilter, DeadMessage
from forebay.broker.store import Store
from forebay.errors import PayloadInClear
from forebay.model.push_run import PushRun
from forebay.model.queue import Queue, QueueOptions
from forebay.model.text_block import TextBlock

T = TypeVar("T")


class SealedStore(ForwardingStore):
    """What is not overridden here has no payloads in it."""

    def __init__(self, inner: Store, cipher: Cipher | None) -> None:
        super().__init__(inner)
        self._cipher = cipher
        self._encrypted: set[str] = set()

    async def configure(self, queue: str, options: QueueOptions, namespace: str, task: str) -> Queue:
        if options.encryption_enabled and self._cipher is None:
            raise PayloadInClear(queue)
        return await self._inner.configure(queue, options, namespace, task)

    def push(self, runs: Sequence[PushRun]) -> Awaitable[Sequence[Pushed]]:
        # A store without a key cannot seal what is refused, and need not wait for that.
        push = self._inner.push
        return push(self._stored(runs)) if self._cipher is None else self._sealed(runs, push)

    async def transact(
        self, pushes: Sequence[PushRun], acknowledgements: Sequence[Acknowledgement]
    ) -> TransactionOutcome:
        return await self._sealed(pushes, lambda runs: self._inner.transact(runs, acknowledgements))

    async def _sealed(self, runs: Sequence[PushRun], send: Callable[[Sequence[PushRun]], Awaitable[T]]) -> T:
        while True:
            try:
                return await send(self._stored(runs))
            except PayloadInClear as refused:
                if self._cipher is None or refused.queue in self._encrypted:
                    raise
                self._encrypted.add(refused.queue)

    def _stored(self, runs: Sequence[PushRun]) -> Sequence[PushRun]:
        if not self._encrypted and not any([_may_hold_mark(run) for run in runs]):  # noqa: C419 - faster
            return runs
        return [self._stored_run(run) for run in runs]

    def _stored_run(self, run: PushRun) -> PushRun:
        cipher = self._cipher if run.queue in self._encrypted else None
        if cipher is None and not _may_hold_mark(run):
            return run
        columns = zip(run.payloads, run.partitions, run.transaction_ids, strict=True)
        payloads = [
            stored_form(payload, Address(run.queue, partition, transaction_id), cipher)
            for payload, partition, transaction_id in columns
        ]
        return replace(run, payloads=TextBlock.of(payloads))

    def _plain(self, message: Message) -> Message:
        if not message.payload.startswith(MARK):
            return message
        address = Address(message.queue, message.partition, message.transaction_id)
        payload = plain_form(message.payload, address, self._cipher)
        return message if payload is message.payload else replace(message, payload=payload)

    async def stage(
        self,
        queue: str,
        stage_id: str,
        name: StageName,
        batches: Sequence[pa.RecordBatch],
        content: Content | None = None,
    ) -> Staged:
        # Sealed twice, a payload is two different ones: what tells a repeat is what the producer gave.
        content = content or await asyncio.to_thread(content_of, batches)
        while True:
            try:
                stored = await asyncio.to_thread(self._stored_batches, queue, batches)
                return await self._inner.stage(queue, stage_id, name, stored, content)
            except PayloadInClear as refused:
                if self._cipher is None or refused.queue in self._encrypted:
                    raise
                self._encrypted.add(refused.queue)

    def _stored_batches(self, queue: str, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        cipher = self._cipher if queue in self._encrypted else None
        return [
            with_payloads(batch, queue, lambda payload, address: stored_form(payload, address, cipher))
            if cipher is not None or has_marked(batch)
            else batch
            for batch in batches
        ]

    async def read_batches(self, wanted: RangeRequest) -> AsyncIterator[pa.RecordBatch]:
        return self._plain_batches(await self._inner.read_batches(wanted), wanted.queue)

    async def _plain_batches(self, batches: AsyncIterator[pa.RecordBatch], queue: str) -> AsyncIterator[pa.RecordBatch]:
        async with aclosing(batches):  # type: ignore[type-var]  # they are generators
            async for batch in batches:
                yield await asyncio.to_thread(self._plain_batch, batch, queue) if has_marked(batch) else batch

    def _plain_batch(self, batch: pa.RecordBatch, queue: str) -> pa.RecordBatch:
        return with_payloads(batch, queue, lambda payload, address: plain_form(payload, address, self._cipher))

    def _check_opens(self, messages: Sequence[Message]) -> None:
        """Raises for messages that cannot be opened here: they are not claimed, and lose no attempt."""
        if isinstance(messages, MessageColumns) and not messages.payloads.may_hold(MARK):
            return
        for message in messages:
            self._plain(message)

    async def pop(self, request: PopRequest) -> Popped:
        popped = await self._inner.pop(request._replace(check=self._check_opens))
        if not popped.messages:
            return popped
        columns = columns_of(popped.messages)
        if not columns.payloads.may_hold(MARK):
            return popped if columns is popped.messages else popped._replace(messages=columns)
        return popped._replace(messages=[self._plain(message) for message in columns])

    async def read(
        self,
        queue: str,
        from_seq: int,
        limit: int,
        partition: str | None = None,
        *,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> list[Message]:
        found = await self._inner.read(queue, from_seq, limit, partition, bytes_max=bytes_max)
        return [self._plain(message) for message in found]

    async def message(self, partition_id: str, transaction_id: str) -> Message | None:
        found = await self._inner.message(partition_id, transaction_id)
        return found and self._plain(found)

    async def dead_letters(
        self, wanted: DeadLetterFilter, limit: int, offset: int, *, bytes_max: int = ANSWER_BYTES_MAX
    ) -> tuple[list[DeadMessage], int]:
        found, total = await self._inner.dead_letters(wanted, limit, offset, bytes_max=bytes_max)
        return [letter._replace(message=self._plain(letter.message)) for letter in found], total


def _may_hold_mark(run: PushRun) -> bool:
    """False when none of the payloads is sealed, or looks like it."""
    # One byte is found many times as fast as several, and the first one of ours is in no text.
    return run.payloads.data.find(MARK[0]) >= 0
