"""The contract of a store, stages: rows that are kept unseen, and become messages once, all at one moment."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from fixtures.arrow_steps import commit, ipc, payloads, read_table, rows_of, seqs, stage
from fixtures.fix_stores import Woken
from fixtures.store_steps import configure, finish, push, take
from forebay.broker.bulk import Staged, StageName
from forebay.broker.store import Store
from forebay.errors import PayloadInClear, QueueFull, StageUnknown
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def test_staged_rows_are_seen_by_nobody(store: Store, woken: Woken) -> None:
    await push(store, "a")
    staged = await stage(store, b"1", b"22")
    assert staged[1:] == (2, 3)
    assert await payloads(store) == [b"a"]
    assert (await store.bounds("orders"))[:3] == (1, 2, 1)
    assert len((await take(store)).messages) == 1
    assert (await store.stage_figures())[:2] == (1, 3)


async def test_commit_makes_rows_messages_like_any_other(store: Store, woken: Woken) -> None:
    await push(store, "a")
    staged = await stage(store, b"1", b"2", partition=["p1", None], trace_id=["t", None], headers=[None, '{"h": 1}'])
    woken.calls.clear()
    assert await commit(store, staged) == (False, 2, 0, {"orders": (2, 3)})
    assert woken.calls == [("orders", 2)]
    rows = await read_table(store, from_seq=2)
    assert [(r["seq"], r["partition"], r["trace_id"], r["headers"]) for r in rows] == [
        (2, "p1", "t", None),
        (3, "Default", None, '{"h": 1}'),
    ]
    popped = await take(store, partition="p1")
    assert [(m.payload, m.is_binary) for m in popped.messages] == [(b"1", False)]
    await finish(store, popped)
    assert (await store.stage_figures())[:2] == (0, 0)


async def test_seqs_are_given_by_the_commit_in_the_order_of_its_list(store: Store) -> None:
    first, second = await stage(store, b"1", part="a"), await stage(store, b"2", part="b")
    await push(store, "x")
    outcome = await commit(store, second, first)
    assert outcome.queues == {"orders": (2, 3)}
    assert await payloads(store) == [b"x", b"2", b"1"]


async def test_commit_of_several_queues_happens_as_a_whole(store: Store, woken: Woken) -> None:
    stages = [await stage(store, b"1", b"2", queue="new"), await stage(store, b"3", queue="other")]
    outcome = await commit(store, *stages)
    assert outcome == (False, 3, 0, {"new": (1, 2), "other": (1, 1)})
    assert sorted(woken.calls) == [("new", 2), ("other", 1)]
    assert await payloads(store, "new") == [b"1", b"2"]


async def test_second_commit_of_an_epoch_changes_nothing_whatever_it_names(store: Store) -> None:
    first = await commit(store, await stage(store, b"1", b"2"))
    again = await stage(store, b"1", b"2", part="again")
    for stages in ([again.stage_id], ["nonsense"], []):
        assert await store.commit_stages("spark", "1", stages) == first._replace(is_repeated=True)
    assert await payloads(store) == [b"1", b"2"]


async def test_commits_of_one_epoch_at_the_same_time_happen_once(store: Store) -> None:
    stages = [await stage(store, b"%d" % number, part=str(number)) for number in range(5)]
    outcomes = await asyncio.gather(*[commit(store, staged) for staged in stages])
    assert sorted(outcome.is_repeated for outcome in outcomes) == [False, True, True, True, True]
    assert len({outcome._replace(is_repeated=False).messages for outcome in outcomes}) == 1
    assert len(await seqs(store)) == 1


async def test_epochs_and_producers_are_independent(store: Store) -> None:
    await commit(store, await stage(store, b"1", epoch="1"), epoch="1")
    await commit(store, await stage(store, b"2", epoch="2"), epoch="2")
    other = await store.stage("orders", "s", StageName("flink", "1", ""), rows_of(ipc({"payload": ["3"]})))
    assert not (await store.commit_stages("flink", "1", [other.stage_id])).is_repeated
    assert await payloads(store) == [b"1", b"2", b"3"]


async def test_stage_that_the_commit_does_not_name_is_dropped(store: Store) -> None:
    wanted, left = await stage(store, b"1"), await stage(store, b"1")
    await commit(store, wanted)
    assert await payloads(store) == [b"1"]
    assert (await store.stage_figures()).stages == 0
    assert left.stage_id != wanted.stage_id


async def test_unknown_stage_makes_the_commit_nothing(store: Store) -> None:
    await push(store, "x")
    staged, foreign = await stage(store, b"1"), await stage(store, b"2", epoch="2")
    for unknown in ("nonsense", foreign.stage_id):
        with pytest.raises(StageUnknown):
            await store.commit_stages("spark", "1", [staged.stage_id, unknown])
    assert await payloads(store) == [b"x"]
    assert (await commit(store, staged)).messages == 1


async def test_commit_of_nothing_is_remembered_too(store: Store) -> None:
    empty = await store.stage(
        "orders", "s", StageName("spark", "1", ""), rows_of(ipc({"payload": pa.array([], "binary")}))
    )
    assert await commit(store, empty) == (False, 0, 0, {})
    assert await commit(store) == (True, 0, 0, {})
    assert await commit(store, epoch="2") == (False, 0, 0, {})


async def test_aborted_stages_are_forgotten(store: Store) -> None:
    staged = await stage(store, b"1")
    await stage(store, b"2", part="b")
    kept = await stage(store, b"3", epoch="2")
    assert await store.abort_stages("spark", "1") == 2
    assert await store.abort_stages("spark", "1") == 0
    with pytest.raises(StageUnknown):
        await commit(store, staged)
    assert (await commit(store, kept, epoch="2")).messages == 1


async def test_stages_expire_and_are_counted(store: Store, clock: FakeClock) -> None:
    old = await stage(store, b"1")
    clock.advance(50)
    young = await stage(store, b"2", epoch="2")
    clock.advance(20)
    assert await store.expire_stages(60, 1000) == 1
    assert await store.stage_figures() == (1, 1, 1)
    with pytest.raises(StageUnknown):
        await commit(store, old)
    assert (await commit(store, young, epoch="2")).messages == 1


async def test_commits_are_remembered_for_their_time(store: Store, clock: FakeClock) -> None:
    await commit(store, await stage(store, b"1"))
    clock.advance(100)
    await store.expire_stages(10, 100)
    assert (await commit(store)).is_repeated
    clock.advance(1)
    await store.expire_stages(10, 100)
    assert not (await commit(store)).is_repeated


async def test_ids_that_a_partition_holds_are_duplicates(store: Store) -> None:
    await push(store, "a", "b")
    await push(store, "a", partition="p2")
    staged = await stage(
        store,
        *[b"%d" % number for number in range(6)],
        transaction_id=["a", "c", "c", None, None, "a"],
        partition=["Default", "Default", "Default", "Default", "Default", "p3"],
    )
    outcome = await commit(store, staged)
    assert outcome == (False, 4, 2, {"orders": (4, 7)})
    assert await payloads(store, from_seq=4) == [b"1", b"3", b"4", b"5"]
    assert [one.status for one in await push(store, "c", "d")] == ["duplicate", "queued"]


async def test_duplicates_across_the_stages_of_a_commit(store: Store) -> None:
    stages = [await stage(store, b"1", b"2", transaction_id=["a", part], part=part) for part in "xy"]
    outcome = await commit(store, *stages)
    assert (outcome.messages, outcome.duplicates) == (3, 1)
    popped = await take(store)
    assert [m.transaction_id for m in popped.messages] == ["a", "x", "y"]
    await finish(store, popped)


async def test_commit_of_duplicates_alone_stores_nothing(store: Store) -> None:
    await push(store, "a")
    outcome = await commit(store, await stage(store, b"1", transaction_id=["a"]))
    assert outcome == (False, 0, 1, {})


async def test_full_queue_makes_the_commit_nothing_and_keeps_the_stages(store: Store) -> None:
    await configure(store, QueueOptions(max_size=3), "small")
    stages = [await stage(store, b"1", b"2", queue="orders"), await stage(store, b"3", b"4", queue="small")]
    await push(store, "x", "y", queue="small")
    with pytest.raises(QueueFull):
        await commit(store, *stages)
    assert await payloads(store, "small") == [b"x", b"y"]
    assert [status.messages for status in await store.queues() if status.queue.name == "orders"] in ([], [0])
    await finish(store, await take(store, queue="small"))
    assert (await commit(store, *stages)).messages == 4


async def test_rows_in_clear_are_refused_for_an_encrypted_queue(store: Store) -> None:
    await configure(store, QueueOptions(encryption_enabled=True))
    with pytest.raises(PayloadInClear):
        await stage(store, b"1")


async def test_queue_that_became_encrypted_refuses_the_commit(store: Store) -> None:
    staged = await stage(store, b"1")
    await configure(store, QueueOptions(encryption_enabled=True))
    with pytest.raises(PayloadInClear):
        await commit(store, staged)
    assert await payloads(store) == []


async def test_many_rows_of_many_partitions_are_all_delivered(store: Store) -> None:
    count = 20_000
    staged = await stage(
        store,
        *[b'{"n":%d,"x":"%s"}' % (n, b"y" * 90) for n in range(count)],
        partition=[f"p{n % 7}" for n in range(count)],
    )
    assert (await commit(store, staged)).queues == {"orders": (1, count)}
    rows = await read_table(store)
    assert [row["seq"] for row in rows] == list(range(1, count + 1))
    assert [row["payload"][:8] for row in rows[:2]] == [b'{"n":0,"', b'{"n":1,"']
    assert len({row["transaction_id"] for row in rows}) == count
    popped = await take(store, batch=count, partition="p3")
    assert len(popped.messages) == len(range(3, count, 7))
    assert [(p.name, p.messages) for p in await store.partitions("orders", 2, 0)] == [("p0", 2858), ("p1", 2857)]


async def test_groups_wait_for_what_a_commit_brings(store: Store) -> None:
    await push(store, "a")
    await finish(store, await take(store))
    await commit(store, await stage(store, b"1", b"2"))
    popped = await take(store)
    assert [m.payload for m in popped.messages] == [b"1", b"2"]
    [lag] = await store.groups()
    assert lag.lag_messages == 2


async def test_stage_that_is_named_twice_counts_once(store: Store) -> None:
    staged: Staged = await stage(store, b"1")
    assert (await store.commit_stages("spark", "1", [staged.stage_id] * 2)).messages == 1
