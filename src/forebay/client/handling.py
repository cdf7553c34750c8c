"""Messages handed to a handler, those of a partition in order, whatever fails.

When a message fails, it comes again after its delay, and so do those of its partition that were popped behind it: they
are left alone. If it used its last attempt it does not come again, and those behind it are handled now.

Failures are answered when the rest of the batch is done and no lease is renewed any more. A failure gives the rest of
its partition back to the group; a renewal says that this consumer still works on it, and would take that back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from forebay.client.keeping import Renew, keep_leases
from forebay.client.messages import Message

Handler = Callable[[Message], Awaitable[object]]


class _Failure(NamedTuple):
    message: Message
    reason: str
    rest: list[Message]
    """Those of its partition that came behind it."""


async def handle_in_order(
    found: Sequence[Message],
    handler: Handler,
    complete: Callable[[Message], Awaitable[bool]],
    fail: Callable[[Message, str], Awaitable[bool]],
    renew: Renew,
    renew_every_seconds: float,
) -> None:
    """`fail` answers for a message that failed, and returns whether that was its last attempt."""
    partitions: dict[str, list[Message]] = {}
    for message in found:
        partitions.setdefault(message.partition_id, []).append(message)
    left = list(partitions.values())
    leases = {message.lease_id for message in found if message.lease_id}
    while left:
        keeper = asyncio.create_task(keep_leases(renew, leases, renew_every_seconds))
        try:
            failures = [failure for own in left if (failure := await _handled(own, handler, complete)) is not None]
        finally:
            keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        left = [failure.rest for failure in failures if await fail(failure.message, failure.reason) and failure.rest]


async def _handled(
    own: list[Message], handler: Handler, complete: Callable[[Message], Awaitable[bool]]
) -> _Failure | None:
    """Messages of one partition, up to the first that fails; None if all of them are completed."""
    for place, message in enumerate(own):
        try:
            await handler(message)
        except Exception as error:  # noqa: BLE001 -- whatever the handler raises is the message's failure
            return _Failure(message, f"{type(error).__name__}: {error}", own[place + 1 :])
        await complete(message)
    return None
