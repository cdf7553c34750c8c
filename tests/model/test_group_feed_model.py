"""A group feed whose process dies, is frozen or stops at any moment, while messages come in: a message that left under
an idempotency key leaves under that key, in the same batch, until the batch is confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fixtures.store_steps import configure, item
from forebay.broker.waiting import WaitingRoom
from forebay.export.batch import ExportMessage, MessageBatch
from forebay.export.feed import Claim
from forebay.export.group_feed import LEASE_SECONDS, GroupFeed, GroupFeedOptions
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore

PARTITIONS = 4


def messages_of(claim: Claim) -> Sequence[ExportMessage]:
    assert isinstance(claim.batch, MessageBatch)
    return claim.batch.messages


class GroupFeedMachine(RuleBasedStateMachine):
    @initialize(messages_max=st.sampled_from([4, 2, 7, 100]), bytes_max=st.sampled_from([1000, 20, 5]))
    def start(self, messages_max: int, bytes_max: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.run(self.store.open(lambda queue, count: None))
        self.run(configure(self.store, QueueOptions(retry_limit=1_000)))
        self.options = GroupFeedOptions(
            "orders",
            "out",
            messages_max=messages_max,
            bytes_max=bytes_max,
            wait_seconds=0.0,
            poll_seconds=0.0,  # a look that finds nothing is over at once
        )
        self.pushed = 0
        self.keys: dict[int, str] = {}
        """Of each message that left: under which key."""
        self.batches: dict[str, list[int]] = {}
        self.confirmed: set[int] = set()
        self.begin()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def begin(self) -> None:
        """A process."""
        waiting = WaitingRoom(self.loop)
        self.feed = GroupFeed("orders", self.store, waiting, self.clock, self.options)
        self.claims: list[Claim] = []

    @rule(places=st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=6))
    def push(self, places: list[int]) -> None:
        self.run(self.store.push([item(f"{self.pushed + n}", f"p{place}") for n, place in enumerate(places)]))
        self.pushed += len(places)

    @rule()
    def claim(self) -> None:
        claim = self.run(self._claim())
        if claim is None:
            return
        self.claims.append(claim)
        seqs = [message.seq for message in messages_of(claim)]
        key = claim.batch.key
        assert self.batches.setdefault(key, seqs) == seqs
        for seq in seqs:
            assert seq not in self.confirmed
            assert self.keys.setdefault(seq, key) == key

    async def _claim(self) -> Claim | None:
        popped = await self.feed._popped()
        return self.feed._claimed(popped) if popped.messages else None

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        claim = self.claims.pop(data.draw(st.integers(0, len(self.claims) - 1)))
        self.run(self.feed.confirm(claim))
        self.confirmed |= {message.seq for message in messages_of(claim)}

    @rule()
    def die(self) -> None:
        """Its leases end by themselves."""
        self.clock.advance(LEASE_SECONDS)
        self.begin()

    @rule()
    def stop(self) -> None:
        for claim in self.claims:
            self.run(self.feed.put_back(claim))
        self.begin()

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def freeze(self, data: st.DataObject) -> None:
        """Another process takes over while it holds its claims, which it cannot confirm any more."""
        self.clock.advance(LEASE_SECONDS)
        late = self.claims.pop(data.draw(st.integers(0, len(self.claims) - 1)))
        frozen = self.feed
        self.begin()
        self.claim()
        self.run(frozen.confirm(late))

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "confirmed"):
            lags = self.run(self.store.groups())
            assert not lags or lags[0].lag_messages == self.pushed - len(self.confirmed)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.store.close())
            self.loop.close()


TestGroupFeed = pytest.mark.slow(GroupFeedMachine.TestCase)
TestGroupFeed.settings = settings(stateful_step_count=30, deadline=None)
