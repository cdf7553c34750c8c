"""`Client`: the same client for programs without an event loop. One thread of its own runs the asynchronous one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, overload

from forebay.client.addresses import Address
from forebay.client.async_client import ATTEMPTS, POLL_SECONDS, AsyncClient
from forebay.client.lifetime import Lifetime
from forebay.client.messages import ClientClosed, Message, Pushed, PushSummary
from forebay.client.sync_admin import SyncAdmin
from forebay.client.sync_dispatch import SyncDispatch
from forebay.client.transaction import Transaction

T = TypeVar("T")


class Client(SyncAdmin, SyncDispatch):
    """Use it as `with Client(url) as client:`. Its methods may be called from any thread.

    Arguments and errors are those of `AsyncClient`.
    """

    def __init__(
        self,
        *urls: str | Sequence[str],
        api_key: str | None = None,
        ca_file: str | Path | None = None,
        attempts: int = ATTEMPTS,
        first_pause_seconds: float = 0.2,
        timeout_seconds: float = 30,
        retry_unhealthy_seconds: float = 5,
    ) -> None:
        self._client = AsyncClient(
            *urls,
            api_key=api_key,
            ca_file=ca_file,
            attempts=attempts,
            first_pause_seconds=first_pause_seconds,
            timeout_seconds=timeout_seconds,
            retry_unhealthy_seconds=retry_unhealthy_seconds,
        )
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

        Example: `client.close()`, or let `with` do it
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

    def push(
        self,
        address: str | Address,
        data: object,
        *,
        transaction_id: str | None = None,
        trace_id: str | None = None,
        buffer_ms: int | None = None,
        buffer_max: int | None = None,
    ) -> Pushed | PushSummary:
        """Push one message, `bytes` or anything that has a form in JSON; see `AsyncClient.push`.

        Example: `client.push("orders/berlin", {"id": 7}, transaction_id="order-7")`
        """
        named = {"transaction_id": transaction_id, "trace_id": trace_id}
        if buffer_ms is None and buffer_max is None:
            return self._run(self._client.push(address, data, **named))
        return self._run(self._client.push(address, data, **named, buffer_ms=buffer_ms, buffer_max=buffer_max))

    @overload
    def push_many(
        self, address: str | Address, batch: Iterable[object], *, transaction_ids: Sequence[str] | None = None
    ) -> list[Pushed]: ...

    @overload
    def push_many(
        self,
        address: str | Address,
        batch: Iterable[object],
        *,
        transaction_ids: Sequence[str] | None = None,
        buffer_ms: int | None,
        buffer_max: int | None = None,
    ) -> PushSummary: ...

    def push_many(
        self,
        address: str | Address,
        batch: Iterable[object],
        *,
        transaction_ids: Sequence[str] | None = None,
        buffer_ms: int | None = None,
        buffer_max: int | None = None,
    ) -> list[Pushed] | PushSummary:
        """Push many messages in order, in as many requests as they need; see `AsyncClient.push_many`.

        Example: `client.push_many("orders", orders, transaction_ids=[order["id"] for order in orders])`
        """
        if buffer_ms is None and buffer_max is None:
            return self._run(self._client.push_many(address, batch, transaction_ids=transaction_ids))
        buffered = self._client.push_many(
            address, batch, transaction_ids=transaction_ids, buffer_ms=buffer_ms, buffer_max=buffer_max
        )
        return self._run(buffered)

    def pop(
        self,
        address: str | Address,
        *,
        batch: int = 1,
        wait: bool = False,
        timeout: float = POLL_SECONDS,
        auto_ack: bool = False,
        partitions: int = 1,
        subscription_mode: str | None = None,
        subscription_from: str | None = None,
    ) -> list[Message]:
        """Up to `batch` messages, under one lease; see `AsyncClient.pop`.

        Example: `messages = client.pop("orders@billing", batch=100, wait=True)`
        """
        found = self._client.pop(
            address,
            batch=batch,
            wait=wait,
            timeout=timeout,
            auto_ack=auto_ack,
            partitions=partitions,
            subscription_mode=subscription_mode,
            subscription_from=subscription_from,
        )
        return self._run(found)

    def take(
        self,
        address: str | Address,
        *,
        batch: int = 1,
        wait: bool = True,
        timeout: float = POLL_SECONDS,
        auto_ack: bool = False,
        partitions: int = 1,
        subscription_mode: str | None = None,
        subscription_from: str | None = None,
    ) -> Iterator[Message]:
        """Messages one by one, for ever; without `wait` until there are none. See `AsyncClient.take`.

        Example: `for message in client.take("orders@billing", batch=100): client.ack(message)`
        """
        while True:
            found = self.pop(
                address,
                batch=batch,
                wait=wait,
                timeout=timeout,
                auto_ack=auto_ack,
                partitions=partitions,
                subscription_mode=subscription_mode,
                subscription_from=subscription_from,
            )
            yield from found
            if not found and not wait:
                return

    def ack(
        self, messages: Message | Sequence[Message], status: str | bool = "completed", *, error: str | None = None
    ) -> bool:
        """Answer for messages of one group; False when a lease is lost. See `AsyncClient.ack`.

        Example: `client.ack(message, "failed", error="no such customer")`
        """
        return self._run(self._client.ack(messages, status, error=error))

    def renew(self, lease: Message | str, *, seconds: int = 60) -> bool:
        """Keep a lease for at least so many seconds from now; see `AsyncClient.renew`.

        Example: `client.renew(message, seconds=300)`
        """
        return self._run(self._client.renew(lease, seconds=seconds))

    def consume(
        self,
        address: str | Address,
        handler: Callable[[Message], object],
        *,
        batch: int = 1,
        wait: bool = True,
        timeout: float = POLL_SECONDS,
        partitions: int = 1,
        subscription_mode: str | None = None,
        subscription_from: str | None = None,
        renew_every_seconds: float = 20,
    ) -> None:
        """Call the handler for each message, in a thread, while its lease is renewed; see `AsyncClient.consume`.

        Example: `client.consume("orders@billing", handle, batch=100)`
        """

        async def in_thread(message: Message) -> object:
            return await asyncio.to_thread(handler, message)

        consuming = self._client.consume(
            address,
            in_thread,
            batch=batch,
            wait=wait,
            timeout=timeout,
            partitions=partitions,
            subscription_mode=subscription_mode,
            subscription_from=subscription_from,
            renew_every_seconds=renew_every_seconds,
        )
        self._run(consuming)

    def transaction(self) -> SyncTransaction:
        """Pushes and acks that happen together or not at all; see `AsyncClient.transaction`.

        Example: `client.transaction().ack(message).push("invoices", {"order": 7}).commit()`
        """
        return SyncTransaction(self._client.transaction(), self._run)

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


class SyncTransaction:
    def __init__(self, transaction: Transaction, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._transaction = transaction
        self._run = run

    def push(self, address: str | Address, *batch: object) -> SyncTransaction:
        """Add messages, in order; see `Transaction.push`.

        Example: `transaction.push("invoices", {"order": 7})`
        """
        self._transaction.push(address, *batch)
        return self

    def ack(self, message: Message, status: str = "completed", *, error: str | None = None) -> SyncTransaction:
        """Add the answer for a message; see `Transaction.ack`.

        Example: `transaction.ack(message, "failed", error="no such customer")`
        """
        self._transaction.ack(message, status, error=error)
        return self

    def commit(self) -> list[dict[str, Any]]:
        """Do all of it, or nothing; see `Transaction.commit`.

        Example: `transaction.commit()`
        """
        return self._run(self._transaction.commit())  # type: ignore[no-any-return]
