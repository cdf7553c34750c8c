"""What the demo does to its own pipeline, and how long each part was away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from forebay.cli import output
from forebay.cli.demo.destination import Destination
from forebay.cli.demo.pipeline import Pipeline

DESTINATION_AWAY_SECONDS = 10.0
IN_FLIGHT_SHARE = 0.25
"""How much of the time of a push has passed when the kill comes."""


class Faults:
    """The destination goes first, and comes back last: server and worker are killed while it is away."""

    def __init__(self, pipeline: Pipeline, destination: Destination) -> None:
        self._pipeline = pipeline
        self._destination = destination
        self._all_killed = asyncio.Event()
        self._away: asyncio.Task[None] | None = None
        self.worker_killed_at = 0.0
        self.accepted_before_kill = 0
        self.server_seconds = 0.0
        """From the kill to the first answer of the server that was started again."""
        self.destination_seconds = 0.0

    def take_destination_away(self) -> None:
        if self._away is None:
            self._away = asyncio.create_task(self._be_away())

    async def kill_server_under(
        self, pushing: Awaitable[None], push_seconds: float, accepted: int, answered: Callable[[], Awaitable[object]]
    ) -> None:
        """Kill the server while a push is under way. `answered` ends when the server answers again."""
        task = asyncio.ensure_future(pushing)
        await asyncio.sleep(push_seconds * IN_FLIGHT_SHARE)
        self.accepted_before_kill = accepted
        when = "between two pushes" if task.done() else "in the middle of a push"
        killed = time.monotonic()
        self._pipeline.kill_server()
        output.tell(f"killed the server with -9 {when}, {accepted:,} clicks durable until then")
        await task
        # The answer may have been on its way when the kill came; then the next request is the first that waits.
        await answered()
        self.server_seconds = time.monotonic() - killed
        output.tell(f"the server is back on the same data, and answers after {self.server_seconds:.1f} s")

    def kill_worker(self) -> None:
        if not self.worker_killed_at:
            self.worker_killed_at = time.monotonic()
            self._pipeline.kill_worker()
            output.tell("killed the worker with -9, and all of its Spark; another one starts")
            self._all_killed.set()

    async def over(self) -> None:
        """Until the destination is back."""
        if self._away is not None:
            await self._away

    async def _be_away(self) -> None:
        began = time.monotonic()
        await self._destination.close()
        clicks, _ = self._destination.received
        output.tell(f"took the destination away; it has {clicks:,} clicks, and the others wait in its outbox")
        await asyncio.sleep(DESTINATION_AWAY_SECONDS)
        await self._all_killed.wait()
        await self._destination.open()
        self.destination_seconds = time.monotonic() - began
        output.tell(f"the destination is back after {self.destination_seconds:.1f} s")
