"""Small QoS 0 appends are written by the event loop itself, when nothing stands in the way."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from fixtures.waiting import settled, until
from forebay.errors import StoreUnavailable
from forebay.filesystem import RealFilesystem
from forebay.ingest.buffer_directory import BufferDirectory
from forebay.ingest.buffer_file import AT_ONCE, AtOnce, BufferFile, Rotation
from forebay.ingest.buffer_writes import BufferKind
from forebay.testing.faulty_filesystem import Fail, FaultyFilesystem, nth

FRAME = b"\x03\x00\x00\x00abc"
PLACE = ("q", "p")


class Watching(RealFilesystem):
    """Notes which threads write."""

    def __init__(self) -> None:
        self.lockers: list[str] = []

    def wait_for_lock(self, path: Path):  # type: ignore[no-untyped-def]  # as inherited
        self.lockers.append(threading.current_thread().name)
        return super().wait_for_lock(path)

    def lock_if_free(self, path: Path):  # type: ignore[no-untyped-def]
        self.lockers.append(threading.current_thread().name)
        return super().lock_if_free(path)


@contextmanager
def open_buffer_file(
    base: Path,
    kind: BufferKind = BufferKind.QOS0,
    filesystem: RealFilesystem | None = None,
    at_once: AtOnce = AT_ONCE,
) -> Iterator[BufferFile]:
    directory = BufferDirectory(filesystem or RealFilesystem(), base)
    directory.prepare()
    with ThreadPoolExecutor(1, thread_name_prefix="files") as files:
        opened = BufferFile(directory, kind, files, at_once)
        opened.is_owner = True
        yield opened


async def test_a_small_append_needs_no_thread_and_a_durable_one_has_its_own(tmp_path: Path) -> None:
    here = threading.current_thread().name
    for kind, thread in ((BufferKind.QOS0, here), (BufferKind.FAILOVER, "files_0")):
        filesystem = Watching()
        with open_buffer_file(tmp_path / kind, kind, filesystem) as opened:
            await opened.append([FRAME], [PLACE])
            await opened.append([FRAME], [PLACE])
            assert filesystem.lockers == [thread, thread]
            assert opened.directory.active(kind).read_bytes() == FRAME * 2
            assert (opened.backlog.events, opened.backlog.active.ranges) == (2, [(0, 14)])
            assert not opened.has_strange_events()


async def test_a_large_append_and_one_after_a_slow_one_go_to_the_thread(tmp_path: Path) -> None:
    filesystem = Watching()
    # Any append is slow, and the rest behind it lasts for longer than the test does on the busiest machine.
    at_once = AtOnce(slow_seconds=-1.0, rest_seconds=3600.0)
    with open_buffer_file(tmp_path, filesystem=filesystem, at_once=at_once) as opened:
        await opened.append([bytes(at_once.bytes_max), FRAME], [PLACE])
        assert filesystem.lockers == ["files_0"]
        await opened.append([FRAME], [PLACE])
        await opened.append([FRAME], [PLACE])
        assert filesystem.lockers[1:] == [threading.current_thread().name, "files_0"]


async def test_an_append_waits_in_the_thread_for_whoever_has_the_lock(tmp_path: Path) -> None:
    filesystem = Watching()
    with open_buffer_file(tmp_path, filesystem=filesystem) as opened:
        lock = RealFilesystem().wait_for_lock(tmp_path / "append.lock")
        first = asyncio.create_task(opened.append([FRAME], [PLACE]))
        while opened._appends.is_idle:
            await asyncio.sleep(0)
        second = asyncio.create_task(opened.append([FRAME * 2], [PLACE, PLACE]))
        await until(lambda: "files_0" in filesystem.lockers)
        await settled()
        assert not first.done()
        assert not second.done()
        lock.release()
        await asyncio.gather(first, second)
        assert opened.directory.active(BufferKind.QOS0).read_bytes() == FRAME * 3
        assert (opened.backlog.events, opened.backlog.active.size) == (3, 21)


async def test_appends_and_rotations_that_cross_leave_every_byte_counted(tmp_path: Path) -> None:
    with open_buffer_file(tmp_path) as opened:

        async def append() -> None:
            for _ in range(200):
                await opened.append([FRAME], [PLACE])
                await asyncio.sleep(0)

        async def rotate() -> int:
            drained = 0
            while not appending.done() or opened.has_bytes():
                if await opened.rotate() is not Rotation.NOTHING:
                    path = opened.directory.processing(BufferKind.QOS0)
                    size = path.stat().st_size
                    assert opened.backlog.processing.covers((0, size))
                    await opened.in_files(lambda path=path: opened.directory.remove(path))  # type: ignore[misc]
                    opened.drained()
                    drained += size
            return drained

        appending = asyncio.create_task(append())
        assert await rotate() == 200 * len(FRAME)


async def test_an_append_that_fails_at_once_leaves_nothing_fenced(tmp_path: Path) -> None:
    faulty = FaultyFilesystem(RealFilesystem(), nth("write", 1, Fail(errno.EIO)))
    directory = BufferDirectory(faulty, tmp_path)
    directory.prepare()
    with ThreadPoolExecutor(1) as files:
        opened = BufferFile(directory, BufferKind.QOS0, files)
        opened.is_owner = True
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            await opened.append([FRAME], [PLACE])
        assert (opened.backlog.events, directory.size(directory.active(BufferKind.QOS0))) == (0, 0)
