"""A disk that says no: short writes, no room, errors on write and on sync, at every single call."""

from __future__ import annotations

import contextlib
import errno
import itertools
import random

import pytest

from fixtures.logs import BASE, TINY, content, numbered, open_on
from forebay.commitlog import CommitLog
from forebay.errors import AppendFailed, DiskFull, ForebayError, SyncFailed
from forebay.testing.fake_clock import FakeClock
from forebay.testing.faulty_filesystem import Fail, Fault, FaultyFilesystem, FullDisk, Operation, Short, nth
from forebay.testing.simulated_disk import SimulatedDisk

CHANGES = ("write", "sync", "truncate", "create", "make_directory", "sync_directory", "replace", "remove")


def faulty_log() -> tuple[SimulatedDisk, FaultyFilesystem, CommitLog]:
    disk = SimulatedDisk()
    faulty = FaultyFilesystem(disk)
    return disk, faulty, open_on(faulty)


def test_a_short_write_is_completed() -> None:
    disk, faulty, log = faulty_log()
    faulty.plan = lambda operation: Short(max(1, operation.size // 2)) if operation.name == "write" else None
    log.append(numbered(1, 4))
    assert content(log) == [(seq, b"%d" % seq) for seq in range(1, 5)]
    assert len(content(open_on(disk.killed()))) == 4


def test_a_failed_sync_fails_the_append_seals_the_segment_and_the_bytes_never_come_back() -> None:
    disk, faulty, log = faulty_log()
    log.append(numbered(1, 2))
    sealed = log.state.path
    faulty.plan = nth("sync", 1, Fail(errno.EIO), path_ends=".data")
    with pytest.raises(SyncFailed, match="writing and syncing 160 bytes at 160 failed: Input/output error"):
        log.append(numbered(3, 2))
    assert content(log) == [(1, b"1"), (2, b"2")]
    assert log.state.path != sealed
    assert [entry.path for entry in log.state.entries] == [sealed]
    assert log.append(numbered(3, 1)) == (3, 3)
    assert log.counters.failed_syncs == 1
    for crashed in disk.crash_states(len(disk.journal)):
        assert content(open_on(crashed)) == [(1, b"1"), (2, b"2"), (3, b"3")]


@pytest.mark.parametrize("can_cut", [True, False])
def test_a_failed_sync_that_cannot_be_sealed_either_is_an_unknown_outcome(can_cut: bool) -> None:
    """The process dies before the segment is sealed: the next opening may find the bytes, whole."""
    disk, faulty, log = faulty_log()
    log.append(numbered(1, 2))

    def broken(operation: Operation) -> Fault | None:
        if operation.path.name.startswith("manifest") or (operation.name == "truncate" and not can_cut):
            return Fail(errno.EIO)
        return Fail(errno.EIO) if operation.name == "sync" else None

    faulty.plan = broken
    with pytest.raises(SyncFailed) as failed:
        log.append(numbered(3, 2))
    assert failed.value.is_outcome_unknown
    assert len(content(open_on(disk.killed()))) == (2 if can_cut else 4)
    faulty.plan = lambda operation: None
    assert log.append(numbered(3, 1)) == (3, 3)
    for crashed in disk.crash_states(len(disk.journal)):
        assert content(open_on(crashed)) == [(1, b"1"), (2, b"2"), (3, b"3")], "sealed before the next append"


def test_a_failed_sync_that_was_sealed_is_a_known_outcome() -> None:
    _, faulty, log = faulty_log()
    faulty.plan = nth("sync", 1, Fail(errno.EIO), path_ends=".data")
    with pytest.raises(SyncFailed) as failed:
        log.append(numbered(1, 2))
    assert not failed.value.is_outcome_unknown


def test_a_failed_sync_of_an_empty_segment_takes_another_file_of_the_same_name() -> None:
    disk, faulty, log = faulty_log()
    before = disk.inodes[0].names
    faulty.plan = nth("sync", 1, Fail(errno.EIO), path_ends=".data")
    with pytest.raises(SyncFailed):
        log.append(numbered(1, 2))
    assert len(log.state.entries) == 0
    assert log.append(numbered(1, 1)) == (1, 1)
    assert before is disk.inodes[0].names
    for crashed in disk.crash_states(len(disk.journal)):
        assert content(open_on(crashed)) == [(1, b"1")]


def test_a_full_disk_is_named_changes_nothing_and_passes() -> None:
    disk, faulty, log = faulty_log()
    log.append(numbered(1, 2))
    faulty.plan = FullDisk(room=70)
    for _ in range(3):
        with pytest.raises(
            DiskFull, match=r"disk full: writing and syncing \d+ bytes at \d+ failed, \d+ bytes are free.*resumes"
        ):
            log.append(numbered(3, 2))
        assert content(log) == [(1, b"1"), (2, b"2")], "reading goes on"
    faulty.plan = lambda operation: None
    assert log.append(numbered(3, 2)) == (3, 4)
    assert log.counters.failed_appends == 3
    log.close()
    assert len(content(open_on(disk))) == 4


def test_a_disk_that_is_full_at_a_roll_lets_writing_resume() -> None:
    disk, faulty, log = faulty_log()
    while len(log.state.entries) == 0:
        log.append(numbered(log.next_seq, 2))
    path = log.state.path

    def no_room_for_manifests(operation: Operation) -> Fault | None:
        is_manifest = operation.path.name.startswith("manifest")
        return Fail(errno.ENOSPC) if operation.name == "write" and is_manifest else None

    faulty.plan = no_room_for_manifests
    while log.state.position + 200 < TINY.segment_bytes:
        log.append(numbered(log.next_seq, 2))
    with pytest.raises(DiskFull, match="starting a new segment failed"):
        log.append(numbered(log.next_seq, 9))
    assert log.state.path == path
    faulty.plan = lambda operation: None
    next_seq = log.next_seq
    assert log.append(numbered(next_seq, 9)) == (next_seq, next_seq + 8)
    assert log.state.path != path
    assert len(content(open_on(disk.killed()))) == next_seq + 8


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_an_error_at_any_call_costs_at_most_the_append_it_hit(error: int) -> None:
    """A scripted life, run once per call that changes the disk, with that one call failing."""
    number = 0
    while True:
        number += 1
        disk = SimulatedDisk()
        faulty = FaultyFilesystem(disk)
        clock = FakeClock()
        log = open_on(faulty, TINY, clock)
        seen = 0

        def plan(operation: Operation, number: int = number) -> Fault | None:
            nonlocal seen
            seen += operation.name in CHANGES
            return Fail(error) if seen == number and operation.name in CHANGES else None

        faulty.plan = plan
        kept, failures = life(log, clock)
        assert content(log)[-len(kept) :] == kept
        assert failures <= 1
        for crashed in [*disk.crash_states(len(disk.journal), at_most=24), disk.killed()]:
            found = content(open_on(crashed))
            assert found[-len(kept) :] == kept
        faulty.plan = lambda operation: None
        log.close()
        assert content(open_on(disk))[-len(kept) :] == kept
        if seen < number:
            assert number > 30, "the life touches the disk often enough to mean something"
            return


def life(log: CommitLog, clock: FakeClock) -> tuple[list[tuple[int, bytes]], int]:
    """Appends, rolls by size and by day and a truncation; returns what must be there at the end, and the failures."""
    acknowledged: list[tuple[int, bytes]] = []
    failures = 0
    for step in range(8):
        try:
            if step == 4:
                clock.advance(86_400)
            if step == 6:
                log.truncate_before(5)
            payload = b"step %d " % step + random.Random(step).randbytes(250)
            first, _ = log.append(numbered(1, 1).__class__([payload], [clock.now_us()]))
            acknowledged.append((first, payload))
        except AppendFailed:
            failures += 1
        except ForebayError:
            failures += 1
    return [row for row in acknowledged if row[0] >= log.first_seq], failures


def test_when_even_sealing_fails_the_next_append_seals_first() -> None:
    disk, faulty, log = faulty_log()
    log.append(numbered(1, 2))

    def broken(operation: Operation) -> Fault | None:
        return Fail(errno.EIO) if operation.name in ("sync", "truncate", "create") else None

    faulty.plan = broken
    with pytest.raises(SyncFailed):
        log.append(numbered(3, 2))
    with pytest.raises(AppendFailed, match="starting a new segment failed"):
        log.append(numbered(3, 2))
    assert len(log.state.entries) == 0
    faulty.plan = lambda operation: None
    assert log.append(numbered(3, 2)) == (3, 4)
    assert len(log.state.entries) == 1
    assert content(log) == [(seq, b"%d" % seq) for seq in range(1, 5)]
    for crashed in [*disk.crash_states(len(disk.journal)), disk.killed()]:
        assert len(content(open_on(crashed))) == 4


def test_a_manifest_that_cannot_be_written_at_close_is_no_loss() -> None:
    disk, faulty, log = faulty_log()
    log.append(numbered(1, 3))
    faulty.plan = lambda operation: Fail(errno.EIO) if operation.path.name.startswith("manifest") else None
    log.close()
    again = open_on(disk)
    assert again.recovery.messages_adopted == 3
    assert len(content(again)) == 3


def test_a_pointer_of_unknown_state_is_settled_before_a_slot_is_overwritten() -> None:
    """After a failed pointer write the disk may point at either slot, so neither may be torn."""
    disk, faulty, log = faulty_log()
    log.append(numbered(1, 2))
    faulty.plan = nth("sync", 1, Fail(errno.EIO), path_ends="manifest.current")
    with pytest.raises(ForebayError):
        log.roll()
    faulty.plan = lambda operation: None
    asked = len(disk.journal)
    log.roll()
    for point in range(asked, len(disk.journal) + 1):
        for crashed in disk.crash_states(point):
            assert len(content(open_on(crashed))) == 2


@pytest.mark.parametrize("messages", [0, 2])
@pytest.mark.parametrize("place", range(1, 18))
def test_what_is_acknowledged_after_a_roll_that_failed_at_any_step_is_there_after_a_crash(
    messages: int, place: int
) -> None:
    """The roll may be in force on the disk although it was told to have failed."""
    disk, faulty, log = faulty_log()
    if messages:
        log.append(numbered(1, messages))
    steps = itertools.count(1)
    faulty.plan = lambda operation: Fail(errno.EIO) if operation.name in CHANGES and next(steps) == place else None
    with contextlib.suppress(ForebayError, OSError):
        log.roll()
    faulty.plan = lambda operation: None
    log.append(numbered(messages + 1, 1))
    for crashed in [*disk.crash_states(len(disk.journal)), disk.killed()]:
        assert [seq for seq, _ in content(open_on(crashed))] == list(range(1, messages + 2))


def test_the_log_is_still_locked_after_faults() -> None:
    _, faulty, log = faulty_log()
    faulty.plan = lambda operation: Fail(errno.EIO) if operation.name == "sync" else None
    with pytest.raises(SyncFailed):
        log.append(numbered(1, 1))
    with pytest.raises(ForebayError, match="the log is open in process"):
        CommitLog.open(BASE, TINY, filesystem=faulty, clock=FakeClock())
