"""Many waits, one limit: each is over when its own time is."""

from __future__ import annotations

import asyncio

import pytest

from forebay.ingest.time_limit import TimeLimit

SECONDS = 0.05


async def test_work_in_time_gives_its_result_and_leaves_nothing_behind() -> None:
    limit = TimeLimit(SECONDS)

    async def work(number: int) -> int:
        await asyncio.sleep(0)
        return number

    assert await asyncio.gather(*[limit.hold(work(n)) for n in range(100)]) == list(range(100))
    await asyncio.sleep(2 * SECONDS)
    assert await limit.hold(work(7)) == 7


async def test_only_what_takes_too_long_is_cancelled() -> None:
    limit = TimeLimit(SECONDS)
    was_cancelled = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.append(True)
            raise

    async def quick() -> str:
        await asyncio.sleep(0)
        return "done"

    tasks = [asyncio.ensure_future(limit.hold(work())) for work in (forever, quick, forever, quick)]
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [TimeoutError, str, TimeoutError, str]
    assert len(was_cancelled) == 2
    assert not any(task.cancelled() for task in tasks)


async def test_each_wait_has_its_own_time() -> None:
    limit = TimeLimit(SECONDS)
    loop = asyncio.get_running_loop()
    took = []

    async def wait_after(pause: float) -> None:
        await asyncio.sleep(pause)
        began = loop.time()
        with pytest.raises(TimeoutError):
            await limit.hold(asyncio.Event().wait())
        took.append(loop.time() - began)

    await asyncio.gather(wait_after(0), wait_after(SECONDS / 2), wait_after(3 * SECONDS))
    assert min(took) >= SECONDS * 0.99


async def test_a_task_that_somebody_else_cancels_is_cancelled() -> None:
    limit = TimeLimit(60)
    task = asyncio.ensure_future(limit.hold(asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_work_that_will_not_be_cancelled_gives_its_result_late() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return "never"

    assert await TimeLimit(SECONDS).hold(stubborn()) == "late"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_work_that_fails_raises_its_own_error_and_the_next_goes_on() -> None:
    limit = TimeLimit(SECONDS)

    async def fail() -> None:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await limit.hold(fail())
    with pytest.raises(TimeoutError):
        await limit.hold(asyncio.Event().wait())


async def test_future_that_nobody_sets_is_set_when_its_time_is_over() -> None:
    limit = TimeLimit(SECONDS)
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[int]] = [loop.create_future() for _ in range(4)]
    held = [asyncio.ensure_future(limit.hold(future)) for future in futures]
    futures[1].set_result(7)
    futures[2].cancel()
    outcomes = await asyncio.gather(*held, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [TimeoutError, int, asyncio.CancelledError, TimeoutError]
    assert not limit._waits
    again: asyncio.Future[int] = loop.create_future()
    loop.call_soon(again.set_result, 8)
    assert await limit.hold(again) == 8


async def test_each_future_has_its_own_time() -> None:
    limit = TimeLimit(SECONDS)
    loop = asyncio.get_running_loop()

    async def seconds_held() -> float:
        began = loop.time()
        with pytest.raises(TimeoutError):
            await limit.hold(loop.create_future())
        return loop.time() - began

    first = asyncio.create_task(seconds_held())
    await asyncio.sleep(SECONDS / 2)
    assert min(await asyncio.gather(first, seconds_held())) >= SECONDS * 0.99
