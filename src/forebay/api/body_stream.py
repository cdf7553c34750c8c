"""The body of a request on its way in: what has arrived, which handler waits for it, and whether the client is still
there.

The connection feeds it, a handler reads it. Until a handler reads, the connection holds back what is above its
high-water mark; from then on everything is taken, and what is above the limit is counted and thrown away.

A handler that waits for something else may watch its client meanwhile (`gone`). The watch ends when the client has
gone, and one that will send no more counts as gone: until something is written to it, the two cannot be distinguished.
The watch ends as well when so much has come behind the request that no more is read: from then on the end would go
unnoticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from forebay.api.problems import Problem

BODY_BYTES_MAX = 64 * 1024 * 1024
DISCARDED_BYTES_MAX = 4 * BODY_BYTES_MAX
"""What is read and thrown away of a body that is too large, so that its sender reads the answer instead of an error."""
BODY_SECONDS_MAX = 120.0
PART_BYTES_MIN = 16 * 1024
"""Parts below this are put together as they come: a body in chunks of some bytes would cost many times its size."""

HELD_BYTES_MAX = 64 * 1024
"""Of a body that no handler reads yet."""


class ClientGone(Exception):
    """The client is gone: there is none to answer."""


class BodyStream:
    """`size` counts what has arrived, kept or not."""

    __slots__ = (
        "_gone",
        "_limit",
        "_on_arrived",
        "_on_wanted",
        "_parts",
        "_problem",
        "_reader",
        "held_since",
        "is_gone",
        "is_whole",
        "size",
    )

    def __init__(self, on_wanted: Callable[[BodyStream], None] | None = None) -> None:
        """`on_wanted` is called when a handler begins to wait for more, or to watch."""
        self.is_whole = False
        self.is_gone = False
        self.size = 0
        self._parts: list[bytes | bytearray | memoryview] = []
        self._limit = DISCARDED_BYTES_MAX
        self._on_wanted = on_wanted
        self._reader: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self._on_arrived: Callable[[int], None] | None = None
        self._problem: Problem | None = None
        self.held_since = 0.0
        """When a handler began to wait for it, in the event loop's time."""

    # the connection's side

    @property
    def is_awaited(self) -> bool:
        return self._reader is not None and not self._reader.done()

    @property
    def is_watched(self) -> bool:
        return self._gone is not None and not self._gone.done()

    @property
    def held_bytes(self) -> int:
        """What lies here and no handler has taken yet."""
        return 0 if self._reader is not None or self.size > self._limit else self.size

    def feed(self, part: bytes | memoryview) -> None:
        self.size += len(part)
        parts = self._parts
        if self.size > self._limit:
            parts.clear()
            if self.size > DISCARDED_BYTES_MAX:
                self._wake()
            return
        if not parts or len(parts[-1]) >= PART_BYTES_MIN:
            parts.append(part)
        else:
            last = parts[-1]
            if not isinstance(last, bytearray):
                parts[-1] = last = bytearray(last)
            last += part
        if self._on_arrived is not None:
            self._count()

    def _count(self) -> None:
        if self._on_arrived is not None:
            try:
                self._on_arrived(self.size)
            except Problem as problem:
                self.fail(problem)

    def fail(self, problem: Problem) -> None:
        """No more of it is kept, and the handler that waits for it gets the reason."""
        self._problem = problem
        self._on_arrived = None
        self.discard()
        self._wake()

    @property
    def moved_bytes(self) -> int:
        return self.size

    def lose_room(self) -> None:
        self.fail(too_slow("other requests wait for the memory that it holds"))

    def end(self) -> None:
        self.is_whole = True
        self._wake()

    def lose(self) -> None:
        """No more will come: the client has gone."""
        self.is_gone = True
        self._wake()
        self.end_watch()

    def end_watch(self) -> None:
        """The handler that watches is to wait no longer."""
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def discard(self) -> None:
        """No handler wants it."""
        self._limit = 0
        self._parts.clear()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # the handler's side

    def whole(self, limit: int) -> bytes | memoryview:
        """All of it, which must have arrived. It is given away: nothing is left here."""
        if self.is_gone:
            raise ClientGone
        if self._problem is not None:
            raise self._problem
        if self.size > limit or self.size > self._limit:
            raise too_large(limit)
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 and not isinstance(parts[0], bytearray) else b"".join(parts)

    async def arrived(
        self, limit: int, on_arrived: Callable[[int], None] | None = None, seconds_max: float = BODY_SECONDS_MAX
    ) -> None:
        """Return when there is nothing to wait for any more. `on_arrived` is given how much has arrived, and may
        raise a problem that ends it.
        """
        if not self.is_whole and not self.is_gone:
            loop = asyncio.get_running_loop()
            self.held_since = loop.time()
            self._limit = min(limit, self._limit)
            if self.size > self._limit:
                self._parts.clear()
            self._reader = loop.create_future()
            self._on_arrived = on_arrived
            self._count()
            self._want()
            deadline = loop.call_later(
                seconds_max, lambda: self.fail(too_slow(f"{seconds_max:g} seconds are allowed (server.body_time)"))
            )
            try:
                await self._reader
            finally:
                deadline.cancel()
                self._on_arrived = None

    def gone(self) -> asyncio.Future[None]:
        """Done when the client has gone away (`is_gone`), or when that could not be noticed any more.

        The body is thrown away from now on: unread, it would hide that end.
        """
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
            if self.is_gone:
                self._gone.set_result(None)
            else:
                if not self.is_whole:
                    self.discard()
                self._want()
        return self._gone

    def _want(self) -> None:
        if self._on_wanted is not None:
            self._on_wanted(self)


def too_slow(detail: str) -> Problem:
    return Problem(408, f"the body came too slowly: {detail}", code="too_slow", headers=((b"connection", b"close"),))


def too_large(limit: int) -> Problem:
    return Problem(
        413,
        f"the body is larger than {limit} bytes",
        code="too_large",
        headers=((b"connection", b"close"),),
    )
