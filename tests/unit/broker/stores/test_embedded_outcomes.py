"""What a client is told of work that failed: refused where nothing of it counts, unknown where it may, never both."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from fixtures.arrow_steps import stage
from fixtures.embedded_stores import opened
from fixtures.store_steps import answer, configure, ids, item, push, take, taken_ids
from forebay.broker.messages import Popped, Pushed
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.broker.stores.embedded.database import CommitFailed, Database
from forebay.broker.stores.embedded.engine import BROKEN_MAX
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.errors import AppendFailed, DiskFull, RangeGone, StoreUnavailable, TooManyOpenFiles, Transient
from forebay.model.queue import QueueOptions
from forebay.testing.faulty_filesystem import Fail, Fault, FaultyFilesystem, Operation, Plan, nth

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def store(tmp_path: Path, disk: FaultyFilesystem, limits: EmbeddedLimits) -> AsyncIterator[EmbeddedStore]:
    store = await opened(tmp_path / "data", disk=disk, limits=limits)
    await push(store, "a")
    yield store
    disk.plan = lambda operation: None
    await store.close()


def no_new_logs(number: int) -> Plan:
    """A plan: every directory and file that is made for a new queue is refused."""

    def plan(operation: Operation) -> Fault | None:
        is_new = operation.path.parts[-2:] != ("queues", "1") and "/queues/1/" not in str(operation.path)
        return Fail(number) if is_new and operation.name in ("make_directory", "create", "write") else None

    return plan


def directories(base: Path) -> list[str]:
    return sorted(path.name for path in (base / "data" / "queues").iterdir())


# --- queues that cannot be made ---


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EMFILE, TooManyOpenFiles)])
async def test_push_that_needs_a_queue_fails_alone(
    store: EmbeddedStore, disk: FaultyFilesystem, tmp_path: Path, number: int, kind: type[Transient]
) -> None:
    disk.plan = no_new_logs(number)
    new = [push(store, "x", queue=f"new{i}") for i in range(BROKEN_MAX + 2)]
    told = await asyncio.gather(push(store, "b"), *new, push(store, "c"), return_exceptions=True)
    assert [found[0].status for found in (told[0], told[-1])] == ["queued", "queued"]  # type: ignore[index]
    assert [type(found) for found in told[1:-1]] == [kind] * len(new)
    disk.plan = lambda operation: None
    assert await taken_ids(store) == ["a", "b", "c"]
    assert [status.queue.name for status in await store.queues()] == ["orders"]
    assert directories(tmp_path) == ["1"]
    await push(store, "x", queue="new0")
    assert await taken_ids(store, queue="new0") == ["x"]


async def test_directory_that_cannot_be_removed_at_once_is_removed_later(
    store: EmbeddedStore, disk: FaultyFilesystem, tmp_path: Path
) -> None:
    """Removing a directory takes a file handle too."""
    no_manifest = nth("write", 1, Fail(errno.EMFILE), path_ends="manifest.1")
    disk.plan = lambda done: Fail(errno.EMFILE) if done.name.startswith("remove") else no_manifest(done)
    with pytest.raises(TooManyOpenFiles):
        await push(store, "x", queue="new")
    assert directories(tmp_path) == ["1", "2"]
    disk.plan = lambda operation: None
    await take(store)
    assert directories(tmp_path) == ["1"]


async def test_log_of_a_queue_that_was_never_made_is_removed_when_the_store_opens(tmp_path: Path) -> None:
    store = await opened(tmp_path / "data")
    await push(store, "a")
    await store.close()
    (tmp_path / "data" / "queues" / "7").mkdir()
    with_data = tmp_path / "data" / "queues" / "8" / "2026" / "01" / "01"
    with_data.mkdir(parents=True)
    (with_data / "0000000000000001.data").write_bytes(b"of another database")
    store = await opened(tmp_path / "data")
    assert directories(tmp_path) == ["1", "8"]
    await push(store, "x", queue="new")
    assert directories(tmp_path) == ["1", "8", "9"]
    await store.close()


# --- several records for one cycle ---


@pytest.mark.parametrize("limits", [EmbeddedLimits(record_messages_max=2)])
async def test_what_was_written_before_a_failed_record_is_told_as_stored(
    store: EmbeddedStore, disk: FaultyFilesystem
) -> None:
    disk.plan = nth("sync", 2, Fail(errno.EIO), path_ends=".data")
    whole, cut, none = await asyncio.gather(
        push(store, "b"), push(store, "c", "d"), push(store, "e"), return_exceptions=True
    )
    assert isinstance(whole, list)
    assert isinstance(whole[0], Pushed)
    assert whole[0].status == "queued"
    assert isinstance(cut, StoreUnavailable)
    assert cut.is_outcome_unknown
    assert isinstance(none, Transient)
    assert await taken_ids(store) == ["a", "b", "c"]
    # Sent again under the same ids, as an unknown outcome asks for: each of them is there once.
    assert [pushed.status for pushed in await push(store, "c", "d")] == ["duplicate", "queued"]
    assert await taken_ids(store) == ["d"]


@pytest.mark.parametrize("limits", [EmbeddedLimits(queues_at_once_max=2)])
async def test_push_to_many_queues_is_answered_item_by_item(store: EmbeddedStore, disk: FaultyFilesystem) -> None:
    items = [item("x", queue=f"q{n}") for n in (0, 1, 2, 3, 0)]
    assert [pushed.status for pushed in await store.push(items)] == ["queued"] * 4 + ["duplicate"]
    items = [item("y", queue=f"q{n}") for n in (0, 1, 2, 3, 4)]
    disk.plan = nth("sync", 3, Fail(errno.EIO), path_ends=".data")
    assert [pushed.status for pushed in await store.push(items)] == ["queued", "queued", "failed", "queued", "queued"]
    disk.plan = nth("sync", 1, Fail(errno.EIO), path_ends=".data")
    with pytest.raises(AppendFailed):
        await store.push([item("z", queue=f"q{n}") for n in range(5)])
    disk.plan = lambda operation: None
    assert [await taken_ids(store, queue=f"q{n}") for n in range(5)] == [["x", "y"]] * 2 + [["x"], ["x", "y"], ["y"]]


# --- commits that are not confirmed ---


@pytest.fixture
def failing_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next commit is written and not confirmed, as by a sync that fails: it is there, and SQLite says no."""
    confirmed = Database._commit

    def commit(database: Database) -> None:
        monkeypatch.setattr(Database, "_commit", confirmed)
        confirmed(database)
        raise CommitFailed("disk I/O error")

    monkeypatch.setattr(Database, "_commit", commit)


CHANGES: dict[str, Callable[[EmbeddedStore, Popped], Awaitable[object]]] = {
    "transaction": lambda store, popped: store.transact(
        [item("x", queue="other")], [answer(popped, popped.messages[0])]
    ),
    "configure": lambda store, popped: configure(store, QueueOptions(retry_limit=9)),
    "group deletion": lambda store, popped: store.delete_group("__QUEUE_MODE__", "orders"),
    "queue deletion": lambda store, popped: store.delete_queue("orders"),
    "push to several queues": lambda store, popped: store.push([item("x"), item("y", queue="other")]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_commit_that_is_not_confirmed_is_an_unknown_outcome(
    store: EmbeddedStore, request: pytest.FixtureRequest, change: Callable[[EmbeddedStore, Popped], Awaitable[object]]
) -> None:
    popped = await take(store)
    request.getfixturevalue("failing_commit")
    with pytest.raises(StoreUnavailable) as raised:
        await change(store, popped)
    assert raised.value.is_outcome_unknown


async def test_queue_whose_commit_is_not_confirmed_keeps_its_log_until_it_is_surely_gone(
    store: EmbeddedStore, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """After a kill the commit may be found: then the queue is there, and must find its messages."""
    request.getfixturevalue("failing_commit")
    with pytest.raises(StoreUnavailable):
        await push(store, "x", queue="new")
    shutil.copytree(tmp_path / "data", tmp_path / "killed" / "data")
    killed = await opened(tmp_path / "killed" / "data")
    assert await taken_ids(killed, queue="new") == ["x"]
    await killed.close()


async def test_stage_whose_commit_is_not_confirmed_keeps_its_file(
    store: EmbeddedStore, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    request.getfixturevalue("failing_commit")
    with pytest.raises(StoreUnavailable) as raised:
        await stage(store, b"x")
    assert raised.value.is_outcome_unknown
    assert len(list((tmp_path / "data" / "stages").iterdir())) == 1


# --- calls that fail half-way ---


async def test_call_that_is_refused_half_way_changes_nothing(store: EmbeddedStore) -> None:
    def half() -> None:
        store._engine.database.do("UPDATE queues SET task = 'changed'")
        raise RangeGone("orders", 1, 2)

    refused, pushed = await asyncio.gather(store._call(half), push(store, "b"), return_exceptions=True)
    assert isinstance(refused, RangeGone)
    assert not isinstance(pushed, BaseException)
    assert [row for (row,) in await store._call(lambda: store._engine.database.all("SELECT task FROM queues"))] == [""]
    assert ids(await take(store)) == ["a", "b"]
