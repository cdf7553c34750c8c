"""Queues and groups in numbers: how they are derived, how long a count is kept, and how many series they become."""

from __future__ import annotations

import asyncio

import pytest

from fixtures.store_steps import push, take
from forebay.api.queue_figures import KEPT_SECONDS, STALE_SECONDS, QueueFigures, QueueWatch, figures_of
from forebay.api.queue_samples import GROUP_SERIES, QUEUE_SERIES, QueueSamples, shown_queues
from forebay.broker.overview import StoreFigures
from forebay.errors import StoreUnavailable
from forebay.telemetry.page import Page
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock)


async def counted(store: MemoryStore) -> QueueFigures:
    return figures_of(await store.figures())


async def test_depth_and_age_are_of_the_group_furthest_behind(store: MemoryStore, clock: FakeClock) -> None:
    await push(store, "a", "b", "c")
    clock.advance(7)
    [queue] = (await counted(store)).queues
    assert (queue.depth, queue.oldest_seconds, queue.messages, queue.groups) == (3, 7.0, 3, ())
    await take(store, 2, group="near")
    await take(store, 1, group="far")
    [queue] = (await counted(store)).queues
    assert [(each.name, each.waiting, each.leased, each.lag_messages) for each in queue.groups] == [
        ("far", 2, 1, 3),
        ("near", 1, 2, 3),
    ]
    assert (queue.depth, queue.oldest_seconds) == (2, 7.0)


class SlowStore(MemoryStore):
    """Counts when it is let."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.gate = asyncio.Event()
        self.gate.set()
        self.counts = 0
        self.error: Exception | None = None

    async def is_counting(self) -> None:
        while not self.counts:
            await asyncio.sleep(0)

    async def figures(self) -> StoreFigures:
        self.counts += 1
        await self.gate.wait()
        if self.error:
            raise self.error
        return await super().figures()


async def test_requests_that_come_together_wait_for_one_count(clock: FakeClock) -> None:
    store = SlowStore(clock)
    store.gate.clear()
    watch = QueueWatch(store, clock)
    asked = [asyncio.create_task(watch.figures()) for _ in range(5)]
    await store.is_counting()
    store.gate.set()
    assert len({id(found) for found in await asyncio.gather(*asked)}) == 1
    assert store.counts == 1
    clock.advance(KEPT_SECONDS)
    await watch.figures()
    assert store.counts == 2


async def test_while_a_count_takes_long_the_one_before_is_shown_until_it_is_stale(clock: FakeClock) -> None:
    store = SlowStore(clock)
    watch = QueueWatch(store, clock)
    first = await watch.figures()
    store.gate.clear()
    clock.advance(KEPT_SECONDS)
    assert await watch.figures() is first
    clock.advance(STALE_SECONDS)
    waiting = asyncio.create_task(watch.figures())
    store.gate.set()
    assert (await waiting).at_us > first.at_us


async def test_counting_takes_a_bounded_share_of_the_time(clock: FakeClock) -> None:
    store = SlowStore(clock)
    watch = QueueWatch(store, clock)
    store.gate.clear()
    waiting = asyncio.create_task(watch.figures())
    await store.is_counting()
    clock.advance(0.2)  # that is how long it takes
    store.gate.set()
    first = await waiting
    clock.advance(9)
    assert await watch.figures() is first
    assert store.counts == 1
    clock.advance(1)
    assert await watch.figures() is first  # nobody waits for a count that takes long
    async with asyncio.timeout(30):
        while await watch.figures() is first:
            await asyncio.sleep(0)
    assert store.counts == 2


async def test_a_store_that_is_away_is_told_and_asked_again(clock: FakeClock) -> None:
    store = SlowStore(clock)
    store.error = StoreUnavailable("away")
    watch = QueueWatch(store, clock)
    with pytest.raises(StoreUnavailable):
        await watch.figures()
    store.error = None
    assert (await watch.figures()).queues == ()


async def test_a_watch_that_is_stopped_leaves_no_count_behind(clock: FakeClock) -> None:
    store = SlowStore(clock)
    store.gate.clear()
    watch = QueueWatch(store, clock)
    waiting = asyncio.create_task(watch.figures())
    await store.is_counting()
    await watch.stop()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def filled(clock: FakeClock) -> QueueFigures:
    store = MemoryStore(clock)
    for number, name in enumerate(("first", "other", "second", "third")):
        clock.advance(1)
        await push(store, *"abcdefgh"[: number + 1], queue=name)
        await take(store, 1, queue=name, group="g")
    return await counted(store)


async def test_queues_beyond_the_limit_are_summed_in_other(clock: FakeClock) -> None:
    figures = await filled(clock)
    shown = shown_queues(figures, 2 * (QUEUE_SERIES + GROUP_SERIES))
    assert [queue.name for queue in shown.queues] == ["first", "second"]  # the oldest; never one that is named `other`
    page = Page()
    QueueSamples(2 * (QUEUE_SERIES + GROUP_SERIES)).add(page, figures)
    lines = set("\n".join(page.lines()).splitlines())
    assert {
        'forebay_queue_depth{queue="first"} 0',
        'forebay_queue_depth{queue="second"} 2',
        'forebay_queue_depth{queue="other"} 4',
        'forebay_queue_messages_accepted_total{queue="other"} 6',
        'forebay_queue_oldest_message_seconds{queue="other"} 2.0',
        'forebay_group_leased_messages{queue="other",group="other"} 2',
        "forebay_queues_in_other 2",
        "forebay_groups_in_other 2",
    } <= lines
    assert not any("third" in line for line in lines)


async def test_series_of_queues_are_never_more_than_the_limit_and_those_of_other(clock: FakeClock) -> None:
    figures = await filled(clock)
    for series_max in range(60):
        page = Page()
        QueueSamples(series_max).add(page, figures)
        samples = [line for line in "\n".join(page.lines()).splitlines() if "queue=" in line]
        assert len(samples) <= series_max + QUEUE_SERIES + GROUP_SERIES
        assert len(samples) == len({line.rsplit(" ", 1)[0] for line in samples})


async def test_the_text_of_a_count_is_written_once(clock: FakeClock) -> None:
    figures, samples = await filled(clock), QueueSamples(1000)
    pages = [Page(), Page()]
    for page in pages:
        samples.add(page, figures)
    assert pages[0].lines() == pages[1].lines()
    assert all(one is two for one, two in zip(pages[0].lines(), pages[1].lines(), strict=True) if "\n" in one)
