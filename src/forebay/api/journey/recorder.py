"""Looks every ten seconds, keeps the last hour in bounded memory, and shares a look among all requests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from forebay.api.journey.figures import Look, StageFigures
from forebay.api.journey.rates import queues_of, samples_of, stages_of, unfinished
from forebay.api.journey.series import Series
from forebay.api.queue_figures import QueueNow
from forebay.clock import Clock
from forebay.errors import ForebayError

SAMPLE_SECONDS = 10.0
SAMPLES_MAX = 360
QUEUES_MAX = 500
LOOK_SECONDS = 2.0
"""How old a look may be that a request is answered with; older where a look takes long, up to `SAMPLE_SECONDS`."""
LOOKS_APART = 10.0
"""Times as long as a look took, until the next one for requests; five times that for samples."""

_log = logging.getLogger("forebay.api")


@dataclass(frozen=True, slots=True)
class Moment:
    """A look, and what follows from it."""

    look: Look
    queues: list[QueueNow]
    stages: dict[str, StageFigures]


class Recorder:
    def __init__(self, take_look: Callable[[Look | None], Awaitable[Look]], clock: Clock) -> None:
        self._take_look = take_look
        self._clock = clock
        self._lock = asyncio.Lock()
        self._last: Moment | None = None
        self._looked_at = float("-inf")
        self._look_seconds = 0.0
        self._sampled: Moment | None = None
        self._samples: dict[str, float] = {}
        self._times: deque[int] = deque(maxlen=SAMPLES_MAX)
        self._series: dict[str, Series] = {}
        self._of_queues: dict[str, tuple[Series, Series]] = {}
        self._pushed: dict[str, int] = {}
        self._count = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self.sample()
            except ForebayError as error:
                _log.warning("the journey: %s", error, extra={"action": "journey_failed"})
            await asyncio.sleep(max(SAMPLE_SECONDS, self._look_seconds * LOOKS_APART * 5))

    async def moment(self) -> Moment:
        """How it is now, or was two seconds ago."""
        async with self._lock:
            fresh_seconds = min(max(LOOK_SECONDS, self._look_seconds * LOOKS_APART), SAMPLE_SECONDS)
            if self._last is None or self._clock.monotonic() - self._looked_at > fresh_seconds:
                began = self._clock.monotonic()
                look = await self._take_look(self._last.look if self._last else None)
                queues = queues_of(look)
                self._last = Moment(look, queues, stages_of(look, queues))
                self._looked_at = self._clock.monotonic()
                self._look_seconds = self._looked_at - began
            return self._last

    async def sample(self) -> None:
        """Add one to the history."""
        now = await self.moment()
        before = self._sampled
        if before is now:
            return
        span_us = now.look.at_us - before.look.at_us if before else 0
        self._samples = samples_of(now.stages, before.stages if before else None, span_us)
        self._samples["dispatch.warm"] = now.look.store.warm
        self._samples["dispatch.cold"] = now.look.store.cold
        for name, value in self._samples.items():
            self._series.setdefault(name, Series(SAMPLES_MAX, self._count)).add(value)
        self._note_queues(now.queues, span_us)
        self._times.append(now.look.at_us)
        self._count += 1
        self._sampled = now

    def _note_queues(self, queues: Iterable[QueueNow], span_us: int) -> None:
        known = {queue.name: queue for queue in queues}
        for name in [name for name in self._of_queues if name not in known]:
            del self._of_queues[name], self._pushed[name]
        for name, queue in known.items():
            if name not in self._of_queues:
                if len(self._of_queues) >= QUEUES_MAX:
                    continue
                self._of_queues[name] = Series(SAMPLES_MAX, self._count), Series(SAMPLES_MAX, self._count)
                self._pushed[name] = queue.accepted
            waiting, rate = self._of_queues[name]
            waiting.add(unfinished(queue))
            rate.add(max(queue.accepted - self._pushed[name], 0) * 1e6 / span_us if span_us > 0 else 0.0)
            self._pushed[name] = queue.accepted

    async def rates(self) -> dict[str, float]:
        """By `stage.in` and `stage.out`, since the last sample or the one before: over ten seconds at least."""
        now = await self.moment()
        if self._sampled is None or self._sampled is now or now.look.at_us - self._sampled.look.at_us < 2_000_000:
            return dict(self._samples)
        return samples_of(now.stages, self._sampled.stages, now.look.at_us - self._sampled.look.at_us)

    def history(self) -> tuple[list[int], dict[str, list[float | None]]]:
        """Times, and the values of every figure at them, oldest first."""
        return list(self._times), {name: series.values() for name, series in self._series.items()}

    def history_of(self, queue: str) -> tuple[list[int], list[float | None], list[float | None]]:
        """Times, what waited, and pushes per second; nothing for a queue that is not followed."""
        if queue not in self._of_queues:
            return [], [], []
        waiting, rate = self._of_queues[queue]
        return list(self._times), waiting.values(), rate.values()
