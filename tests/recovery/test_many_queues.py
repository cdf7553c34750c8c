"""More queues than file handles: they are pushed to, opened again and popped from; and when handles do run out."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fixtures.embedded_stores import opened
from fixtures.logs import numbered, rows
from fixtures.store_steps import push, take, taken_ids
from forebay.commitlog import CommitLog
from forebay.commitlog import log as log_module
from forebay.commitlog.kept_open import KeptOpen
from forebay.errors import AppendFailed, LogLocked, TooManyOpenFiles
from forebay.testing.fake_clock import FakeClock
from forebay.testing.simulated_disk import SimulatedDisk

PROCESS = Path(__file__).parent / "many_queues_process.py"
HANDLES = 256


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queues", "more"), [(2_000, []), pytest.param(20_000, ["unsynced"], marks=pytest.mark.nightly)]
)
def test_thousands_of_queues_are_served_with_256_file_handles(tmp_path: Path, queues: int, more: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, str(PROCESS), str(tmp_path / "data"), str(queues), str(HANDLES), *more],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(PROCESS.parents[1])},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["wrong"] == 0
    assert told["most"] < HANDLES - 64, "there are some left for connections"


@pytest.fixture
def one_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_kept", KeptOpen(lambda: 1, few_files=0))


@pytest.mark.usefixtures("one_kept")
def test_logs_that_take_turns_with_one_file_lose_nothing_in_any_crash() -> None:
    disk = SimulatedDisk()
    bases = [Path("/one"), Path("/other")]
    logs = [CommitLog.open(base, filesystem=disk, clock=FakeClock()) for base in bases]
    for round_number in range(4):
        for log in logs:
            log.append(numbered(2 * round_number + 1, 2))
    assert sum(log._writer._file is not None for log in logs) == 1
    for crashed in [*disk.crash_states(len(disk.journal), at_most=200), disk.killed()]:
        for base in bases:
            with CommitLog.open(base, filesystem=crashed, clock=FakeClock()) as log:
                assert [seq for seq, _ in rows(log.read(1))] == list(range(1, 9))


@contextmanager
def no_handles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that has as many files open as it may."""
    really_open = os.open

    def refuse(path: object, *arguments: object, **more: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    monkeypatch.setattr(os, "open", refuse)
    try:
        yield
    finally:
        monkeypatch.setattr(os, "open", really_open)


@pytest.mark.usefixtures("one_kept")
def test_append_without_a_handle_is_refused_and_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with CommitLog.open(tmp_path / "a") as log, CommitLog.open(tmp_path / "b") as other:
        log.append(numbered(1, 1))
        other.append(numbered(1, 1))  # which takes the only file
        with no_handles(monkeypatch), pytest.raises(AppendFailed, match="Too many open files"):
            log.append(numbered(2, 1))
        with no_handles(monkeypatch), pytest.raises(TooManyOpenFiles, match="ulimit -n"):
            list(log.read(1))
        assert log.append(numbered(2, 1)) == (2, 2)
        assert [seq for seq, _ in rows(log.read(1))] == [1, 2]


async def _refused_push(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await opened(directory)
    try:
        await push(store, "old", queue="old")
        with no_handles(monkeypatch), pytest.raises(TooManyOpenFiles):
            await push(store, "new", queue="new")
        assert [status.queue.name for status in await store.queues()] == ["old"]
        assert [path.name for path in (directory / "queues").iterdir()] == ["1"]
        await push(store, "again", queue="new")
        assert await taken_ids(store, queue="new") == ["again"]
        assert [message.transaction_id for message in (await take(store, queue="old")).messages] == ["old"]
    finally:
        await store.close()


def test_push_that_finds_no_handle_for_its_new_queue_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_refused_push(tmp_path, monkeypatch))


def test_log_of_a_queue_is_owned_by_who_has_its_store_open(tmp_path: Path) -> None:
    async def look() -> None:
        store = await opened(tmp_path)
        try:
            await push(store, "a")
            with pytest.raises(LogLocked, match=f"is open in process {os.getpid()} "):
                CommitLog.open(tmp_path / "queues" / "1")
        finally:
            await store.close()

    asyncio.run(look())
    CommitLog.open(tmp_path / "queues" / "1").close()


def test_empty_log_of_a_queue_that_was_never_made_is_removed_and_one_with_messages_is_not(tmp_path: Path) -> None:
    async def open_and_close() -> None:
        store = await opened(tmp_path)
        await store.close()

    asyncio.run(open_and_close())
    CommitLog.open(tmp_path / "queues" / "5").close()
    (tmp_path / "queues" / "6").mkdir()
    with CommitLog.open(tmp_path / "queues" / "7") as log:
        log.append(numbered(1, 1))
    asyncio.run(open_and_close())
    assert [path.name for path in (tmp_path / "queues").iterdir()] == ["7"]


def test_limit_of_open_files_is_raised_as_far_as_allowed_and_told() -> None:
    program = (
        "import logging, resource; from forebay.cli.file_handles import raise_limit; "
        "logging.basicConfig(level='INFO'); "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 512)); "
        "assert raise_limit() == 512 == resource.getrlimit(resource.RLIMIT_NOFILE)[0]"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "the limit of open files is raised from 200 to 512" in done.stderr
    assert "no more than 512 files may be open at once" in done.stderr
