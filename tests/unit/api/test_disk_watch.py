"""The warning before a disk is full."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from forebay.api.disk_watch import Disk, DiskWatch

DATA = Path("/data")


class Shrinking:
    """A disk of 1,000 bytes with as much room as the test says."""

    free = 1000

    def __call__(self, path: Path) -> Disk:
        return Disk(path, 1000, self.free)


def warned(watch: DiskWatch, disk: Shrinking, free: int, caplog: pytest.LogCaptureFixture) -> list[str]:
    disk.free = free
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        watch.look()
    return [record.__dict__["action"] for record in caplog.records]


def test_each_share_is_warned_of_once_and_room_is_told(caplog: pytest.LogCaptureFixture) -> None:
    disk = Shrinking()
    watch = DiskWatch([DATA], disk)
    steps = [(500, 0), (99, 1), (98, 0), (60, 0), (49, 1), (60, 0), (49, 0), (9, 1), (0, 0)]
    for free, warnings in steps:
        assert warned(watch, disk, free, caplog) == ["disk_filling"] * warnings, free
    assert warned(watch, disk, 500, caplog) == ["disk_has_room"]
    assert warned(watch, disk, 99, caplog) == ["disk_filling"]
    assert "completedRetentionSeconds" in caplog.text
    assert "9.9 %" in caplog.text


def test_path_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    watch = DiskWatch([tmp_path / "nowhere", tmp_path, tmp_path])
    watch.look()
    assert [disk.path for disk in watch.disks] == [tmp_path]
    assert 0 < watch.disks[0].free_bytes <= watch.disks[0].size_bytes
