"""The contract of a store, the way out: order, leases, fencing, attempts and what happens to a broken batch."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fixtures.fix_stores import Woken
from fixtures.store_steps import answer, configure, finish, ids, item, push, take, taken_ids
from forebay.broker.delivery import COMPLETED, DEAD, FAILED, RETRY, Verdict
from forebay.broker.messages import Acknowledgement
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.store import Store
from forebay.model.queue import DEFAULT_GROUP, QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def test_pop_of_a_queue_that_nobody_made_is_empty(store: Store) -> None:
    assert await take(store, queue="nobody") == ("", [], 0)
    assert await store.queue("nobody") is None


async def test_partition_is_first_in_first_out(store: Store) -> None:
    for text in "abcdef":
        await push(store, text)
    assert [await taken_ids(store, 2) for _ in range(4)] == [["a", "b"], ["c", "d"], ["e", "f"], []]


async def test_group_has_one_leased_batch_per_partition(store: Store) -> None:
    await push(store, "a", "b")
    assert ids(await take(store, 1)) == ["a"]
    assert await take(store, 1) == ("", [], 0)
    assert ids(await take(store, 1, group="other")) == ["a"]


async def test_other_partitions_are_free_while_one_is_leased(store: Store) -> None:
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p1")])
    first, second = await take(store), await take(store)
    assert sorted([ids(first), ids(second)]) == [["a", "c"], ["b"]]
    assert first.lease_id != second.lease_id


async def test_pop_of_one_partition_takes_from_it_alone(store: Store) -> None:
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p2")])
    assert ids(await take(store, partition="p2")) == ["b", "c"]
    assert ids(await take(store, partition="p2")) == []
    assert ids(await take(store, partition="p3")) == []
    assert ids(await take(store)) == ["a"]


async def test_one_lease_covers_several_partitions_and_batch_is_the_total(store: Store) -> None:
    await store.push([item(f"{p}{n}", p) for n in range(3) for p in ("p1", "p2", "p3")])
    popped = await take(store, 5, partitions=3)
    assert len(popped.messages) == 5
    assert popped.partitions_claimed == 2
    for name in ("p1", "p2", "p3"):
        own = [m.transaction_id for m in popped.messages if m.partition == name]
        assert own == [f"{name}{n}" for n in range(len(own))]
    await finish(store, popped)
    rest = await take(store, 100, partitions=2)
    assert rest.partitions_claimed == 2
    assert len(rest.messages) in (3 + 1, 3 + 0, 1 + 3)


async def test_lease_that_ends_gives_the_batch_to_the_next(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=30))
    await push(store, "a", "b")
    first = await take(store)
    clock.advance(29)
    assert ids(await take(store)) == []
    clock.advance(1)
    second = await take(store)
    assert ids(second) == ["a", "b"]
    assert [m.attempts for m in second.messages] == [2, 2]
    refused = await store.acknowledge([answer(first, first.messages[0])])
    assert [(one.answered.is_accepted, one.answered.error) for one in refused] == [(False, "Invalid or expired lease")]
    await finish(store, second)


async def test_answer_after_the_lease_ended_changes_nothing(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=30))
    await push(store, "a")
    popped = await take(store)
    clock.advance(30)
    [late] = await store.acknowledge([answer(popped, popped.messages[0])])
    assert not late.answered.is_accepted
    assert ids(await take(store)) == ["a"]


@pytest.mark.parametrize("lease_id", ["nobody's", "00000000-0000-0000-0000-000000000000"])
async def test_answer_with_a_foreign_lease_changes_nothing(store: Store, lease_id: str) -> None:
    await push(store, "a", "b")
    popped = await take(store)
    [refused] = await store.acknowledge([answer(popped, popped.messages[0], DEAD, lease_id=lease_id)])
    assert (refused.answered.is_accepted, refused.answered.error) == (False, "Invalid or expired lease")
    assert (await store.dead_letters(DeadLetterFilter(), 10, 0))[1] == 0
    await finish(store, popped)


async def test_answer_for_another_group_changes_nothing(store: Store) -> None:
    await push(store, "a")
    mine, theirs = await take(store, group="mine"), await take(store, group="theirs")
    [refused] = await store.acknowledge([answer(mine, mine.messages[0], group="theirs")])
    assert not refused.answered.is_accepted
    await finish(store, mine, group="mine")
    await finish(store, theirs, group="theirs")


@pytest.mark.parametrize(
    "partition_id", ["", "x", "1", "999999-999999", "0-0", "-1--1", "1-1-1", "9" * 40 + "-1", "\u0661-1"]
)
async def test_answer_for_a_partition_that_is_not_there_is_refused(store: Store, partition_id: str) -> None:
    await push(store, "a")
    popped = await take(store)
    [refused] = await store.acknowledge(
        [Acknowledgement(partition_id, DEFAULT_GROUP, popped.lease_id, Verdict("a", COMPLETED))]
    )
    assert not refused.answered.is_accepted
    assert refused.answered.error
    await finish(store, popped)


async def test_answer_for_a_message_that_was_not_delivered_is_refused(store: Store) -> None:
    await push(store, "a", "b")
    popped = await take(store, 1)
    unknown = answer(popped, replace(popped.messages[0], transaction_id="b"))
    twice = answer(popped, popped.messages[0])
    outcomes = await store.acknowledge([unknown, twice, twice])
    assert [one.answered.is_accepted for one in outcomes] == [False, True, False]
    assert await taken_ids(store) == ["b"]


async def test_answers_name_queue_and_partition_and_say_when_the_lease_is_over(store: Store) -> None:
    await push(store, "a", "b", partition="p1")
    popped = await take(store)
    first, second = [answer(popped, message) for message in popped.messages]
    [one] = await store.acknowledge([first])
    [two] = await store.acknowledge([second])
    assert (one.queue, one.partition, one.answered.is_released) == ("orders", "p1", False)
    assert two.answered.is_released


async def test_extended_lease_lasts_and_is_never_shortened(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=30))
    await store.push([item("a", "p1"), item("b", "p2")])
    popped = await take(store, partitions=2)
    clock.advance(20)
    assert await store.extend(popped.lease_id, 60) == clock.now_us() + 60_000_000
    assert await store.extend(popped.lease_id, 1) == clock.now_us() + 60_000_000
    clock.advance(59)
    assert ids(await take(store, partitions=2)) == []
    await finish(store, popped)


async def test_lease_that_nobody_holds_cannot_be_extended(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=30))
    await push(store, "a")
    popped = await take(store)
    assert await store.extend("nobody's", 60) is None
    assert await store.extend("", 60) is None
    clock.advance(30)
    assert await store.extend(popped.lease_id, 60) is None
    again = await take(store)
    assert ids(again) == ["a"]
    await finish(store, again)
    assert await store.extend(again.lease_id, 60) is None


async def test_attempts_count_deliveries_also_those_that_nobody_answered(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=10, retry_limit=2, retry_delay_ms=0))
    await push(store, "poison", "good")
    attempts = []
    for _ in range(3):
        popped = await take(store, 1)
        attempts.append((ids(popped), popped.messages[0].attempts))
        clock.advance(10)
    assert attempts == [(["poison"], 1), (["poison"], 2), (["poison"], 3)]
    assert await taken_ids(store) == ["good"]
    [letter], total = await store.dead_letters(DeadLetterFilter(), 10, 0)
    assert (total, letter.message.transaction_id, letter.message.attempts) == (1, "poison", 3)
    assert letter.reason == "not answered in 3 attempts"


@pytest.mark.parametrize("status", [FAILED, RETRY])
async def test_failed_message_comes_back_in_order_after_its_delay(store: Store, clock: FakeClock, status: str) -> None:
    await configure(store, QueueOptions(retry_delay_ms=5_000))
    await push(store, "a", "b", "c")
    await finish(store, await take(store, 2), status)
    assert ids(await take(store)) == []
    clock.advance(4.999)
    assert ids(await take(store)) == []
    clock.advance(0.001)
    assert ids(await take(store)) == ["a", "b", "c"]


async def test_message_that_used_up_its_attempts_dies_with_its_last_error(store: Store) -> None:
    await configure(store, QueueOptions(retry_limit=2, retry_delay_ms=0))
    await push(store, "a", "b")
    for n in range(3):
        popped = await take(store, 1)
        assert ids(popped) == ["a"]
        [acknowledged] = await finish(store, popped, FAILED, error=f"reason {n}\0")
        assert acknowledged.answered.is_dead == (n == 2)
    assert await taken_ids(store) == ["b"]
    [letter], _ = await store.dead_letters(DeadLetterFilter(), 10, 0)
    assert letter.message.transaction_id == "a"
    assert letter.reason.startswith("reason 2")


async def test_completed_messages_of_a_broken_batch_are_not_delivered_again(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=10))
    await push(store, *"abcd")
    popped = await take(store)
    await store.acknowledge([answer(popped, popped.messages[n]) for n in (2, 0)])
    clock.advance(10)
    again = await take(store)
    assert ids(again) == ["b", "d"]
    assert [m.attempts for m in again.messages] == [2, 2]


async def test_acks_out_of_order_never_pass_an_unfinished_message(store: Store) -> None:
    await configure(store, QueueOptions(retry_delay_ms=0))
    await push(store, *"abc")
    popped = await take(store)
    for n, status in ((2, COMPLETED), (1, COMPLETED), (0, FAILED)):
        await store.acknowledge([answer(popped, popped.messages[n], status)])
    await push(store, "d")
    assert ids(await take(store)) == ["a", "d"]


async def test_one_request_answers_each_message_as_it_says(store: Store, clock: FakeClock) -> None:
    await store.push([item("a", "p1"), item("b", "p1"), item("c", "p2"), item("d", "p2")])
    popped = await take(store, partitions=2)
    statuses = {"a": COMPLETED, "b": FAILED, "c": DEAD, "d": COMPLETED}
    outcomes = await store.acknowledge([answer(popped, m, statuses[m.transaction_id]) for m in popped.messages])
    assert {o.answered.transaction_id: o.answered.is_dead for o in outcomes} == {
        "a": False,
        "b": False,
        "c": True,
        "d": False,
    }
    clock.advance(1)
    assert ids(await take(store, partitions=2)) == ["b"]


async def test_auto_ack_finishes_what_it_delivers(store: Store) -> None:
    await push(store, *"abc")
    popped = await take(store, 2, auto_ack=True)
    assert (popped.lease_id, ids(popped)) == ("", ["a", "b"])
    assert ids(await take(store, auto_ack=True)) == ["c"]
    assert ids(await take(store, auto_ack=True)) == []


async def test_clock_set_back_leases_nothing_for_ever(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=30))
    await push(store, "a")
    popped = await take(store)
    clock.step(-3600)
    again = await take(store)
    assert ids(again) == ["a"]
    [late] = await store.acknowledge([answer(popped, popped.messages[0])])
    assert not late.answered.is_accepted
    await finish(store, again)


@pytest.mark.parametrize(
    "options",
    [
        QueueOptions(delayed_processing_seconds=60),
        QueueOptions(window_buffer_seconds=60),
        QueueOptions(max_wait_seconds=9),
    ],
)
async def test_clock_set_back_holds_no_message_for_long(store: Store, clock: FakeClock, options: QueueOptions) -> None:
    await configure(store, options)
    await push(store, "a")
    await take(store, partition="nowhere")
    clock.step(-3600)
    await push(store, "b")
    clock.advance(61 if not options.max_wait_seconds else 1)
    assert await taken_ids(store) == ["a", "b"]


@pytest.mark.parametrize("seconds", [3600, -3600])
async def test_clock_that_is_set_ends_the_wait_for_a_retry(store: Store, clock: FakeClock, seconds: int) -> None:
    await configure(store, QueueOptions(retry_delay_ms=60_000))
    await push(store, "a")
    await finish(store, await take(store), FAILED)
    assert ids(await take(store)) == []
    clock.step(seconds)
    assert await taken_ids(store) == ["a"]


async def test_clock_set_forward_ends_leases_and_loses_nothing(store: Store, clock: FakeClock) -> None:
    await push(store, "a", "b")
    await take(store, 1)
    clock.step(3600)
    assert await taken_ids(store) == ["a", "b"]


@pytest.mark.parametrize("is_reopened", [False, True])
async def test_clock_that_was_ahead_puts_no_partition_to_sleep(
    unopened_store: Store, woken: Woken, clock: FakeClock, is_reopened: bool
) -> None:
    """Two failed messages: when the first is done, the second one's time, of the old clock, must not count either."""
    store = unopened_store
    await store.open(woken)
    await configure(store, QueueOptions(retry_delay_ms=1000, lease_seconds=60))
    await push(store, "a", "b")
    await finish(store, await take(store), FAILED)
    clock.step(-3600)
    if is_reopened:
        await store.close()
        await store.open(woken)
    assert await taken_ids(store, 1) == ["a"]
    await push(store, "c")
    assert await taken_ids(store, 1) == ["b"]
    assert await taken_ids(store, 1) == ["c"]
    await store.close()


async def test_answer_without_a_lease_counts_while_its_group_holds_the_message(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(lease_seconds=30))
    await push(store, "a", "b")
    popped = await take(store, 1)
    [message] = popped.messages

    async def refusal(group: str = DEFAULT_GROUP) -> str:
        [outcome] = await store.acknowledge([answer(popped, message, lease_id="", group=group)])
        return outcome.answered.error

    assert await refusal("other") == "Invalid or expired lease", "the message is not leased to that group"
    assert await refusal() == "", "it is leased to this one"
    assert await refusal() == "Invalid or expired lease", "it was answered, and the lease is over"
    again = await take(store)
    assert ids(again) == ["b"]
    clock.advance(30)
    [outcome] = await store.acknowledge([answer(again, again.messages[0], lease_id="")])
    assert outcome.answered.error == "Invalid or expired lease", "the lease has ended by itself"
    assert ids(await take(store)) == ["b"]


async def test_answer_with_several_leases_counts_if_one_of_them_is_the_partitions(store: Store) -> None:
    await store.push([item("a", "p1"), item("b", "p2"), item("c", "p1")])
    first, second = await take(store, 1, partition="p1"), await take(store, 1, partition="p2")
    neither = answer(first, first.messages[0], lease_id=frozenset(("x", second.lease_id)))
    [outcome] = await store.acknowledge([neither])
    assert outcome.answered.error == "Invalid or expired lease"
    both = frozenset((first.lease_id, second.lease_id))
    answers = [answer(popped, popped.messages[0], lease_id=both) for popped in (first, second)]
    assert [one.answered.is_accepted for one in await store.acknowledge(answers)] == [True, True]
    assert await taken_ids(store) == ["c"]


async def test_a_pop_may_ask_for_a_lease_of_its_own_length(store: Store, clock: FakeClock) -> None:
    await push(store, "a", "b")
    assert ids(await take(store, 1, lease_seconds=5)) == ["a"]
    clock.advance(4)
    assert await taken_ids(store) == []
    clock.advance(2)
    assert ids(await take(store, 2, lease_seconds=5)) == ["a", "b"]
    clock.advance(6)
    assert ids(await take(store, 2)) == ["a", "b"]
    clock.advance(200)
    assert await taken_ids(store) == []
