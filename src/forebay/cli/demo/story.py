"""The demo from its first push to its last result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from forebay.cli import output
from forebay.cli.demo.clicks import Click, Clicks
from forebay.cli.demo.findings import findings, table_of
from forebay.cli.demo.pipeline import PARQUET, DemoFailed, Pipeline
from forebay.cli.demo.result import DemoResult, Pushing
from forebay.client import AsyncClient

CLICKS = "clicks"
JOINED = "clicks-joined"
PER_MINUTE = "clicks-per-minute"
BATCH_CLICKS_MAX = 1000
PACE_CLICKS_PER_SECOND = 10_000
PACED_SECONDS_MAX = 10.0
FIRST_RESULT_SECONDS_MAX = 240.0
STALL_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.2
IN_FLIGHT_SHARE = 0.25
"""How much of the time of a push has passed when the kill comes."""
ATTEMPTS = 9
"""Of each request, with pauses that double from 0.2 s: a server has 50 s to come back."""

Advance = Callable[[float], None]


async def run(directory: Path, messages: int) -> DemoResult:
    """Tell the story in that directory. Raises DemoFailed if a process ends or Spark gives no result."""
    began = time.monotonic()
    clicks = Clicks(messages)
    with Pipeline(directory) as pipeline:
        await pipeline.start_server()
        async with AsyncClient(pipeline.url, attempts=ATTEMPTS) as client:
            for queue in (CLICKS, JOINED, PER_MINUTE):
                await client.configure(queue)
            pipeline.start_worker()
            output.tell(f"a server runs at {pipeline.url} and Spark starts; its flows are in {directory}/forebay.yaml")
            return await _Story(clicks, pipeline, client, began).tell()


class _Story:
    def __init__(self, clicks: Clicks, pipeline: Pipeline, client: AsyncClient, began: float) -> None:
        self._clicks = clicks
        self._pipeline = pipeline
        self._client = client
        self._began = began
        self._half = clicks.count // 2
        self._batch_clicks = min(BATCH_CLICKS_MAX, clicks.count // 50)
        self._accepted = 0
        self._accepted_before_kill = 0
        self._repeated = 0
        self._push_seconds = 0.0
        self._outage_seconds = 0.0

    async def tell(self) -> DemoResult:
        with output.progress("pushing clicks", self._clicks.count) as advance:
            rate = await self._push_backlog(advance)
            spark_seconds, backlog_rate = await self._wait_for_spark()
            await self._push_paced(advance)
        await self._client.push(CLICKS, self._clicks.closing())
        output.tell(f"all {self._accepted:,} clicks are durable; waiting for the last results")
        await self._wait_for_results()
        output.tell("reading everything back and comparing it with what plain Python computes")
        parquet = self._pipeline.directory / PARQUET
        found = await findings(self._client, parquet, self._clicks, self._half)
        return DemoResult(
            asked_for=self._clicks.count,
            pushing=Pushing(self._accepted, self._accepted_before_kill, self._repeated, rate, self._outage_seconds),
            pushed=found.pushed,
            joined=found.joined,
            per_minute=found.per_minute,
            parquet=found.parquet,
            backlog_clicks_per_second=backlog_rate,
            latency=found.latency,
            spark_start_seconds=spark_seconds,
            seconds=time.monotonic() - self._began,
            rows=found.rows,
        )

    async def _push_backlog(self, advance: Advance) -> float:
        """The first half, as fast as it goes; returns clicks per second."""
        began = time.monotonic()
        for start in range(0, self._half, self._batch_clicks):
            await self._push(self._batch(start, self._half), advance)
        rate = self._half / (time.monotonic() - began)
        self._push_seconds = self._batch_clicks / rate
        output.tell(f"pushed {self._accepted:,} clicks, each durable, at {rate:,.0f} clicks/s; waiting for Spark")
        return rate

    async def _wait_for_spark(self) -> tuple[float, float]:
        """Seconds until Spark was ready, and how fast it worked off what had been waiting for it."""
        pipeline = self._pipeline
        await pipeline.until(lambda: pipeline.is_spark_ready, FIRST_RESULT_SECONDS_MAX, "Spark to start")
        ready = time.monotonic()
        output.tell(f"Spark is ready after {ready - self._began:.0f} s; waiting for its first results")
        while await self._held(JOINED) < self._half:
            pipeline.check()
            if time.monotonic() - ready > FIRST_RESULT_SECONDS_MAX:
                raise DemoFailed(f"Spark gave no results within {FIRST_RESULT_SECONDS_MAX:g} s")
            await asyncio.sleep(LOOK_SECONDS)
        rate = self._half / (time.monotonic() - ready)
        return ready - self._began, rate

    async def _push_paced(self, advance: Advance) -> None:
        """The second half at a steady pace, with the kill in the middle of it."""
        left = self._clicks.count - self._half
        pace = max(PACE_CLICKS_PER_SECOND, left / PACED_SECONDS_MAX)
        output.tell(f"results flow; pushing the other {left:,} clicks at {pace:,.0f} clicks/s")
        kill_at = self._half + left // 2
        began = time.monotonic()
        for start in range(self._half, self._clicks.count, self._batch_clicks):
            await asyncio.sleep(began + (start - self._half) / pace - time.monotonic())
            pushing = self._push(self._batch(start, self._clicks.count), advance)
            if self._accepted_before_kill or start + self._batch_clicks <= kill_at:
                await pushing
            else:
                began += await self._kill_under(pushing)

    async def _kill_under(self, pushing: Awaitable[None]) -> float:
        """Kill the server while a push is under way; returns how long nothing was accepted."""
        task = asyncio.ensure_future(pushing)
        await asyncio.sleep(self._push_seconds * IN_FLIGHT_SHARE)
        self._accepted_before_kill = self._accepted
        when = "between two pushes" if task.done() else "in the middle of a push"
        killed = time.monotonic()
        self._pipeline.kill_server()
        output.tell(f"killed the server with -9 {when}, {self._accepted:,} clicks durable until then")
        await task
        # The answer may have been on its way when the kill came; then the next request is the first that waits.
        await self._held(CLICKS)
        self._outage_seconds = time.monotonic() - killed
        output.tell(f"the server is back on the same data, and answers after {self._outage_seconds:.1f} s")
        return self._outage_seconds

    def _batch(self, start: int, end: int) -> list[Click]:
        return [self._clicks.click(n) for n in range(start, min(start + self._batch_clicks, end))]

    async def _push(self, batch: Sequence[Click], advance: Advance) -> None:
        answers = await self._client.push_many(CLICKS, batch)
        self._accepted += len(answers)
        self._repeated += sum(answer.status == "duplicate" for answer in answers)
        advance(len(answers))

    async def _wait_for_results(self) -> None:
        """Until everything is there, or nothing new has come for a while: the comparison tells what is missing."""
        minutes = len(self._clicks.per_minute())
        wanted = (self._clicks.count, minutes, minutes)
        seen: tuple[int, ...] = ()
        changed = time.monotonic()
        while (now := await self._results()) != wanted:
            self._pipeline.check()
            if now != seen:
                seen, changed = now, time.monotonic()
            elif time.monotonic() - changed > STALL_SECONDS_MAX:
                output.tell(f"nothing new for {STALL_SECONDS_MAX:g} s; no longer waiting")
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _results(self) -> tuple[int, int, int]:
        rows = table_of(self._pipeline.directory / PARQUET).num_rows
        return await self._held(JOINED), await self._held(PER_MINUTE), rows

    async def _held(self, queue: str) -> int:
        """How many messages a queue of this demo holds; nothing is ever removed from them."""
        bounds = await self._client.get(f"/api/v1/arrow/queues/{queue}/range")
        return int(bounds["nextSeq"] - bounds["firstSeq"])
