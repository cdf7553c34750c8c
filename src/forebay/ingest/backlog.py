"""What waits in the buffer files, by partition: which pushes have to go behind it. Decisions only; nothing here waits
or writes.

Events of this process are counted when it is *decided* that they go to the file, before they are written: so a fence
is never down between the decision and the write. Bytes in a file that this process has not counted are another
process's; as long as there are such, every partition counts as fenced.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from forebay.errors import InvariantBroken

PartitionKey = tuple[str, str]
"""Queue and partition."""


class Known:
    """Which bytes of a file were counted here, as ranges in order that do not touch or cross each other."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.size = 0

    def add(self, start: int, end: int) -> None:
        """Of bytes that were not added before."""
        if start >= end:
            return
        self.size += end - start
        if self.ranges and self.ranges[-1][1] == start:
            self.ranges[-1] = (self.ranges[-1][0], end)
        else:
            insort(self.ranges, (start, end))

    def covers(self, span: tuple[int, int]) -> bool:
        """Whether all of it was added, in one piece or in pieces that followed each other."""
        at = bisect_right(self.ranges, span[0], key=itemgetter(0)) - 1
        return at >= 0 and span[1] <= self.ranges[at][1]


class Backlog:
    """Of one buffer file."""

    def __init__(self) -> None:
        self.events = 0
        self._places: Counter[PartitionKey] = Counter()
        self._queues: Counter[str] = Counter()
        """The sums of the places: there may be too many of those to add them up on every request."""
        self.active = Known()
        self.processing = Known()

    def add(self, places: Sequence[PartitionKey]) -> None:
        self._places.update(places)
        self._queues.update([queue for queue, _ in places])
        self.events += len(places)

    def remove(self, places: Sequence[PartitionKey]) -> None:
        counts = self._places
        for place, gone in Counter(places).items():
            left = counts[place] - gone
            if left > 0:
                counts[place] = left
            elif left == 0:
                del counts[place]
            else:
                raise InvariantBroken(f"{place} has {counts[place]} buffered events, and {gone} of them were stored")
            self.events -= gone
            self._queues[place[0]] -= gone
            if not self._queues[place[0]]:
                del self._queues[place[0]]

    def holds(self, place: PartitionKey) -> bool:
        return place in self._places

    def rotated(self) -> None:
        self.processing, self.active = self.active, Known()

    def of_queue(self, queue: str) -> int:
        return self._queues[queue]

    def by_queue(self) -> dict[str, int]:
        """As of now: a copy, so that it can be looked through in a thread while this goes on."""
        return dict(self._queues)

    def partitions(self) -> int:
        return len(self._places)

    def places(self) -> list[PartitionKey]:
        return list(self._places)
