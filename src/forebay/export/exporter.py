"""An exporter: the workers between a feed and its destination.

Without pipeline split, `workers` tasks each claim a batch, prepare it and send it. With it, `preparers` claim and
prepare, off the event loop, and hand what goes over the wire to `senders` through a bounded channel; each sender has up
to `max_concurrent_sends` under way. Either way all exporters of one destination together send no more than
`global_send_limit` at a time, and what happens to a batch is decided in one place: `delivery.Delivery`.

With adaptive workers their number follows the work (`forebay.sendqueue.scaling`); with pipeline split it is the senders
that are added and rest.

A destination that needs batches in the order of their acceptance (`Destination.is_in_order`) gets one worker, or one
preparer and one sender with one send under way; a batch that has to wait for its next attempt holds up the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial

from forebay.clock import Clock
from forebay.export.delivery import Delivery, DeliveryOptions
from forebay.export.destination import Destination
from forebay.export.feed import Claim, Feed
from forebay.sendqueue.scaling import DECISION_SECONDS, IDLE_SECONDS, Scaler

_log = logging.getLogger("forebay.export")


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    is_enabled: bool = False
    preparers: int = 1
    senders: int = 2
    channel_size: int = 256
    concurrent_sends: int = 4


@dataclass(frozen=True, slots=True)
class Paces:
    decision_seconds: float = DECISION_SECONDS
    """How often the number of adaptive workers is decided, and how long one that is one too many rests."""
    idle_seconds: float = IDLE_SECONDS
    """How long there has to be little to do before adaptive workers become fewer."""
    bug_seconds: float = 1.0
    """How long a worker waits after a bug before it begins anew."""


@dataclass(frozen=True, slots=True)
class ExporterOptions:
    delivery: DeliveryOptions = field(default_factory=DeliveryOptions)
    pipeline: PipelineOptions = field(default_factory=PipelineOptions)
    workers: int = 4
    is_adaptive: bool = False
    workers_min: int = 1
    workers_max: int = 8
    paces: Paces = field(default_factory=Paces)

    @property
    def sends_max(self) -> int:
        """How many sends may be under way at the most."""
        at_work = self.workers_max if self.is_adaptive else self.workers_at_start
        return at_work * self.sends_each

    @property
    def workers_at_start(self) -> int:
        """Workers, or senders."""
        return self.pipeline.senders if self.pipeline.is_enabled else self.workers

    @property
    def sends_each(self) -> int:
        """How many sends each of them may have under way: as many tasks it is made of."""
        return self.pipeline.concurrent_sends if self.pipeline.is_enabled else 1


@dataclass(slots=True)
class Activity:
    """How many of each are at work at this moment."""

    workers: int = 0
    preparers: int = 0
    senders: int = 0


class Exporter:
    """Everything that sends to one destination. Start it on the event loop that it will run on."""

    def __init__(
        self,
        destination: Destination,
        feed: Feed,
        clock: Clock,
        options: ExporterOptions,
        send_limit: asyncio.Semaphore,
    ) -> None:
        self.destination = destination
        self.feed = feed
        self.options = _in_order(options) if destination.is_in_order else options
        options = self.options
        self.delivery = Delivery(destination, feed, clock, options.delivery, send_limit)
        self.scaler = Scaler(
            options.workers_min,
            options.workers_max,
            options.workers_at_start,
            idle_seconds=options.paces.idle_seconds,
        )
        self.active = Activity()
        self.channel: asyncio.Queue[Claim] = asyncio.Queue(options.pipeline.channel_size)
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._preparers: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        """Workers, or senders."""
        self._resumed = asyncio.Event()
        self._resumed.set()

    @property
    def name(self) -> str:
        return self.destination.name

    async def start(self) -> None:
        await self.destination.open()
        await self.feed.open()
        options = self.options
        if options.pipeline.is_enabled:
            self._preparers += [self._kept_up(self._prepare_all) for _ in range(options.pipeline.preparers)]
        if options.is_adaptive:
            self._tasks.add(self._kept_up(self._scale))
            self._set_workers(self.scaler.workers)
        else:
            self._set_workers(options.workers_at_start)

    @property
    def workers(self) -> int:
        """How many there are: with pipeline split, preparers and the sends that senders may have under way."""
        return len(self._preparers) + len(self._workers)

    # pause

    @property
    def is_paused(self) -> bool:
        return not self._resumed.is_set()

    def pause(self) -> None:
        """Claim no more; what is under way is finished. Batches wait in the feed."""
        self._resumed.clear()

    def resume(self) -> None:
        self._resumed.set()

    # work

    def _set_workers(self, count: int) -> None:
        each = self.options.sends_each
        work = self._send_all if self.options.pipeline.is_enabled else self._work
        while len(self._workers) < count * each:
            self._workers.append(self._kept_up(partial(work, len(self._workers) // each)))

    async def _rest(self, number: int) -> None:
        """Wait while this worker is one too many."""
        while self.options.is_adaptive and number >= self.scaler.workers:
            await asyncio.sleep(self.options.paces.decision_seconds)

    def _kept_up(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """A task that goes on after a bug: workers that end one by one would stop the way out in silence."""

        async def keep_up() -> None:
            while True:
                try:
                    return await work()
                except Exception:  # noqa: BLE001
                    _log.exception("%s: a worker begins anew after a bug", self.name, extra={"action": "export_bug"})
                    await asyncio.sleep(self.options.paces.bug_seconds)

        return asyncio.create_task(keep_up())

    async def _work(self, number: int) -> None:
        while (claim := await self._claim()) is not None:
            self.active.workers += 1
            try:
                await self.delivery.deliver(claim)
            finally:
                self.active.workers -= 1
            await self._rest(number)

    async def _claim(self) -> Claim | None:
        """The next batch, once the destination may be tried and the export is not paused."""
        while True:
            await self._resumed.wait()
            await self.delivery.wait_until_open()
            claim = await self.feed.claim()
            if claim is None or self._resumed.is_set():
                return claim
            await self.feed.put_back(claim)  # paused while it waited for this one

    async def _prepare_all(self) -> None:
        while (claim := await self._claim()) is not None:
            self.active.preparers += 1
            try:
                await self.delivery.prepare_ahead(claim)
            finally:
                self.active.preparers -= 1
            await self.channel.put(claim)

    async def _send_all(self, number: int) -> None:
        while True:
            await self._rest(number)
            claim = await self.channel.get()
            self.active.senders += 1
            try:
                await self.delivery.deliver(claim)
            finally:
                self.active.senders -= 1
                self.channel.task_done()

    async def _scale(self) -> None:
        while True:
            await asyncio.sleep(self.options.paces.decision_seconds)
            now = self._clock.monotonic()
            waiting = self.feed.depth() + self.channel.qsize()
            self._set_workers(self.scaler.decide(waiting, self.delivery.latency.seconds, now))

    # stop

    async def stop(self, drain_seconds: float) -> None:
        """Go on sending for a while, then keep what is left. A destination that is away or paused is not waited for."""
        deadline = self._clock.monotonic() + (0.0 if self.is_paused else drain_seconds)
        while self._clock.monotonic() < deadline and self.delivery.is_open and self._has_work():
            await asyncio.sleep(0.02)
        self.feed.stop_claims()
        for task in [*self._preparers, *self._workers, *self._tasks]:
            task.cancel()
        await asyncio.gather(*self._preparers, *self._workers, *self._tasks, return_exceptions=True)
        while not self.channel.empty():
            await self.feed.release(self.channel.get_nowait(), 0.0)
        try:
            await self.feed.close()
        finally:
            with contextlib.suppress(Exception):
                await self.destination.close()

    def _has_work(self) -> bool:
        busy = self.active.workers + self.active.senders + self.active.preparers
        return self.feed.depth() > 0 or busy > 0 or not self.channel.empty()


def _in_order(options: ExporterOptions) -> ExporterOptions:
    return replace(
        options,
        workers=1,
        is_adaptive=False,
        delivery=replace(options.delivery, is_in_order=True),
        pipeline=replace(options.pipeline, preparers=1, senders=1, concurrent_sends=1),
    )
