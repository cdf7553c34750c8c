"""Whose partitions, leases and stages are: for callers that may touch some queues only."""

from __future__ import annotations

import pytest

from fixtures.arrow_steps import stage
from fixtures.store_steps import push
from forebay.broker.messages import PopRequest
from forebay.broker.store import Store

pytestmark = pytest.mark.asyncio


async def test_partitions_leases_and_stages_are_of_their_queues(store: Store) -> None:
    [pushed] = await push(store, "a", queue="orders")
    await push(store, "b", queue="bills")
    popped = await store.pop(PopRequest("bills"))
    staged = await stage(store, b"c", queue="results")
    assert await store.queues_of(partition_ids=[pushed.partition_id]) == {"orders"}
    assert await store.queues_of(lease_ids=[popped.lease_id]) == {"bills"}
    assert await store.queues_of(stage_ids=[staged.stage_id]) == {"results"}
    found = await store.queues_of(
        partition_ids=[pushed.partition_id] * 2, lease_ids=[popped.lease_id], stage_ids=[staged.stage_id]
    )
    assert found == {"orders", "bills", "results"}


async def test_what_is_not_there_is_of_no_queue(store: Store) -> None:
    [pushed] = await push(store, "a")
    assert await store.queues_of(partition_ids=["", "x", "1-999", "999-1", "-", "9" * 40]) <= {"orders"}
    assert await store.queues_of(lease_ids=["", "nowhere"], stage_ids=["", "nowhere"]) == set()
    await store.delete_queue("orders")
    assert await store.queues_of(partition_ids=[pushed.partition_id]) == set()


async def test_id_with_the_number_of_another_queue_is_of_the_partitions_own(store: Store) -> None:
    [of_orders] = await push(store, "a", queue="orders")
    await push(store, "x", queue="other")
    [of_bills] = await push(store, "b", queue="bills")
    forged = f"{of_orders.partition_id.split('-')[0]}-{of_bills.partition_id.split('-')[1]}"
    assert await store.queues_of(partition_ids=[forged]) != {"orders"} or forged == of_orders.partition_id
