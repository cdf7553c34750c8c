"""An exporter: the workers between a feed and its destination.

Without pipeline split, `workers` tasks each claim a batch, prepare it and send it. With it, `preparers` claim and
prepare, off the event loop, and hand what goes over the wire to `senders` through a bounded channel; each sender has up
to `max_concurrent_sends` under way. Either way all exporters of a process together send no more than
`global_send_limit` at a time, and what happens to a batch is decided in one place: `delivery.Delivery`.

A destination that needs batches in the order of their acceptance (`Destination.is_in_order`) gets one worker, or one
preparer and one sender with one send under way; a batch that has to wait for its next attempt holds up the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field, replace

from forebay.clock import Clock
from forebay.export.delivery import Delivery, DeliveryOptions
from forebay.export.destination import Destination
from forebay.export.feed import Claim, Feed
from forebay.sendqueue.scaling import DECISION_SECONDS, Scaler

_log = logging.getLogger("forebay.export")


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    is_enabled: bool = False
    preparers: int = 1
    senders: int = 2
    channel_size: int = 256
    concurrent_sends: int = 4


@dataclass(frozen=True, slots=True)
class ExporterOptions:
    delivery: DeliveryOptions = field(default_factory=DeliveryOptions)
    pipeline: PipelineOptions = field(default_factory=PipelineOptions)
    workers: int = 4
    is_adaptive: bool = False
    workers_min: int = 1
    workers_max: int = 8

    @property
    def sends_max(self) -> int:
        """How many sends may be under way at the most."""
        if self.pipeline.is_enabled:
            return self.pipeline.senders * self.pipeline.concurrent_sends
        return self.workers_max if self.is_adaptive else self.workers


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
        global_limit: asyncio.Semaphore,
    ) -> None:
        self.destination = destination
        self.feed = feed
        self.options = _in_order(options) if destination.is_in_order else options
        options = self.options
        self.delivery = Delivery(destination, feed, clock, options.delivery, global_limit)
        self.scaler = Scaler(options.workers_min, options.workers_max, options.workers)
        self.active = Activity()
        self.channel: asyncio.Queue[Claim] = asyncio.Queue(options.pipeline.channel_size)
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._workers: list[asyncio.Task[None]] = []
        self._resumed = asyncio.Event()
        self._resumed.set()

    @property
    def name(self) -> str:
        return self.destination.name

    async def start(self) -> None:
        await self.destination.open()
        await self.feed.open()
        pipeline = self.options.pipeline
        if pipeline.is_enabled:
            self._workers += [asyncio.create_task(self._prepare_all()) for _ in range(pipeline.preparers)]
            senders = pipeline.senders * pipeline.concurrent_sends
            self._workers += [asyncio.create_task(self._send_all()) for _ in range(senders)]
        elif self.options.is_adaptive:
            self._tasks.add(asyncio.create_task(self._scale()))
            self._set_workers(self.scaler.workers)
        else:
            self._set_workers(self.options.workers)

    @property
    def workers(self) -> int:
        """How many there are."""
        return len(self._workers)

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
        while len(self._workers) < count:
            self._workers.append(asyncio.create_task(self._work(len(self._workers))))

    async def _work(self, number: int) -> None:
        while (claim := await self._claim()) is not None:
            self.active.workers += 1
            try:
                await self.delivery.deliver(claim)
            finally:
                self.active.workers -= 1
            while self.options.is_adaptive and number >= self.scaler.workers:
                await asyncio.sleep(DECISION_SECONDS)

    async def _claim(self) -> Claim | None:
        """The next batch, once the destination may be tried and nobody has paused the export."""
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

    async def _send_all(self) -> None:
        while True:
            claim = await self.channel.get()
            self.active.senders += 1
            try:
                await self.delivery.deliver(claim)
            finally:
                self.active.senders -= 1
                self.channel.task_done()

    async def _scale(self) -> None:
        while True:
            await asyncio.sleep(DECISION_SECONDS)
            now = self._clock.monotonic()
            self._set_workers(self.scaler.decide(self.feed.depth(), self.delivery.latency.seconds, now))

    # stop

    async def stop(self, drain_seconds: float) -> None:
        """Go on sending for a while, then keep what is left. A destination that is away is not waited for."""
        self.resume()
        deadline = self._clock.monotonic() + drain_seconds
        while self._clock.monotonic() < deadline and self.delivery.is_open and self._has_work():
            await asyncio.sleep(0.02)
        self.feed.stop_claims()
        for task in [*self._workers, *self._tasks]:
            task.cancel()
        await asyncio.gather(*self._workers, *self._tasks, return_exceptions=True)
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
