"""A drain that fails half-way and is tried again: nothing is counted twice, so that no fence falls too early."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from fixtures import buffer_steps
from fixtures.buffer_steps import AWAY, FEW_AT_ONCE, Shelf, drained, message, until
from forebay.errors import BufferExhausted, StoreUnavailable
from forebay.filesystem import RealFilesystem
from forebay.ingest import Intake
from forebay.ingest.buffer_writes import BufferKind
from forebay.ingest.event import frames_of
from forebay.model.push_run import PushRun
from forebay.testing.faulty_filesystem import Fail, Fault, FaultyFilesystem, FullDisk, Operation

started = partial(buffer_steps.started, limits=FEW_AT_ONCE)


def held(intake: Intake) -> int:
    return intake.drain_loop.failover.backlog.events


async def buffered(intake: Intake, store: Shelf, *items: PushRun) -> None:
    store.trouble = AWAY
    for item in items:
        await intake.push([item])


async def test_store_that_goes_away_between_two_queues_leaves_the_counts_right(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        await buffered(intake, store, message("1"), message("2", "full"), message("3", "late"), message("4"))
        await buffered(intake, store, message("5"))

        def leave(items: Sequence[PushRun]) -> None:
            """`orders` was stored on its own, because `full` refuses; before `late` is asked, the store is gone."""
            if {item.queue for item in items} == {"orders"}:
                store.trouble = AWAY

        store.refuses = {"full"}
        store.on_push = leave
        store.trouble = None
        await until(lambda: store.texts() == ["1", "4"])
        await until(lambda: held(intake) == 3)
        for _ in range(3):  # and again: what was stored already does not count again
            store.trouble = None
            await until(lambda: store.trouble is not None or held(intake) == 1)
        store.on_push = lambda items: None
        store.trouble = None
        await until(lambda: held(intake) == 1)
        assert intake.drain_loop.failover.backlog.places() == [("full", "p")]
        store.refuses = set()
        await drained(intake)
    assert (store.texts(), store.texts("full"), store.texts("late")) == (["1", "4", "5"], ["2"], ["3"])


async def test_position_that_cannot_be_noted_holds_nothing_up(tmp_path: Path) -> None:
    def full(operation: Operation) -> Fault | None:
        return Fail(errno.ENOSPC) if operation.name == "write" and ".pos" in operation.path.name else None

    store = Shelf()
    async with started(store, tmp_path, filesystem=FaultyFilesystem(RealFilesystem(), full)) as intake:
        await buffered(intake, store, *(message(str(n)) for n in range(20)))
        store.trouble = None
        await until(lambda: held(intake) == 0, 3.0)
        assert intake.drain_loop.drainers[BufferKind.FAILOVER].counts.drained == 20, "no chunk was stored twice"
    assert store.texts() == [str(n) for n in range(20)]


async def test_failed_file_that_grows_is_not_offered_from_its_beginning_again(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        store.refuses = {"orders"}
        await buffered(intake, store, *(message(str(n)) for n in range(6)))
        store.trouble = None
        await until(lambda: intake.drain_loop.drainers[BufferKind.FAILOVER].failed_events == 6)

        def fill(items: Sequence[PushRun]) -> None:
            """There is room for one chunk, and then no more."""
            store.refuses = {"orders"}

        store.on_push = fill
        store.refuses = set()
        await until(lambda: len(store.items) == 4)
        await until(lambda: held(intake) == 2)
        await intake.push([message("6")])  # behind the others: the failed file grows
        await until(lambda: intake.drain_loop.drainers[BufferKind.FAILOVER].failed_events == 3)
        store.on_push = lambda items: None
        store.refuses = set()
        await drained(intake)
        figures = await intake.figures()
        assert (figures.failed, figures.pending, held(intake)) == (0, 0, 0)
        assert figures.counts["failover"].duplicates == 0
    assert store.texts() == [str(n) for n in range(7)]


async def test_failed_file_of_several_queues_is_stored_and_removed_once(tmp_path: Path) -> None:
    items = [message("1"), message("2", "other"), message("3")]
    failed = tmp_path / "failed" / "failover_2026-01-01T00:00:00.buf"
    failed.parent.mkdir()
    failed.write_bytes(b"".join(frames_of(items, is_failover=True, now_us=1, cipher=None)))
    store = Shelf()
    async with started(store, tmp_path) as intake:
        await intake.push([message("4", "other")])
        await drained(intake)
        assert (await intake.figures()).failed_files == []
    assert (store.texts(), store.texts("other")) == (["1", "3"], ["2", "4"])


@pytest.mark.parametrize("content", [b"", b"no frame at all"], ids=["empty", "damaged"])
async def test_failed_file_without_events_is_cleared_away(content: bytes, tmp_path: Path) -> None:
    failed = tmp_path / "failed" / "failover_2026-01-01T00:00:00.buf"
    failed.parent.mkdir()
    failed.write_bytes(content)
    async with started(Shelf(), tmp_path) as intake:
        figures = await intake.figures()
        assert figures.failed_files == []
    kept = [path.read_bytes() for path in failed.parent.glob("*.damaged")]
    assert kept == ([content] if content else [])


async def test_refusals_of_a_full_disk_do_not_use_up_the_limit(tmp_path: Path) -> None:
    disk = FullDisk(0)
    store = Shelf()
    limits = FEW_AT_ONCE._replace(max_bytes=2000)
    async with started(store, tmp_path, filesystem=FaultyFilesystem(RealFilesystem(), disk), limits=limits) as intake:
        store.trouble = AWAY
        for _ in range(30):
            with pytest.raises(BufferExhausted, match="cannot be written"):
                await intake.push([message("no")])
        disk.room = 1 << 20
        await intake.push([message("yes")])
        store.trouble = None
        await drained(intake)
    assert store.texts() == ["yes"]


async def test_guest_of_a_directory_gets_back_to_the_direct_way(tmp_path: Path) -> None:
    store = Shelf()
    async with (
        started(store, tmp_path, is_remote=True) as owner,
        started(store, tmp_path, is_remote=True) as guest,
    ):
        store.trouble = AWAY
        for n in range(10):
            await guest.push([message(str(n))])
        store.trouble = None
        await until(lambda: len(store.texts()) == 10)
        await until(lambda: guest.is_db_healthy and owner.is_db_healthy, 3.0)
        assert [one.status for one in await guest.push([message("10")])] == ["queued"]
        assert (await guest.figures()).pending == 0
    assert store.texts() == [str(n) for n in range(11)]


async def test_damaged_bytes_are_set_aside_once_however_often_the_drain_is_tried(tmp_path: Path) -> None:
    frames = frames_of([message("1"), message("2")], is_failover=True, now_us=1, cipher=None)
    (tmp_path / "failover.buf").write_bytes(frames[0] + b"no frame" + frames[1])
    store = Shelf()
    attempts = 0

    def refuse_to_write(items: Sequence[PushRun]) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 5:
            raise AWAY

    store.on_push = refuse_to_write
    async with started(store, tmp_path) as intake:
        await drained(intake)
    assert attempts >= 5
    assert [path.read_bytes() for path in (tmp_path / "failed").iterdir()] == [b"no frame"]
    assert store.texts() == ["1", "2"]


async def test_removal_that_is_not_confirmed_costs_the_next_file_nothing(tmp_path: Path) -> None:
    """The file is gone, the disk does not say so, and the next file is as long."""
    is_bad = False

    def bad(operation: Operation) -> Fault | None:
        return Fail(errno.EIO) if is_bad and operation.name == "sync_directory" else None

    store = Shelf()
    async with started(store, tmp_path, filesystem=FaultyFilesystem(RealFilesystem(), bad)) as intake:
        await buffered(intake, store, *(message(str(n)) for n in range(5)))
        await until(lambda: not intake.is_db_healthy)

        def spoil(items: Sequence[PushRun]) -> None:
            nonlocal is_bad
            is_bad = True

        store.on_push = spoil
        store.trouble = None
        await until(lambda: len(store.items) == 5)
        await until(lambda: not (tmp_path / "failover_processing.buf").exists())
        store.trouble = AWAY
        store.on_push = lambda items: None
        is_bad = False
        await buffered(intake, store, *(message(str(n)) for n in range(5, 10)))
        store.trouble = None
        await drained(intake)
    assert store.texts() == [str(n) for n in range(10)]


async def test_backlog_larger_than_its_queue_is_stored_as_room_comes(tmp_path: Path) -> None:
    """A chunk is refused as a whole; what fits of it has to go all the same."""
    store = Shelf()
    async with started(store, tmp_path) as intake:
        store.trouble = AWAY
        for n in range(20):
            await intake.push([message(str(n))])
        store.room = 3
        store.trouble = None
        await until(lambda: len(store.texts()) == 3)
        for room in (1, 5, 11):
            store.room = room
            await until(lambda: store.room == 0)
        await drained(intake)
    assert store.texts() == [str(n) for n in range(20)]


async def test_attempt_whose_outcome_is_unknown_is_not_told_as_refused(tmp_path: Path) -> None:
    """The store has taken it, the answer was lost, and the buffer has no room."""
    store = Shelf()
    disk = FaultyFilesystem(RealFilesystem(), FullDisk(0))
    async with started(store, tmp_path, filesystem=disk, is_remote=True) as intake:
        store.is_lost_answer = True
        with pytest.raises(StoreUnavailable) as caught:
            await intake.push([message("1")])
        assert caught.value.is_outcome_unknown
        assert store.texts() == ["1"]
        store.is_lost_answer, store.trouble = False, AWAY
        with pytest.raises(BufferExhausted):
            await intake.push([message("2")])


async def test_store_that_hangs_and_a_full_disk_leave_the_outcome_unknown(tmp_path: Path) -> None:
    store = Shelf()
    disk = FaultyFilesystem(RealFilesystem(), FullDisk(0))
    async with started(store, tmp_path, filesystem=disk, is_remote=True) as intake:
        store.seconds = 3600
        for _ in range(2):  # the second, when the breaker is open, insists
            with pytest.raises(StoreUnavailable) as caught:
                await intake.push([message("1")])
            assert caught.value.is_outcome_unknown
        store.seconds = 0.0
