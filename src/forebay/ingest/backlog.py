"""What waits in the buffer files, by partition: who has to go behind it. Decisions only; nothing here waits or writes.

Events of this process are counted when it is *decided* that they go to the file, before they are written: so a fence
is never down between the decision and the write. Bytes in a file that nobody here has counted are another process's;
as long as there are such, every partition counts as fenced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from forebay.errors import InvariantBroken

Place = tuple[str, str]
"""Queue and partition."""


@dataclass(slots=True)
class Known:
    """Which bytes of a file were counted here, as ranges in order that do not touch each other."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def add(self, start: int, end: int) -> None:
        if self.ranges and self.ranges[-1][1] == start:
            self.ranges[-1] = (self.ranges[-1][0], end)
        elif start < end:
            self.ranges = sorted([*self.ranges, (start, end)])

    def covers(self, span: tuple[int, int]) -> bool:
        return any(start <= span[0] and span[1] <= end for start, end in self.ranges)

    @property
    def size(self) -> int:
        return sum(end - start for start, end in self.ranges)


class Backlog:
    """Of one lane."""

    def __init__(self) -> None:
        self.events = 0
        self._places: Counter[Place] = Counter()
        self.active = Known()
        self.processing = Known()

    def add(self, places: Sequence[Place]) -> None:
        self._places.update(places)
        self.events += len(places)

    def remove(self, places: Sequence[Place]) -> None:
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

    def holds(self, place: Place) -> bool:
        return place in self._places

    def rotated(self) -> None:
        self.processing, self.active = self.active, Known()

    def by_queue(self) -> dict[str, int]:
        queues: Counter[str] = Counter()
        for (queue, _), count in self._places.items():
            queues[queue] += count
        return dict(queues)

    def partitions(self) -> int:
        return len(self._places)

    def places(self) -> list[Place]:
        return list(self._places)
