"""The contract of a store, the way in: what a push makes, numbers, recognises, keeps and refuses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from fixtures.fix_stores import Woken
from fixtures.store_steps import configure, finish, ids, item, push, take, taken_ids
from forebay.broker.messages import Pushed
from forebay.broker.numbering import each_message
from forebay.broker.store import Store
from forebay.errors import QueueFull
from forebay.model.push_run import PushRun, run_of_one
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def test_first_push_makes_queue_and_partitions(store: Store, clock: FakeClock) -> None:
    assert await store.queue("shop.orders") is None
    pushed = await store.push([item("a", "p1", queue="shop.orders"), item("b", "p2", queue="shop.orders")])
    assert [(one.status, one.seq) for one in pushed] == [("queued", 1), ("queued", 2)]
    queue = await store.queue("shop.orders")
    assert queue is not None
    assert (queue.namespace, queue.task, queue.created_us) == ("shop", "orders", clock.now_us())
    assert [(p.name, p.messages, p.last_seq) for p in await store.partitions("shop.orders", 10, 0)] == [
        ("p1", 1, 1),
        ("p2", 1, 2),
    ]


async def test_namespace_and_task_of_the_first_push_win_over_the_name(store: Store) -> None:
    await store.push([replace(item("a", queue="shop.orders"), namespace="billing", task="print")])
    queue = await store.queue("shop.orders")
    assert queue is not None
    assert (queue.namespace, queue.task) == ("billing", "print")


async def test_each_queue_counts_its_own_seqs(store: Store) -> None:
    mixed = [item("a"), item("b", queue="other"), item("c"), item("d", queue="other")]
    assert [one.seq for one in await store.push(mixed)] == [1, 1, 2, 2]
    assert [one.seq for one in await push(store, "e", "f")] == [3, 4]


async def test_partition_ids_are_stable_and_distinct(store: Store) -> None:
    first = await store.push([item("a", "p1"), item("b", "p2"), item("c", "p1", queue="other")])
    again = await store.push([item("d", "p1"), item("e", "p2"), item("f", "p1", queue="other")])
    assert [one.partition_id for one in first] == [one.partition_id for one in again]
    assert len({one.partition_id for one in first}) == 3


async def test_nothing_pushed_is_nothing_stored(store: Store) -> None:
    assert await store.push([]) == []
    assert await store.queues() == []


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b'{"a":  1.0, "a": 2 }',
        b"\x00",
        b"\xff\xfe\x00\x80 not UTF-8",
        bytes(range(256)) * 3,
        "ünï\u2028😀".encode(),
        pytest.param(random.Random(1).randbytes(10 << 20), id="10 MiB"),
    ],
)
@pytest.mark.parametrize("is_binary", [True, False])
async def test_payload_and_headers_come_out_byte_for_byte(store: Store, payload: bytes, is_binary: bool) -> None:
    headers = b'{"h": "\xc3\xbc"}'
    given = run_of_one("orders", "p", payload, "id-1", trace_id="trace-1", headers=headers, is_binary=is_binary)
    [pushed] = await store.push([given])
    [message] = (await take(store)).messages
    assert message.payload == payload
    assert type(message.payload) is bytes
    assert (message.headers, message.trace_id, message.is_binary) == (headers, "trace-1", is_binary)
    assert (message.queue, message.partition, message.partition_id) == ("orders", "p", pushed.partition_id)
    assert await store.read("orders", 1, 1) == [replace(message, attempts=0)]


async def test_unusual_names_are_kept_as_they_are(store: Store) -> None:
    names = ["../x", "a%2fb", "ü😀", " ", "p" * 255, "'; DROP", "%s%(a)b", "A", "a"]
    await store.push([item(f"id {n}", n, queue=n) for n in names])
    assert sorted(s.queue.name for s in await store.queues()) == sorted(names)
    for n in names:
        [message] = (await take(store, queue=n)).messages
        assert (message.queue, message.partition, message.transaction_id) == (n, n, f"id {n}")


async def test_id_that_the_partition_holds_is_a_duplicate(store: Store) -> None:
    [first] = await push(store, "a")
    [second, third] = await push(store, "a", "b")
    assert (second.status, second.seq, second.partition_id) == ("duplicate", first.seq, first.partition_id)
    assert (third.status, third.seq) == ("queued", 2)
    assert await taken_ids(store) == ["a", "b"]


async def test_id_given_twice_in_one_push_is_stored_once(store: Store) -> None:
    first, second, third = await store.push([item("a", payload=b"1"), item("b"), item("a", payload=b"2")])
    assert (third.status, third.seq) == ("duplicate", first.seq)
    assert second.seq == 2
    assert [m.payload for m in await store.read("orders", 1, 10)] == [b"1", b"b"]


async def test_same_id_in_another_partition_or_queue_is_another_message(store: Store) -> None:
    pushed = await store.push([item("a", "p1"), item("a", "p2"), item("a", "p1", queue="other")])
    assert [one.status for one in pushed] == ["queued"] * 3


async def test_id_stays_known_after_its_message_was_finished(store: Store) -> None:
    await push(store, "a")
    await finish(store, await take(store))
    assert [one.status for one in await push(store, "a")] == ["duplicate"]


async def test_id_is_forgotten_with_its_message(store: Store, clock: FakeClock) -> None:
    await configure(store, QueueOptions(retention_seconds=60))
    await push(store, "a")
    clock.advance(61)
    assert await store.apply_retention() == 1
    assert [(one.status, one.seq) for one in await push(store, "a")] == [("queued", 2)]


async def test_concurrent_pushes_of_one_id_store_it_once(store: Store) -> None:
    outcomes = await asyncio.gather(*[push(store, "a", f"own {n}") for n in range(12)])
    assert sorted(first.status for first, _ in outcomes) == ["duplicate"] * 11 + ["queued"]
    assert {first.seq for first, _ in outcomes} == {next(f.seq for f, _ in outcomes if f.status == "queued")}
    assert len(await store.read("orders", 1, 100)) == 13


async def test_concurrent_pushes_keep_each_request_together_and_in_order(store: Store) -> None:
    texts = [[f"{request}.{n}" for n in range(5)] for request in range(20)]
    outcomes = await asyncio.gather(*[push(store, *some) for some in texts])
    assert sorted(one.seq for pushed in outcomes for one in pushed) == list(range(1, 101))
    for pushed in outcomes:
        assert [one.seq for one in pushed] == list(range(pushed[0].seq, pushed[0].seq + 5))


async def test_full_queue_refuses_the_whole_push_and_stores_nothing(store: Store) -> None:
    await configure(store, QueueOptions(max_size=3))
    await push(store, "a", "b")
    with pytest.raises(QueueFull, match="2 of 3"):
        await store.push([item("x", queue="other"), item("c"), item("d")])
    assert ids(await store.read("orders", 1, 10)) == ["a", "b"]
    assert all(status.messages == 0 for status in await store.queues() if status.queue.name == "other")
    await push(store, "c")
    assert ids(await store.read("orders", 1, 10)) == ["a", "b", "c"]


async def test_duplicates_need_no_room_in_a_full_queue(store: Store) -> None:
    await configure(store, QueueOptions(max_size=3))
    await push(store, "a", "b")
    (known, new, again) = await store.push([item("a"), item("c"), item("c")])
    assert (known.status, new.status, again.status) == ("duplicate", "queued", "duplicate")
    (known,) = await store.push([item("b")])
    assert known.status == "duplicate"
    with pytest.raises(QueueFull):
        await push(store, "d")


async def test_full_queue_has_room_again_when_messages_are_finished(store: Store) -> None:
    await configure(store, QueueOptions(max_size=2))
    await push(store, "a", "b")
    popped = await take(store, 1)
    with pytest.raises(QueueFull):
        await push(store, "c")
    await finish(store, popped)
    assert [one.status for one in await push(store, "c")] == ["queued"]


async def test_full_queue_counts_the_group_that_is_furthest_behind(store: Store) -> None:
    await configure(store, QueueOptions(max_size=2))
    await push(store, "a", "b")
    await take(store, 1, group="slow")
    await taken_ids(store, group="fast")
    with pytest.raises(QueueFull):
        await push(store, "c")


async def test_one_refused_push_does_not_harm_those_beside_it(store: Store) -> None:
    await configure(store, QueueOptions(max_size=1))
    pushes = [push(store, f"x{n}", f"y{n}") for n in range(4)] + [push(store, f"z{n}", queue="other") for n in range(4)]
    outcomes = await asyncio.gather(*pushes, return_exceptions=True)
    assert [type(one) for one in outcomes[:4]] == [QueueFull] * 4
    assert not [one for one in outcomes[4:] if isinstance(one, BaseException)]
    assert len(await store.read("other", 1, 10)) == 4


async def test_every_push_is_told_with_the_number_of_new_messages(store: Store, woken: Woken) -> None:
    await push(store, "a", "b")
    await push(store, "a", "c")
    await push(store, "a")
    assert woken.calls == [("orders", 2), ("orders", 1)]


async def test_large_push_is_stored_in_order(store: Store) -> None:
    texts = [f"m{n}" for n in range(2_000)]
    pushed = await store.push([item(text, f"p{n % 7}") for n, text in enumerate(texts)])
    assert [one.seq for one in pushed] == list(range(1, 2_001))
    assert ids(await store.read("orders", 1, 5_000)) == texts


def run_of(*given: str, partition: str = "p1", is_minted: bool = False) -> PushRun:
    payloads = [f'"{one}"'.encode() for one in given]
    return PushRun.of("orders", partition, payloads, list(given), is_minted=is_minted)


def told(pushed: Sequence[Pushed]) -> list[tuple[str, int]]:
    """Status and seq of each message."""
    return [(one.status, one.seq) for one in each_message(pushed)]


@pytest.mark.parametrize("is_minted", [False, True])
async def test_run_is_stored_as_its_messages_would_be_one_by_one(store: Store, is_minted: bool) -> None:
    given = run_of("a", "b", "c", is_minted=is_minted)
    one_by_one = [replace(given.at([place]), queue="other") for place in range(len(given))]
    assert told(await store.push([given])) == told(await store.push(one_by_one))
    kept, beside = await store.read("orders", 1, 10), await store.read("other", 1, 10)
    assert [replace(one, queue="other", partition_id="") for one in kept] == [
        replace(one, partition_id="") for one in beside
    ]


async def test_run_of_several_partitions_is_stored_in_its_order(store: Store) -> None:
    await push(store, "b", partition="p2")
    given = replace(run_of("a", "b", "b", "c"), partitions=["p1", "p2", "p1", "p2"], trace_ids=["", "t", "u", ""])
    assert told(await store.push([given])) == [("queued", 2), ("duplicate", 1), ("queued", 3), ("queued", 4)]
    kept = await store.read("orders", 2, 10)
    assert [(one.partition, one.transaction_id, one.trace_id, one.payload) for one in kept] == [
        ("p1", "a", "", b'"a"'),
        ("p1", "b", "u", b'"b"'),
        ("p2", "c", "", b'"c"'),
    ]


async def test_run_with_ids_that_are_taken_stores_the_others(store: Store) -> None:
    await push(store, "b", partition="p1")
    pushed = await store.push([run_of("a", "b", "c", "a")])
    assert told(pushed) == [
        ("queued", 2),
        ("duplicate", 1),
        ("queued", 3),
        ("duplicate", 2),
    ]
    assert ids(await store.read("orders", 1, 10)) == ["b", "a", "c"]


async def test_runs_and_single_messages_together_keep_their_order(store: Store) -> None:
    await push(store, "first")
    wanted: list[PushRun] = []
    for n in range(0, 30, 3):
        wanted += [run_of(f"r{n}", f"s{n}"), item(f"i{n}"), run_of(f"m{n}", f"n{n}", partition="p2", is_minted=True)]
    answers = [each_message(pushed) for pushed in await asyncio.gather(*(store.push([run]) for run in wanted))]
    by_seq = {one.seq: sent for run, told in zip(wanted, answers, strict=True)
              for sent, one in zip(run.transaction_ids, told, strict=True)}  # fmt: skip
    kept = await store.read("orders", 2, 100)
    assert {one.seq: one.transaction_id for one in kept} == by_seq
    assert {one.transaction_id: one.payload for one in kept if one.transaction_id != "first"} == {
        sent: payload for run in wanted for sent, payload in zip(run.transaction_ids, run.payloads, strict=True)
    }
    for told in answers:
        assert [one.seq for one in told] == list(range(told[0].seq, told[0].seq + len(told)))


@pytest.mark.parametrize("is_run_first", [False, True])
async def test_run_is_stored_beside_a_push_of_which_nothing_is_new(store: Store, is_run_first: bool) -> None:
    await push(store, "a")
    texts = [f"m{n}" for n in range(40)]
    pushes = [item("a"), run_of(*texts, is_minted=True)]
    answers = await asyncio.gather(*(store.push([run]) for run in (pushes[::-1] if is_run_first else pushes)))
    old, new = answers[::-1] if is_run_first else answers
    assert told(old) == [("duplicate", 1)]
    assert [seq for _, seq in told(new)] == list(range(2, 42))
    assert ids(await store.read("orders", 1, 100)) == ["a", *texts]


async def test_full_queue_refuses_a_run_and_stores_nothing_of_it(store: Store) -> None:
    await configure(store, QueueOptions(max_size=2))
    with pytest.raises(QueueFull):
        await store.push([run_of("a", "b", "c")])
    assert [status for status, _ in told(await store.push([run_of("a", "b")]))] == ["queued", "queued"]


async def test_run_larger_than_a_record_is_stored_in_order(store: Store) -> None:
    texts = [f"m{n}" for n in range(40)]
    pushed = await store.push([PushRun.of("orders", "p1", [b"x" * 500_000] * 40, texts)])
    assert [seq for _, seq in told(pushed)] == list(range(1, 41))
    assert ids(await store.read("orders", 1, 100)) == texts
