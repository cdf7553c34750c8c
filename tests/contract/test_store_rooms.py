"""Another room's work in a store's transaction: all of it with what the store does, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from fixtures.arrow_steps import stage
from fixtures.fix_stores import Woken
from fixtures.store_steps import finish, push, take
from forebay.broker.bulk import CommitOutcome, StagesOf
from forebay.broker.room_work import (
    Ask,
    CommitStages,
    DeadSeqs,
    DropStages,
    Edge,
    GroupEdge,
    Now,
    Passed,
    QueueEdge,
    TryAlone,
    Work,
    statement,
)
from forebay.broker.store import Store
from forebay.errors import QueueFull, StageUnknown
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio

NOTE = statement("note", "INSERT INTO forebay.dispatch_numbers (name, value) VALUES (:name, :value) RETURNING value")
NOTE_MANY = statement(
    "note_many",
    "INSERT INTO forebay.dispatch_numbers (name, value) "
    "SELECT value ->> 0, CAST(value ->> 1 AS bigint) FROM forebay.each(:rows)",
)
NUMBERS = statement("numbers", "SELECT name, value FROM forebay.dispatch_numbers ORDER BY name")
OF = StagesOf("spark", "1")


def note(name: str, value: int) -> Work[int]:
    [(found,)] = yield Ask(NOTE, {"name": name, "value": value})
    return int(found)


def numbers() -> Work[dict[str, int]]:
    found = yield Ask(NUMBERS)
    return dict(found)


def refused(*works: Callable[[], Work[object]]) -> Callable[[], Work[None]]:
    def work() -> Work[None]:
        for each in works:
            yield from each()
        raise QueueFull("somewhere", 1, 1)

    return work


async def test_what_a_work_did_is_seen_by_the_next(store: Store) -> None:
    assert await store.together(lambda: note("a", 7)) == 7
    assert await store.look(numbers) == {"a": 7}


async def test_work_that_raises_leaves_nothing(store: Store) -> None:
    with pytest.raises(QueueFull):
        await store.together(refused(lambda: note("a", 1)))
    assert await store.look(numbers) == {}


async def test_lists_are_rows(store: Store) -> None:
    def work() -> Work[None]:
        yield Ask(NOTE_MANY, {"rows": [["a", 1], ["b", 2**40]]})

    await store.together(work)
    assert await store.look(numbers) == {"a": 1, "b": 2**40}


async def test_time_is_the_stores(store: Store, clock: FakeClock) -> None:
    def work() -> Work[int]:
        found: int = yield Now()
        return found

    assert await store.together(work) == await store.look(work) == clock.now_us()


async def test_queue_that_is_made_again_is_another(store: Store) -> None:
    def work() -> Work[Edge | None]:
        found: Edge | None = yield QueueEdge("orders")
        return found

    assert await store.together(work) is None
    await push(store, "a", "b")
    before = await store.together(work)
    assert before is not None
    assert (before.first_seq, before.next_seq) == (1, 3)
    assert before.identity == (await store.bounds("orders")).identity
    assert await store.look(work) == before
    await store.delete_queue("orders")
    assert await store.look(work) is None
    await push(store, "c")
    after = await store.together(work)
    assert after is not None
    assert after.queue_id != before.queue_id
    assert (after.first_seq, after.next_seq) == (1, 2)
    assert after.identity == (await store.bounds("orders")).identity != before.identity


async def test_group_has_passed_what_it_finished_in_a_partition_up_to_the_first_that_it_has_not(store: Store) -> None:
    def work(partition: str = "p", group: str = "g") -> Work[Passed | None]:
        found: Passed | None = yield GroupEdge("orders", group, partition)
        return found

    async def next_seq(partition: str = "p", group: str = "g") -> int | None:
        beside = await store.look(partial(work, partition, group))
        within = await store.together(partial(work, partition, group))
        assert beside is not None
        assert beside == within
        return within.next_seq

    assert await store.look(work) is None
    await push(store, "a", "b", partition="p")
    await push(store, "c", partition="q")
    await push(store, "d", partition="p")
    assert await next_seq() is None, "there is no group"
    popped = await take(store, 2, group="g", partition="p")
    assert await next_seq() == 1
    await finish(store, popped, group="g")
    assert await next_seq() in (3, 4), "the next of the partition is 4"
    assert await next_seq("q") == 3
    assert await next_seq("unknown") == 5
    await finish(store, await take(store, 1, group="g", partition="p"), group="g")
    assert await next_seq() == 5
    await push(store, "e", partition="p")
    assert await next_seq() == 5
    [message] = (await take(store, 1, group="g", partition="p")).messages
    await store.delete_message(message.partition_id, message.transaction_id)
    assert await next_seq() == 6, "a message that is gone keeps no group back"


async def test_dead_letters_of_a_group_are_found_between_seqs(store: Store) -> None:
    await push(store, "a", "b", "c", partition="p")
    popped = await take(store, 3, group="g", partition="p")
    await finish(store, popped, "dlq", group="g")

    def work(group: str, first_seq: int, last_seq: int, limit: int) -> Work[list[int]]:
        found: list[int] = yield DeadSeqs("orders", group, "p", first_seq, last_seq, limit)
        return found

    for run in (store.look, store.together):
        assert await run(partial(work, "g", 2, 9, 10)) == [2, 3]
        assert await run(partial(work, "g", 1, 3, 1)) == [1]
        assert await run(partial(work, "other", 1, 3, 10)) == []


async def test_stages_are_committed_with_the_work(store: Store, woken: Woken) -> None:
    staged = await stage(store, b"x", b"y", queue="results")

    def work() -> Work[CommitOutcome]:
        yield from note("moved", 2)
        outcome: CommitOutcome = yield CommitStages(OF, [staged.stage_id])
        return outcome

    outcome = await store.together(work, has_stages=True)
    assert outcome.messages == 2
    assert [found.payload for found in await store.read("results", 1, 10)] == [b"x", b"y"]
    assert await store.look(numbers) == {"moved": 2}
    assert ("results", 2) in woken.calls
    assert (await store.commit_stages(OF, [staged.stage_id])).is_repeated


async def test_stages_of_refused_work_are_still_there(store: Store, woken: Woken) -> None:
    await push(store, "earlier", queue="results")
    staged = await stage(store, b"x", queue="results")
    woken.calls.clear()

    def commit() -> Work[object]:
        return (yield CommitStages(OF, [staged.stage_id]))

    with pytest.raises(QueueFull):
        await store.together(refused(commit, lambda: note("moved", 1)), has_stages=True)
    assert [found.payload for found in await store.read("results", 1, 10)] == [b"earlier"]
    assert (await store.stage_figures()).stages == 1
    assert woken.calls == []
    assert not (await store.commit_stages(OF, [staged.stage_id])).is_repeated
    assert [found.payload for found in await store.read("results", 1, 10)] == [b"earlier", b"x"]


async def test_unknown_stage_undoes_the_work(store: Store) -> None:
    def work() -> Work[None]:
        yield from note("moved", 1)
        yield CommitStages(OF, ["nowhere"])

    with pytest.raises(StageUnknown):
        await store.together(work, has_stages=True)
    assert await store.look(numbers) == {}


async def test_part_that_is_tried_alone_is_undone_alone(store: Store) -> None:
    def work() -> Work[object]:
        yield from note("kept", 1)
        error = yield TryAlone(refused(lambda: note("undone", 1)))
        yield TryAlone(lambda: note("also kept", 2))
        return error

    assert isinstance(await store.together(work), QueueFull)
    assert await store.look(numbers) == {"also kept": 2, "kept": 1}


async def test_stages_can_be_dropped(store: Store) -> None:
    await stage(store, b"x", queue="results")

    def work() -> Work[None]:
        yield DropStages(OF)

    await store.together(work)
    assert (await store.stage_figures()).stages == 0


async def test_works_that_come_together_do_not_mix(store: Store) -> None:
    works = [store.together(partial(note, f"n{n}", n)) for n in range(8)]
    failing = [store.together(refused(partial(note, f"f{n}", n))) for n in range(8)]
    found = await asyncio.gather(*works, *failing, return_exceptions=True)
    assert all(isinstance(one, QueueFull) for one in found[8:])
    assert sorted(await store.look(numbers)) == [f"n{n}" for n in range(8)]
