"""Which partitions have something for a group: kept as pushes and acks happen, so that a pop need not look for it.

Memory grows with partitions, never with messages. A list is made when its group first pops after a start, from what
the database says, and is exact from then on: a partition that may have something is *ready*; one that has to wait for a
time (a lease, a retry, a delay) is *asleep* until then.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable


class ReadyList:
    """Partitions in the order in which they became ready: first come, first served, so none is starved."""

    __slots__ = ("_asleep", "_last_us", "_ready", "_wakes", "is_whole")

    def __init__(self, partitions: Iterable[int], *, is_whole: bool = True) -> None:
        self.is_whole = is_whole
        """False: what the database says is still to come (`join`)."""
        self._ready = dict.fromkeys(partitions)
        self._asleep: dict[int, int] = {}
        """Partition and when it wakes."""
        self._wakes: list[tuple[int, int]] = []
        """The same as a heap; entries that the dictionary no longer confirms are stale."""
        self._last_us = 0

    def join(self, partitions: Iterable[int]) -> None:
        """Those that had something when the list was begun; of those that it knows already, what it knows counts."""
        self._ready = dict.fromkeys(number for number in partitions if number not in self._asleep) | self._ready
        self.is_whole = True

    def first(self, now_us: int) -> int | None:
        """The partition to try next; the caller tells what became of it by one of the methods below."""
        if now_us < self._last_us:
            # The clock was set back: what sleeps until a time that was near may be far away now. Look again.
            self._ready.update(dict.fromkeys(self._asleep))
            self._asleep.clear()
            self._wakes.clear()
        self._last_us = now_us
        while self._wakes and self._wakes[0][0] <= now_us:
            until_us, partition_id = heapq.heappop(self._wakes)
            if self._asleep.get(partition_id) == until_us:
                self.wake(partition_id)
        return next(iter(self._ready), None)

    def add(self, partition_id: int) -> None:
        """It has something new. If it is asleep, it stays so: what is in front of it is not over."""
        if partition_id not in self._asleep:
            self._ready.setdefault(partition_id)

    def wake(self, partition_id: int) -> None:
        """Whatever it was waiting for is over."""
        self._asleep.pop(partition_id, None)
        self._ready.setdefault(partition_id)

    def put_to_sleep(self, partition_id: int, until_us: int) -> None:
        self._ready.pop(partition_id, None)
        if self._asleep.get(partition_id) == until_us:
            return
        self._asleep[partition_id] = until_us
        heapq.heappush(self._wakes, (until_us, partition_id))

    def rotate(self, partition_id: int) -> None:
        """It was served and has more: behind the others."""
        self._asleep.pop(partition_id, None)
        self._ready.pop(partition_id, None)
        self._ready[partition_id] = None

    def drop(self, partition_id: int) -> None:
        """It has nothing, until it is added again."""
        self._ready.pop(partition_id, None)
        self._asleep.pop(partition_id, None)

    def next_us(self) -> int | None:
        """When the first of those that sleep wakes."""
        while self._wakes and self._asleep.get(self._wakes[0][1]) != self._wakes[0][0]:
            heapq.heappop(self._wakes)
        return self._wakes[0][0] if self._wakes else None

    def wakes_us(self, partition_id: int) -> int | None:
        """When this one wakes, if it sleeps."""
        return self._asleep.get(partition_id)

    def __len__(self) -> int:
        return len(self._ready) + len(self._asleep)
