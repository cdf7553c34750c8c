"""Outboxes on every store: exports rest until their queues are there, and cost nothing before."""

from __future__ import annotations

import asyncio

import pytest

from fixtures.arrow_steps import commit, stage
from fixtures.store_steps import configure
from forebay.broker.store import Store
from forebay.broker.waiting import WaitingRoom
from forebay.export.group_feed import GroupFeed, GroupFeedOptions
from forebay.export.outboxes import COMPLETED_RETENTION_SECONDS, Outboxes
from forebay.export.queue_export import QueueExport
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


def outboxes(store: Store, *names: str) -> Outboxes:
    exports = []
    for name in names:
        options = GroupFeedOptions(f".export.{name}", "export")
        feed = GroupFeed(f".export.{name}", store, WaitingRoom(asyncio.get_running_loop()), FakeClock(), options)
        nothing: object = None
        exports.append(QueueExport(f".export.{name}", name, nothing, feed))  # type: ignore[arg-type]
    return Outboxes(exports)


async def test_export_rests_until_its_queue_is_made_and_does_not_make_it(store: Store) -> None:
    resting = outboxes(store, "web", "prom")
    assert await resting.awake(store) == []
    assert await store.queues() == []
    await commit(store, await stage(store, b"{}", queue=".export.web", partition=["shop"]))
    assert [export.destination for export in await resting.awake(store)] == ["web"]
    assert ".export.web" not in resting
    assert [export.name for export in resting] == [".export.prom"]
    assert await resting.awake(store) == []


async def test_outbox_is_bounded_unless_a_person_has_given_it_options(store: Store) -> None:
    own = QueueOptions(retention_seconds=7)
    await commit(store, await stage(store, b"{}", queue=".export.web"))
    await configure(store, own, ".export.prom")
    await outboxes(store, "web", "prom").awake(store)
    found = {status.queue.name: status.queue.options for status in await store.queues()}
    assert found == {
        ".export.web": QueueOptions(completed_retention_seconds=COMPLETED_RETENTION_SECONDS),
        ".export.prom": own,
    }
