"""The loads: pushing for a while, draining a full place, and handing single messages to a waiting consumer."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from forebay.bench.broker.plan import text
from forebay.bench.broker.systems import System

_EMPTY_PAUSE_SECONDS = 0.001
_UNTIL_CONSUMER_WAITS_SECONDS = 0.01


async def push(system: System, lanes: int, batch: int, seconds: float) -> float:
    """Messages per second. Each lane pushes its next batch when the last one was promised."""
    await system.empty_place()
    deadline = 0.0

    async def produce(lane: int) -> int:
        messages, pushed = prepared[lane], 0
        while time.perf_counter() < deadline:
            await system.push(lane, messages)
            pushed += batch
        return pushed

    prepared = [system.prepared([text() for _ in range(batch)], lane) for lane in range(lanes)]
    started = time.perf_counter()
    deadline = started + seconds
    pushed = sum(await asyncio.gather(*(produce(lane) for lane in range(lanes))))
    return pushed / (time.perf_counter() - started)


async def drain(system: System, lanes: int, batch: int, count: int) -> float:
    """Messages per second, popped and acknowledged; the place is new and was filled before the clock ran."""
    await system.empty_place()
    per_lane = max(1, count // (lanes * batch))

    async def fill(lane: int) -> None:
        messages = system.prepared([text() for _ in range(batch)], lane)
        for _ in range(per_lane):
            await system.push(lane, messages)

    await asyncio.gather(*(fill(lane) for lane in range(lanes)))
    return await take(system, lanes, batch, per_lane * lanes * batch)


async def take(system: System, lanes: int, batch: int, count: int) -> float:
    """Messages per second, popped and acknowledged from where `system` is."""
    taken = 0

    async def consume(lane: int) -> None:
        nonlocal taken
        while taken < count:
            messages = await system.pop(lane, batch)
            if messages:
                await system.acknowledge(messages)
                taken += len(messages)
            else:
                await asyncio.sleep(_EMPTY_PAUSE_SECONDS)

    started = time.perf_counter()
    await asyncio.gather(*(consume(lane) for lane in range(lanes)))
    return taken / (time.perf_counter() - started)


async def latency(system: System, count: int) -> float:
    """The median of milliseconds from the call of push until the consumer, which waited for it, has the message."""
    await system.empty_place()
    message: Any = system.prepared([text()], 0)
    found = []
    for _ in range(count):
        consumer = asyncio.create_task(_arrival(system))
        await asyncio.sleep(_UNTIL_CONSUMER_WAITS_SECONDS)
        started = time.perf_counter()
        await system.push(0, message)
        found.append(await consumer - started)
    return statistics.median(found) * 1000


async def _arrival(system: System) -> float:
    messages: Sequence[Any] = ()
    while not messages:
        messages = await system.pop(1, 1, wait=True)
    arrived = time.perf_counter()
    await system.acknowledge(messages)
    return arrived


LOADS: dict[str, Callable[..., Awaitable[float]]] = {"push": push, "drain": drain, "take": take, "latency": latency}
