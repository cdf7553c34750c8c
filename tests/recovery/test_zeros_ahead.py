"""The zeros behind the last record: a help for the disk that nobody who reads, opens or mends a log ever sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.logs import BASE, content, numbered, open_on
from forebay.commitlog import CommitLog, LogOptions
from forebay.commitlog.active_file import AHEAD_BYTES, LARGE_BYTES
from forebay.commitlog.inspection import verify
from forebay.commitlog.salvage import salvage
from forebay.errors import DiskFull, SegmentDamaged
from forebay.model.message import MessageBatch
from forebay.testing.fake_clock import FakeClock
from forebay.testing.faulty_filesystem import FaultyFilesystem, FullDisk
from forebay.testing.simulated_disk import SimulatedDisk


def size_of(disk: SimulatedDisk, log: CommitLog) -> int:
    return disk.status(BASE / log.state.path).size


def of_size(size: int) -> MessageBatch:
    return MessageBatch([bytes(range(1, 256)) * (size // 255)], [1])


def test_a_file_is_at_most_twice_as_long_as_its_records_and_grows_in_few_steps() -> None:
    disk = SimulatedDisk()
    log = open_on(disk, LogOptions(compress=False))
    sizes = set()
    for seq in range(1, 101):
        log.append(numbered(seq, 1))
        size = size_of(disk, log)
        assert log.state.position <= size <= 2 * log.state.position
        sizes.add(size)
    assert len(sizes) < 10


def test_the_zeros_have_an_upper_limit(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, LogOptions(compress=False)) as log:
        zeros = []
        for _ in range(15):
            log.append(of_size(300_000))
            zeros.append((tmp_path / log.state.path).stat().st_size - log.state.position)
        assert max(zeros) == AHEAD_BYTES


def test_a_large_record_brings_none_and_small_ones_behind_it_do() -> None:
    disk = SimulatedDisk()
    log = open_on(disk, LogOptions(compress=False))
    for _ in range(3):
        log.append(of_size(LARGE_BYTES + 1000))
        assert size_of(disk, log) == log.state.position
    log.append(of_size(1000))
    assert size_of(disk, log) == log.state.position + AHEAD_BYTES
    log.append(of_size(2 * AHEAD_BYTES))
    assert size_of(disk, log) == log.state.position
    log.close()
    assert len(content(open_on(disk))) == 5


def test_they_do_not_reach_past_the_size_of_a_segment() -> None:
    disk = SimulatedDisk()
    log = open_on(disk, LogOptions(segment_bytes=1000, compress=False))
    for seq in range(1, 50):
        log.append(numbered(seq, 1))
        assert size_of(disk, log) <= 1000


def test_sealing_and_closing_give_them_back() -> None:
    disk = SimulatedDisk()
    log = open_on(disk)
    log.append(numbered(1, 3))
    sealed, position = log.state.path, log.state.position
    assert size_of(disk, log) > position
    log.roll()
    assert disk.status(BASE / sealed).size == position
    log.append(numbered(4, 3))
    log.close()
    assert size_of(disk, log) == log.state.position


def test_opening_after_a_kill_cuts_them_off_and_takes_them_for_no_torn_write() -> None:
    disk = SimulatedDisk()
    log = open_on(disk)
    log.append(numbered(1, 3))
    log.roll()  # so that the manifest knows everything before the next record
    log.append(numbered(4, 1))
    log.append(numbered(5, 1))
    killed = disk.killed()
    again = open_on(killed)
    assert [seq for seq, _ in content(again)] == [1, 2, 3, 4, 5]
    assert again.recovery.torn_bytes == 0
    assert size_of(killed, again) == again.state.position
    assert again.append(numbered(6, 1)) == (6, 6)


def test_a_record_that_only_its_end_was_written_of_is_torn_and_counted_without_the_zeros() -> None:
    disk = SimulatedDisk()
    log = open_on(disk)
    log.append(numbered(1, 3))
    killed = disk.killed()
    killed.open(BASE / log.state.path, write=True).write_at([b"end of a record"], log.state.position + 20)
    again = open_on(killed)
    assert again.recovery.torn_bytes == 20 + len(b"end of a record")
    assert [seq for seq, _ in content(again)] == [1, 2, 3]


def test_zeros_in_place_of_messages_are_damage() -> None:
    disk = SimulatedDisk()
    log = open_on(disk)
    log.append(numbered(1, 1))
    position = log.state.position
    log.append(numbered(2, 1))
    log.close()
    disk.open(BASE / log.state.path, write=True).write_at([bytes(log.state.position - position)], position)
    again = open_on(disk)
    with pytest.raises(SegmentDamaged):
        content(again)
    again.close()
    (damage,) = verify(disk, BASE).damage
    assert (damage.position, damage.first_seq, damage.last_seq) == (position, 2, 2)


def test_verify_and_salvage_of_a_killed_log_do_not_speak_of_them() -> None:
    disk = SimulatedDisk()
    log = open_on(disk)
    log.append(numbered(1, 3))
    log.roll()
    log.append(numbered(4, 1))
    written, killed = log.state.position, disk.killed()
    (note,) = verify(killed, BASE).notes
    assert f": {written} bytes from 0 on, written since the last manifest" in note
    report = salvage(killed, BASE, clock=FakeClock())
    assert not report.changed
    assert report.messages == 4


@pytest.mark.parametrize("lost", ["pointer", "everything"])
def test_salvage_finds_their_begin_where_no_manifest_tells_it(lost: str) -> None:
    disk = SimulatedDisk()
    log = open_on(disk)
    log.append(numbered(1, 3))
    log.append(numbered(4, 1))
    killed = disk.killed()
    names = [name for name in killed.list_directory(BASE) if "manifest" in name.lower()]
    for name in names if lost == "everything" else names[:1]:
        killed.remove(BASE / name)
    report = salvage(killed, BASE, clock=FakeClock())
    assert (report.messages, report.damage) == (4, [])
    again = open_on(killed)
    assert [seq for seq, _ in content(again)] == [1, 2, 3, 4]
    again.close()
    assert verify(killed, BASE).notes == []


def test_a_disk_with_room_for_the_record_alone_takes_it_without_zeros() -> None:
    disk = SimulatedDisk()
    faulty = FaultyFilesystem(disk)
    log = open_on(faulty)
    log.append(numbered(1, 2))
    size = log.state.position
    ready = size_of(disk, log)
    faulty.plan = FullDisk(room=2 * size)
    log.append(numbered(3, 2))
    assert size_of(disk, log) == ready
    log.append(numbered(5, 2))
    assert [seq for seq, _ in content(log)] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(DiskFull):
        log.append(numbered(7, 2))
    assert [seq for seq, _ in content(open_on(disk.killed()))] == [1, 2, 3, 4, 5, 6]
