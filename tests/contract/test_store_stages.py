"""The contract of a store, stages: rows that are kept unseen, and become messages once, all at one moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from fixtures.arrow_steps import commit, ipc, payloads, read_table, rows_of, seqs, stage
from fixtures.fix_stores import Woken
from fixtures.store_steps import configure, finish, push, take
from forebay.broker.bulk import Staged, StageName, StagesOf
from forebay.broker.store import Store
from forebay.errors import CommitDiffers, PayloadInClear, QueueFull, StageUnknown
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def test_staged_rows_are_seen_by_nobody(store: Store, woken: Woken) -> None:
    await push(store, "a")
    staged = await stage(store, b"1", b"22")
    assert staged.content[:2] == (2, 3)
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


async def test_second_commit_of_the_same_rows_changes_nothing_and_answers_the_same(store: Store) -> None:
    staged = await stage(store, b"1", b"2", b"3", partition=["a", "b", "b"], trace_id=["t", None, None])
    first = await commit(store, staged)
    others = [
        await stage(store, b"3", part="y", partition=["b"]),
        await stage(store, b"2", b"1", part="x", partition=["b", "a"], trace_id=[None, "t"]),
    ]
    for stages in ([staged], others, [staged]):
        assert await commit(store, *stages) == first._replace(is_repeated=True)
    assert await payloads(store) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        ((b"1", b"2", b"3"), {}),
        ((b"1",), {}),
        ((), {}),
        ((b"1", b"22"), {}),
        ((b"1", b"3"), {}),
        ((b"1", b"2"), {"partition": ["a", "Default"]}),
        ((b"1", b"2"), {"headers": ["{}", None]}),
        ((b"1", b"2"), {"transaction_id": ["t", None]}),
    ],
)
async def test_second_commit_of_other_rows_is_refused_with_the_numbers(
    store: Store, rows: tuple[bytes, ...], columns: dict[str, Any]
) -> None:
    await commit(store, await stage(store, b"1", b"2"))
    other = await stage(store, *rows, **columns)
    with pytest.raises(CommitDiffers, match=r"'orders' with 2 messages, 2 bytes.* has \d messages, \d byte"):
        await commit(store, other)
    assert await payloads(store) == [b"1", b"2"]


async def test_rows_that_change_places_are_other_rows(store: Store) -> None:
    await commit(store, await stage(store, b"1", b"2", partition=["a", "b"]))
    with pytest.raises(CommitDiffers):
        await commit(store, await stage(store, b"1", b"2", partition=["b", "a"]))


async def test_second_commit_of_stages_that_are_not_there_is_refused(store: Store) -> None:
    await commit(store, await stage(store, b"1"))
    with pytest.raises(StageUnknown):
        await store.commit_stages(StagesOf("spark", "1"), ["nonsense"])


async def test_writes_of_one_epoch_to_several_queues_are_all_kept(store: Store, woken: Woken) -> None:
    # As `foreachBatch` writes: each queue by itself, the stages of the next one beside those of the last.
    left, right = await stage(store, b"1", b"2", queue="left"), await stage(store, b"3", queue="right")
    assert await commit(store, left) == (False, 2, 0, {"left": (1, 2)})
    assert await commit(store, right) == (False, 1, 0, {"right": (1, 1)})
    again = [await stage(store, b"2", b"1", queue="left"), await stage(store, b"3", queue="right")]
    assert await commit(store, again[0]) == (True, 2, 0, {"left": (1, 2)})
    assert await commit(store, *again[1:]) == (True, 1, 0, {"right": (1, 1)})
    assert [await payloads(store, queue) for queue in ("left", "right")] == [[b"1", b"2"], [b"3"]]
    assert sorted(woken.calls) == [("left", 2), ("right", 1)]


async def test_commit_of_queues_of_which_some_are_committed_adds_the_others(store: Store, woken: Woken) -> None:
    await commit(store, await stage(store, b"1", queue="left"))
    woken.calls.clear()
    both = [await stage(store, b"1", queue="left"), await stage(store, b"2", queue="right")]
    assert await commit(store, *both) == (False, 2, 0, {"left": (1, 1), "right": (1, 1)})
    assert woken.calls == [("right", 1)]
    both = [await stage(store, b"1", queue="left", epoch="2"), await stage(store, b"2", queue="right", epoch="2")]
    await commit(store, both[0], epoch="2")
    other = await stage(store, b"other", queue="left", epoch="2")
    with pytest.raises(CommitDiffers):
        await commit(store, other, both[1], epoch="2")
    assert [await payloads(store, queue) for queue in ("left", "right")] == [[b"1", b"1"], [b"2"]]
    assert (await commit(store, both[1], epoch="2")).messages == 1


async def test_named_writes_of_one_epoch_to_one_queue_are_all_kept(store: Store) -> None:
    stages = {write: await stage(store, write.encode(), write=write) for write in ("a", "b")}
    for write, staged in stages.items():
        assert not (await commit(store, staged, write=write)).is_repeated
    assert await payloads(store) == [b"a", b"b"]
    assert (await commit(store, await stage(store, b"a", write="a"), write="a")).is_repeated
    with pytest.raises(CommitDiffers, match="write 'b'"):
        await commit(store, await stage(store, b"a", write="b"), write="b")
    with pytest.raises(StageUnknown):
        await commit(store, await stage(store, b"c", write="c"), write="d")


async def test_commits_of_one_epoch_at_the_same_time_happen_once(store: Store) -> None:
    staged = await stage(store, b"1")
    outcomes = await asyncio.gather(*[commit(store, staged) for _ in range(5)])
    assert sorted(outcome.is_repeated for outcome in outcomes) == [False, True, True, True, True]
    assert {outcome.messages for outcome in outcomes} == {1}
    assert len(await seqs(store)) == 1


async def test_different_commits_of_one_epoch_at_the_same_time_are_one_and_refusals(store: Store) -> None:
    stages = [await stage(store, b"%d" % number, part=str(number)) for number in range(5)]
    outcomes = await asyncio.gather(*[commit(store, staged) for staged in stages], return_exceptions=True)
    assert len([one for one in outcomes if isinstance(one, CommitDiffers | StageUnknown)]) == 4
    assert len(await seqs(store)) == 1


async def test_epochs_and_producers_are_independent(store: Store) -> None:
    await commit(store, await stage(store, b"1", epoch="1"), epoch="1")
    await commit(store, await stage(store, b"2", epoch="2"), epoch="2")
    other = await store.stage("orders", "s", StageName("flink", "1", ""), rows_of(ipc({"payload": ["3"]})))
    assert not (await store.commit_stages(StagesOf("flink", "1"), [other.stage_id])).is_repeated
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
            await store.commit_stages(StagesOf("spark", "1"), [staged.stage_id, unknown])
    assert await payloads(store) == [b"x"]
    assert (await commit(store, staged)).messages == 1


async def test_commit_of_nothing_is_remembered_too(store: Store) -> None:
    empty = await store.stage(
        "orders", "s", StageName("spark", "1", ""), rows_of(ipc({"payload": pa.array([], "binary")}))
    )
    assert await commit(store, empty) == (False, 0, 0, {})
    assert await commit(store) == (True, 0, 0, {})
    for epoch, queue in (("2", None), ("3", "orders")):
        assert await commit(store, epoch=epoch, queue=queue) == (False, 0, 0, {})
        assert await commit(store, epoch=epoch, queue=queue) == (True, 0, 0, {})
    for epoch in ("1", "3"):
        with pytest.raises(CommitDiffers, match="with 0 messages"):
            await commit(store, await stage(store, b"1", epoch=epoch), epoch=epoch, queue="orders")
    await commit(store, await stage(store, b"1", epoch="4"), epoch="4")
    for queue in (None, "orders"):
        with pytest.raises(CommitDiffers, match="this commit has 0 messages"):
            await commit(store, epoch="4", queue=queue)


async def test_aborted_stages_are_forgotten(store: Store) -> None:
    staged = await stage(store, b"1")
    await stage(store, b"2", part="b")
    kept = await stage(store, b"3", epoch="2")
    assert await store.abort_stages(StagesOf("spark", "1")) == 2
    assert await store.abort_stages(StagesOf("spark", "1")) == 0
    with pytest.raises(StageUnknown):
        await commit(store, staged)
    assert (await commit(store, kept, epoch="2")).messages == 1


async def test_abort_of_one_write_or_queue_leaves_the_others(store: Store) -> None:
    kept = await stage(store, b"1", queue="left"), await stage(store, b"1", write="b")
    await stage(store, b"2", queue="right")
    assert await store.abort_stages(StagesOf("spark", "1", queue="right")) == 1
    assert (await commit(store, kept[0])).messages == 1
    assert (await commit(store, kept[1], write="b")).messages == 1
    await stage(store, b"3", epoch="2"), await stage(store, b"3", epoch="2", write="b")
    assert await store.abort_stages(StagesOf("spark", "2"), all_writes=True) == 2


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
    await commit(store, staged := await stage(store, b"1"))
    clock.advance(100)
    await store.expire_stages(10, 100)
    assert (await commit(store, staged)).is_repeated
    clock.advance(1)
    await store.expire_stages(10, 100)
    assert not (await commit(store, await stage(store, b"1"))).is_repeated


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


async def test_rows_in_clear_are_refused_for_an_encrypted_queue(store: Store, variant: Store) -> None:
    await configure(variant, QueueOptions(encryption_enabled=True))
    with pytest.raises(PayloadInClear):
        await stage(store, b"1")


async def test_queue_that_became_encrypted_refuses_the_commit(store: Store, variant: Store) -> None:
    staged = await stage(store, b"1")
    await configure(variant, QueueOptions(encryption_enabled=True))
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
    assert (await commit(store, staged, staged)).messages == 1


async def test_deleted_queue_takes_its_commits_along(store: Store) -> None:
    """A repeated commit would else be taken for done, and its rows would be nowhere."""
    await commit(store, await stage(store, b"a"), await stage(store, b"b", queue="other", part="1"))
    await store.delete_queue("orders")
    again = await commit(store, await stage(store, b"a"))
    assert not again.is_repeated
    assert [row["payload"] for row in await read_table(store)] == [b"a"]
    assert (await commit(store, await stage(store, b"b", queue="other", part="1"))).is_repeated
