"""The contract of a store, transactions: pushes and answers over several queues happen as a whole or not at all."""

from __future__ import annotations

import pytest

from fixtures.fix_stores import Woken
from fixtures.store_steps import answer, configure, finish, ids, item, push, take, taken_ids
from forebay.broker.delivery import DEAD, FAILED
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.store import Store
from forebay.errors import QueueFull
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def everything(store: Store) -> object:
    """All that a transaction could have changed."""
    queues = [status for status in await store.queues() if status.pushed]
    return (
        queues,
        [await store.read(status.queue.name, 1, 100) for status in queues],
        await store.groups(),
        await store.dead_letters(DeadLetterFilter(), 100, 0),
    )


async def test_pushes_and_acks_of_several_queues_happen_together(store: Store, woken: Woken) -> None:
    await push(store, "a", "b")
    await push(store, "x", queue="other")
    first, second = await take(store), await take(store, queue="other")
    woken.calls.clear()
    outcome = await store.transact(
        [item("c"), item("y", queue="new"), item("z", "p2", queue="new")],
        [answer(first, first.messages[0]), answer(second, second.messages[0])],
    )
    assert outcome.error == ""
    assert [(one.status, one.seq) for one in outcome.pushed] == [("queued", 3), ("queued", 1), ("queued", 2)]
    assert [(one.queue, one.answered.is_accepted) for one in outcome.acknowledged] == [
        ("orders", True),
        ("other", True),
    ]
    assert {("orders", 1), ("new", 2)} <= set(woken.calls)
    assert await taken_ids(store, queue="other") == []
    assert sorted(await taken_ids(store, queue="new", partitions=2)) == ["y", "z"]
    await finish(store, first._replace(messages=first.messages[1:]))
    assert await taken_ids(store) == ["c"]


async def test_duplicate_push_makes_it_nothing(store: Store) -> None:
    await push(store, "a", "b")
    popped = await take(store)
    before = await everything(store)
    outcome = await store.transact(
        [item("new", queue="unheard"), item("c"), item("a")], [answer(popped, popped.messages[0], DEAD)]
    )
    assert (outcome.pushed, outcome.acknowledged) == ([], [])
    assert "duplicate" in outcome.error
    assert "a" in outcome.error
    assert await everything(store) == before
    await finish(store, popped)


async def test_id_given_twice_in_one_transaction_makes_it_nothing(store: Store) -> None:
    await push(store, "a")
    before = await everything(store)
    outcome = await store.transact([item("b"), item("b")], [])
    assert "duplicate" in outcome.error
    assert await everything(store) == before


async def test_refused_ack_makes_it_nothing(store: Store, clock: FakeClock) -> None:
    await store.push([item("a", "p1"), item("b", "p2")])
    mine, stale = await take(store, partition="p1"), await take(store, partition="p2")
    clock.advance(300)
    mine = await take(store, partition="p1")
    before = await everything(store)
    outcome = await store.transact(
        [item("c")], [answer(mine, mine.messages[0], DEAD), answer(stale, stale.messages[0])]
    )
    assert (outcome.pushed, outcome.acknowledged, outcome.error) == ([], [], "Invalid or expired lease")
    assert await everything(store) == before
    await finish(store, mine)


async def test_full_queue_makes_it_nothing(store: Store) -> None:
    await configure(store, QueueOptions(max_size=1), "small")
    await push(store, "a")
    await push(store, "x", queue="small")
    popped = await take(store)
    before = await everything(store)
    with pytest.raises(QueueFull):
        await store.transact([item("b"), item("y", queue="small")], [answer(popped, popped.messages[0])])
    assert await everything(store) == before
    await finish(store, popped)


async def test_transaction_of_pushes_alone_and_of_acks_alone(store: Store) -> None:
    assert [one.seq for one in (await store.transact([item("a"), item("b")], [])).pushed] == [1, 2]
    popped = await take(store)
    outcome = await store.transact([], [answer(popped, message) for message in popped.messages])
    assert [one.answered.is_accepted for one in outcome.acknowledged] == [True, True]
    assert await store.transact([], []) == ([], [], "")


async def test_failure_in_a_transaction_is_a_retry_like_any_other(store: Store, clock: FakeClock) -> None:
    await push(store, "a")
    popped = await take(store)
    outcome = await store.transact([item("b", "p2")], [answer(popped, popped.messages[0], FAILED, error="later")])
    assert outcome.acknowledged[0].answered.is_dead is False
    clock.advance(1)
    again = await take(store, partition="Default")
    assert [(m.transaction_id, m.attempts) for m in again.messages] == [("a", 2)]
    assert ids(await take(store, partition="p2")) == ["b"]


async def test_acks_of_several_pops_are_judged_by_the_leases_that_are_listed(store: Store) -> None:
    await store.push([item("a", "p1"), item("b", "p2")])
    pops = [await take(store, 1, partition="p1"), await take(store, 1, partition="p2")]
    listed = frozenset(popped.lease_id for popped in pops)
    foreign = [answer(popped, popped.messages[0], lease_id=frozenset(("elsewhere",))) for popped in pops]
    assert (await store.transact([item("c", "p3")], foreign)).error == "Invalid or expired lease"
    acks = [answer(popped, popped.messages[0], lease_id=listed) for popped in pops]
    assert (await store.transact([item("c", "p3")], acks)).error == ""
    assert await taken_ids(store, partitions=9) == ["c"]
