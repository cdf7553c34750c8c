"""A disk that does not let the drain keep something costs no other event, no order, and nothing for ever."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from fixtures import buffer_steps
from fixtures.buffer_steps import AWAY, FEW_AT_ONCE, Shelf, drained, intake_on, message, until
from forebay.filesystem import RealFilesystem
from forebay.ingest import Intake
from forebay.ingest.buffer_directory import BufferDirectory
from forebay.ingest.buffer_file import Rotation
from forebay.ingest.buffer_writes import BufferFull, BufferKind
from forebay.ingest.event import frames_of
from forebay.model.push_run import PushRun
from forebay.testing.faulty_filesystem import Fail, Fault, FaultyFilesystem, Operation, nth

started = partial(buffer_steps.started, limits=FEW_AT_ONCE)


class Disk:
    """Calls of some names fail in `failed/`, as often as it is told."""

    def __init__(self, *names: str, times: int = 0, number: int = errno.ENOSPC) -> None:
        self.names = names
        self.times = times
        self._number = number

    def __call__(self, operation: Operation) -> Fault | None:
        if "failed" in (operation.path.name, operation.path.parent.name) and operation.name in self.names:
            self.times -= 1
            return Fail(self._number) if self.times >= 0 else None
        return None

    def system(self) -> FaultyFilesystem:
        return FaultyFilesystem(RealFilesystem(), self)


FOREVER = 1 << 30


async def buffered(intake: Intake, store: Shelf, *items: PushRun) -> None:
    store.trouble = AWAY
    for item in items:
        await intake.push([item])


def failed_events(intake: Intake) -> int:
    return intake.drain_loop.drainers[BufferKind.FAILOVER].failed_events


# one file


@pytest.mark.parametrize("name", ["write", "sync", "sync_directory"])
def test_failed_file_is_as_it_was_when_the_disk_does_not_confirm(name: str, tmp_path: Path) -> None:
    disk = Disk(name, times=0)
    directory = BufferDirectory(disk.system(), tmp_path)
    directory.prepare()
    path = directory.failed.new_file(BufferKind.FAILOVER, 1)
    for before in (b"", b"first"):
        disk.times = 1
        with pytest.raises((OSError, BufferFull)):
            directory.failed.append(path, [b"again"])
        assert (path.read_bytes() if path.exists() else b"") == before
        assert path.exists() == bool(before)
        directory.failed.append(path, [b"first"])
    assert path.read_bytes() == b"firstfirst"


# events that the store refuses


@pytest.mark.parametrize("faults", [("sync",), ("sync_directory",), ("sync", "remove"), ("sync", "truncate")])
async def test_refused_events_whose_move_was_not_confirmed_count_once(faults: tuple[str, ...], tmp_path: Path) -> None:
    disk = Disk(*faults, number=errno.EIO)
    store = Shelf()
    async with started(store, tmp_path, filesystem=disk.system()) as intake:
        store.refuses = {"full"}
        for n, texts in enumerate((["1", "2"], ["3"])):  # into a new file, and behind what is there
            await buffered(intake, store, *(message(text, "full") for text in texts), message(f"x{n}"))
            disk.times = len(faults)
            store.trouble = None
            await until(lambda texts=texts: failed_events(intake) == int(texts[-1]), 5.0)  # type: ignore[misc]
        assert intake.drain_loop.failover.backlog.events == 3
        store.refuses = set()
        await until(lambda: not intake.drain_loop.failover.backlog.events, 5.0)
        await buffered(intake, store, message("y", "other"))
        store.trouble = None
        await until(lambda: store.texts("other") == ["y"], 5.0)
        figures = await intake.figures()
        assert (figures.pending, figures.failed) == (0, 0)
    assert (store.texts("full"), store.texts()) == (["1", "2", "3"], ["x0", "x1"])


async def test_refused_events_that_find_no_room_hold_up_no_other_queue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk("write", times=FOREVER)
    store = Shelf()
    async with started(store, tmp_path, filesystem=disk.system()) as intake:
        store.refuses = {"full"}
        await buffered(intake, store, *(message(str(n), "full" if n % 3 == 0 else "orders") for n in range(20)))
        store.trouble = None
        others = [str(n) for n in range(20) if n % 3]
        await until(lambda: store.texts() == others, 5.0)
        assert (failed_events(intake), intake.drain_loop.failover.backlog.events) == (0, 7)
        assert intake.is_db_healthy
        disk.times = 0
        await until(lambda: failed_events(intake) == 7, 5.0)
        store.refuses = set()
        await drained(intake)
        assert intake.drain_loop.drainers[BufferKind.FAILOVER].counts.drained == 20, "nothing was stored twice"
    assert store.texts("full") == [str(n) for n in range(20) if n % 3 == 0]
    assert "BUG" not in caplog.text
    assert caplog.text.count("cannot be drained to their end") == 1


async def test_refused_events_do_not_overtake_earlier_ones_that_found_no_room(tmp_path: Path) -> None:
    disk = Disk("write", times=1)
    store = Shelf()
    async with started(store, tmp_path, filesystem=disk.system()) as intake:
        store.refuses = {"full"}
        await buffered(intake, store, *(message(str(n), "full") for n in range(10)))
        store.trouble = None
        await until(lambda: failed_events(intake) == 10, 5.0)
        store.refuses = set()
        await drained(intake)
    assert store.texts("full") == [str(n) for n in range(10)]


# bytes that are no events


def leave_damaged_file(folder: Path) -> list[bytes]:
    """Ten events with damaged bytes after the first and a torn end. Returns what has to be kept."""
    frames = frames_of([message(str(n)) for n in range(10)], is_failover=True, now_us=1, cipher=None)
    (folder / "failover.buf").write_bytes(frames[0] + b"no frame" + b"".join(frames[1:]) + frames[0][:30])
    return [b"no frame", frames[0][:30]]


def kept_in(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / "failed").glob("*.damaged"))]


async def test_server_starts_with_damaged_bytes_that_find_no_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = leave_damaged_file(tmp_path)
    disk = Disk("write", times=FOREVER)
    store = Shelf()
    async with started(store, tmp_path, filesystem=disk.system()) as intake:
        assert store.texts() == [str(n) for n in range(10)]
        assert "cannot be set aside" in caplog.text
        assert (intake.is_db_healthy, kept_in(tmp_path)) == (True, [])
        assert [one.status for one in await intake.push([message("10")])] == ["queued"]
        disk.times = 0
        await until(lambda: not intake.drain_loop.failover.has_bytes(), 5.0)
        assert intake.drain_loop.drainers[BufferKind.FAILOVER].counts.drained == 10, "nothing was stored twice"
    assert kept_in(tmp_path) == damaged
    assert "BUG" not in caplog.text


async def test_damaged_bytes_that_found_no_room_outlive_the_process(tmp_path: Path) -> None:
    damaged = leave_damaged_file(tmp_path)
    store = Shelf()
    async with started(store, tmp_path, filesystem=Disk("write", times=FOREVER).system()):
        assert len(store.texts()) == 10
    assert kept_in(tmp_path) == []
    async with started(store, tmp_path) as intake:
        assert not intake.drain_loop.failover.has_bytes()
    assert kept_in(tmp_path) == damaged
    assert store.texts() == [str(n) for n in range(10)]


async def test_server_starts_although_its_buffer_file_cannot_be_rotated(tmp_path: Path) -> None:
    frames = frames_of([message("1")], is_failover=True, now_us=1, cipher=None)
    (tmp_path / "failover.buf").write_bytes(b"".join(frames))
    store = Shelf()
    plan = nth("replace", 1, Fail(errno.EIO), path_ends="failover_processing.buf")
    async with started(store, tmp_path, filesystem=FaultyFilesystem(RealFilesystem(), plan)) as intake:
        assert store.texts() == []
        await until(lambda: store.texts() == ["1"], 5.0)
        await drained(intake)


# QoS 0


@pytest.mark.parametrize("error", [OSError(errno.EIO, "no"), RuntimeError("whatever")], ids=["disk", "bug"])
async def test_qos0_is_stored_after_a_drain_that_failed(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Shelf()
    async with started(store, tmp_path) as intake:
        rotate: Callable[[], Rotation] = intake.drain_loop.qos0._rotate
        errors = [error]

        def fail_once() -> Rotation:
            if errors:
                raise errors.pop()
            return rotate()

        monkeypatch.setattr(intake.drain_loop.qos0, "_rotate", fail_once)
        await intake.push_qos0([message("1")], 1, None)
        await until(lambda: store.texts() == ["1"])
        assert not errors


# the end


async def test_stop_does_not_wait_for_the_drain_of_everything(tmp_path: Path) -> None:
    store = Shelf()
    intake = intake_on(store, tmp_path, limits=FEW_AT_ONCE._replace(stop_seconds=0.0))
    await intake.start(lambda queue, count: None)
    await buffered(intake, store, *(message(str(n)) for n in range(40)))
    stopping: list[asyncio.Task[None]] = []

    def stop(items: Sequence[PushRun]) -> None:
        if not stopping:
            stopping.append(asyncio.create_task(intake.stop()))

    store.on_push = stop
    store.trouble = None
    await until(lambda: bool(stopping))
    await stopping[0]
    assert len(store.items) == 4, "the chunk under way is stored, and no other"
    async with started(store, tmp_path):
        assert store.texts() == [str(n) for n in range(40)]
