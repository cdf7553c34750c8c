"""A buffer file that cannot be made, locked or opened is told as what it is, and nothing is claimed of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fixtures.buffer_steps import AWAY, Shelf, drained, message, started
from forebay.errors import BufferExhausted, StoreUnavailable
from forebay.filesystem import RealFilesystem, RealLock
from forebay.ingest import Intake
from forebay.testing.faulty_filesystem import Fail, Fault, FaultyFilesystem, Operation

KINDS = [(errno.ENOSPC, BufferExhausted), (errno.EACCES, StoreUnavailable), (errno.EMFILE, StoreUnavailable)]


class Stubborn(RealFilesystem):
    """Locks fail while there is a number to fail with."""

    number = 0

    def _locked(self, path: Path, operation: int) -> RealLock:
        if self.number:
            raise OSError(self.number, os.strerror(self.number), str(path))
        return super()._locked(path, operation)


class Plan:
    """Calls of one name on active files, or on their directory, fail while there is a number to fail with."""

    def __init__(self, name: str = "create") -> None:
        self.name = name
        self.number = 0

    def __call__(self, operation: Operation) -> Fault | None:
        is_ours = operation.name == self.name and operation.path.parent.name != "failed"
        return Fail(self.number) if self.number and is_ours else None


async def push(intake: Intake, lane: str) -> str:
    if lane == "qos0":
        [pushed] = await intake.push_qos0([message("1")], 1, None)
    else:
        [pushed] = await intake.push([message("1")])
    return pushed.status


@pytest.mark.parametrize("lane", ["qos0", "failover"])
@pytest.mark.parametrize(("number", "kind"), KINDS)
@pytest.mark.parametrize("is_lock", [False, True], ids=["file", "lock"])
async def test_push_is_refused_when_the_buffer_file_cannot_be_had(
    *, is_lock: bool, number: int, kind: type[Exception], lane: str, tmp_path: Path
) -> None:
    real, plan = Stubborn(), Plan()
    store = Shelf()
    async with started(store, tmp_path, filesystem=FaultyFilesystem(real, plan)) as intake:
        store.trouble = AWAY
        if is_lock:
            real.number = number
        else:
            plan.number = number
        with pytest.raises(kind) as caught:
            await push(intake, lane)
        assert not getattr(caught.value, "is_outcome_unknown", False)
        drain_loop = intake.drain_loop
        assert (drain_loop.failover.backlog.events, drain_loop.qos0.backlog.events) == (0, 0)
        assert not drain_loop.failover.has_bytes()
        real.number = plan.number = 0
        assert await push(intake, lane) == "buffered"
        store.trouble = None
        await drained(intake)
    assert store.texts() == ["1"]


async def test_name_that_was_not_confirmed_is_confirmed_before_anything_counts(tmp_path: Path) -> None:
    plan = Plan("sync_directory")
    system = FaultyFilesystem(RealFilesystem(), plan)
    store = Shelf()
    async with started(store, tmp_path, filesystem=system) as intake:
        store.trouble = AWAY
        plan.number = errno.EIO
        with pytest.raises(StoreUnavailable) as caught:
            await intake.push([message("no")])
        assert not caught.value.is_outcome_unknown
        plan.number = 0
        system.operations.clear()
        await intake.push([message("1")])
        names = [operation.name for operation in system.operations if operation.path.parent.name != "failed"]
        assert names == ["create", "sync_directory", "write", "sync"]
        store.trouble = None
        await drained(intake)
    assert store.texts() == ["1"]


async def test_write_that_cannot_be_taken_back_is_told_as_unknown(tmp_path: Path) -> None:
    def bad(operation: Operation) -> Fault | None:
        is_bad = operation.name in ("write", "truncate") and operation.path.name == "failover.buf"
        return Fail(errno.EIO) if is_bad else None

    store = Shelf()
    async with started(store, tmp_path, filesystem=FaultyFilesystem(RealFilesystem(), bad)) as intake:
        store.trouble = AWAY
        with pytest.raises(StoreUnavailable) as caught:
            await intake.push([message("1")])
        assert caught.value.is_outcome_unknown


async def test_attempt_whose_outcome_is_unknown_stays_so_when_the_buffer_cannot_be_opened(tmp_path: Path) -> None:
    plan = Plan()
    store = Shelf()
    async with started(store, tmp_path, filesystem=FaultyFilesystem(RealFilesystem(), plan)) as intake:
        plan.number = errno.EACCES
        store.is_lost_answer = True
        with pytest.raises(StoreUnavailable) as caught:
            await intake.push([message("1")])
        assert caught.value.is_outcome_unknown
    assert store.texts() == ["1"]


async def test_store_is_asked_when_the_buffer_cannot_be_opened(tmp_path: Path) -> None:
    plan = Plan()
    store = Shelf()
    async with started(store, tmp_path, filesystem=FaultyFilesystem(RealFilesystem(), plan)) as intake:
        plan.number = errno.EMFILE
        intake.drain_loop.note_failure("it was away a moment ago")
        [pushed] = await intake.push([message("1")])
        assert pushed.status == "queued"
    assert store.texts() == ["1"]
