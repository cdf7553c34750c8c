"""Work that waits together is sent together, and every future is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from forebay.model.batcher import Batcher

pytestmark = pytest.mark.asyncio
SECONDS_MAX = 10


class Groups:
    """A commit that notes its groups and can be held up."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def commit(self, works: Sequence[int]) -> Sequence[int | Exception]:
        self.seen.append(list(works))
        await self.gate.wait()
        if 1313 in works:
            raise ValueError("unlucky")
        return [KeyError(work) if work < 0 else work * 10 for work in works]


async def test_requests_one_after_the_other_are_all_committed() -> None:
    groups = Groups()
    batcher = Batcher(groups.commit, size_max=100)
    async with asyncio.timeout(SECONDS_MAX):
        assert [await batcher.submit(n, 1) for n in range(50)] == [n * 10 for n in range(50)]
    assert groups.seen == [[n] for n in range(50)]


async def test_requests_that_wait_together_share_a_commit_in_order() -> None:
    groups = Groups()
    groups.gate.clear()
    batcher = Batcher(groups.commit, size_max=3)
    tasks = [batcher.submit(n, 1) for n in range(6)]
    while not groups.seen:
        await asyncio.sleep(0)
    groups.gate.set()
    async with asyncio.timeout(SECONDS_MAX):
        assert await asyncio.gather(*tasks) == [0, 10, 20, 30, 40, 50]
    assert [work for group in groups.seen for work in group] == list(range(6))
    assert all(len(group) <= 3 for group in groups.seen)


async def test_request_larger_than_a_group_goes_alone() -> None:
    groups = Groups()
    batcher = Batcher(groups.commit, size_max=3)
    await asyncio.gather(batcher.submit(1, 2), batcher.submit(2, 99), batcher.submit(3, 1))
    assert groups.seen == [[1], [2], [3]]


async def test_each_gets_its_own_outcome() -> None:
    batcher = Batcher(Groups().commit, size_max=100)
    outcomes = await asyncio.gather(*[batcher.submit(n, 1) for n in (1, -5, 2)], return_exceptions=True)
    assert [outcomes[0], outcomes[2]] == [10, 20]
    assert isinstance(outcomes[1], KeyError)
    with pytest.raises(ValueError, match="unlucky"):
        await batcher.submit(1313, 1)
    assert await batcher.submit(4, 1) == 40


async def test_cancelled_wait_does_not_take_the_work_back() -> None:
    groups = Groups()
    groups.gate.clear()
    batcher = Batcher(groups.commit, size_max=100)
    task = batcher.submit(1, 1)
    while not groups.seen:
        await asyncio.sleep(0)
    task.cancel()
    groups.gate.set()
    await batcher.drain()
    assert groups.seen == [[1]]
    assert await batcher.submit(2, 1) == 20
