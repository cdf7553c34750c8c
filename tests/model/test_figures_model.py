"""Figures of queues and groups, counted over indexes and logs, in lockstep with a store that looks at every message."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fixtures.store_steps import answer, item
from forebay.broker.delivery import COMPLETED, FAILED
from forebay.broker.messages import Popped, PopRequest
from forebay.broker.overview import SeekTarget
from forebay.broker.store import Store
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore

PARTITIONS = ("p0", "p1", "p2")
GROUPS = ("g", "h")

pushes = st.tuples(st.just("push"), st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=8))
pops = st.tuples(st.just("pop"), st.sampled_from(GROUPS), st.sampled_from(PARTITIONS), st.integers(1, 6))
answers = st.tuples(st.just("answer"), st.integers(0, 5), st.sets(st.integers(0, 5)), st.booleans())
waits = st.tuples(st.just("wait"), st.sampled_from([1, 400]))
deletes = st.tuples(st.just("delete"), st.sampled_from(PARTITIONS), st.integers(0, 20))
seeks = st.tuples(st.just("seek"), st.sampled_from(GROUPS), st.integers(1, 20))


class Side:
    """One store, with what was popped from it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.popped: list[tuple[str, Popped]] = []
        self.ids: dict[str, list[tuple[str, str]]] = {name: [] for name in PARTITIONS}

    async def do(self, number: int, step: tuple) -> None:  # type: ignore[type-arg]
        match step:
            case ("push", partitions):
                items = [item(f"{number}-{place}", name) for place, name in enumerate(partitions)]
                for one, pushed in zip(items, await self.store.push(items), strict=True):
                    self.ids[one.partitions[0]].append((pushed.partition_id, one.transaction_ids[0]))
            case ("pop", group, partition, batch):
                request = PopRequest(queue="orders", group=group, partition=partition, batch=batch)
                self.popped.append((group, await self.store.pop(request)))
            case ("answer", which, places, is_completed):
                if which < len(self.popped):
                    group, popped = self.popped[which]
                    status = COMPLETED if is_completed else FAILED
                    chosen = [m for place, m in enumerate(popped.messages) if place in places]
                    await self.store.acknowledge([answer(popped, m, status, group=group) for m in chosen])
            case ("delete", partition, place):
                if place < len(self.ids[partition]):
                    await self.store.delete_message(*self.ids[partition][place])
            case ("seek", group, seq):
                await self.store.seek(group, "orders", None, SeekTarget(seq=seq))

    async def told(self) -> object:
        """Twice, as the second count knows what the first one has read."""
        first, second = await self.store.figures(), await self.store.figures()
        assert first == second
        queues = [(q.messages, q.pushed, q.oldest_us, q.first_seq, q.dead_letters, q.size_bytes) for q in first.queues]
        groups = [
            (g.group, g.lag_messages, g.lag_seconds, g.leased, g.partitions_with_lag, g.dead_letters)
            for g in first.groups
        ]
        return queues, groups


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(pushes, pushes, pops, pops, answers, waits, deletes, seeks), max_size=14))
@example([("push", ["p0"] * 6), ("pop", "g", "p0", 4), ("answer", 0, {0, 1}, True), ("delete", "p0", 4)])
@example([("push", ["p0", "p1"] * 3), ("pop", "g", "p0", 2), ("answer", 0, {1}, True), ("wait", 400)])
def test_embedded_figures_are_those_of_a_count_message_by_message(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    asyncio.run(compared(steps))


async def compared(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as directory:
        sides = [Side(MemoryStore(clock)), Side(EmbeddedStore(Path(directory) / "store", clock=clock))]
        for side in sides:
            await side.store.open(lambda queue, count: None)
        try:
            for number, step in enumerate(steps):
                if step[0] == "seek" and not sides[0].ids["p0"] + sides[0].ids["p1"] + sides[0].ids["p2"]:
                    continue  # there is no queue yet
                for side in sides:
                    await side.do(number, step)
                clock.advance(step[1] if step[0] == "wait" else 1)
                model, real = [await side.told() for side in sides]
                assert real == model, (number, step)
        finally:
            for side in sides:
                await side.store.close()
