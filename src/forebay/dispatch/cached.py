"""A value that costs something to make, kept for a while: requests that come together wait for one making."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from forebay.clock import Clock

T = TypeVar("T")


class Cached(Generic[T]):
    """`await cached.get()`. What fails is not kept: the next request tries again."""

    def __init__(self, make: Callable[[], Awaitable[T]], seconds: float, clock: Clock) -> None:
        self._make = make
        self._seconds = seconds
        self._clock = clock
        self._made: tuple[T, float] | None = None
        self._lock = asyncio.Lock()

    async def get(self) -> T:
        async with self._lock:
            now = self._clock.monotonic()
            if self._made is None or now - self._made[1] >= self._seconds:
                self._made = (await self._make(), now)
            return self._made[0]
