"""A queue with a limit: what waits is counted once, in turns, and kept as it changes, whatever happens to the queue."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest

from fixtures.store_steps import answer, configure, finish, item, push, take
from forebay.broker.messages import Popped
from forebay.broker.overview import SeekTarget
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.waiting_count import StillCounting, WaitingCount
from forebay.errors import QueueFull
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def test_pushes_that_came_together_get_no_more_than_there_is_room(store: EmbeddedStore) -> None:
    await configure(store, QueueOptions(max_size=20))
    await push(store, *[f"old {n}" for n in range(15)])
    await finish(store, await take(store, 10))
    found = await asyncio.gather(*[push(store, f"new {n}") for n in range(30)], return_exceptions=True)
    assert [isinstance(one, QueueFull) for one in found] == [False] * 15 + [True] * 15


@pytest.mark.parametrize("limits", [EmbeddedLimits(counted_places_max=10)])
async def test_full_queue_is_not_counted_again_for_every_push(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.push([item(str(n), f"p{n}") for n in range(95)])
    await configure(store, QueueOptions(max_size=50))
    pieces = 0
    count_some = WaitingCount.count_some

    def counted(*arguments: object) -> None:
        nonlocal pieces
        pieces += 1
        count_some(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(WaitingCount, "count_some", counted)
    for _ in range(20):
        with pytest.raises(QueueFull, match="95 of 50"):
            await push(store, "more")
    assert pieces == 10
    await finish(store, await take(store, 50, partitions=50))
    assert [one.status for one in await push(store, "fits")] == ["queued"]
    assert pieces == 20  # a group came that was not counted


async def random_step(
    store: EmbeddedStore, clock: FakeClock, held: list[tuple[str, Popped]], random_: random.Random
) -> None:
    group, partition = random_.choice(["one", "two"]), f"p{random_.randrange(6)}"
    match random_.choice(["push", "push", "pop", "pop", "auto", "answer", "complete", "transact", "refuse", "rare"]):
        case "push":
            await push(store, *[f"{random_.random()}" for _ in range(random_.randrange(1, 4))], partition=partition)
        case "pop":
            popped = await take(store, random_.randrange(1, 5), group=group, partitions=2)
            held.append((group, popped))
        case "auto":
            await take(store, random_.randrange(1, 4), group=group, auto_ack=True)
        case "complete" if held:
            await store.complete([held.pop()[1].lease_id])
        case "answer" if held and held[-1][1].messages:
            group, popped = held.pop()
            chosen = random_.sample(list(popped.messages), random_.randrange(1, len(popped.messages) + 1))
            statuses = [random_.choice(["completed", "failed", "dlq"]) for _ in chosen]
            answers = [answer(popped, m, s, group=group) for m, s in zip(chosen, statuses, strict=True)]
            await store.acknowledge(answers)
        case "transact" if held and held[-1][1].messages:
            group, popped = held.pop()
            await store.transact(
                [item(f"{random_.random()}", partition)], [answer(popped, popped.messages[0], group=group)]
            )
        case "refuse" if held and held[-1][1].messages:
            group, popped = held[-1]
            acks = [answer(popped, popped.messages[0], group=group), answer(Popped("none", [], 0), popped.messages[0])]
            await store.transact([item(f"{random_.random()}", partition)], acks)
        case "rare":
            await rare_step(store, clock, group, random_)
        case _:
            clock.advance(random_.choice([1, 40]))


async def rare_step(store: EmbeddedStore, clock: FakeClock, group: str, random_: random.Random) -> None:
    match random_.randrange(5):
        case 0:
            await store.seek(group, "orders", None, SeekTarget(seq=random_.randrange(1, 50)))
        case 1:
            found = await store.read("orders", random_.randrange(1, 50), 1)
            if found:
                await store.delete_message(found[0].partition_id, found[0].transaction_id)
        case 2:
            await store.delete_group(group, "orders")
        case 3:
            clock.advance(200)
            await store.apply_retention()
        case _:
            await store.clear_queue("orders", f"p{random_.randrange(6)}")


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("limits", [EmbeddedLimits(counted_places_max=2)])
async def test_count_is_what_the_groups_have_left(store: EmbeddedStore, clock: FakeClock, seed: int) -> None:
    """Kept as everything happens, in any order, and also while it is being counted."""
    random_ = random.Random(seed)
    options = QueueOptions(max_size=10_000, lease_seconds=30, retry_delay_ms=0, retry_limit=1,
                           retention_enabled=True, completed_retention_seconds=150)  # fmt: skip
    await configure(store, options)
    held: list[tuple[str, Popped]] = []
    for _ in range(120):
        await random_step(store, clock, held, random_)
        if random_.random() < 0.4:
            queue = store._engine.queues.by_name["orders"]
            try:
                counted = await store._open_line().submit(partial(store._engine._pusher.waiting, queue), synced=False)
            except StillCounting:
                continue
            lags = await store.groups("orders")
            [status] = await store.queues("orders")
            assert counted == max((lag.lag_messages for lag in lags), default=status.messages)
