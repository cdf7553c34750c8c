"""`Client`: the same client for programs without an event loop. One thread of its own runs the asynchronous one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar, overload

import pyarrow as pa

from forebay.client.addresses import Address
from forebay.client.arrow import Rows
from forebay.client.async_client import AsyncClient
from forebay.client.messages import Committed, Message, Pushed, PushSummary
from forebay.client.transaction import Transaction

T = TypeVar("T")


class Client:
    """Use it as `with Client(url) as client:`. Its methods may be called from any thread."""

    def __init__(self, *urls: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="forebay-client", daemon=True)
        self._thread.start()
        self._client = AsyncClient(*urls, **options)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def configure(
        self, queue: str, options: Mapping[str, object] | None = None, *, namespace: str = "", task: str = ""
    ) -> dict[str, Any]:
        return self._run(self._client.configure(queue, options, namespace=namespace, task=task))

    @overload
    def push(
        self, address: str | Address, data: object, *, transaction_id: str | None = None, trace_id: str | None = None
    ) -> Pushed: ...

    @overload
    def push(
        self,
        address: str | Address,
        data: object,
        *,
        transaction_id: str | None = None,
        trace_id: str | None = None,
        buffer_ms: int | None,
        buffer_max: int | None = None,
    ) -> PushSummary: ...

    def push(self, address: str | Address, data: object, **options: Any) -> Pushed | PushSummary:
        return self._run(self._client.push(address, data, **options))  # type: ignore[no-any-return]

    @overload
    def push_many(self, address: str | Address, batch: Iterable[object]) -> list[Pushed]: ...

    @overload
    def push_many(
        self, address: str | Address, batch: Iterable[object], *, buffer_ms: int | None, buffer_max: int | None = None
    ) -> PushSummary: ...

    def push_many(self, address: str | Address, batch: Iterable[object], **options: Any) -> list[Pushed] | PushSummary:
        return self._run(self._client.push_many(address, batch, **options))

    def pop(self, address: str | Address, **options: Any) -> list[Message]:
        return self._run(self._client.pop(address, **options))

    def take(
        self, address: str | Address, *, batch: int = 1, wait: bool = True, auto_ack: bool = False, **options: Any
    ) -> Iterator[Message]:
        """Messages one by one, for ever; without `wait` until there are none."""
        while True:
            found = self.pop(address, batch=batch, wait=wait, auto_ack=auto_ack, **options)
            yield from found
            if not found and not wait:
                return

    def ack(
        self, messages: Message | Sequence[Message], status: str | bool = "completed", *, error: str | None = None
    ) -> bool:
        return self._run(self._client.ack(messages, status, error=error))

    def renew(self, lease: Message | str, *, seconds: int = 60) -> bool:
        return self._run(self._client.renew(lease, seconds=seconds))

    def consume(self, address: str | Address, handler: Callable[[Message], object], **options: Any) -> None:
        """Call the handler for each message, in a thread, while the lease is renewed behind it."""

        async def in_thread(message: Message) -> object:
            return await asyncio.to_thread(handler, message)

        self._run(self._client.consume(address, in_thread, **options))

    def transaction(self) -> SyncTransaction:
        return SyncTransaction(self._client.transaction(), self._run)

    def seek(
        self, address: str | Address, *, seq: int | None = None, time: datetime | None = None, to_end: bool = False
    ) -> dict[str, Any]:
        return self._run(self._client.seek(address, seq=seq, time=time, to_end=to_end))

    def iter_arrow(
        self, queue: str, from_seq: int | None = None, to_seq: int | None = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        batches = self._client.iter_arrow(queue, from_seq, to_seq, **options)
        while (batch := self._run(_next_or_none(batches))) is not None:
            yield batch

    def read_arrow(
        self, queue: str, from_seq: int | None = None, to_seq: int | None = None, **options: Any
    ) -> pa.Table:
        return self._run(self._client.read_arrow(queue, from_seq, to_seq, **options))

    def stage(self, queue: str, rows: Rows, *, producer: str, epoch: str | int, part: str = "") -> list[str]:
        return self._run(self._client.stage(queue, rows, producer=producer, epoch=epoch, part=part))

    def commit(self, stages: Sequence[str], *, producer: str, epoch: str | int) -> Committed:
        return self._run(self._client.commit(stages, producer=producer, epoch=epoch))

    def abort(self, *, producer: str, epoch: str | int) -> int:
        return self._run(self._client.abort(producer=producer, epoch=epoch))

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        return self._run(self._client.get(path, query))

    def post(self, path: str, body: object) -> Any:
        return self._run(self._client.post(path, body))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


async def _next_or_none(batches: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return await anext(batches, None)


class SyncTransaction:
    def __init__(self, transaction: Transaction, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._transaction = transaction
        self._run = run

    def push(self, address: str | Address, *batch: object) -> SyncTransaction:
        self._transaction.push(address, *batch)
        return self

    def ack(self, message: Message, status: str = "completed", *, error: str | None = None) -> SyncTransaction:
        self._transaction.ack(message, status, error=error)
        return self

    def commit(self) -> list[dict[str, Any]]:
        return self._run(self._transaction.commit())  # type: ignore[no-any-return]
