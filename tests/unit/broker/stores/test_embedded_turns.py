"""Work that grows with partitions, groups or queues is done in turns or beside the store's thread: others go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest

from fixtures.store_steps import configure, finish, ids, item, push, take, taken_ids
from forebay.broker.messages import PopRequest
from forebay.broker.overview import SeekTarget
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.store_thread import Work
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio

PARTITIONS = 20_000
CYCLE_SECONDS_MAX = 0.1
"""What no request may hold up others for, measured as processor time of the store's thread."""


class Cycles:
    """How long each cycle of a store's thread took of the processor, so that a busy machine does not count."""

    def __init__(self, store: EmbeddedStore) -> None:
        line = store._line
        assert line is not None
        self.seconds: list[float] = []
        inner = line._cycle

        def timed(work: Sequence[Work]) -> None:
            began = time.thread_time()
            inner(work)
            self.seconds.append(time.thread_time() - began)

        line._cycle = timed

    async def longest(self, step: Awaitable[object]) -> float:
        self.seconds.clear()
        await step
        return max(self.seconds)


async def fill(store: EmbeddedStore, partitions: int, queue: str = "orders") -> None:
    for start in range(0, partitions, 5000):
        numbers = range(start, min(start + 5000, partitions))
        await store.push([item(f"m{n}", f"p{n}", queue=queue) for n in numbers])


LONG: dict[str, Callable[[EmbeddedStore], Awaitable[object]]] = {
    "queues": lambda store: store.queues(),
    "groups": lambda store: store.groups(),
    "retention with nothing to remove": lambda store: store.apply_retention(),
    "first pop of a group": lambda store: take(store, group="late"),
    "first pop for new messages": lambda store: take(store, group="newcomer", subscription_mode="new"),
    "page of messages": lambda store: store.read("orders", 1, 100),
    "seek": lambda store: store.seek("one", "orders", None, SeekTarget(to_end=True)),
    "group deletion": lambda store: store.delete_group("one", None),  # which has a place in every partition now
    "push that may not fit": lambda store: push(store, "x", queue="limited"),
    "clearing": lambda store: store.clear_queue("orders"),
    "deletion": lambda store: store.delete_queue("orders"),
    "many new queues": lambda store: store.push([item("x", queue=f"new{n}") for n in range(40)]),
}


async def test_no_request_holds_up_others(store: EmbeddedStore, clock: FakeClock) -> None:
    keep = QueueOptions(retention_enabled=True, retention_seconds=10**6, completed_retention_seconds=10**6)
    await configure(store, keep)
    await fill(store, PARTITIONS)
    await fill(store, PARTITIONS, queue="limited")
    await configure(store, QueueOptions(max_size=PARTITIONS + 1), queue="limited")
    for group in ("one", "two", "three"):
        await finish(store, await take(store, 10, partitions=10, group=group), group=group)
    cycles = Cycles(store)
    found = {name: await cycles.longest(step(store)) for name, step in LONG.items()}
    assert {name: seconds for name, seconds in found.items() if seconds > CYCLE_SECONDS_MAX} == {}


@pytest.mark.parametrize("limits", [EmbeddedLimits(listed_partitions_max=3)])
async def test_list_of_what_a_group_has_to_do_is_whole_however_it_is_made(store: EmbeddedStore) -> None:
    """Made beside the thread, while others push, pop and answer."""
    await fill(store, 20)
    asked = [take(store, 2, partitions=2, auto_ack=True) for _ in range(5)]
    pushed = [push(store, f"new{n}", partition=f"p{n * 5}") for n in range(4)]
    found = await asyncio.gather(*asked, *pushed)
    had = [name for popped in found[:5] for name in ids(popped)]  # type: ignore[arg-type]
    assert len(had) == 10
    while left := ids(await take(store, 10, partitions=10, auto_ack=True)):
        had += left
    assert sorted(had) == sorted([f"m{n}" for n in range(20)] + [f"new{n}" for n in range(4)])


@pytest.mark.parametrize("limits", [EmbeddedLimits(removed_partitions_max=3)])
async def test_what_a_deleted_queue_left_is_removed_also_after_a_crash(store: EmbeddedStore) -> None:
    await fill(store, 10)
    await store.transact([item("tagged"), item("other", queue="other")], [])
    await finish(store, await take(store))
    number = await store._call(lambda: store._engine.deletion.delete("orders"), synced=True)
    assert number is not None
    assert await store.queue("orders") is None
    assert [status.queue.name for status in await store.queues()] == ["other"]
    # Here the process might have died.
    await store.apply_retention()
    for table in ("partitions", "blocks", "states", "transaction_ids", "tagged_records", "committed_tags"):
        rows = await store._call(partial(store._engine.database.all, f"SELECT * FROM {table}"))
        assert len(rows) <= 1, table  # of the other queue
    assert await taken_ids(store, queue="other") == ["other"]
    await push(store, "again")
    assert await taken_ids(store) == ["again"]


@pytest.mark.parametrize("limits", [EmbeddedLimits(removed_rows_max=3)])
async def test_group_that_comes_back_while_it_is_forgotten_is_a_new_one(
    store: EmbeddedStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never one that has lost its place in some partitions and kept it in others."""
    await fill(store, 10)
    await finish(store, await take(store, 10, partitions=10, group="g"), group="g")
    clock.advance(101)
    again: list[list[str]] = []
    purge = store._engine.purger.purge_group

    def purge_group(number: int) -> bool:
        found = store._engine.popper.pop(PopRequest(queue="orders", group="g", batch=10, partitions=10, auto_ack=True))
        again.append(ids(found))
        return purge(number)

    monkeypatch.setattr(store._engine.purger, "purge_group", purge_group)
    assert await store.expire_groups(100) == 1
    assert [len(found) for found in again] == [10, 0, 0, 0]
    assert sorted(again[0]) == sorted(f"m{n}" for n in range(10))
    [lag] = await store.groups()
    assert (lag.lag_messages, lag.leased) == (0, 0)


@pytest.mark.parametrize("how", ["deleted", "forgotten"])
async def test_what_a_group_left_is_removed_also_after_a_crash(
    store: EmbeddedStore, clock: FakeClock, how: str
) -> None:
    await fill(store, 10)
    for group in ("g", "other"):
        await finish(store, await take(store, 10, partitions=10, group=group), group=group)
    await push(store, "more", partition="p0")
    held = await take(store, group="g")
    assert ids(held) == ["more"]
    engine = store._engine
    if how == "deleted":
        known, _ = await store._call(lambda: engine.groups.delete("g", None), synced=True)
        assert known == 10
    else:
        number = engine.queues.by_name["orders"].queue_id
        assert await store._call(lambda: engine.expiring.forget_group(number, "g", 1 << 60), synced=True) is not None
    # Here the process might have died.
    assert [lag.group for lag in await store.groups()] == ["other"]
    assert await store.extend(held.lease_id, 10) is None
    await store.apply_retention()
    assert await store._call(lambda: engine.database.all("SELECT count(DISTINCT group_id) FROM states")) == [(1,)]
    assert len(ids(await take(store, 20, partitions=10, group="g"))) == 11
    assert ids(await take(store, 20, partitions=10, group="other")) == ["more"]


@pytest.mark.parametrize(("mode", "is_synced"), [("new", True), ("all", False)])
async def test_where_a_group_begins_is_synced(store: EmbeddedStore, mode: str, is_synced: bool) -> None:
    """What is pushed after the answer is the group's, also after a power cut."""
    await push(store, "before")
    line = store._line
    assert line is not None
    synced: list[bool] = []
    inner = line._cycle

    def watched(work: Sequence[Work]) -> None:
        synced.extend(each.synced for each in work)
        inner(work)

    line._cycle = watched
    await store.pop(PopRequest("orders", group="g", subscription_mode=mode))
    await store.pop(PopRequest("orders", group="g", subscription_mode=mode))
    assert synced == [is_synced, False]
