"""`AsyncClient`: the client for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from types import TracebackType
from typing import Any, overload
from urllib.parse import urlencode

import msgspec
import pyarrow as pa

from forebay.client import arrow
from forebay.client.addresses import Address, address_of, target_of
from forebay.client.arrow import Rows
from forebay.client.completing import Completer
from forebay.client.keeping import keep_leases
from forebay.client.messages import (
    Acknowledging,
    Committed,
    Message,
    Pushed,
    PushSummary,
    Refused,
    is_all_taken,
    is_whole_delivery,
)
from forebay.client.outgoing import all_outgoing, encoded, outgoing
from forebay.client.paths import pop_path, quoted, seek_path
from forebay.client.popped import messages_of
from forebay.client.pushing import Pusher
from forebay.client.transaction import Transaction
from forebay.client.transport import Transport

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_POLL_SECONDS = 30
_READ_AT_ONCE = 1000
_decode_committed = msgspec.json.Decoder(Committed).decode


class AsyncClient:
    """Talks to one server, or to the first of several that answers. Use it as `async with AsyncClient(url) as …`."""

    def __init__(
        self,
        *urls: str,
        api_key: str | None = None,
        attempts: int = 4,
        first_pause_seconds: float = 0.2,
        timeout_seconds: float = 30,
        retry_unhealthy_seconds: float = 5,
    ) -> None:
        self._transport = Transport(
            urls or ("http://127.0.0.1:6632",),
            attempts=attempts,
            first_pause_seconds=first_pause_seconds,
            timeout_seconds=timeout_seconds,
            retry_unhealthy_seconds=retry_unhealthy_seconds,
            api_key=api_key,
        )
        self._pusher = Pusher(self._transport)
        self._completer = Completer(self._transport)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends every call under way with `ClientClosed`; nothing is sent any more.

        A handler that `consume` has called is let finish, but its message cannot be acknowledged any more.
        """
        await self._transport.close()

    # --- the way in ---

    async def configure(
        self, queue: str, options: Mapping[str, object] | None = None, *, namespace: str = "", task: str = ""
    ) -> dict[str, Any]:
        """Make the queue, or replace its options (`leaseTime`, `retryLimit`, …)."""
        body = {"queue": queue, "namespace": namespace, "task": task, "options": dict(options or {})}
        return await self._json("POST", "/api/v1/configure", body)  # type: ignore[no-any-return]

    @overload
    async def push(
        self, address: str | Address, data: object, *, transaction_id: str | None = None, trace_id: str | None = None
    ) -> Pushed: ...

    @overload
    async def push(
        self,
        address: str | Address,
        data: object,
        *,
        transaction_id: str | None = None,
        trace_id: str | None = None,
        buffer_ms: int | None,
        buffer_max: int | None = None,
    ) -> PushSummary: ...

    async def push(
        self,
        address: str | Address,
        data: object,
        *,
        transaction_id: str | None = None,
        trace_id: str | None = None,
        buffer_ms: int | None = None,
        buffer_max: int | None = None,
    ) -> Pushed | PushSummary:
        """Push one message; returns what became of it. With a buffer option the server may batch it.

        Pushes that wait at the same time share a request, each with an answer of its own.
        """
        place = target_of(address)
        item = _encode(outgoing(place, data, transaction_id, trace_id))
        if buffer_ms is not None or buffer_max is not None:
            return await self._pusher.one_buffered(place.queue, item, buffer_ms, buffer_max)
        return await self._pusher.one(place.queue, item)

    @overload
    async def push_many(self, address: str | Address, batch: Iterable[object]) -> list[Pushed]: ...

    @overload
    async def push_many(
        self, address: str | Address, batch: Iterable[object], *, buffer_ms: int | None, buffer_max: int | None = None
    ) -> PushSummary: ...

    async def push_many(
        self,
        address: str | Address,
        batch: Iterable[object],
        *,
        buffer_ms: int | None = None,
        buffer_max: int | None = None,
    ) -> list[Pushed] | PushSummary:
        """Push many messages in order, in one request; returns one answer each, or the summary of a buffered push."""
        place = target_of(address)
        items = encoded(all_outgoing(place, batch))
        if buffer_ms is not None or buffer_max is not None:
            return await self._pusher.all_buffered(items, buffer_ms, buffer_max)
        return await self._pusher.all(items)

    # --- the way out ---

    async def pop(
        self,
        address: str | Address,
        *,
        batch: int = 1,
        wait: bool = False,
        timeout: float = _POLL_SECONDS,
        auto_ack: bool = False,
        partitions: int = 1,
        subscription_mode: str | None = None,
        subscription_from: str | None = None,
    ) -> list[Message]:
        """Up to `batch` messages; empty when there are none within `timeout` seconds (at once without `wait`)."""
        place = address_of(address)
        path = pop_path(
            place, batch, wait, round(timeout * 1000), auto_ack, partitions, subscription_mode, subscription_from
        )
        extra = timeout if wait else 0
        status, body = await self._transport.request("GET", path, extra_seconds=extra)
        return messages_of(body, place.group) if status == 200 and body else []

    async def take(
        self, address: str | Address, *, batch: int = 1, wait: bool = True, auto_ack: bool = False, **options: Any
    ) -> AsyncIterator[Message]:
        """Messages one by one, for ever; without `wait` until there are none."""
        while True:
            found = await self.pop(address, batch=batch, wait=wait, auto_ack=auto_ack, **options)
            for message in found:
                yield message
            if not found and not wait:
                return

    async def ack(
        self, messages: Message | Sequence[Message], status: str | bool = "completed", *, error: str | None = None
    ) -> bool:
        """Answer for messages of one group. True when the server took all the answers; a lost lease gives False.

        So does, now and then, an ack that counted: when its answer was lost on the way, it is sent again and finds its
        lease finished. False therefore says that a message may come again, and not that it will.
        """
        found = [messages] if isinstance(messages, Message) else list(messages)
        if not found:
            return True
        spoken = status if isinstance(status, str) else ("completed" if status else "failed")
        if spoken == "completed" and is_whole_delivery(found):
            try:
                return await self._completer.complete(found[0].lease_id) == len(found)
            except Refused as refused:
                # A server that is older than this client, as one of several may be, does not know the path.
                if refused.status != HTTPStatus.NOT_FOUND:
                    raise
        answers = [Acknowledging(m.transaction_id, m.partition_id, m.lease_id, spoken, error) for m in found]
        body = {"consumerGroup": found[0].group, "acknowledgments": answers}
        _, answer = await self._transport.request("POST", "/api/v1/ack/batch", _encode(body))
        return is_all_taken(answer)

    async def renew(self, lease: Message | str, *, seconds: int = 60) -> bool:
        """Keep a lease for at least `seconds` from now; False when it is lost."""
        lease_id = lease.lease_id if isinstance(lease, Message) else lease
        (outcome,) = await self._json("POST", f"/api/v1/lease/{quoted(lease_id)}/extend", {"seconds": seconds})
        return bool(outcome["success"])

    async def consume(
        self,
        address: str | Address,
        handler: Callable[[Message], Awaitable[object]],
        *,
        batch: int = 1,
        wait: bool = True,
        renew_every_seconds: float = 20,
        **options: Any,
    ) -> None:
        """Call the handler for each message, in order: completed when it returns, failed when it raises."""
        while True:
            found = await self.pop(address, batch=batch, wait=wait, **options)
            if not found and not wait:
                return
            leases = {message.lease_id for message in found if message.lease_id}
            keeper = asyncio.create_task(keep_leases(self._renew_for, leases, renew_every_seconds))
            try:
                for message in found:
                    await self._handle(message, handler)
            finally:
                keeper.cancel()

    async def _handle(self, message: Message, handler: Callable[[Message], Awaitable[object]]) -> None:
        try:
            await handler(message)
        except Exception as error:  # noqa: BLE001 -- whatever the handler raises is the message's failure
            await self.ack(message, "failed", error=f"{type(error).__name__}: {error}")
        else:
            await self.ack(message)

    async def _renew_for(self, lease_id: str, seconds: int) -> bool:
        return await self.renew(lease_id, seconds=seconds)

    def transaction(self) -> Transaction:
        """Pushes and acks that happen together or not at all; finish it with `commit`."""
        return Transaction(self._transport)

    # --- groups and reading ---

    async def seek(
        self,
        address: str | Address,
        *,
        seq: int | None = None,
        time: datetime | None = None,
        to_end: bool = False,
    ) -> dict[str, Any]:
        """Set where the address's group reads next: at a seq, at a time, or behind everything there is."""
        place = address_of(address)
        body: dict[str, object] = {"toEnd": True} if to_end else {}
        if seq is not None:
            body["seq"] = seq
        if time is not None:
            body["timestamp"] = time.isoformat()
        return await self._json("POST", seek_path(place), body)  # type: ignore[no-any-return]

    async def read(self, queue: str, from_seq: int = 1, *, limit: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """Messages of a queue as they are kept, without a group."""
        left = limit
        while left is None or left > 0:
            size = _READ_AT_ONCE if left is None else min(left, _READ_AT_ONCE)
            query = urlencode({"queue": queue, "fromSeq": from_seq, "limit": size})
            answer = await self._json("GET", f"/api/v1/messages?{query}")
            for message in answer["messages"]:
                yield message
            left = None if left is None else left - len(answer["messages"])
            if answer["nextSeq"] is None:
                return
            from_seq = answer["nextSeq"]

    async def iter_arrow(
        self,
        queue: str,
        from_seq: int | None = None,
        to_seq: int | None = None,
        *,
        partitions: Sequence[str] = (),
        limit: int | None = None,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Messages of a queue as Arrow batches, up to `to_seq` or to what is there now, whichever ends first."""
        async for batch in arrow.batches(self._transport, queue, from_seq, to_seq, partitions, limit):
            yield batch

    async def read_arrow(
        self,
        queue: str,
        from_seq: int | None = None,
        to_seq: int | None = None,
        *,
        partitions: Sequence[str] = (),
        limit: int | None = None,
    ) -> pa.Table:
        """A queue as an Arrow table; `.to_pandas()` makes a data frame of it. Payloads are bytes."""
        found = self.iter_arrow(queue, from_seq, to_seq, partitions=partitions, limit=limit)
        return pa.Table.from_batches([batch async for batch in found], schema=arrow.SCHEMA)

    async def stage(self, queue: str, rows: Rows, *, producer: str, epoch: str | int, part: str = "") -> list[str]:
        """Send rows that nobody sees before `commit` names their stages; returns the ids of those.

        Columns: `payload` (bytes or text), and as you like `partition`, `transaction_id`, `trace_id`, `headers`.
        """
        return await arrow.stage(self._transport, queue, rows, producer, str(epoch), part)

    async def commit(self, stages: Sequence[str], *, producer: str, epoch: str | int) -> Committed:
        """Make staged rows messages, all at once, once for the producer's epoch: safe to repeat."""
        body = {"producer": producer, "epoch": str(epoch), "stages": list(stages)}
        _, answer = await self._transport.request("POST", "/api/v1/arrow/commit", _encode(body))
        return _decode_committed(answer)

    async def abort(self, *, producer: str, epoch: str | int) -> int:
        """Forget what was staged for the epoch and not committed; returns how many stages that were."""
        query = urlencode({"producer": producer, "epoch": str(epoch)})
        return int((await self._json("DELETE", f"/api/v1/arrow/stages?{query}"))["removed"])

    async def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """Any of the server's GET routes; see its `/docs`."""
        return await self._json("GET", f"{path}?{urlencode(query)}" if query else path)

    async def post(self, path: str, body: object) -> Any:
        """Any of the server's POST routes."""
        return await self._json("POST", path, body)

    async def _json(self, method: str, path: str, body: object | None = None) -> Any:
        _, answer = await self._transport.request(method, path, None if body is None else _encode(body))
        return _decode(answer) if answer else None
