"""`Client`: the same client for programs without an event loop. One thread of its own runs the asynchronous one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar, overload

import pyarrow as pa

from forebay.client.addresses import Address
from forebay.client.arrow import Rows
from forebay.client.async_client import AsyncClient
from forebay.client.lifetime import Lifetime
from forebay.client.messages import ClientClosed, Committed, Message, Pushed, PushSummary
from forebay.client.transaction import Transaction

T = TypeVar("T")


class Client:
    """Use it as `with Client(url) as client:`. Its methods may be called from any thread."""

    def __init__(self, *urls: str, **options: Any) -> None:
        self._client = AsyncClient(*urls, **options)
        self._lifetime = Lifetime()
        self._submitting = threading.RLock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run_until_stopped, args=[self._loop], name="forebay-client", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every call under way, of any thread, with `ClientClosed`; nothing is sent any more.

        A handler that `consume` has called goes on in its thread, but its message cannot be acknowledged any more.
        """
        if not self._lifetime.is_of_this_process:
            return  # a forked child has nothing of it to close: the thread and the connections are the parent's
        with self._submitting:
            is_first = not self._lifetime.is_over
            self._lifetime.end()
        if is_first:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._thread.join()

    async def _end(self) -> None:
        try:
            await self._client.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self._loop.shutdown_asyncgens()
        finally:
            # Behind what is queued already: those callbacks hand the outcomes to the threads that wait for them.
            self._loop.call_soon(self._loop.stop)

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
        future = self._submitted(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            self._lifetime.check()
            raise
        except BaseException:
            future.cancel()
            raise

    def _submitted(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        try:
            # First without the lock, which in a forked child may be held by a thread that is not there.
            self._lifetime.check()
            with self._submitting:
                # With it: what is submitted before the end is known to the loop by then, and ended with the rest.
                self._lifetime.check()
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        except ClientClosed:
            work.close()  # else Python warns that it was never awaited
            raise


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


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
