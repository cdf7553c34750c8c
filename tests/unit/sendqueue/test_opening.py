"""Opening a queue costs the same however many chunks it has."""

from __future__ import annotations

from pathlib import Path

from fixtures.sendqueues import DIRECTORY, drained, open_fastqueue
from forebay.filesystem import Status
from forebay.sendqueue.queue import Limits
from forebay.testing.simulated_disk import SimulatedDisk

LIMITS = Limits(10_000, 1 << 20)


class CountingDisk(SimulatedDisk):
    """Counts how often it is asked what a path is."""

    asked = 0

    def status(self, path: Path) -> Status:
        self.asked += 1
        return super().status(path)


def filled(batches: int) -> CountingDisk:
    disk = CountingDisk()
    queue = open_fastqueue(disk, limits=LIMITS)
    for number in range(batches):
        queue.push(b"%04d" % number * 20)
    queue.close()
    return disk


def questions_of_opening(disk: CountingDisk) -> int:
    disk.asked = 0
    queue = open_fastqueue(disk, limits=LIMITS)
    asked = disk.asked
    assert queue.figures().batches > 0
    queue.close()
    return asked


def test_opening_asks_the_disk_as_often_for_many_chunks_as_for_few() -> None:
    few, many = filled(5), filled(500)
    assert len(many.list_directory(DIRECTORY)) > 20 * len(few.list_directory(DIRECTORY)) / 5
    assert questions_of_opening(many) == questions_of_opening(few)
    assert len(drained(open_fastqueue(many, limits=LIMITS))) == 500
