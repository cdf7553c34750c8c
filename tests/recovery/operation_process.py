"""A process that does one operation on an embedded store, step by step, and tells a line after each answer.

Usage: operation_process.py DIRECTORY OPERATION. `prepare` makes the directory that all of them begin with.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial

from fixtures.arrow_steps import commit, stage
from fixtures.store_steps import answer, configure, finish, item, push, take
from forebay.broker.bulk import StagesOf
from forebay.broker.delivery import DEAD
from forebay.broker.overview import DeadLetterFilter, SeekTarget
from forebay.broker.store import Store
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.dispatch.definition import FlowDefinition, Source, Step
from forebay.dispatch.ledger import flows
from forebay.dispatch.ledger.claiming import NewLease, claim_from_database
from forebay.dispatch.ledger.completing import complete
from forebay.dispatch.ledger.cutting import CutOptions, cut
from forebay.dispatch.values import CompleteRequest, Completion, Outcome
from forebay.model.queue import QueueOptions

FLOW = FlowDefinition(
    name="flow",
    source=Source(queue="orders", parcel_messages=2),
    steps=(Step(action="first", action_class="c"), Step(action="second", action_class="d")),
)
Steps = AsyncIterator[None]
"""Each step ends with an answer of the store."""


async def prepare(store: Store) -> None:
    await store.push([item("a", "p1"), item("b", "p1"), item("c", "p2"), item("d", "p2")])
    await push(store, "x", "y", queue="other")
    await finish(store, await take(store, 1, partition="p1", group="readers"), group="readers")
    await finish(store, await take(store, 1, partition="p2", group="readers"), DEAD, group="readers")
    await configure(store, QueueOptions(lease_seconds=30), "other")


async def transaction(store: Store) -> Steps:
    first = await take(store, 2, partition="p1")
    second = await take(store, 1, queue="other")
    yield
    outcome = await store.transact(
        [item("t1", "p1"), item("t2", "p3"), item("t3", queue="fresh"), item("t4", queue="other")],
        [answer(first, first.messages[0]), answer(second, second.messages[0], DEAD)],
    )
    assert outcome.error == ""
    yield


async def push_to_several(store: Store) -> Steps:
    await store.push([item("m1"), item("m2", queue="other"), item("m3", queue="fresh")])
    yield


async def new_group(store: Store) -> Steps:
    assert (await take(store, group="late", subscription_mode="new", partitions=9)).messages == []
    yield
    await store.push([item("later", "p1")])
    yield


async def new_group_of_a_new_queue(store: Store) -> Steps:
    assert (await take(store, queue="fresh", group="early", subscription_mode="new", partitions=9)).messages == []
    yield
    await push(store, "later", queue="fresh")
    yield


async def seek(store: Store) -> Steps:
    assert await store.seek("readers", "orders", None, SeekTarget(to_end=True)) == 2
    yield
    assert await store.seek("readers", "orders", "p1", SeekTarget(seq=1)) == 1
    yield


async def delete_queue(store: Store) -> Steps:
    assert await store.delete_queue("orders")
    yield
    await push(store, "anew")
    yield


async def delete_group(store: Store) -> Steps:
    assert await store.delete_group("readers", "orders") == 2
    yield


async def delete_message(store: Store) -> Steps:
    [found] = await store.read("orders", 2, 1)
    assert await store.delete_message(found.partition_id, "b")
    yield


async def bury_message(store: Store) -> Steps:
    [found] = await store.read("orders", 2, 1)
    assert await store.bury_message(found.partition_id, "b", "unwanted") == 1
    yield


async def clear_queue(store: Store) -> Steps:
    assert await store.clear_queue("orders") == 4
    yield


async def replay(store: Store) -> Steps:
    assert await store.replay_dead_letters(DeadLetterFilter()) == 1
    yield


async def change_options(store: Store) -> Steps:
    await configure(store, QueueOptions(lease_seconds=7, retry_limit=2))
    yield


async def stage_commit(store: Store) -> Steps:
    first = await stage(store, b"s1", b"s2", queue="orders", part="0")
    yield
    second = await stage(store, b"s3", queue="fresh", part="1")
    yield
    assert (await commit(store, first, second)).messages == 3
    yield


async def parcels(store: Store) -> Steps:
    """A queue is cut, a parcel of it leased, worked on, and completed with what was staged."""
    await store.together(partial(flows.define, FLOW))
    yield
    assert (await store.together(partial(cut, FLOW.name, CutOptions(10)))).parcels == 2
    yield
    claimed = await store.together(partial(claim_from_database, NewLease("lease", "worker", 60_000_000, 1), ["c"]))
    [parcel] = claimed.parcels
    yield
    staged = await stage(store, b"s1", b"s2", queue="results", epoch="lease")
    yield
    request = CompleteRequest("lease", [Outcome(parcel.did, "COMPLETE")], StagesOf("spark", "lease"), [staged.stage_id])
    done = await store.together(partial(complete, request, 10, lambda *given: None), has_stages=True)
    assert done.completion == Completion(False, 1, 2)
    yield


OPERATIONS: dict[str, Callable[[Store], Steps]] = {
    one.__name__: one
    for one in (
        transaction,
        push_to_several,
        new_group,
        new_group_of_a_new_queue,
        seek,
        delete_queue,
        delete_group,
        delete_message,
        bury_message,
        clear_queue,
        replay,
        change_options,
        stage_commit,
        parcels,
    )
}


async def main(directory: str, operation: str) -> None:
    store = EmbeddedStore(directory)
    await store.open(lambda queue, count: None)
    os.write(1, b"opened\n")
    async for _ in OPERATIONS[operation](store):
        os.write(1, b"answered\n")
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
