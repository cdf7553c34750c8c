"""Messages one after the other through `forebay up`: how soon their results are there, and what waiting costs."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator

from forebay.bench.harness import Figure, at_most
from forebay.bench.spark.plan import PUSHED_PER_SECOND, Plan
from forebay.bench.spark.up_process import UpProcess
from forebay.client import AsyncClient
from forebay.errors import Transient

LATENCY = "push to result, 1,000 messages/s"
IDLE = "`forebay up`, idle"
LATENCY_MS_MAX = 1_000.0
IDLE_PERCENT_MAX = 10.0
FIRST_RESULT_SECONDS_MAX = 180.0
LAST_RESULT_SECONDS_MAX = 60.0

_PUSHES_PER_SECOND = 50
_POPPED_MAX = 10_000
_PADDING = "x" * 140
_FLOWS = """
flows:
  - name: live
    mode: stream
    source: {queue: in}
    actions:
      - name: project
        sql: |
          SELECT to_json(struct(m.due, m.round)) AS payload
          FROM (SELECT from_json(cast(payload AS string), 'due DOUBLE, round INT, text STRING') AS m FROM input)
          WHERE m.round >= 0
    sink: {queue: out}
"""


def figures(plan: Plan) -> Iterator[Figure]:
    with UpProcess(_FLOWS) as up:
        live = _Live(up.url, plan.live_seconds)
        live.wait_for_worker()
        yield at_most(
            1,
            LATENCY,
            "ms",
            live.median_ms,
            "1,000 ms",
            lambda: LATENCY_MS_MAX,
            rounds=plan.live_rounds,
            note="median from when a message was due to be pushed until a consumer of the sink queue has its result",
        )
        time.sleep(plan.settle_seconds)
        yield at_most(
            1,
            IDLE,
            "% of a core",
            lambda: 100 * up.cores_used(plan.idle_seconds),
            "10 % of one core",
            lambda: IDLE_PERCENT_MAX,
            rounds=plan.idle_rounds,
            note=f"CPU time of all its processes over {plan.idle_seconds:g} s",
        )


class _Live:
    """Pushes by the clock on one side of a flow and pops on the other."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url = url
        self._seconds = seconds
        self._round = 0

    def wait_for_worker(self) -> None:
        """Until one message came through: Spark takes its time to start."""
        asyncio.run(self._pushed_and_popped(pushes=1, each=1, seconds_max=FIRST_RESULT_SECONDS_MAX))

    def median_ms(self) -> float:
        pushes = round(self._seconds * _PUSHES_PER_SECOND)
        each = PUSHED_PER_SECOND // _PUSHES_PER_SECOND
        found = asyncio.run(self._pushed_and_popped(pushes, each, self._seconds + LAST_RESULT_SECONDS_MAX))
        return statistics.median(found) * 1000

    async def _pushed_and_popped(self, pushes: int, each: int, seconds_max: float) -> list[float]:
        """Seconds from when each message was due until its result was popped."""
        self._round += 1
        async with AsyncClient(self._url) as client:
            # Made before the first push: the consumer is to wait for the flow, not for the queue.
            await client.configure("out")
            producer = asyncio.create_task(self._push(client, pushes, each))
            try:
                async with asyncio.timeout(seconds_max):
                    found = await self._pop(client, pushes * each)
                    await producer
            except TimeoutError:
                raise Transient(
                    f"not all results of {pushes * each:,} messages came within {seconds_max:g} s"
                ) from None
            finally:
                producer.cancel()
        return found

    async def _push(self, client: AsyncClient, pushes: int, each: int) -> None:
        began = time.time()
        for number in range(pushes):
            due = began + number / _PUSHES_PER_SECOND
            await asyncio.sleep(max(0.0, due - time.time()))
            message = {"due": due, "round": self._round, "text": _PADDING}
            await client.push_many("in", [message] * each)

    async def _pop(self, client: AsyncClient, count: int) -> list[float]:
        found: list[float] = []
        while len(found) < count:
            messages = await client.pop("out", batch=_POPPED_MAX, wait=True, timeout=5, auto_ack=True)
            now = time.time()
            results = [message.data for message in messages]
            found += [now - result["due"] for result in results if result["round"] == self._round]
        return found
