"""Another queue of the broker: messages keep partition and payload, OTLP and remote write batches become messages.

A message's transactionId is made of where it came from (or of the batch's key), so that one that is sent again is a
duplicate there and is stored once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from forebay.errors import ForebayError, Transient
from forebay.export.batch import ExportBatch, ExportMessage, MessageBatch
from forebay.export.destination import TAKEN, Prepared, Receipt
from forebay.export.outcome import ErrorClass, SendFailed
from forebay.otlp.kinds import Kind
from forebay.telemetry import tracing


class OutgoingMessage(NamedTuple):
    """What is pushed: payload as JSON text, or bytes."""

    queue: str
    partition: str
    transaction_id: str
    payload: bytes
    is_bytes: bool
    headers: bytes = b""
    """The trace that the message is in, if any."""


Push = Callable[[Sequence[OutgoingMessage]], Awaitable[None]]
"""Stores messages, or raises. Handed over where the rooms are wired: export does not know the broker's store."""


class QueueDestination:
    """A `Destination` that pushes to a queue."""

    kinds = frozenset(Kind)
    is_in_order = True
    is_prepared_inline = True

    def __init__(self, name: str, queue: str, push: Push, *, partition: str = "Default") -> None:
        self.name = name
        self._queue = queue
        self._partition = partition
        self._push = push

    async def open(self) -> None:
        """There is nothing to open."""

    def prepare(self, batch: ExportBatch) -> Prepared:
        return Prepared(batch, batch.body)

    async def send(self, prepared: Prepared) -> Receipt:
        try:
            await self._push(self._messages(prepared.batch))
        except Transient as error:
            raise SendFailed(ErrorClass.SERVER_ERROR, str(error)) from error
        except ForebayError as error:
            raise SendFailed(ErrorClass.CLIENT_ERROR, str(error), is_of_content=True) from error
        return TAKEN

    def _messages(self, batch: ExportBatch) -> list[OutgoingMessage]:
        if not isinstance(batch, MessageBatch):
            return [OutgoingMessage(self._queue, self._partition, batch.key, batch.body, is_bytes=True)]
        return [
            OutgoingMessage(
                self._queue,
                message.partition,
                f"{message.queue}/{message.partition}/{message.seq}",
                message.payload,
                message.is_bytes,
                _trace(message),
            )
            for message in batch.messages
        ]

    async def close(self) -> None:
        """There is nothing to close."""


def _trace(message: ExportMessage) -> bytes:
    """Its trace as headers: nothing else of a message's headers concerns another queue."""
    contexts = tracing.of_headers([message.headers]) if message.headers else []
    return tracing.in_headers(contexts[0]) if contexts else b""
