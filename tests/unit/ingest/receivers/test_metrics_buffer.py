"""The metrics buffer: batches end at their bounds, everyone who waits learns the truth, closing hands all on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forebay.errors import SendQueueFull
from forebay.ingest.receivers.decoding import Telemetry
from forebay.ingest.receivers.metrics_buffer import MetricsBuffer
from forebay.otlp.kinds import Kind

NEVER = 3600.0


class Next:
    """What comes behind the buffer."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.batches: list[tuple[Kind, bytes, int]] = []
        self.failure = failure
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def hand_on(self, kind: Kind, body: bytes, items: int) -> str:
        await self.goes_on.wait()
        if self.failure is not None:
            raise self.failure
        self.batches.append((kind, body, items))
        return "disk"


def buffer(behind: Next, **options: Any) -> MetricsBuffer:
    return MetricsBuffer(behind.hand_on, **{"flush_seconds": NEVER, "batch_items": 10, "batch_bytes": 100, **options})


def one(body: bytes = b"a", items: int = 1, kind: Kind = Kind.METRICS) -> Telemetry:
    return Telemetry(kind, body, items)


async def waiting(found: MetricsBuffer, *telemetry: Telemetry) -> list[asyncio.Task[str]]:
    tasks = [asyncio.create_task(found.accept(single)) for single in telemetry]
    await asyncio.sleep(0)
    return tasks


async def test_batch_is_handed_on_when_it_has_its_items() -> None:
    behind = Next()
    tasks = await waiting(buffer(behind, batch_items=3), one(b"a"), one(b"b"), one(b"c"))
    assert await asyncio.gather(*tasks) == ["disk"] * 3
    assert behind.batches == [(Kind.METRICS, b"abc", 3)]


async def test_batch_never_exceeds_its_bounds_but_for_one_request_that_does_by_itself() -> None:
    behind = Next()
    found = buffer(behind, batch_items=5, batch_bytes=10)
    tasks = await waiting(found, one(b"aaaa", 3), one(b"bbbb", 3), one(b"c" * 9, 1), one(b"d" * 50, 9))
    await asyncio.gather(*tasks)
    assert [body for _, body, _ in behind.batches] == [b"aaaa", b"bbbb", b"c" * 9, b"d" * 50]


async def test_batch_is_handed_on_when_its_oldest_request_has_waited() -> None:
    behind = Next()
    assert await buffer(behind, flush_seconds=0.02).accept(one()) == "disk"
    assert behind.batches == [(Kind.METRICS, b"a", 1)]


async def test_without_an_interval_every_request_is_a_batch_of_its_own() -> None:
    behind = Next()
    await asyncio.gather(*await waiting(buffer(behind, flush_seconds=0), one(b"a"), one(b"b")))
    assert behind.batches == [(Kind.METRICS, b"a", 1), (Kind.METRICS, b"b", 1)]


async def test_kinds_are_not_mixed() -> None:
    behind = Next()
    found = buffer(behind, batch_items=2)
    tasks = await waiting(found, one(b"m"), one(b"t", kind=Kind.TRACES), one(b"m"), one(b"t", kind=Kind.TRACES))
    await asyncio.gather(*tasks)
    assert behind.batches == [(Kind.METRICS, b"mm", 2), (Kind.TRACES, b"tt", 2)]


@pytest.mark.parametrize("failure", [SendQueueFull(1, 1, 1, 1), OSError("not foreseen")])
async def test_failure_reaches_every_request_of_the_batch_and_no_other(failure: Exception) -> None:
    behind = Next(failure)
    found = buffer(behind, batch_items=2)
    tasks = await waiting(found, one(), one())
    assert await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10) == [failure, failure]
    behind.failure = None
    assert await asyncio.gather(*await waiting(found, one(), one())) == ["disk", "disk"]


async def test_client_that_goes_away_does_not_take_the_batch_with_it() -> None:
    behind = Next()
    found = buffer(behind, batch_items=2)
    gone, *_ = await waiting(found, one(b"a"))
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await found.accept(one(b"b"))
    assert behind.batches == [(Kind.METRICS, b"ab", 2)]


async def test_close_hands_on_what_waits_and_what_comes_later_does_not_wait() -> None:
    behind = Next()
    found = buffer(behind)
    tasks = await waiting(found, one(b"a"), one(b"l", kind=Kind.LOGS))
    assert found.waiting_bytes == 2
    behind.goes_on.clear()
    closing = asyncio.create_task(found.close())
    await asyncio.sleep(0)
    assert not closing.done()
    behind.goes_on.set()
    await closing
    assert await asyncio.gather(*tasks) == ["disk", "disk"]
    assert await found.accept(one(b"late")) == "disk"
    assert [body for _, body, _ in behind.batches] == [b"a", b"l", b"late"]
