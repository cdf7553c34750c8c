"""Events of another process in the same directory are never overlooked, whatever this process does meanwhile."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from fixtures.buffer_steps import AWAY, QUICK, Shelf, fence_looks, message, started, until
from forebay.filesystem import RealFilesystem
from forebay.ingest.buffer_directory import BufferDirectory
from forebay.ingest.buffer_file import BufferFile, Rotation
from forebay.ingest.buffer_writes import BufferKind
from forebay.ingest.event import frames_of
from forebay.testing.faulty_filesystem import Fault, FaultyFilesystem, Operation

FRAMES = frames_of([message("1")], is_failover=True, now_us=1, cipher=None)
PLACES = [("orders", "p")]


class Watched:
    """The buffer file of the process that drains, asked at every change it makes to the disk."""

    def __init__(self, folder: Path) -> None:
        self.seen: list[tuple[str, bool]] = []
        self._is_watching = False
        directory = BufferDirectory(FaultyFilesystem(RealFilesystem(), self._look), folder)
        directory.prepare()
        self.file = BufferFile(directory, BufferKind.FAILOVER, ThreadPoolExecutor(1))
        self.other = BufferDirectory(RealFilesystem(), folder)

    def _look(self, operation: Operation) -> Fault | None:
        if self._is_watching:
            self.seen.append((operation.name, self.file.has_strange_events()))
        return None

    async def own(self) -> None:
        await self.file.adopt(lambda events: None)
        self._is_watching = True

    def append_as_other(self) -> None:
        """As long as one of our own: sizes alone do not tell them apart."""
        self.other.append(BufferKind.FAILOVER, FRAMES, is_durable=True)

    def answers(self) -> set[bool]:
        answers = {is_strange for _, is_strange in self.seen}
        self.seen.clear()
        return answers


async def test_own_append_does_not_hide_the_events_of_others(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    await watched.own()
    await watched.file.append(FRAMES, PLACES)
    assert watched.answers() == {False}
    assert not watched.file.has_strange_events()
    watched.append_as_other()
    assert watched.file.has_strange_events()
    await watched.file.append(FRAMES, PLACES)
    assert watched.answers() == {True}


async def test_rotation_does_not_hide_the_events_of_others(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    await watched.own()
    await watched.file.append(FRAMES, PLACES)
    watched.append_as_other()
    watched.answers()
    assert await watched.file.rotate() is Rotation.FRESH
    assert watched.answers() == {True}
    assert watched.file.has_strange_events()


async def test_own_events_are_no_strangers_to_a_rotation(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    await watched.own()
    await watched.file.append(FRAMES, PLACES)
    watched.answers()
    assert await watched.file.rotate() is Rotation.FRESH
    assert watched.answers() == {False}


async def test_events_that_come_while_others_are_counted_are_strangers(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.append_as_other()
    await watched.file.adopt(lambda events: watched.append_as_other())
    assert watched.file.backlog.events == 1
    assert watched.file.has_strange_events()


async def test_fence_stands_for_who_looks_at_it_while_the_events_of_others_are_taken_over(tmp_path: Path) -> None:
    files = ThreadPoolExecutor(1)
    watched = Watched(tmp_path)
    file = BufferFile(watched.other, BufferKind.FAILOVER, files)
    watched.append_as_other()
    adopting = asyncio.create_task(file.adopt(lambda events: None))
    while not files._threads:
        await asyncio.sleep(0)
    # From here to the second question the event loop does nothing else, as it is within a push.
    is_held = file.backlog.holds(PLACES[0])
    files.submit(lambda: None).result()  # everything is counted
    assert is_held or file.has_strange_events()
    await adopting
    assert file.is_owner
    assert file.backlog.holds(PLACES[0])
    assert not file.has_strange_events()


async def test_one_look_does_for_all_pushes_that_were_there_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(Shelf(), tmp_path, is_remote=True) as intake:
        looks: list[BufferFile] = []
        look = BufferFile.has_strange_events

        def counted(file: BufferFile) -> bool:
            if file is intake.drain_loop.failover:  # the drain looks at the other one in its own time
                looks.append(file)
            return look(file)

        monkeypatch.setattr(BufferFile, "has_strange_events", counted)
        for _ in range(2):
            looks.clear()
            await asyncio.gather(*[intake.push([message(str(n), partition=str(n))]) for n in range(20)])
            assert len(looks) == 1


def _is_stored(store: Shelf, texts: list[str]) -> bool:
    return store.texts() == texts


async def test_push_that_comes_after_a_look_is_fenced_by_what_came_before_it(tmp_path: Path) -> None:
    store = Shelf()
    async with started(store, tmp_path, is_remote=True) as owner, started(store, tmp_path, is_remote=True) as guest:
        for round_number in range(5):
            assert (await guest.push([message(f"{round_number}a")]))[0].status == "queued"
            store.trouble = AWAY
            assert (await owner.push([message(f"{round_number}b")]))[0].status == "buffered"
            store.trouble = None
            await guest.push([message(f"{round_number}c")])
            stored = [f"{number}{letter}" for number in range(round_number + 1) for letter in "abc"]
            await until(partial(_is_stored, store, stored))
            await until(lambda: owner.is_db_healthy and guest.is_db_healthy and not owner.drain_loop.held_events)
            await until(lambda: not guest.drain_loop.failover.has_strange_events())


def drained_by_another(folder: Path) -> BufferDirectory:
    other = BufferDirectory(RealFilesystem(), folder)
    other.prepare()
    assert other.take_drain_lock("other")
    return other


async def test_guest_waits_until_another_process_has_drained(tmp_path: Path) -> None:
    other = drained_by_another(tmp_path)
    async with started(Shelf(), tmp_path, is_remote=True, limits=QUICK._replace(wait_seconds=60.0)) as guest:
        other.append(BufferKind.FAILOVER, FRAMES, is_durable=True)
        pushing = asyncio.create_task(guest.push([message("1")]))
        await fence_looks(guest)
        other.rotate(BufferKind.FAILOVER)
        await fence_looks(guest)
        assert not pushing.done()
        other.remove(other.processing(BufferKind.FAILOVER))
        assert (await pushing)[0].status == "queued"


async def test_after_a_wait_in_vain_nobody_waits(tmp_path: Path) -> None:
    other = drained_by_another(tmp_path)
    async with started(Shelf(), tmp_path, is_remote=True, limits=QUICK._replace(wait_seconds=0.2)) as guest:
        other.append(BufferKind.FAILOVER, FRAMES, is_durable=True)
        assert (await guest.push([message("1")]))[0].status == "buffered"
        assert 0 < guest._no_wait_until <= time.monotonic() + 0.2
        guest.limits = guest.limits._replace(wait_seconds=3600.0)
        guest._no_wait_until = time.monotonic() + 3600
        async with asyncio.timeout(30):
            assert (await guest.push([message("2")]))[0].status == "buffered"
        guest._no_wait_until = time.monotonic()
        pushing = asyncio.create_task(guest.push([message("3")]))
        await fence_looks(guest)
        assert not pushing.done(), "the while is over"
        other.rotate(BufferKind.FAILOVER)
        other.remove(other.processing(BufferKind.FAILOVER))
        assert (await pushing)[0].status == "queued"


@pytest.mark.parametrize("is_refused", [False, True])
async def test_guest_does_not_wait_for_what_takes_long(tmp_path: Path, is_refused: bool) -> None:
    """Much that another process has to drain, or what the store refuses."""
    other = drained_by_another(tmp_path)
    limits = QUICK._replace(wait_seconds=3600.0, wait_bytes=len(FRAMES[0]))
    async with started(Shelf(), tmp_path, is_remote=True, limits=limits) as guest:
        if is_refused:
            other.failed.append(other.failed.new_file(BufferKind.FAILOVER, 1), FRAMES)
        else:
            other.append(BufferKind.FAILOVER, FRAMES * 2, is_durable=True)
        async with asyncio.timeout(30):
            assert (await guest.push([message("1")]))[0].status == "buffered"


async def test_guest_remembers_no_bytes_and_counts_them_when_it_takes_over(tmp_path: Path) -> None:
    store = Shelf()
    store.trouble = AWAY
    async with started(store, tmp_path, is_remote=True) as guest_of_nobody:
        assert guest_of_nobody.drain_loop.qos0.is_owner
        async with started(store, tmp_path, is_remote=True) as guest:
            for n in range(10):
                for intake in (guest_of_nobody, guest):
                    await intake.push_qos0([message(f"{n}")], 60_000, 1000)
                    await intake.push([message(f"{n}", "other")])
            for file in (guest.drain_loop.qos0, guest.drain_loop.failover):
                assert (file.is_owner, file.backlog.active.ranges) == (False, [])
            assert len(guest_of_nobody.drain_loop.qos0.backlog.active.ranges) == 10
            await guest_of_nobody.stop()
            store.trouble = None
            await until(lambda: guest.drain_loop.qos0.is_owner)
            await until(lambda: len(store.items) == 40)
            await until(
                lambda: not guest.drain_loop.qos0.has_bytes() and not guest.drain_loop.failover.has_strange_events()
            )
    assert store.texts() == store.texts("other") == [str(n) for n in range(10) for _ in range(2)]
