"""The demo from its first push to its last result."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from forebay.cli import output
from forebay.cli.demo.audit import audited
from forebay.cli.demo.clicks import Clicks
from forebay.cli.demo.destination import Destination
from forebay.cli.demo.faults import Faults
from forebay.cli.demo.findings import findings, parcel_states, table_of
from forebay.cli.demo.metrics import expected_samples
from forebay.cli.demo.pipeline import PARQUET, DemoFailed, Pipeline
from forebay.cli.demo.producer import CLICKS, Advance, Producer
from forebay.cli.demo.result import Delivery, DemoResult, Pushing
from forebay.client import AsyncClient

JOINED = "clicks-joined"
PER_MINUTE = "clicks-per-minute"
SCORED = "clicks-scored"
PACE_CLICKS_PER_SECOND = 10_000
PACED_SECONDS_MAX = 10.0
FIRST_RESULT_SECONDS_MAX = 240.0
STALL_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.2
AWAY_SHARE, SERVER_SHARE, WORKER_SHARE = 0.25, 0.5, 0.7
"""How much of the second half was pushed when the destination goes, and when server and worker are killed."""
ATTEMPTS = 9
"""Of each request, with pauses that double from 0.2 s: a server has 50 s to come back."""


async def run(directory: Path, messages: int) -> DemoResult:
    """Tell the story in that directory. Raises DemoFailed if a process ends or Spark gives no result."""
    began = time.monotonic()
    clicks = Clicks(messages)
    async with Destination() as destination:
        with Pipeline(directory, destination.url) as pipeline:
            await pipeline.start_server()
            async with AsyncClient(pipeline.url, attempts=ATTEMPTS) as client:
                for queue in (CLICKS, JOINED, PER_MINUTE, SCORED):
                    await client.configure(queue)
                pipeline.start_worker()
                output.tell(
                    f"a server runs at {pipeline.url} and Spark starts; its flows are in {directory}/forebay.yaml"
                )
                return await _Story(clicks, pipeline, destination, client, began).tell()


class _Story:
    def __init__(
        self, clicks: Clicks, pipeline: Pipeline, destination: Destination, client: AsyncClient, began: float
    ) -> None:
        self._clicks = clicks
        self._pipeline = pipeline
        self._destination = destination
        self._client = client
        self._began = began
        self._half = clicks.count // 2
        self._producer = Producer(clicks, client, pipeline.receiver_url)
        self._faults = Faults(pipeline, destination)
        self._push_seconds = 0.0

    async def tell(self) -> DemoResult:
        with output.progress("pushing clicks", self._clicks.count) as advance:
            rate = await self._push_backlog(advance)
            spark_seconds, backlog_rate = await self._wait_for_spark()
            await self._push_paced(advance)
        await self._producer.push_closing()
        output.tell(f"all {self._producer.accepted:,} clicks are durable; waiting for the last results")
        worker_seconds = await self._wait_for_worker()
        await self._wait_for_results()
        output.tell("reading everything back and comparing it with what plain Python computes")
        found = await findings(self._client, self._pipeline.directory / PARQUET, self._clicks, self._half)
        expected = expected_samples(self._producer.metrics_requests)
        delivery = Delivery.of(self._destination, self._clicks.scored(), expected, self._faults.destination_seconds)
        output.tell("counting every message of every queue: forebay audit")
        audit = await audited(self._pipeline.url)
        faults, producer = self._faults, self._producer
        return DemoResult(
            requested=self._clicks.count,
            pushing=Pushing(
                producer.accepted, faults.accepted_before_kill, producer.repeated, rate, faults.server_seconds
            ),
            pushed=found.pushed,
            joined=found.joined,
            per_minute=found.per_minute,
            parquet=found.parquet,
            scored=found.scored,
            delivery=delivery,
            parcels=await parcel_states(self._client),
            audit=audit,
            backlog_clicks_per_second=backlog_rate,
            latency=found.latency,
            spark_start_seconds=spark_seconds,
            worker_seconds=worker_seconds,
            seconds=time.monotonic() - self._began,
            rows=found.rows,
        )

    async def _push_backlog(self, advance: Advance) -> float:
        """The first half, as fast as it goes; returns clicks per second."""
        began = time.monotonic()
        for start in range(0, self._half, self._producer.batch_clicks):
            await self._producer.push(start, self._half, advance)
        rate = self._half / (time.monotonic() - began)
        self._push_seconds = self._producer.batch_clicks / rate
        output.tell(f"pushed {self._half:,} clicks, each durable, at {rate:,.0f} clicks/s; waiting for Spark")
        return rate

    async def _wait_for_spark(self) -> tuple[float, float]:
        """Seconds until Spark was ready, and how fast it worked off what had been waiting for it."""
        pipeline = self._pipeline
        await pipeline.until(lambda: pipeline.is_spark_ready, FIRST_RESULT_SECONDS_MAX, "Spark to start")
        ready = time.monotonic()
        output.tell(f"Spark is ready after {ready - self._began:.0f} s; waiting for its first results")
        while await self._held(JOINED) < self._half or not self._destination.received[0]:
            pipeline.check()
            if time.monotonic() - ready > FIRST_RESULT_SECONDS_MAX:
                raise DemoFailed(f"Spark gave no results within {FIRST_RESULT_SECONDS_MAX:g} s")
            await asyncio.sleep(LOOK_SECONDS)
        rate = self._half / (time.monotonic() - ready)
        return ready - self._began, rate

    async def _push_paced(self, advance: Advance) -> None:
        """The second half at a steady pace, with metrics beside it and the faults in the middle of it."""
        left = self._clicks.count - self._half
        pace = max(PACE_CLICKS_PER_SECOND, left / PACED_SECONDS_MAX)
        output.tell(f"results flow; pushing the other {left:,} clicks at {pace:,.0f} clicks/s, and metrics over OTLP")
        faults, producer = self._faults, self._producer
        began = time.monotonic()
        for start in range(self._half, self._clicks.count, producer.batch_clicks):
            share = (start - self._half) / left
            await asyncio.sleep(began + share * left / pace - time.monotonic())
            pushing = producer.push(start, self._clicks.count, advance)
            if share >= AWAY_SHARE:
                faults.take_destination_away()
            if share >= SERVER_SHARE and not faults.accepted_before_kill:
                await faults.kill_server_under(
                    pushing, self._push_seconds, producer.accepted, lambda: self._held(CLICKS)
                )
                began += faults.server_seconds
            else:
                await pushing
            if share >= WORKER_SHARE:
                faults.kill_worker()
            await producer.push_metrics()
        await faults.over()

    async def _wait_for_worker(self) -> float:
        """Seconds from the kill of the worker until another one was ready."""
        pipeline = self._pipeline
        await pipeline.until(lambda: pipeline.worker_starts > 1, FIRST_RESULT_SECONDS_MAX, "another worker to start")
        seconds = time.monotonic() - self._faults.worker_killed_at
        output.tell(f"another worker is ready {seconds:.0f} s after the kill, and goes on where the first one was")
        return seconds

    async def _wait_for_results(self) -> None:
        """Until everything is there, or nothing new has come for a while: the comparison tells what is missing."""
        minutes = len(self._clicks.per_minute())
        all_clicks = self._clicks.count + 1
        samples = len(expected_samples(self._producer.metrics_requests))
        wanted = (self._clicks.count, minutes, minutes, all_clicks, all_clicks, samples, 0)
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

    async def _results(self) -> tuple[int, ...]:
        rows = table_of(self._pipeline.directory / PARQUET).num_rows
        queues = await self._held(JOINED), await self._held(PER_MINUTE), rows, await self._held(SCORED)
        states = await parcel_states(self._client)
        return *queues, *self._destination.received, sum(states.values()) - states.get("COMPLETE", 0)

    async def _held(self, queue: str) -> int:
        """How many messages a queue of this demo holds; nothing is ever removed from them."""
        bounds = await self._client.get(f"/api/v1/arrow/queues/{queue}/range")
        return int(bounds["nextSeq"] - bounds["firstSeq"])
