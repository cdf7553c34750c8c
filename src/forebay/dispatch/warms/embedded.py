"""The warm tier in this process: the default, for one server.

A heap per class and flow, beside the set of what is really offered: `remove` leaves its entry in the heap, and the
heap is made anew when more than half of it is such leavings. Nothing here waits, so every call is one step of the
event loop.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import AsyncIterable, Collection, Mapping, Sequence

from forebay.dispatch.warm import STEP_LOOKS, WarmEntry

_Place = tuple[int, int, str]
"""Place in line, step, did: what a flow's entries are ordered by."""
_LEAVINGS_MIN = 64


class EmbeddedWarm:
    """See `forebay.dispatch.warm.WarmTier`."""

    def __init__(self) -> None:
        self._classes: dict[str, dict[str, _FlowQueue]] = {}
        """By action class and flow; the flow whose turn it is stands first."""
        self._marker = ""

    async def add(self, entries: Sequence[WarmEntry]) -> None:
        self._add(entries)

    async def take(
        self, action_class: str, parcels_max: int, *, without: Collection[str] = (), same_step: bool = False
    ) -> list[WarmEntry]:
        flows = self._classes.get(action_class, {})
        taken: list[WarmEntry] = []
        if same_step:
            taken = self._take_step(action_class, flows, parcels_max, without)
            parcels_max = 0
        while len(taken) < parcels_max:
            names = [name for name in flows if name not in without][: parcels_max - len(taken)]
            if not names:
                break
            share = max(1, (parcels_max - len(taken)) // len(names))
            for name in names:
                queue = flows.pop(name)
                taken.extend(WarmEntry(action_class, name, place, did, step) for place, step, did in queue.pop(share))
                if queue.offered:
                    flows[name] = queue  # behind the others, until its turn comes again
        if not flows:
            self._classes.pop(action_class, None)
        return taken

    @staticmethod
    def _take_step(
        action_class: str, flows: dict[str, _FlowQueue], parcels_max: int, without: Collection[str]
    ) -> list[WarmEntry]:
        name = next((name for name in flows if name not in without), None)
        if name is None:
            return []
        queue = flows.pop(name)
        taken = [WarmEntry(action_class, name, place, did, step) for place, step, did in queue.pop_step(parcels_max)]
        if queue.offered:
            flows[name] = queue
        return taken

    async def remove(self, entries: Sequence[WarmEntry]) -> None:
        for entry in entries:
            flows = self._classes.get(entry.action_class, {})
            queue = flows.get(entry.flow)
            if queue is None:
                continue
            queue.discard((entry.place, entry.step, entry.did))
            if not queue.offered:
                del flows[entry.flow]
                if not flows:
                    del self._classes[entry.action_class]

    async def sizes(self) -> Mapping[str, int]:
        return {name: sum(len(queue.offered) for queue in flows.values()) for name, flows in self._classes.items()}

    async def marker(self) -> str:
        return self._marker

    async def rebuild(self, action_class: str, pages: AsyncIterable[Sequence[WarmEntry]]) -> None:
        self._classes.pop(action_class, None)
        async for entries in pages:
            self._add(entries)
        self._marker = self._marker or uuid.uuid4().hex

    async def close(self) -> None:
        self._classes.clear()
        self._marker = ""

    def _add(self, entries: Sequence[WarmEntry]) -> None:
        for entry in entries:
            flows = self._classes.setdefault(entry.action_class, {})
            queue = flows.get(entry.flow)
            if queue is None:
                queue = flows[entry.flow] = _FlowQueue()
            queue.add((entry.place, entry.step, entry.did))


class _FlowQueue:
    __slots__ = ("_heap", "offered")

    def __init__(self) -> None:
        self.offered: set[_Place] = set()
        self._heap: list[_Place] = []

    def add(self, place: _Place) -> None:
        if place not in self.offered:
            self.offered.add(place)
            heapq.heappush(self._heap, place)

    def discard(self, place: _Place) -> None:
        self.offered.discard(place)
        if len(self._heap) > 2 * len(self.offered) + _LEAVINGS_MIN:
            self._heap = sorted(self.offered)

    def pop(self, count: int) -> list[_Place]:
        """Up to so many, lowest place first."""
        popped: list[_Place] = []
        while self._heap and len(popped) < count:
            place = heapq.heappop(self._heap)
            if place in self.offered:
                self.offered.remove(place)
                popped.append(place)
        return popped

    def pop_step(self, count: int) -> list[_Place]:
        """Up to so many of the first one's step, lowest place first."""
        popped: list[_Place] = []
        passed: list[_Place] = []
        while self._heap and len(popped) < count and len(popped) + len(passed) < STEP_LOOKS:
            place = heapq.heappop(self._heap)
            if place not in self.offered:
                continue
            if popped and popped[0][1] != place[1]:
                passed.append(place)
            else:
                self.offered.remove(place)
                popped.append(place)
        for place in passed:
            heapq.heappush(self._heap, place)
        return popped
