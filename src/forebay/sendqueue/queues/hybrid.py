"""Memory first, disk behind it: the modes `hybrid` and `memory`.

In mode `hybrid` new batches go to disk when memory fills up (`forebay.sendqueue.spilling`). In mode `memory` none does
while the process runs. In both, closing writes what is left to the disk part, and what an earlier process left there is
claimed like the rest. The disk part is opened when it is needed, or when its directory exists already.

Claims are served from memory first, then from disk. See `forebay.sendqueue` on order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from forebay.sendqueue.entry import Entry
from forebay.sendqueue.queue import Figures, Limits
from forebay.sendqueue.queues.fastqueue import FastQueue
from forebay.sendqueue.queues.memory import MemoryQueue
from forebay.sendqueue.spilling import Spilling

Batch = TypeVar("Batch")

IN_MEMORY, ON_DISK = 0, 1


class HybridQueue(Generic[Batch]):
    """A `SendQueue` of two parts. `open_disk` opens the disk part; `spilling` None is the mode `memory`."""

    def __init__(
        self,
        memory: MemoryQueue[Batch],
        open_disk: Callable[[], FastQueue[Batch]],
        spilling: Spilling | None,
        *,
        has_left_overs: bool,
    ) -> None:
        self.memory = memory
        self._open_disk = open_disk
        self.spilling = spilling
        self.disk: FastQueue[Batch] | None = open_disk() if has_left_overs else None
        self._has_left_overs = has_left_overs
        self.spilled = 0
        """Batches that went to disk because memory was filling up."""

    @property
    def limits(self) -> Limits:
        """Of the memory part."""
        return self.memory.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self.memory.limits = limits

    def push(self, batch: Batch) -> None:
        spilling = self.spilling
        if spilling is not None:
            if self.memory.try_push_below(batch, spilling.calm_below):
                return
            if self._goes_to_disk(spilling):
                self._spill(batch)
                return
        self.memory.push(batch)

    def _goes_to_disk(self, spilling: Spilling) -> bool:
        return spilling.goes_to_disk(self.memory.fill_ratio, is_disk_empty=self.disk is None or self.disk.is_empty())

    def _spill(self, batch: Batch) -> None:
        if self.disk is None:
            self.disk = self._open_disk()
        self.disk.push(batch)
        self.spilled += 1

    def claim(self) -> Entry[Batch] | None:
        entry = self._claim_left_over() if self._has_left_overs else None
        if entry is None:
            entry = self.memory.claim()
        if entry is None and self.disk is not None:
            entry = self._claim_on(self.disk)
        return entry

    def _claim_left_over(self) -> Entry[Batch] | None:
        """What an earlier process left is older than all that is pushed now."""
        if self.disk is None or self.disk.is_empty():
            self._has_left_overs = False
            return None
        return self._claim_on(self.disk)

    def _claim_on(self, disk: FastQueue[Batch]) -> Entry[Batch] | None:
        entry = disk.claim()
        if entry is not None:
            entry.tier = ON_DISK
        return entry

    def _part(self, entry: Entry[Batch]) -> MemoryQueue[Batch] | FastQueue[Batch]:
        return self.memory if entry.tier == IN_MEMORY or self.disk is None else self.disk

    def confirm(self, entry: Entry[Batch]) -> None:
        self._part(entry).confirm(entry)

    def release(self, entry: Entry[Batch], delay_seconds: float = 0.0) -> None:
        self._part(entry).release(entry, delay_seconds)

    def hasten(self) -> None:
        self.memory.hasten()
        if self.disk is not None:
            self.disk.hasten()

    def due_in(self) -> float | None:
        dues = [self.memory.due_in(), self.disk.due_in() if self.disk is not None else None]
        return min((due for due in dues if due is not None), default=None)

    def drop_oldest(self) -> Entry[Batch] | None:
        """The first in line, of the part that a push would have gone to: room in the other one would not help it."""
        is_disk_full = self.disk is not None and self.spilling is not None and self.spilling.level > 0
        first, second = (self.disk, self.memory) if is_disk_full else (self.memory, self.disk)
        return (first.drop_oldest() if first is not None else None) or (
            second.drop_oldest() if second is not None else None
        )

    def figures(self) -> Figures:
        in_memory = self.memory.figures()
        if self.disk is None:
            return in_memory
        on_disk = self.disk.figures()
        oldest = [time for time in (in_memory.oldest_us, on_disk.oldest_us) if time is not None]
        return Figures(
            batches=in_memory.batches + on_disk.batches,
            bytes=in_memory.bytes + on_disk.bytes,
            claimed=in_memory.claimed + on_disk.claimed,
            oldest_us=min(oldest, default=None),
            memory_batches=in_memory.batches + on_disk.memory_batches,
            memory_bytes=in_memory.bytes + on_disk.memory_bytes,
            disk_bytes=on_disk.disk_bytes,
        )

    def is_empty(self) -> bool:
        return self.memory.is_empty() and (self.disk is None or self.disk.is_empty())

    def sync(self) -> None:
        if self.disk is not None:
            self.disk.sync()

    def close(self) -> None:
        """Write what is left in memory to disk, whatever the limits say: it was accepted."""
        left = self.memory.unconfirmed()
        if left and self.disk is None:
            self.disk = self._open_disk()
        if self.disk is not None:
            self.disk.keep([entry.batch for entry in left])
            self.disk.close()
