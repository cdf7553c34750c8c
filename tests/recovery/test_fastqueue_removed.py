"""A send queue whose directory is removed while it is in use: it is made again; only what was nowhere else is lost."""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.sendqueues import drained, open_fastqueue
from forebay.errors import SendQueueLocked, SendQueueWriteFailed
from forebay.filesystem import Filesystem, RealFilesystem
from forebay.sendqueue.queue import Limits
from forebay.sendqueue.queues.fastqueue import FastQueue, FastQueueOptions
from forebay.testing.faulty_filesystem import Fail, Fault, FaultyFilesystem, Operation

ONE_CHUNK = FastQueueOptions(inmemory_blocks=4, chunk_bytes=1 << 20, write_buffer_bytes=64)
SMALL_CHUNKS = FastQueueOptions(inmemory_blocks=4, chunk_bytes=300, write_buffer_bytes=64)
LIMITS = Limits(1000, 1 << 20)


def remove_all(directory: Path) -> None:
    shutil.rmtree(directory)


def remove_with_its_parent(directory: Path) -> None:
    shutil.rmtree(directory.parent)


def remove_what_is_in_it(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


def opened(folder: Path, options: FastQueueOptions, filesystem: Filesystem | None = None) -> FastQueue[bytes]:
    directory = folder / "export" / "collector"
    directory.parent.mkdir(exist_ok=True)
    return open_fastqueue(filesystem or RealFilesystem(), limits=LIMITS, options=options, directory=directory)


def named(numbers: range) -> list[bytes]:
    return [b"%04d" % number + b"x" * 36 for number in numbers]


@pytest.mark.parametrize("remove", [remove_all, remove_with_its_parent, remove_what_is_in_it])
def test_nothing_is_lost_that_is_in_memory_or_in_a_chunk_that_is_open(
    remove: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = opened(tmp_path, ONE_CHUNK)
    for batch in named(range(20)):
        queue.push(batch)
    queue.sync()
    remove(queue.directory)
    for batch in named(range(20, 40)):
        queue.push(batch)
    first = queue.claim()  # read before anything has noticed
    assert first is not None
    assert first.batch == named(range(1))[0]
    queue.confirm(first)
    with caplog.at_level(logging.ERROR):
        queue.sync()
    assert "made again; nothing is lost" in caplog.text
    assert queue.counts["made_again"] == 1
    with pytest.raises(SendQueueLocked):
        opened(tmp_path, ONE_CHUNK)
    queue.close()
    again = opened(tmp_path, ONE_CHUNK)
    assert drained(again) == named(range(1, 40))
    again.close()


def test_what_was_in_closed_chunks_is_lost_told_and_counted_and_the_rest_comes_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = opened(tmp_path, SMALL_CHUNKS)
    for batch in named(range(40)):
        queue.push(batch)
    queue.sync()
    remove_all(queue.directory)
    for batch in named(range(40, 44)):
        queue.push(batch)
    with caplog.at_level(logging.ERROR):
        queue.sync()
        found = drained(queue)
    assert "chunks is lost" in caplog.text
    assert found == sorted(found)
    assert found[-8:] == named(range(36, 44))  # in memory, or in the chunk that is written to
    assert queue.counts["damaged"] >= 1
    assert queue.figures().batches == 0
    queue.close()


def test_making_it_again_is_gone_on_with_when_the_disk_refuses_at_first(tmp_path: Path) -> None:
    disk = RefusesOnce()
    queue = opened(tmp_path, ONE_CHUNK, FaultyFilesystem(RealFilesystem(), disk))
    for batch in named(range(20)):
        queue.push(batch)
    queue.sync()
    remove_all(queue.directory)
    disk.is_refusing = True
    with pytest.raises(SendQueueWriteFailed, match="No space left"):
        queue.sync()
    assert queue.counts["made_again"] == 0
    queue.close()
    again = opened(tmp_path, ONE_CHUNK)
    assert drained(again) == named(range(20))
    again.close()


def test_directory_that_another_process_has_made_meanwhile_is_left_to_it(tmp_path: Path) -> None:
    queue = opened(tmp_path, ONE_CHUNK)
    queue.push(b"mine")
    queue.sync()
    remove_all(queue.directory)
    other = opened(tmp_path, ONE_CHUNK)
    with pytest.raises(SendQueueWriteFailed, match="in use by a test now"):
        queue.sync()
    other.push(b"theirs")
    assert drained(other) == [b"theirs"]
    other.close()
    queue.close()


class RefusesOnce:
    """A plan for a disk that refuses the next write of a chunk, once."""

    is_refusing = False

    def __call__(self, operation: Operation) -> Fault | None:
        if self.is_refusing and operation.name == "write" and len(operation.path.name) == 16:
            self.is_refusing = False
            return Fail(errno.ENOSPC)
        return None
