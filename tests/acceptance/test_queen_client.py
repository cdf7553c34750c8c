"""The published client of Queen (`queen-mq` from PyPI) drives a Forebay server and cannot tell the difference."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from queen import Queen

from fixtures.running_stores import any_server, fresh, shared_postgres_database
from forebay.testing.running_server import RunningServer

__all__ = ["any_server", "shared_postgres_database"]

Client = Any
"""A `Queen`. Its annotations promise less than its methods return."""
Message = dict[str, Any]
Step = Callable[[Any], Awaitable[None]]


@asynccontextmanager
async def client_of(server: RunningServer) -> AsyncIterator[Client]:
    async with Queen(server.url, retry_attempts=1, retry_429={"max_attempts": 1}) as client:
        yield client


def drive(server: RunningServer, step: Step) -> None:
    async def run() -> None:
        async with client_of(server) as client:
            await asyncio.wait_for(step(client), 60)

    asyncio.run(run())


async def popped(client: Client, queue: str, batch: int = 100, group: str | None = None, **more: Any) -> list[Message]:
    builder = client.queue(queue).batch(batch).partitions(more.get("partitions", 1)).wait(more.get("wait", False))
    if group:
        builder = builder.group(group)
    if "mode" in more:
        builder = builder.subscription_mode(more["mode"])
    if "start" in more:
        builder = builder.subscription_from(more["start"])
    return list(await builder.timeout_millis(more.get("timeout_ms", 10_000)).pop())


def data(messages: list[Message]) -> list[Any]:
    return [message["data"] for message in messages]


def test_queue_is_created_with_its_options_and_deleted(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        made = await client.queue(queue).config({"lease_time": 7, "retry_limit": 1, "retry_delay": 5}).create()
        assert made["configured"] is True
        assert made["options"]["leaseTime"] == 7
        shown = await client.admin.get_queue(queue)
        assert shown["config"]["retryLimit"] == 1
        assert (await client.queue(queue).delete())["deleted"] is True
        listed = await client.admin.list_queues(search=queue)
        assert listed["queues"] == []

    drive(any_server, step)


def test_pushed_messages_are_popped_in_order_and_acked(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        results = await client.queue(queue).push([{"data": {"n": n}} for n in range(20)])
        assert [result["status"] for result in results] == ["queued"] * 20
        messages = await popped(client, queue)
        assert data(messages) == [{"n": n} for n in range(20)]
        assert [message["id"] for message in messages] == [result["message_id"] for result in results]
        assert (await client.ack(messages, True))["success"] is True
        assert await popped(client, queue) == []

    drive(any_server, step)


def test_same_transaction_id_is_a_duplicate_in_its_partition_only(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue, seen = fresh(), []

        async def on_duplicate(items: list[Message], error: Exception) -> None:
            seen.extend(items)

        item = {"transactionId": "order-1", "data": {"n": 1}}
        first = await client.queue(queue).push([item])
        second = await client.queue(queue).push([item]).on_duplicate(on_duplicate)
        elsewhere = await client.queue(queue).partition("other").push([item])
        assert [first[0]["status"], second[0]["status"], elsewhere[0]["status"]] == ["queued", "duplicate", "queued"]
        assert second[0]["message_id"] == first[0]["message_id"]
        assert len(seen) == 1

    drive(any_server, step)


def test_consumers_in_parallel_get_every_message_once_and_each_partition_in_order(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue, partitions, each = fresh(), 8, 25
        for partition in range(partitions):
            items = [{"data": {"p": partition, "n": n}} for n in range(each)]
            await client.queue(queue).partition(f"p{partition}").push(items)
        seen: list[tuple[int, int]] = []
        done = asyncio.Event()

        async def handler(messages: list[Message]) -> None:
            seen.extend((message["data"]["p"], message["data"]["n"]) for message in messages)
            if len(seen) >= partitions * each:
                done.set()

        consuming = (
            client.queue(queue)
            .group("workers")
            .concurrency(4)
            .batch(7)
            .timeout_millis(500)
            .consume(handler, signal=done)
        )
        await consuming
        assert sorted(seen) == [(p, n) for p in range(partitions) for n in range(each)]
        for partition in range(partitions):
            assert [n for p, n in seen if p == partition] == list(range(each))

    drive(any_server, step)


def test_message_whose_handler_raises_is_delivered_again_and_then_a_dead_letter(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue, tries = fresh(), []
        await client.queue(queue).config({"retry_limit": 2, "retry_delay": 0}).create()
        await client.queue(queue).push([{"data": {"n": 1}}])

        async def handler(message: Message) -> None:
            tries.append(message["attempts"])
            raise RuntimeError("cannot be done")

        await client.queue(queue).batch(1).partitions(1).limit(3).each().consume(handler)
        assert tries == [1, 2, 3]
        dead = await client.queue(queue).dlq().get()
        assert dead["total"] == 1
        assert dead["messages"][0]["errorMessage"] == "cannot be done"
        assert dead["messages"][0]["data"] == {"n": 1}
        assert await popped(client, queue) == []

    drive(any_server, step)


def test_rest_of_a_batch_comes_again_at_once_after_one_of_it_failed(any_server: RunningServer) -> None:
    """Queen's client lets go of a partition after a failure: it neither handles nor answers what is left of it."""

    async def step(client: Client) -> None:
        queue, seen = fresh(), []
        await client.queue(queue).config({"retry_limit": 3, "retry_delay": 0}).create()
        await client.queue(queue).push([{"data": n} for n in range(3)])

        async def handler(message: Message) -> None:
            seen.append(message["data"])
            if message["data"] == 0 and message["attempts"] <= 3:
                raise RuntimeError("not yet")

        consumer = client.queue(queue).batch(3).partitions(1).limit(6).timeout_millis(1000).each()
        await asyncio.wait_for(consumer.consume(handler), 5)
        assert seen == [0, 0, 0, 0, 1, 2]

    drive(any_server, step)


def test_every_group_gets_every_message(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        await client.queue(queue).push([{"data": n} for n in range(5)])
        for group in ("billing", "search"):
            messages = await popped(client, queue, group=group)
            assert data(messages) == [0, 1, 2, 3, 4]
            assert (await client.ack(messages, True, {"group": group}))["success"] is True
        names = {group["name"] for group in await client.admin.list_consumer_groups() if group["queueName"] == queue}
        assert names == {"billing", "search"}

    drive(any_server, step)


def test_subscription_mode_decides_where_a_new_group_starts(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        await client.queue(queue).push([{"data": "before"}])
        assert await popped(client, queue, group="late", mode="new") == []
        assert await popped(client, queue, group="later", start="now") == []
        hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        in_an_hour = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        assert data(await popped(client, queue, group="past", start=hour_ago)) == ["before"]
        assert await popped(client, queue, group="future", start=in_an_hour) == []
        await client.queue(queue).push([{"data": "after"}])
        assert data(await popped(client, queue, group="late", mode="new")) == ["after"]
        assert data(await popped(client, queue, group="later", start="now")) == ["after"]
        assert data(await popped(client, queue, group="all")) == ["before", "after"]

    drive(any_server, step)


def test_group_that_seeks_reads_again_or_skips(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        await client.queue(queue).push([{"data": n} for n in range(3)])
        messages = await popped(client, queue, group="g")
        await client.ack(messages, True, {"group": "g"})
        hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        await client.admin.seek_consumer_group("g", queue, {"timestamp": hour_ago})
        assert data(await popped(client, queue, group="g")) == [0, 1, 2]
        await client.admin.seek_consumer_group("g", queue, {"toEnd": True})
        assert await popped(client, queue, group="g") == []
        assert (await client.delete_consumer_group("g"))["success"] is True
        assert data(await popped(client, queue, group="g")) == [0, 1, 2]

    drive(any_server, step)


def test_one_pop_claims_several_partitions_under_one_lease(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        for partition in ("a", "b", "c"):
            await client.queue(queue).partition(partition).push([{"data": partition}, {"data": partition}])
        messages = await popped(client, queue, batch=100, partitions=2)
        assert len({message["partitionId"] for message in messages}) == 2
        assert len({message["leaseId"] for message in messages}) == 1
        assert len(messages) == 4
        renewed = await client.renew(messages)
        assert [each["success"] for each in renewed] == [True]
        assert (await client.ack(messages, True))["success"] is True

    drive(any_server, step)


def test_one_transaction_acks_messages_of_several_pops(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue, target = fresh(), fresh()
        for partition in ("p1", "p2"):
            await client.queue(queue).partition(partition).push([{"data": partition}])
        messages = [message for _ in range(2) for message in await popped(client, queue, 1)]
        assert sorted(data(messages)) == ["p1", "p2"]
        transaction = client.transaction()
        for message in messages:
            transaction = transaction.ack(message)
        result = await transaction.queue(target).push([{"data": "moved"}]).commit()
        assert result["success"] is True
        assert data(await popped(client, target)) == ["moved"]
        assert await popped(client, queue) == []

    drive(any_server, step)


def test_message_is_acked_without_its_lease(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        await client.queue(queue).push([{"data": n} for n in range(3)])
        messages = [{**message, "leaseId": None} for message in await popped(client, queue)]
        assert (await client.ack(messages[0], True))["success"] is True
        assert (await client.ack(messages[1:], True))["success"] is True
        assert await popped(client, queue) == []

    drive(any_server, step)


def test_group_that_starts_from_the_beginning_gets_what_was_there(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        await client.queue(queue).push([{"data": 1}])
        assert data(await popped(client, queue, group="g", mode="from_beginning")) == [1]

    drive(any_server, step)


def test_transaction_moves_a_message_on_or_changes_nothing(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        source, target = fresh("source"), fresh("target")
        await client.queue(source).push([{"data": 1}, {"data": 2}])
        first, second = await popped(client, source)
        result = await client.transaction().ack(first).queue(target).push([{"data": "moved"}]).commit()
        assert result["success"] is True
        assert data(await popped(client, target)) == ["moved"]
        foreign = {**second, "leaseId": "00000000-0000-0000-0000-000000000000"}
        with pytest.raises(Exception, match="lease"):
            await client.transaction().ack(foreign).queue(target).push([{"data": "never"}]).commit()
        assert data(await popped(client, target, group="other")) == ["moved"]
        assert (await client.ack(second, True))["success"] is True

    drive(any_server, step)


def test_lease_is_renewed_and_its_end_is_told(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        await client.queue(queue).config({"lease_time": 30}).create()
        await client.queue(queue).push([{"data": 1}])
        (message,) = await popped(client, queue)
        renewed = await client.renew(message)
        assert renewed["success"] is True
        until = datetime.fromisoformat(renewed["newExpiresAt"])
        assert until > datetime.now(UTC) + timedelta(seconds=50)
        assert (await client.ack(message, True))["success"] is True
        assert (await client.renew(message))["success"] is False

    drive(any_server, step)


def test_message_whose_lease_ended_comes_again_and_the_late_ack_is_refused(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        await client.queue(queue).config({"lease_time": 1}).create()
        await client.queue(queue).push([{"data": 1}])
        (first,) = await popped(client, queue)
        (again,) = await popped(client, queue, wait=True)
        assert (first["attempts"], again["attempts"]) == (1, 2)
        late = await client.ack(first, True)
        assert late["success"] is False
        assert "lease" in late["error"]
        assert (await client.ack(again, True))["success"] is True

    drive(any_server, step)


def test_delayed_message_waits_and_a_windowed_partition_settles(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        delayed, windowed = fresh("delayed"), fresh("windowed")
        await client.queue(delayed).config({"delayed_processing": 1}).create()
        await client.queue(windowed).config({"window_buffer": 1}).create()
        began = time.monotonic()
        await client.queue(delayed).push([{"data": 1}])
        await client.queue(windowed).push([{"data": 1}, {"data": 2}])
        assert await popped(client, delayed) == []
        assert await popped(client, windowed) == []
        late, settled = await asyncio.gather(popped(client, delayed, wait=True), popped(client, windowed, wait=True))
        assert (data(late), data(settled)) == ([1], [1, 2])
        assert time.monotonic() - began >= 0.99

    drive(any_server, step)


def test_long_poll_ends_with_the_push_it_waited_for(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        waiting = asyncio.create_task(popped(client, queue, wait=True, timeout_ms=30_000))
        await client.queue(queue).push([{"data": "hello"}])
        began = time.monotonic()
        assert data(await waiting) == ["hello"]
        assert time.monotonic() - began < 5

    drive(any_server, step)


def test_client_buffer_arrives_as_a_whole(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        for n in range(25):
            await client.queue(queue).buffer({"message_count": 10, "time_millis": 50}).push([{"data": n}])
        await client.flush_all_buffers()
        assert data(await popped(client, queue)) == list(range(25))

    drive(any_server, step)


def test_pop_that_commits_on_delivery_leaves_nothing_to_ack(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        await client.queue(queue).push([{"data": 1}])
        (message,) = await client.queue(queue).batch(5).commit_on_delivery(True).wait(False).pop()
        assert message["leaseId"] == ""
        assert await popped(client, queue) == []

    drive(any_server, step)


def test_traces_are_kept_by_message_and_by_name(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue, name = fresh(), fresh("trace")
        await client.queue(queue).push([{"data": 1}])

        async def handler(message: Message) -> None:
            told = await message["trace"]({"traceName": name, "eventType": "step", "data": {"done": "half"}})
            assert told["success"] is True
            by_message = await client.admin.get_traces_for_message(message["partitionId"], message["transactionId"])
            assert [trace["data"] for trace in by_message["traces"]] == [{"done": "half"}]

        await client.queue(queue).batch(1).partitions(1).limit(1).each().consume(handler)
        by_name = await client.admin.get_traces_by_name(name)
        assert [trace["eventType"] for trace in by_name["traces"]] == ["step"]
        names = await client.admin.get_trace_names(limit=1000)
        assert name in {entry["traceName"] for entry in names["traceNames"]}

    drive(any_server, step)


def test_maintenance_pauses_pop_and_buffers_pushes(any_server: RunningServer) -> None:
    async def switch(client: Client, path: str, enabled: bool) -> None:
        await client._http_client.post(path, {"enabled": enabled})

    async def step(client: Client) -> None:
        queue = fresh()
        await client.queue(queue).push([{"data": 1}])
        await switch(client, "/api/v1/system/maintenance/pop", True)
        try:
            assert await popped(client, queue) == []
        finally:
            await switch(client, "/api/v1/system/maintenance/pop", False)
        assert data(await popped(client, queue)) == [1]
        await switch(client, "/api/v1/system/maintenance", True)
        try:
            later = fresh()
            await client.queue(later).push([{"data": 2}])
            assert await popped(client, later) == []
        finally:
            await switch(client, "/api/v1/system/maintenance", False)
        assert data(await popped(client, later, wait=True)) == [2]

    drive(any_server, step)


def test_consumer_of_new_messages_may_come_before_the_first_push(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        assert await popped(client, queue, group="early", mode="new") == []
        await client.queue(queue).push([{"data": "first"}])
        assert data(await popped(client, queue, group="early", mode="new")) == ["first"]

    drive(any_server, step)


def test_deleted_message_is_delivered_to_nobody(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        first, _ = await client.queue(queue).push([{"data": 1}, {"data": 2}])
        told = await client.admin.delete_message(first["partitionId"], first["transactionId"])
        assert (told["success"], told["transactionId"]) == (True, first["transactionId"])
        again = await client.admin.delete_message(first["partitionId"], first["transactionId"])
        assert (again["success"], again["message"]) == (False, "Message not found")
        assert data(await popped(client, queue)) == [2]
        assert [each["data"] for each in (await client.admin.list_messages(queue=queue))["messages"]] == [2]

    drive(any_server, step)


def test_admin_calls_are_all_answered(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue, admin = fresh("shop.orders"), client.admin
        (pushed,) = await client.queue(queue).push([{"data": {"n": 1}}])
        (message,) = await popped(client, queue, group="g")
        assert (await admin.get_overview())["queues"] >= 1
        assert "shop" in {entry["namespace"] for entry in (await admin.get_namespaces())["namespaces"]}
        assert (await admin.get_tasks())["tasks"]
        assert (await admin.get_queue_depth(queue, "g"))["pending"] == 1
        assert (await admin.get_partitions(queue=queue))["partitions"][0]["name"] == "Default"
        assert (await admin.list_messages(queue=queue))["messages"][0]["data"] == {"n": 1}
        shown = await admin.get_message(message["partitionId"], message["transactionId"])
        assert shown["id"] == pushed["messageId"]
        status = await admin.get_status()
        assert queue in {entry["name"] for entry in status["queues"]}
        assert sum(point["ingested"] for point in status["throughput"]) >= 1
        assert (await admin.get_queue_stats())["queues"]
        assert (await admin.get_queue_detail(queue))["consumerGroups"][0]["name"] == "g"
        assert (await admin.get_analytics())["messages"]["total"] >= 1
        assert (await admin.refresh_consumer_stats())["success"] is True
        assert (await admin.get_consumer_group("g"))["name"] == "g"
        assert await admin.get_lagging_consumers(3600) == []
        assert (await admin.health())["status"] == "healthy"
        (replica,) = (await admin.get_system_metrics())["replicas"]
        assert replica["timeSeries"][-1]["metrics"]["memory"]["rss_bytes"]["last"] > 1_000_000
        assert sum(point["popMessages"] for point in (await admin.get_worker_metrics())["timeSeries"]) >= 1
        names = await admin.get_trace_names(limit=1000)
        assert names["total"] == len(names["traceNames"])

    drive(any_server, step)


def test_dead_message_is_retried_and_options_of_queen_are_kept(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        made = await client.queue(queue).config({"ttl": 3600, "dead_letter_queue": True}).create()
        assert (made["options"]["ttl"], made["options"]["deadLetterQueue"]) == (3600, True)
        await client.queue(queue).push([{"data": 1}])
        (message,) = await popped(client, queue)
        assert (await client.ack(message, "dlq"))["success"] is True
        told = await client.admin.retry_message(message["partitionId"], message["transactionId"])
        assert told["replayed"] == 1
        assert data(await popped(client, queue)) == [1]

    drive(any_server, step)


def test_what_is_not_here_is_said_in_words(any_server: RunningServer) -> None:
    async def step(client: Client) -> None:
        queue = fresh()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: client.kv.get("space", "key"),
            lambda: client.ephemeral.push(queue, [{"data": 1}]),
            lambda: client.queue(queue).fetch(["Default"]),
            lambda: client.transaction().once("space", "key", forever=True).queue(queue).push([{"data": 1}]).commit(),
        ]
        for call in calls:
            with pytest.raises(Exception, match=r"Forebay has no|is not known here"):
                await call()
        assert await popped(client, queue) == []

    drive(any_server, step)
