"""When a hybrid queue puts new batches on disk instead of into memory. Decisions only; `queues.hybrid` obeys them.

With a threshold of 80 %, by how full the memory part is:

| level | entered above | new batches go | left below, to the level before it |
|---|---|---|---|
| memory | | to memory | |
| alternating | 80 % | every second one to disk | 70 % |
| disk | 90 % | all to disk | 80 % |

A level is left at ten points below the fill that entered it, and one level at a time, so that a load near a threshold
does not flap. With `order: fifo` there are two levels only, memory and disk, and disk is left when the disk is empty.
"""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    MEMORY = 0
    ALTERNATING = 1
    DISK = 2


STEP = 0.10
LEAVE = 0.10
ALL_TO_DISK = -1.0
"""A threshold that every queue is above, also an empty one."""


class Spilling:
    """The level a queue is at, and where the next batch goes."""

    def __init__(self, threshold: float, *, is_fifo: bool = False) -> None:
        self.threshold = threshold
        self.is_fifo = is_fifo
        self.level = Level.MEMORY
        self._was_last_on_disk = False
        self.calm_below = self._calm_below()
        """Filled less than this, memory takes the next batch, and nothing else need be looked at."""

    def _calm_below(self) -> float:
        return 0.0 if self.level or self.is_fifo else self.threshold - LEAVE

    def goes_to_disk(self, fill_ratio: float, *, is_disk_empty: bool) -> bool:
        """Whether the next batch goes to disk, the memory part being this full."""
        if fill_ratio < self.threshold - LEAVE and self.level is Level.MEMORY and (is_disk_empty or not self.is_fifo):
            return False
        self.level = self._fifo_level(fill_ratio, is_disk_empty) if self.is_fifo else self._next_level(fill_ratio)
        self.calm_below = self._calm_below()
        if self.level is Level.ALTERNATING:
            self._was_last_on_disk = not self._was_last_on_disk
            return self._was_last_on_disk
        return self.level is Level.DISK

    def may_stay_in_memory(self, *, is_disk_empty: bool) -> bool:
        """Whether a batch that the disk refuses may wait in memory, which is claimed from before the disk."""
        return self.threshold != ALL_TO_DISK and (is_disk_empty or not self.is_fifo)

    def _next_level(self, fill_ratio: float) -> Level:
        if fill_ratio >= self.threshold + STEP:
            return Level.DISK
        if fill_ratio >= self.threshold:
            return max(self.level, Level.ALTERNATING)
        if self.level is Level.DISK:
            return Level.ALTERNATING
        return Level.ALTERNATING if self.level and fill_ratio >= self.threshold - LEAVE else Level.MEMORY

    def _fifo_level(self, fill_ratio: float, is_disk_empty: bool) -> Level:
        if self.level is Level.DISK:
            return Level.MEMORY if is_disk_empty and fill_ratio < self.threshold else Level.DISK
        return Level.DISK if fill_ratio >= self.threshold or not is_disk_empty else Level.MEMORY
