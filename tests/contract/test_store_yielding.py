"""The contract of a store: a failure gives the rest of its batch back, and what a yielded lease still allows."""

from __future__ import annotations

import pytest

from fixtures.fix_stores import Woken
from fixtures.store_steps import answer, configure, finish, ids, item, push, take, taken_ids
from forebay.broker.delivery import COMPLETED, DEAD, FAILED, RETRY
from forebay.broker.messages import Popped
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.store import Store
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


def attempts(popped: Popped) -> list[tuple[str, int]]:
    return [(message.transaction_id, message.attempts) for message in popped.messages]


async def failed_first(store: Store, *texts: str, delay_ms: int = 0, status: str = FAILED) -> Popped:
    """A batch of which the first message has failed and nothing else was answered."""
    await configure(store, QueueOptions(lease_seconds=30, retry_limit=3, retry_delay_ms=delay_ms))
    await push(store, *texts)
    popped = await take(store)
    [one] = await store.acknowledge([answer(popped, popped.messages[0], status)])
    assert (one.answered.is_accepted, one.answered.is_released) == (True, False)
    return popped


@pytest.mark.parametrize("status", [FAILED, RETRY])
async def test_failure_gives_the_rest_of_its_batch_back(store: Store, status: str) -> None:
    await failed_first(store, *"abc", status=status)
    assert attempts(await take(store)) == [("a", 2), ("b", 1), ("c", 1)]


async def test_partition_is_not_claimed_again_before_the_failed_message_is_due(store: Store, clock: FakeClock) -> None:
    await failed_first(store, *"abc", delay_ms=5_000)
    for partition in (None, "Default"):
        assert ids(await take(store, partition=partition)) == []
    clock.advance(4.999)
    assert ids(await take(store)) == []
    clock.advance(0.001)
    assert attempts(await take(store)) == [("a", 2), ("b", 1), ("c", 1)]


async def test_holder_may_answer_the_rest_until_somebody_claims_it(store: Store, clock: FakeClock) -> None:
    popped = await failed_first(store, *"abc", delay_ms=5_000)
    clock.advance(10)
    [second] = await store.acknowledge([answer(popped, popped.messages[1])])
    assert second.answered.is_accepted
    again = await take(store)
    assert attempts(again) == [("a", 2), ("c", 1)]
    [late] = await store.acknowledge([answer(popped, popped.messages[2])])
    assert (late.answered.is_accepted, late.answered.error) == (False, "Invalid or expired lease")
    assert await store.extend(popped.lease_id, 60) is None
    await finish(store, again)
    assert await taken_ids(store) == []


async def test_holder_that_answers_all_ends_the_lease(store: Store) -> None:
    popped = await failed_first(store, *"abc")
    rest = await store.acknowledge([answer(popped, message) for message in popped.messages[1:]])
    assert [one.answered.is_released for one in rest] == [True, True]
    assert attempts(await take(store)) == [("a", 2)]


async def test_extension_takes_the_yield_back(store: Store, clock: FakeClock) -> None:
    popped = await failed_first(store, *"abc")
    assert await store.extend(popped.lease_id, 60) is not None
    clock.advance(59)
    assert ids(await take(store)) == []
    clock.advance(1)
    assert attempts(await take(store)) == [("a", 2), ("b", 2), ("c", 2)]


async def test_failure_after_an_extension_yields_again(store: Store) -> None:
    popped = await failed_first(store, *"abc")
    await store.extend(popped.lease_id, 60)
    await store.acknowledge([answer(popped, popped.messages[1], FAILED)])
    assert attempts(await take(store)) == [("a", 2), ("b", 2), ("c", 1)]


async def test_yielded_lease_that_ends_by_itself_counts_no_attempt_for_the_rest(store: Store, clock: FakeClock) -> None:
    await failed_first(store, *"abc", delay_ms=60_000)
    clock.advance(30)
    assert ids(await take(store)) == []
    clock.advance(30)
    assert attempts(await take(store)) == [("a", 2), ("b", 1), ("c", 1)]


async def test_message_in_the_middle_that_fails_gives_those_before_it_back_too(store: Store) -> None:
    await configure(store, QueueOptions(retry_delay_ms=0))
    await push(store, *"abcd")
    popped = await take(store)
    await store.acknowledge([answer(popped, popped.messages[2], FAILED), answer(popped, popped.messages[0], COMPLETED)])
    assert attempts(await take(store)) == [("b", 1), ("c", 2), ("d", 1)]


@pytest.mark.parametrize("status", [DEAD, FAILED])
async def test_message_that_dies_gives_nothing_back(store: Store, status: str) -> None:
    await configure(store, QueueOptions(retry_limit=0, retry_delay_ms=0))
    await push(store, *"abc")
    popped = await take(store)
    await store.acknowledge([answer(popped, popped.messages[0], status)])
    assert ids(await take(store)) == []
    await finish(store, popped._replace(messages=popped.messages[1:]))


async def test_failures_come_to_an_end_and_the_neighbours_are_not_worn_out(store: Store) -> None:
    await configure(store, QueueOptions(retry_limit=2, retry_delay_ms=0))
    await push(store, "poison", "good")
    tries = []
    while ids(popped := await take(store))[0] == "poison":
        tries.append(attempts(popped))
        await store.acknowledge([answer(popped, popped.messages[0], FAILED, error="poison")])
        if tries[-1][0][1] == 3:
            await finish(store, popped._replace(messages=popped.messages[1:]))
            break
    assert tries == [[("poison", n), ("good", 1)] for n in (1, 2, 3)]
    assert [letter.message.transaction_id for letter in (await store.dead_letters(DeadLetterFilter(), 9, 0))[0]] == [
        "poison"
    ]
    assert ids(await take(store)) == []


async def test_other_partitions_of_the_lease_are_not_given_back(store: Store) -> None:
    await configure(store, QueueOptions(retry_delay_ms=0))
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p1")])
    popped = await take(store, partitions=2)
    [failed] = [message for message in popped.messages if message.transaction_id == "a"]
    await store.acknowledge([answer(popped, failed, FAILED)])
    assert attempts(await take(store, partitions=9)) == [("a", 2), ("c", 1)]


async def test_what_is_given_back_waits_and_is_not_leased(store: Store) -> None:
    await failed_first(store, *"abc")
    [lag] = await store.groups()
    assert (lag.lag_messages, lag.leased) == (3, 0)


async def test_clock_set_back_does_not_keep_a_yielded_partition_for_long(store: Store, clock: FakeClock) -> None:
    await failed_first(store, *"ab", delay_ms=1_000)
    clock.step(-3600)
    assert attempts(await take(store)) == [("a", 2), ("b", 1)]


async def test_retention_and_yield_agree(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=300, retry_delay_ms=0, retention_seconds=60))
    await push(store, *"ab")
    clock.advance(50)
    await push(store, "c")
    popped = await take(store)
    await store.acknowledge([answer(popped, popped.messages[0], FAILED)])
    clock.advance(11)
    assert await store.apply_retention() == 2
    assert attempts(await take(store)) == [("c", 1)]


async def test_who_waits_is_told_of_what_is_given_back(store: Store, woken: Woken) -> None:
    await configure(store, QueueOptions(retry_delay_ms=0))
    await push(store, *"abc")
    popped = await take(store)
    woken.calls.clear()
    await store.acknowledge([answer(popped, popped.messages[1])])
    assert woken.calls == []
    await store.acknowledge([answer(popped, popped.messages[0], FAILED)])
    assert woken.calls == [("orders", 1)]
