"""Group commit: who waits together is committed together, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading

import pytest

from forebay.commitlog.group_commit import GroupCommit


class SlowDisk:
    """Commits when it is told to, and remembers the groups."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.started = threading.Semaphore(0)
        self.may_finish = threading.Semaphore(0)
        self.error: Exception | None = None

    def commit(self, work: list[int]) -> list[int]:
        self.started.release()
        self.may_finish.acquire()
        self.groups.append(work)
        if self.error is not None:
            raise self.error
        return [item * 10 for item in work]


def in_threads(group: GroupCommit[int, int], items: range) -> tuple[list[threading.Thread], dict[int, object]]:
    results: dict[int, object] = {}

    def submit(item: int) -> None:
        try:
            results[item] = group.submit(item, 1)
        except OSError as error:
            results[item] = error

    threads = [threading.Thread(target=submit, args=(item,), daemon=True) for item in items]
    for thread in threads:
        thread.start()
    return threads, results


def wait_until_waiting(group: GroupCommit[int, int], count: int) -> None:
    """Until so many have joined the queue behind the one that leads."""
    while len(group._waiting) < count:
        threading.Event().wait(0.001)


def test_all_that_wait_become_one_group() -> None:
    disk = SlowDisk()
    group: GroupCommit[int, int] = GroupCommit(disk.commit, group_bytes_max=1000)
    first, first_result = in_threads(group, range(1))
    disk.started.acquire()
    rest, results = in_threads(group, range(1, 20))
    wait_until_waiting(group, 19)
    disk.may_finish.release()
    disk.started.acquire()
    disk.may_finish.release()
    for thread in first + rest:
        thread.join(10)
    assert disk.groups[0] == [0]
    assert sorted(disk.groups[1]) == list(range(1, 20))
    assert len(disk.groups) == 2
    assert first_result == {0: 0}
    assert results == {item: item * 10 for item in range(1, 20)}


def test_a_group_stops_at_its_size_but_always_holds_one() -> None:
    disk = SlowDisk()
    group: GroupCommit[int, int] = GroupCommit(disk.commit, group_bytes_max=3)
    threads, results = in_threads(group, range(1))
    disk.started.acquire()
    more, more_results = in_threads(group, range(1, 8))
    wait_until_waiting(group, 7)
    for _ in range(8):
        disk.may_finish.release()
    for thread in threads + more:
        thread.join(10)
    assert [len(found) for found in disk.groups] == [1, 3, 3, 1]
    assert {**results, **more_results} == {item: item * 10 for item in range(8)}
    alone: GroupCommit[int, int] = GroupCommit(lambda work: work, group_bytes_max=3)
    assert alone.submit(5, 100) == 5


def test_a_failure_reaches_everybody_in_the_group_and_nobody_else() -> None:
    disk = SlowDisk()
    group: GroupCommit[int, int] = GroupCommit(disk.commit, group_bytes_max=1000)
    threads, first = in_threads(group, range(1))
    disk.started.acquire()
    more, results = in_threads(group, range(1, 5))
    wait_until_waiting(group, 4)
    disk.may_finish.release()
    disk.started.acquire()
    disk.error = OSError("no")
    disk.may_finish.release()
    for thread in threads + more:
        thread.join(10)
    disk.error = None
    disk.may_finish.release()
    assert first == {0: 0}
    assert all(isinstance(result, OSError) for result in results.values())
    assert group.submit(9, 1) == 90


def test_event_loops_and_threads_share_groups() -> None:
    disk = SlowDisk()
    group: GroupCommit[int, int] = GroupCommit(disk.commit, group_bytes_max=1000)

    async def both() -> list[int]:
        first = asyncio.create_task(group.submit_async(0, 1))
        await asyncio.to_thread(disk.started.acquire)
        threads, results = in_threads(group, range(1, 4))
        await asyncio.to_thread(wait_until_waiting, group, 3)
        others = [asyncio.create_task(group.submit_async(item, 1)) for item in range(4, 8)]
        await asyncio.to_thread(wait_until_waiting, group, 7)
        disk.may_finish.release()
        disk.may_finish.release()
        answers = await asyncio.gather(first, *others)
        for thread in threads:
            await asyncio.to_thread(thread.join, 10)
        assert results == {item: item * 10 for item in range(1, 4)}
        return answers

    assert asyncio.run(both()) == [0, 40, 50, 60, 70]
    assert [len(found) for found in disk.groups] == [1, 7]


def test_a_cancelled_wait_does_not_hold_up_the_others() -> None:
    disk = SlowDisk()
    group: GroupCommit[int, int] = GroupCommit(disk.commit, group_bytes_max=1000)

    async def cancel() -> int:
        first = asyncio.create_task(group.submit_async(0, 1))
        await asyncio.to_thread(disk.started.acquire)
        second = asyncio.create_task(group.submit_async(1, 1))
        third = asyncio.create_task(group.submit_async(2, 1))
        await asyncio.to_thread(wait_until_waiting, group, 2)
        second.cancel()
        disk.may_finish.release()
        disk.may_finish.release()
        with pytest.raises(asyncio.CancelledError):
            await second
        return await first + await third

    assert asyncio.run(cancel()) == 20
    assert disk.groups == [[0], [1, 2]]


def test_work_that_may_not_join_waits_for_the_next_group() -> None:
    disk = SlowDisk()
    group: GroupCommit[int, int] = GroupCommit(
        disk.commit, group_bytes_max=1000, may_join=lambda first, other: first % 2 == other % 2
    )
    first, _ = in_threads(group, range(1))
    disk.started.acquire()
    rest = []
    for item in (2, 4, 3, 6):
        rest += in_threads(group, range(item, item + 1))[0]
        wait_until_waiting(group, len(rest))
    for _ in range(4):
        disk.may_finish.release()
    for thread in first + rest:
        thread.join(10)
    assert disk.groups == [[0], [2, 4], [3], [6]]


def test_executor_that_refuses_hangs_nobody() -> None:
    """As at the end of a process, when the loop's pool is shut down and something is still to be written."""
    group: GroupCommit[int, int] = GroupCommit(lambda work: [item * 10 for item in work], group_bytes_max=100)

    async def submit() -> list[int]:
        await asyncio.get_running_loop().shutdown_default_executor()
        first = await asyncio.wait_for(group.submit_async(1, 1), 30)
        return [first, *await asyncio.wait_for(asyncio.gather(group.submit_async(2, 1), group.submit_async(3, 1)), 30)]

    assert asyncio.run(submit()) == [10, 20, 30]
    assert group.submit(4, 1) == 40, "nobody leads any more"
