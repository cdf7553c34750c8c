"""Memory first, disk behind it: the modes `hybrid` and `memory`.

In mode `hybrid` new batches go to disk when memory fills up (`forebay.sendqueue.spilling`). In mode `memory` none does
while the process runs. In both, closing writes what is left to the disk part, and what an earlier process left there is
claimed like the rest. The disk part is opened when it is needed, or when its directory exists already.

Claims are served from memory first, then from disk. See `forebay.sendqueue` on order.

A disk that refuses a spill, or cannot be opened for the first one, costs nothing while memory has room: the batch goes
there. It is refused where that would let it overtake older ones on disk (`order: fifo`), and when memory is full too.
A batch for which memory has no room although it is below its threshold goes to disk.

With `order: fifo`, what is in memory at a stop is older than what is on disk. It goes to a FastQueue of its own, in the
folder `first/`, which is drained before everything else after the next start, whatever mode that has.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Generic, TypeVar

from forebay.errors import BatchTooLarge, SendQueueFull, SendQueueWriteFailed
from forebay.sendqueue.entry import Entry
from forebay.sendqueue.queue import Figures, Limits, Recount
from forebay.sendqueue.queues.fastqueue import FastQueue
from forebay.sendqueue.queues.memory import MemoryQueue
from forebay.sendqueue.spilling import Spilling

Batch = TypeVar("Batch")

IN_MEMORY, ON_DISK, IN_FIRST = 0, 1, 2
FIRST_FOLDER = "first"


class HybridQueue(Generic[Batch]):
    """A `SendQueue` of two parts, or three. `open_disk` opens the disk part; `spilling` None is the mode `memory`.

    `open_disk` and `open_first` raise SendQueueWriteFailed where they are called while the queue is in use.
    """

    def __init__(
        self,
        memory: MemoryQueue[Batch],
        open_disk: Callable[[], FastQueue[Batch]],
        spilling: Spilling | None,
        *,
        has_left_overs: bool,
        open_first: Callable[[], FastQueue[Batch]] | None = None,
        has_first: bool = False,
    ) -> None:
        self.memory = memory
        self._open_disk = open_disk
        self._open_first = open_first
        self.spilling = spilling
        self.first: FastQueue[Batch] | None = open_first() if open_first is not None and has_first else None
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
        if spilling is None:
            self.memory.push(batch)
            return
        try:
            if self.memory.try_push_below(batch, spilling.calm_below):
                return
            if not self._goes_to_disk(spilling):
                self.memory.push(batch)
                return
        except (SendQueueFull, BatchTooLarge):
            self._push_on_disk(batch)
        else:
            self._spill(batch, spilling)

    def _goes_to_disk(self, spilling: Spilling) -> bool:
        return spilling.goes_to_disk(self.memory.fill_ratio, is_disk_empty=self._is_disk_empty())

    def _is_disk_empty(self) -> bool:
        return self.disk is None or self.disk.is_empty()

    def _spill(self, batch: Batch, spilling: Spilling) -> None:
        try:
            self._push_on_disk(batch)
        except SendQueueWriteFailed as failed:
            if not spilling.may_stay_in_memory(is_disk_empty=self._is_disk_empty()):
                raise
            try:
                self.memory.push(batch)
            except (SendQueueFull, BatchTooLarge):
                raise failed from None

    def _push_on_disk(self, batch: Batch) -> None:
        if self.disk is None:
            self.disk = self._open_disk()
        self.disk.push(batch)
        self.spilled += 1

    def claim(self) -> Entry[Batch] | None:
        entry = self._claim_on(self.first, IN_FIRST) if self.first is not None else None
        if entry is None and self._has_left_overs:
            entry = self._claim_left_over()
        if entry is None:
            entry = self.memory.claim()
        if entry is None and self.disk is not None:
            entry = self._claim_on(self.disk, ON_DISK)
        return entry

    def _claim_left_over(self) -> Entry[Batch] | None:
        """What an earlier process left is older than all that is pushed now."""
        if self.disk is None or self.disk.is_empty():
            self._has_left_overs = False
            return None
        return self._claim_on(self.disk, ON_DISK)

    def _claim_on(self, disk: FastQueue[Batch], tier: int) -> Entry[Batch] | None:
        entry = disk.claim()
        if entry is not None:
            entry.tier = tier
        return entry

    def _parts(self) -> list[MemoryQueue[Batch] | FastQueue[Batch]]:
        return [self.memory, *self._on_disk()]

    def _part(self, entry: Entry[Batch]) -> MemoryQueue[Batch] | FastQueue[Batch]:
        if entry.tier == IN_MEMORY:
            return self.memory
        disk = self.disk if entry.tier == ON_DISK else self.first
        return self.memory if disk is None else disk

    def _on_disk(self) -> list[FastQueue[Batch]]:
        """The parts on disk, the older one first."""
        return [part for part in (self.first, self.disk) if part is not None]

    def confirm(self, entry: Entry[Batch]) -> None:
        self._part(entry).confirm(entry)

    def release(self, entry: Entry[Batch], delay_seconds: float = 0.0) -> None:
        self._part(entry).release(entry, delay_seconds)

    def hasten(self) -> None:
        for part in self._parts():
            part.hasten()

    def due_in(self) -> float | None:
        dues = [part.due_in() for part in self._parts()]
        return min((due for due in dues if due is not None), default=None)

    def drop_oldest(self) -> Entry[Batch] | None:
        """The first in line, of the part that a push would have gone to: room in the other one would not help it."""
        is_disk_full = self.disk is not None and self.spilling is not None and self.spilling.level > 0
        parts = [part for part in self._parts() if part is not self.disk]
        if self.disk is not None:
            parts.insert(0 if is_disk_full else 1, self.disk)
        for part in parts:
            if (dropped := part.drop_oldest()) is not None:
                return dropped
        return None

    def figures(self) -> Figures:
        found = [part.figures() for part in self._parts()]
        return Figures(
            batches=sum(one.batches for one in found),
            bytes=sum(one.bytes for one in found),
            claimed=sum(one.claimed for one in found),
            oldest_us=min((one.oldest_us for one in found if one.oldest_us is not None), default=None),
            memory_batches=sum(one.memory_batches for one in found),
            unwritten_batches=sum(one.unwritten_batches for one in found),
            memory_bytes=sum(one.memory_bytes for one in found),
            disk_bytes=sum(one.disk_bytes for one in found),
            lost=sum(one.lost for one in found),
        )

    def recount(self) -> Recount:
        found = [part.recount() for part in self._parts()]
        kept, counted = sum(one.kept for one in found), sum(one.counted for one in found)
        return Recount(kept, counted, all(one.is_exact for one in found))

    @property
    def fill_ratio(self) -> float:
        """Of memory where nothing spills; else of memory and disk together, for the limits hold for each of them, and
        for a disk part that is not open yet as well."""
        if self.spilling is None or self.disk is None:
            return self.memory.fill_ratio / (1 if self.spilling is None else 2)
        figures, memory, disk = self.figures(), self.memory.limits, self.disk.limits
        by_batches = figures.batches / (memory.batches_max + disk.batches_max)
        return max(by_batches, figures.bytes / (memory.bytes_max + disk.bytes_max))

    def is_empty(self) -> bool:
        return self.memory.is_empty() and all(part.is_empty() for part in self._on_disk())

    def sync(self) -> None:
        for part in self._on_disk():
            part.sync()

    def close(self) -> None:
        """Write what is left in memory to disk, whatever the limits say: it was accepted."""
        left = [entry.batch for entry in self.memory.unconfirmed()]
        if left:
            self._keeper().keep(left)
        with ExitStack() as closing:  # each of them, whatever another one raises
            for part in self._on_disk():
                closing.callback(part.close)

    def _keeper(self) -> FastQueue[Batch]:
        """The part that what is in memory belongs behind."""
        is_fifo = self.spilling is not None and self.spilling.is_fifo
        if is_fifo and self._open_first is not None and not self._is_disk_empty():
            self.first = self.first or self._open_first()
            return self.first
        self.disk = self.disk or self._open_disk()
        return self.disk
