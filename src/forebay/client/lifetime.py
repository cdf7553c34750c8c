"""How long a client lives: from when it is made to its close, in the process that made it.

A call waits for many things: for a connection, for an answer, for the pause before the next try. Close must end every
such wait at once, and nothing may be sent behind it. So every wait runs inside the lifetime, which ends it with the one
means that ends any of them: the time limit that it has anyway comes early.

A forked child inherits the client's memory, but neither its thread nor its connections, which stay the parent's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from forebay.client.messages import ClientClosed

P = ParamSpec("P")
T = TypeVar("T")


class Lifetime:
    def __init__(self) -> None:
        self._process = os.getpid()
        self._is_over = False
        self._waits: set[asyncio.Timeout] = set()
        self._last_wait_ended = asyncio.Event()

    @property
    def is_of_this_process(self) -> bool:
        return self._process == os.getpid()

    @property
    def is_over(self) -> bool:
        return self._is_over

    def check(self) -> None:
        """Raises `ClientClosed` where nothing may be sent any more."""
        if not self.is_of_this_process:
            raise ClientClosed(f"the client was made in another process ({self._process})")
        if self._is_over:
            raise ClientClosed("the client is closed")

    async def wait_for(
        self, seconds: float | None, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What `work` returns; TimeoutError after so many seconds, and `ClientClosed` if the lifetime ends before."""
        self.check()
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                self._waits.add(limit)
                return await work(*args, **kwargs)
        except OSError:  # TimeoutError is one, and so is what a connection says that was closed under the request
            self.check()
            raise
        finally:
            self._waits.discard(limit)
            if self._is_over and not self._waits:
                self._last_wait_ended.set()

    def end(self) -> None:
        """From now on nothing begins, and what waits is woken."""
        self._is_over = True
        for limit in self._waits:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())

    async def ended(self) -> None:
        """Returns when nothing waits any more; call `end` before."""
        if self._waits:
            await self._last_wait_ended.wait()
