"""A value that is made once for a while."""

from __future__ import annotations

import asyncio

import pytest

from forebay.dispatch.cached import Cached
from forebay.testing.fake_clock import FakeClock


class Counted:
    def __init__(self) -> None:
        self.made = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False

    async def __call__(self) -> int:
        await self.gate.wait()
        if self.fails:
            raise OSError("away")
        self.made += 1
        return self.made


async def test_a_value_is_made_again_when_its_time_is_over() -> None:
    clock, make = FakeClock(), Counted()
    cached = Cached(make, 5.0, clock)
    assert [await cached.get(), await cached.get()] == [1, 1]
    clock.advance(4.9)
    assert await cached.get() == 1
    clock.advance(0.1)
    assert await cached.get() == 2


async def test_the_wall_clock_does_not_matter() -> None:
    clock, make = FakeClock(), Counted()
    cached = Cached(make, 5.0, clock)
    await cached.get()
    clock.step(-3600)
    assert await cached.get() == 1


async def test_requests_that_come_together_wait_for_one_making() -> None:
    make = Counted()
    make.gate.clear()
    cached = Cached(make, 5.0, FakeClock())
    waiting = [asyncio.create_task(cached.get()) for _ in range(10)]
    await asyncio.sleep(0)
    make.gate.set()
    assert await asyncio.gather(*waiting) == [1] * 10


async def test_what_fails_is_tried_again() -> None:
    make = Counted()
    cached = Cached(make, 5.0, FakeClock())
    make.fails = True
    with pytest.raises(OSError, match="away"):
        await cached.get()
    make.fails = False
    assert await cached.get() == 1
