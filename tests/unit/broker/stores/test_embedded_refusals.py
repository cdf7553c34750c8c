"""Transactions that are refused: they leave nothing behind in memory, and cost no more where there is more."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fixtures.arrow_steps import commit, stage
from fixtures.embedded_stores import opened
from fixtures.store_steps import answer, configure, finish, ids, item, push, take, taken_ids
from forebay.broker.messages import Acknowledgement, Popped, PopRequest
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.errors import AppendFailed, QueueFull
from forebay.model.push_run import PushRun
from forebay.model.queue import DEFAULT_GROUP, QueueOptions
from forebay.testing.fake_clock import FakeClock
from forebay.testing.faulty_filesystem import Fail, FaultyFilesystem, nth

pytestmark = pytest.mark.asyncio
LEASE = QueueOptions(lease_seconds=30)
Refuse = Callable[[list[PushRun], list[Acknowledgement]], Awaitable[object]]


@pytest_asyncio.fixture
async def store(tmp_path: Path, clock: FakeClock, disk: FaultyFilesystem) -> AsyncIterator[EmbeddedStore]:
    store = await opened(tmp_path, clock, disk)
    await configure(store, LEASE)
    await push(store, "a", "b")
    await configure(store, QueueOptions(max_size=1), queue="full")
    await push(store, "only", queue="full")
    yield store
    await store.close()


@pytest.fixture(params=["a duplicate", "no room", "a refused answer", "no disk"])
def refuse(request: pytest.FixtureRequest, store: EmbeddedStore, disk: FaultyFilesystem) -> Refuse:
    """Transactions of these pushes and answers, and of something that cannot be."""

    async def transact(pushes: list[PushRun], acks: list[Acknowledgement]) -> None:
        if request.param == "a duplicate":
            assert (await store.transact([*pushes, item("a")], acks)).error
        elif request.param == "a refused answer":
            wrong = answer(Popped("nobody's", [], 0), (await store.read("orders", 1, 1))[0])
            assert (await store.transact(pushes, [*acks, wrong])).error
        elif request.param == "no room":
            with pytest.raises(QueueFull):
                await store.transact([*pushes, item("more", queue="full")], acks)
        else:
            disk.plan = nth("sync", 1, Fail(errno.EIO), path_ends=".data")
            with pytest.raises(AppendFailed):
                await store.transact([*pushes, item("unwritten")], acks)
            disk.plan = lambda operation: None

    return transact


async def test_queues_and_partitions_that_it_named_are_not_there(
    store: EmbeddedStore, refuse: Refuse, tmp_path: Path
) -> None:
    await take(store, queue="orders", group="watching")
    await refuse([item("x", "named"), item("x", "p", queue="new")], [])
    assert await store.queue("new") is None
    assert sorted(path.name for path in (tmp_path / "queues").iterdir()) == ["1", "2"]
    assert [status.name for status in await store.partitions("orders", 10, 0)] == ["Default"]
    # The number that the partition would have had is another's now.
    [other] = await push(store, "y", queue="other", partition="p")
    [named] = await push(store, "x", partition="named")
    assert other.partition_id.split("-")[1] != named.partition_id.split("-")[1]
    assert ids(await take(store, group="watching")) == ["x"]
    assert ids(await take(store, queue="other", group="watching")) == ["y"]
    await push(store, "x", queue="new")
    assert ids(await take(store, queue="new")) == ["x"]


async def test_messages_that_it_answered_are_held_as_before(
    store: EmbeddedStore, refuse: Refuse, clock: FakeClock
) -> None:
    popped = await take(store, 1)
    clock.advance(10)
    await refuse([item("x", "elsewhere")], [answer(popped, popped.messages[0])])
    assert ids(await take(store)) == []
    assert await store.seconds_until_due(PopRequest("orders")) == 20
    await finish(store, popped)
    assert await taken_ids(store) == ["b"]


async def test_messages_that_it_answered_come_again_when_their_lease_ends(
    store: EmbeddedStore, refuse: Refuse, clock: FakeClock
) -> None:
    popped = await take(store)
    await refuse([], [answer(popped, message) for message in popped.messages])
    clock.advance(31)
    assert await taken_ids(store) == ["a", "b"]


async def test_first_answers_after_a_start_are_taken_back_too(
    store: EmbeddedStore, clock: FakeClock, disk: FaultyFilesystem, tmp_path: Path
) -> None:
    """The list of what is ready is made in the middle of the transaction."""
    popped = await take(store)
    await store.close()
    again = await opened(tmp_path, clock, disk)
    acks = [answer(popped, message) for message in popped.messages]
    assert (await again.transact([item("a")], acks)).error
    clock.advance(31)
    assert await taken_ids(again) == ["a", "b"]
    await again.close()


async def test_partition_that_was_to_get_messages_has_nothing_for_anybody(store: EmbeddedStore, refuse: Refuse) -> None:
    assert await taken_ids(store) == ["a", "b"]
    await refuse([item("x")], [])
    assert ids(await take(store)) == []
    assert await store.seconds_until_due(PopRequest("orders")) is None
    await push(store, "c")
    assert await taken_ids(store) == ["c"]


async def test_partition_of_a_record_that_does_not_count_is_ready_for_nobody(
    store: EmbeddedStore, disk: FaultyFilesystem
) -> None:
    await push(store, "z", queue="second")
    assert await taken_ids(store) == ["a", "b"]
    disk.plan = nth("sync", 2, Fail(errno.EIO), path_ends=".data")
    with pytest.raises(AppendFailed):
        await store.transact([item("x", "named"), item("x", queue="second")], [])
    disk.plan = lambda operation: None
    assert store._engine.queues.by_name["orders"].log.next_seq == 4, "its first record was not written"
    assert ids(await take(store)) == []
    await push(store, "x", partition="named")
    assert await taken_ids(store) == ["x"]


async def test_answers_for_partitions_that_there_are_none_of_are_harmless(store: EmbeddedStore) -> None:
    popped = await take(store)
    [message, _] = popped.messages
    for wire_id in ("1-999", "7-1", "2-1", "nonsense"):
        wrong = Acknowledgement(wire_id, DEFAULT_GROUP, popped.lease_id, answer(popped, message).answer)
        assert (await store.transact([], [answer(popped, message), wrong])).error
    assert ids(await take(store)) == []
    await finish(store, popped)


async def test_commit_that_is_refused_leaves_no_names_behind(store: EmbeddedStore, tmp_path: Path) -> None:
    stages = [
        await stage(store, b"1", queue="new", partition=["p"]),
        await stage(store, b"2", partition=["named"]),
        await stage(store, b"3", queue="full"),
    ]
    for _ in range(2):
        with pytest.raises(QueueFull):
            await commit(store, *stages)
    assert await store.queue("new") is None
    assert [status.name for status in await store.partitions("orders", 10, 0)] == ["Default"]
    await configure(store, QueueOptions(), queue="full")
    assert (await commit(store, *stages)).messages == 3
    assert len((await take(store, queue="new")).messages) == 1


async def test_cost_does_not_grow_with_what_there_is(store: EmbeddedStore) -> None:
    connection = store._engine.database._connection

    async def steps(work: Callable[[], Awaitable[Any]]) -> int:
        """Of SQLite: what it looks at."""
        taken: list[None] = []
        connection.set_progress_handler(lambda: taken.append(None), 1)
        await work()
        connection.set_progress_handler(None, 1)
        return len(taken)

    async def refused() -> None:
        assert (await store.transact([item("x", "p1"), item("x", "named"), item("a")], [])).error

    found = []
    for count in (5, 500):
        await store.push([item("first", f"p{n}") for n in range(count)])
        await take(store, 1)
        found.append((await steps(refused), await steps(lambda: take(store, 1))))
    (few_refused, few_taken), (many_refused, many_taken) = found
    assert many_refused <= few_refused * 1.1
    assert many_taken <= few_taken * 1.1
