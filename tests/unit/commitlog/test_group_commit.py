"""Group commit: what waits together is committed together, and no thread waits for ever."""

from __future__ import annotations

import threading
from typing import Any

from forebay.commitlog.group_commit import GroupCommit


class SlowDisk:
    """Commits when the test says so, and remembers the groups."""

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
        except (OSError, KeyboardInterrupt) as error:
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


def test_a_failure_reaches_every_thread_of_the_group_and_no_other() -> None:
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


class InterruptedGate:
    """Raises in the thread that waits, at the moment at which that thread has been given the lead."""

    def __init__(self, gate: threading.Lock) -> None:
        self._gate = gate

    def acquire(self, blocking: bool = True) -> bool:
        if not blocking:
            return self._gate.acquire(blocking=False)
        self._gate.acquire()
        self._gate.release()
        raise KeyboardInterrupt

    def release(self) -> None:
        self._gate.release()


class Interrupting(GroupCommit[int, int]):
    def _wait(self, ticket: Any) -> None:
        if ticket.work == 1:
            ticket.gate = InterruptedGate(ticket.gate)
        super()._wait(ticket)


def test_a_thread_that_is_interrupted_with_the_lead_commits_what_waits_behind_it() -> None:
    disk = SlowDisk()
    group = Interrupting(disk.commit, group_bytes_max=1000)
    first, _ = in_threads(group, range(1))
    disk.started.acquire()
    interrupted, outcome = in_threads(group, range(1, 2))
    wait_until_waiting(group, 1)
    others, results = in_threads(group, range(2, 5))
    wait_until_waiting(group, 4)
    for _ in range(2):
        disk.may_finish.release()
    for thread in first + interrupted + others:
        thread.join(60)
    assert results == {item: item * 10 for item in range(2, 5)}
    assert isinstance(outcome[1], KeyboardInterrupt)
