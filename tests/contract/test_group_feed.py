"""A consumer group as a feed, on every store: a backlog in one partition leaves batch behind batch, without pauses, and
of a batch with something wrong in it only that becomes a dead letter."""

from __future__ import annotations

import asyncio

import pytest

from fixtures.http_sink import http_sink
from fixtures.store_steps import item
from fixtures.waiting import until
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.store import Store
from forebay.broker.waiting import WaitingRoom
from forebay.clock import SystemClock
from forebay.export.delivery import DeliveryOptions
from forebay.export.destinations.remote_write import RemoteWriteDestination
from forebay.export.exporter import Exporter, ExporterOptions
from forebay.export.group_feed import LEASE_SECONDS, GroupFeed, GroupFeedOptions
from forebay.export.http_sender import HttpOptions
from forebay.export.outcome import ErrorClass, SendFailed
from forebay.model.push_run import run_of_one
from forebay.otlp.kinds import Kind
from forebay.sendqueue.backoff import Backoff
from forebay.testing.fake_clock import FakeClock
from unit.export.test_splitting import metrics

pytestmark = pytest.mark.asyncio

BATCH = 10
BATCHES = 6
NEVER_SECONDS = 3600.0


async def test_backlog_of_one_partition_waits_neither_for_more_to_come_nor_for_the_net(store: Store) -> None:
    await store.push([item(f"m{number}", queue="orders") for number in range(BATCH * BATCHES)])
    options = GroupFeedOptions(
        "orders", "out", messages_max=BATCH, wait_seconds=NEVER_SECONDS, poll_seconds=NEVER_SECONDS
    )
    room = WaitingRoom(asyncio.get_running_loop(), net_seconds=NEVER_SECONDS)
    feed = GroupFeed("orders", store, room, SystemClock(), options)
    sent: list[int] = []

    async def send() -> None:
        while len(sent) < BATCHES:
            claim = await feed.claim()
            assert claim is not None
            # Another worker asks meanwhile, and finds the partition leased.
            await asyncio.sleep(0)
            sent.append(claim.batch.items)
            await feed.confirm(claim)

    workers = [asyncio.create_task(send()) for _ in range(2)]
    async with asyncio.timeout(30):
        await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
    feed.stop_claims()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert sent == [BATCH] * BATCHES


async def test_payload_that_cannot_be_converted_is_a_dead_letter_and_takes_no_other_with_it(store: Store) -> None:
    good = metrics(1, 1, 1, 2).SerializeToString()
    payloads = [good] * 5 + [b"\x0a\xff, which is no protobuf"] + [good] * 5
    await store.push([run_of_one("otlp", "metrics", body, f"m{n}", is_binary=True) for n, body in enumerate(payloads)])
    options = GroupFeedOptions("otlp", "out", Kind.METRICS, wait_seconds=0.0)
    feed = GroupFeed("otlp", store, WaitingRoom(asyncio.get_running_loop()), SystemClock(), options)
    async with http_sink() as sink:
        destination = RemoteWriteDestination("prometheus", HttpOptions(sink.url), SystemClock())
        quick = DeliveryOptions(Backoff(interval_seconds=0.01), max_attempts=2)
        exporter = Exporter(destination, feed, SystemClock(), ExporterOptions(quick), asyncio.Semaphore(4))
        await exporter.start()
        try:
            await until(lambda: feed.counts["dead"] + feed.counts["completed"] == len(payloads))
        finally:
            await exporter.stop(0.0)
        letters, count = await store.dead_letters(DeadLetterFilter(queue="otlp", group="out"), 10, 0)
    assert count == 1
    assert [letter.message.transaction_id for letter in letters] == ["m5"]
    assert exporter.delivery.counts["sent_items"] == len(payloads) - 1


async def test_what_a_lost_lease_held_is_not_counted_as_dead_and_comes_again(store: Store) -> None:
    await store.push([item(f"m{number}", queue="orders") for number in range(3)])
    options = GroupFeedOptions("orders", "out", wait_seconds=0.0)
    feed = GroupFeed("orders", store, WaitingRoom(asyncio.get_running_loop()), SystemClock(), options)
    claim = await feed.claim()
    assert claim is not None
    [(lease_id, _)] = feed._leases.values()
    await store.release(lease_id)  # as another process finds it when this one was frozen
    await feed.bury(claim, claim.batch, SendFailed(ErrorClass.CLIENT_ERROR, "no"))
    await feed.confirm(claim)
    assert (feed.counts["dead"], feed.counts["lease_lost"]) == (0, 1)
    assert await store.dead_letters(DeadLetterFilter(queue="orders"), 10, 0) == ([], 0)
    again = await feed.claim()
    assert again is not None
    assert again.batch.key == claim.batch.key
    await feed.confirm(again)


async def test_batch_whose_lease_was_lost_is_let_go_and_sent_under_the_next_one_alone(store: Store) -> None:
    await store.push([item(f"m{number}", queue="orders") for number in range(3)])
    options = GroupFeedOptions(
        "orders", "out", wait_seconds=0.0, held_max=1, renew_seconds=0.01, renew_after_seconds=0.0
    )
    feed = GroupFeed("orders", store, WaitingRoom(asyncio.get_running_loop()), SystemClock(), options)
    waiting = await feed.claim()
    assert waiting is not None
    await feed.release(waiting, NEVER_SECONDS)
    [(lease_id, _)] = feed._leases.values()
    await store.release(lease_id)
    await feed.open()
    # It has held the only place of those that wait.
    async with asyncio.timeout(30):
        under_way = await feed.claim()
    assert under_way is not None
    assert (under_way.batch.key, feed.counts["lease_lost"], feed.depth()) == (waiting.batch.key, 1, 0)
    [(lease_id, _)] = feed._leases.values()
    await store.release(lease_id)
    await until(lambda: feed.counts["lease_lost"] == 2)
    await feed.release(under_way, 0.0)
    assert (feed.depth(), feed._leases) == (0, {})
    await feed.close()


async def test_batch_of_a_process_that_was_frozen_past_its_lease_is_not_sent_before_it_is_leased_again(
    store: Store,
) -> None:
    await store.push([item("m", queue="orders")])
    clock = FakeClock()
    options = GroupFeedOptions("orders", "out", wait_seconds=0.0)
    feed = GroupFeed("orders", store, WaitingRoom(asyncio.get_running_loop()), clock, options)
    first = await feed.claim()
    assert first is not None
    await feed.release(first, 0.0)
    [(lease_id, _)] = feed._leases.values()
    await store.release(lease_id)
    clock.advance(LEASE_SECONDS)
    again = await feed.claim()
    assert again is not None
    assert (again is first, again.batch.key, feed.counts["lease_lost"]) == (False, first.batch.key, 1)
    await feed.confirm(again)
