"""`AsyncClient`: the client for programs with an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import overload

from forebay.client.addresses import Address, address_of, target_of
from forebay.client.async_admin import AsyncAdmin
from forebay.client.async_arrow import AsyncArrow
from forebay.client.async_dispatch import AsyncDispatch
from forebay.client.completing import Completer
from forebay.client.handling import handle_in_order
from forebay.client.messages import (
    Acknowledging,
    Message,
    Pushed,
    PushSummary,
    Refused,
    encode_body,
    is_all_taken,
    is_dead,
    is_whole_delivery,
)
from forebay.client.outgoing import all_outgoing, encoded, outgoing
from forebay.client.paths import pop_path, quoted
from forebay.client.popped import messages_of
from forebay.client.pushing import Pusher
from forebay.client.transaction import Transaction
from forebay.client.transport import Transport

DEFAULT_URL = "http://127.0.0.1:6632"
POLL_SECONDS = 30
ATTEMPTS = 4


def all_urls(urls: Sequence[str | Sequence[str]]) -> list[str]:
    """URLs as they were given: one by one, or in lists."""
    return [url for given in urls for url in ([given] if isinstance(given, str) else given)] or [DEFAULT_URL]


class AsyncClient(AsyncAdmin, AsyncArrow, AsyncDispatch):
    """Talks to one server, or to the first of several that answers. Use it as `async with AsyncClient(url) as …`.

    `urls`: one, several, or a list; without any, the server on this machine. `api_key`: a key of the server. `ca_file`:
    the certificates (PEM) by which `https` servers are checked, instead of the machine's. `attempts`,
    `first_pause_seconds`: how often what may succeed later is tried, and how long the first pause is; each further one
    is twice as long. `timeout_seconds`: for one answer. `retry_unhealthy_seconds`: how long a server that did not
    answer is left out, if there are others.

    Raises `ValueError` for what is no URL. Every call raises `Refused` for what the server will not do, `Unreachable`
    when no server could do it, and `ClientClosed` after `close`.
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
        self._transport = Transport(
            all_urls(urls),
            attempts=attempts,
            first_pause_seconds=first_pause_seconds,
            timeout_seconds=timeout_seconds,
            retry_unhealthy_seconds=retry_unhealthy_seconds,
            api_key=api_key,
            ca_file=ca_file,
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

        Example: `await client.close()`, or let `async with` do it
        """
        await self._transport.close()

    # --- the way in ---

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
        """Push one message: `bytes`, or anything that has a form in JSON; returns what became of it.

        `transaction_id` makes it safe to push again: a partition stores an id once. With a buffer option the server may
        batch it, and a summary is returned. Pushes that wait at the same time share a request, each with an answer of
        its own. Raises `ValueError` for NaN and infinities, and for an address that names a group.

        Example: `await client.push("orders/berlin", {"id": 7}, transaction_id="order-7")`
        """
        place = target_of(address)
        item = encoded(outgoing(place, data, transaction_id, trace_id))
        if buffer_ms is not None or buffer_max is not None:
            return await self._pusher.one_buffered(place.queue, item, buffer_ms, buffer_max)
        return await self._pusher.one(place.queue, item)

    @overload
    async def push_many(
        self, address: str | Address, batch: Iterable[object], *, transaction_ids: Sequence[str] | None = None
    ) -> list[Pushed]: ...

    @overload
    async def push_many(
        self,
        address: str | Address,
        batch: Iterable[object],
        *,
        transaction_ids: Sequence[str] | None = None,
        buffer_ms: int | None,
        buffer_max: int | None = None,
    ) -> PushSummary: ...

    async def push_many(
        self,
        address: str | Address,
        batch: Iterable[object],
        *,
        transaction_ids: Sequence[str] | None = None,
        buffer_ms: int | None = None,
        buffer_max: int | None = None,
    ) -> list[Pushed] | PushSummary:
        """Push many messages in order; returns one answer each, or the summary of a buffered push.

        They leave in one request, or in several if they are more than one may have. A request is stored as a whole; if
        one fails, those before it are stored, and the error's notes say how many messages these are. With
        `transaction_ids`, one for each message, all of it can be pushed again. Raises `ValueError` for NaN and
        infinities, for an address that names a group, and if messages and ids are not equally many.

        Example: `await client.push_many("orders", orders, transaction_ids=[order["id"] for order in orders])`
        """
        items = all_outgoing(target_of(address), batch, transaction_ids)
        if buffer_ms is not None or buffer_max is not None:
            return await self._pusher.in_buffered_requests(items, buffer_ms, buffer_max)
        return await self._pusher.in_requests(items)

    # --- the way out ---

    async def pop(
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
        """Up to `batch` messages, under one lease; empty when there are none within `timeout` seconds.

        Without `wait` it does not wait at all. `auto_ack`: they are finished with their delivery. `partitions`: from
        how many at the most. `subscription_mode` (`new`) and `subscription_from` (a time in ISO 8601) say where a group
        that is new to the queue starts; otherwise at the beginning. What is not answered in time is delivered again.

        Example: `messages = await client.pop("orders@billing", batch=100, wait=True)`
        """
        place = address_of(address)
        path = pop_path(
            place, batch, wait, round(timeout * 1000), auto_ack, partitions, subscription_mode, subscription_from
        )
        extra = timeout if wait else 0
        status, body = await self._transport.request("GET", path, extra_seconds=extra)
        return messages_of(body, place.group) if status == 200 and body else []

    async def take(
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
    ) -> AsyncIterator[Message]:
        """Messages one by one, for ever; without `wait` until there are none. The arguments are those of `pop`.

        Example: `async for message in client.take("orders@billing", batch=100): await client.ack(message)`
        """
        while True:
            found = await self.pop(
                address,
                batch=batch,
                wait=wait,
                timeout=timeout,
                auto_ack=auto_ack,
                partitions=partitions,
                subscription_mode=subscription_mode,
                subscription_from=subscription_from,
            )
            for message in found:
                yield message
            if not found and not wait:
                return

    async def ack(
        self, messages: Message | Sequence[Message], status: str | bool = "completed", *, error: str | None = None
    ) -> bool:
        """Answer for messages of one group: `completed` or True, `failed` or False, `retry`, `dlq`.

        True when the server took all the answers; a lost lease gives False.

        So does, now and then, an ack that counted: when its answer was lost on the way, it is sent again and finds its
        lease finished. False therefore says that a message may come again, and not that it will.

        Example: `await client.ack(message, "failed", error="no such customer")`
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
        _, answer = await self._transport.request("POST", "/api/v1/ack/batch", encode_body(body))
        return is_all_taken(answer)

    async def renew(self, lease: Message | str, *, seconds: int = 60) -> bool:
        """Keep a lease, of a message or by its id, for at least `seconds` from now; False when it is lost.

        Example: `await client.renew(message, seconds=300)`
        """
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
        timeout: float = POLL_SECONDS,
        partitions: int = 1,
        subscription_mode: str | None = None,
        subscription_from: str | None = None,
        renew_every_seconds: float = 20,
    ) -> None:
        """Call the handler for each message, for ever: completed when it returns, failed when it raises.

        Messages of a partition are handled in order: behind one that failed, those of its partition are given back, and
        come again after it. Leases are renewed every `renew_every_seconds` while the handler works. Without `wait` it
        returns when there are no messages; the other arguments are those of `pop`.

        Example: `await client.consume("orders@billing", handle, batch=100)`
        """
        while True:
            found = await self.pop(
                address,
                batch=batch,
                wait=wait,
                timeout=timeout,
                partitions=partitions,
                subscription_mode=subscription_mode,
                subscription_from=subscription_from,
            )
            if not found and not wait:
                return
            await handle_in_order(found, handler, self.ack, self._fail, self._renew_for, renew_every_seconds)

    async def _renew_for(self, lease_id: str, seconds: int) -> bool:
        return await self.renew(lease_id, seconds=seconds)

    async def _fail(self, message: Message, reason: str) -> bool:
        """Answer for a message that failed. True when that was its last attempt, and it is a dead letter."""
        answer = Acknowledging(message.transaction_id, message.partition_id, message.lease_id, "failed", reason)
        body = {"consumerGroup": message.group, "acknowledgments": [answer]}
        _, response = await self._transport.request("POST", "/api/v1/ack/batch", encode_body(body))
        return is_dead(response)

    def transaction(self) -> Transaction:
        """Pushes and acks that happen together or not at all; finish it with `commit`.

        Example: `await client.transaction().ack(message).push("invoices", {"order": 7}).commit()`
        """
        return Transaction(self._transport)
