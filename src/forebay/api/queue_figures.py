"""Queues and groups in numbers, gathered once for all that show them: `/metrics`, the ledger and the web page.

    figures = await queue_figures(service)
    for queue in figures.queues:
        print(queue.name, queue.depth, queue.oldest_seconds, [group.lag_messages for group in queue.groups])

A store counts from figures that it keeps anyway, beside its own thread, but it looks at every partition. So a count is
kept for `KEPT_SECONDS`, and longer where it took longer: counting takes `SHARE` of one core's time at most. A request
that comes later has the next count if that takes `WAIT_SECONDS` at the most, and the one before otherwise, while the
next is under way; `at_us` says of when the figures are. The first request, and one after `STALE_SECONDS` without any,
waits for its count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from forebay.broker.overview import GroupLag, QueueStatus, StoreFigures
from forebay.clock import Clock
from forebay.model.internal_queues import is_between_steps

if TYPE_CHECKING:
    from forebay.api.service import Service
    from forebay.broker.store import Store

KEPT_SECONDS = 2.0
KEPT_SECONDS_MAX = 30.0
STALE_SECONDS = 120.0
WAIT_SECONDS = 0.03
SHARE = 0.02


class GroupNow(NamedTuple):
    """One group on one queue."""

    name: str
    waiting: int
    """Messages that no consumer has for itself: `lag_messages` without those under a lease."""
    leased: int
    lag_messages: int
    """Not finished."""
    lag_seconds: float
    """How long ago the oldest of them was accepted; 0 if there is none."""
    dead_letters: int
    partitions: int
    partitions_with_lag: int


class QueueNow(NamedTuple):
    """`depth` and `oldest_seconds` are of the group that is furthest behind; of all that is kept if there is none.

    0 of a queue between two steps of a flow: there parcels wait.
    """

    name: str
    namespace: str
    task: str
    created_us: int
    partitions: int
    accepted: int
    """By the store, ever."""
    messages: int
    """Kept."""
    size_bytes: int
    depth: int
    oldest_seconds: float
    dead_letters: int
    lost: int
    groups: tuple[GroupNow, ...]


class QueueFigures(NamedTuple):
    at_us: int
    queues: tuple[QueueNow, ...]
    """By name, internal ones too."""


async def queue_figures(service: Service) -> QueueFigures:
    """All queues and their groups, counted a few seconds ago at most where that is cheap. `StoreUnavailable`."""
    return await service.queue_watch.figures()


def figures_of(counted: StoreFigures) -> QueueFigures:
    """What a store has counted, as it is shown."""
    groups: dict[str, list[GroupLag]] = {}
    for lag in counted.groups:
        groups.setdefault(lag.queue, []).append(lag)
    queues = sorted(counted.queues, key=lambda status: status.queue.name)
    return QueueFigures(
        counted.at_us, tuple(_queue_now(each, groups.get(each.queue.name, ()), counted.at_us) for each in queues)
    )


def _queue_now(status: QueueStatus, lags: Sequence[GroupLag], now_us: int) -> QueueNow:
    groups = tuple(map(_group_now, lags))
    # Between two steps of a flow the parcels wait, and not the messages that they are made of.
    depth = 0 if is_between_steps(status.queue.name) else status.messages
    kept_seconds = (now_us - status.oldest_us) / 1e6 if status.oldest_us and depth else 0.0
    return QueueNow(
        name=status.queue.name,
        namespace=status.queue.namespace,
        task=status.queue.task,
        created_us=status.queue.created_us,
        partitions=status.partitions,
        accepted=status.pushed,
        messages=status.messages,
        size_bytes=status.size_bytes,
        depth=max([group.waiting for group in groups], default=depth),
        oldest_seconds=max([group.lag_seconds for group in groups], default=max(kept_seconds, 0.0)),
        dead_letters=status.dead_letters,
        lost=status.lost,
        groups=groups,
    )


def _group_now(lag: GroupLag) -> GroupNow:
    return GroupNow(
        name=lag.group,
        waiting=max(lag.lag_messages - lag.leased, 0),
        leased=lag.leased,
        lag_messages=lag.lag_messages,
        lag_seconds=max(lag.lag_seconds, 0.0) if lag.lag_messages else 0.0,
        dead_letters=lag.dead_letters,
        partitions=lag.partitions,
        partitions_with_lag=lag.partitions_with_lag,
    )


class QueueWatch:
    """Counts on request, one count at a time."""

    def __init__(
        self, store: Store, clock: Clock, prepare: Callable[[QueueFigures], None] = lambda figures: None
    ) -> None:
        """`prepare` is called with every count, beside the event loop, before it is shown."""
        self._store = store
        self._prepare = prepare
        self._clock = clock
        self._last: QueueFigures | None = None
        self._last_at = 0.0
        self._kept_seconds = KEPT_SECONDS
        self._counting: asyncio.Task[QueueFigures] | None = None
        self.took_seconds = 0.0
        """By the last count."""

    async def figures(self) -> QueueFigures:
        age = self._clock.monotonic() - self._last_at
        if self._last is not None and age < self._kept_seconds:
            return self._last
        if self._counting is None:
            self._counting = asyncio.create_task(self._count())
            self._counting.add_done_callback(self._forget)
        counting = self._counting
        if self._last is None or age > STALE_SECONDS:
            return await asyncio.shield(counting)
        if self.took_seconds <= WAIT_SECONDS:
            await asyncio.wait({counting}, timeout=WAIT_SECONDS)
        return counting.result() if counting.done() else self._last

    async def _count(self) -> QueueFigures:
        start = self._clock.monotonic()
        counted = await self._store.figures()
        found = await asyncio.to_thread(self._prepared, counted)
        self._last, self._last_at = found, self._clock.monotonic()
        self.took_seconds = self._last_at - start
        self._kept_seconds = min(max(KEPT_SECONDS, self.took_seconds / SHARE), KEPT_SECONDS_MAX)
        return found

    def _prepared(self, counted: StoreFigures) -> QueueFigures:
        found = figures_of(counted)
        self._prepare(found)
        return found

    def _forget(self, counting: asyncio.Task[QueueFigures]) -> None:
        self._counting = None
        if not counting.cancelled():
            counting.exception()  # the tasks that wait get it; without any it is not worth a warning

    @property
    def age_seconds(self) -> float:
        """Of the last count."""
        return self._clock.monotonic() - self._last_at + self.took_seconds

    async def stop(self) -> None:
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)
