"""Messages one after the other through `forebay up` to an HTTP destination: how soon they are there."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator

import msgspec
from aiohttp import web

from forebay.bench.flows.plan import FlowsPlan
from forebay.bench.harness import Figure, at_most
from forebay.bench.spark.plan import PUSHED_PER_SECOND
from forebay.bench.spark.up_process import UpProcess
from forebay.client import AsyncClient
from forebay.errors import Transient

DELIVERY = "push to destination, 1,000 messages/s"
MEDIAN_MS_MAX = 1_500.0
FIRST_SECONDS_MAX = 180.0
LAST_SECONDS_MAX = 60.0
_PUSHES_PER_SECOND = 50
_PADDING = "x" * 140
SETTINGS = """
destinations:
  - {{name: out, type: http, url: "http://127.0.0.1:{port}/"}}
"""
FLOW = """
  - name: deliver
    source: {queue: in}
    actions:
      - name: project
        sql: |
          SELECT did, m.due, m.round
          FROM (SELECT did, from_json(cast(payload AS string), 'due DOUBLE, round INT, text STRING') AS m FROM input)
          WHERE m.round >= 0
    sink: {export: out}
"""


class _Delivered(msgspec.Struct):
    due: float
    round: int


_delivered = msgspec.json.Decoder(list[_Delivered]).decode


def figures(up: UpProcess, port: int, plan: FlowsPlan) -> Iterator[Figure]:
    """`port`: where the destination of its settings is to be."""
    delivery = _Delivery(up.url, port, plan.live_seconds)
    delivery.wait_for_worker()
    yield at_most(
        1,
        DELIVERY,
        "ms",
        delivery.median_ms,
        "1,500 ms",
        lambda: MEDIAN_MS_MAX,
        rounds=plan.live_rounds,
        note="median from when a message was due to be pushed until a request that holds it has arrived",
    )


class _Delivery:
    """Pushes by the clock at one end, and is the destination at the other."""

    def __init__(self, url: str, port: int, seconds: float) -> None:
        self._url = url
        self._port = port
        self._seconds = seconds
        self._round = 0
        self._waited: list[float] = []

    def wait_for_worker(self) -> None:
        asyncio.run(self._pushed_and_taken(pushes=1, each=1, seconds_max=FIRST_SECONDS_MAX))

    def median_ms(self) -> float:
        pushes = round(self._seconds * _PUSHES_PER_SECOND)
        each = PUSHED_PER_SECOND // _PUSHES_PER_SECOND
        asyncio.run(self._pushed_and_taken(pushes, each, self._seconds + LAST_SECONDS_MAX))
        return statistics.median(self._waited) * 1000

    async def _pushed_and_taken(self, pushes: int, each: int, seconds_max: float) -> None:
        self._round += 1
        self._waited = []
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/", self._take)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port, reuse_address=True).start()
        try:
            async with asyncio.timeout(seconds_max), AsyncClient(self._url) as client:
                await self._push(client, pushes, each)
                while len(self._waited) < pushes * each:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            found = f"{len(self._waited):,} of {pushes * each:,}"
            raise Transient(f"{found} messages reached the destination within {seconds_max:g} s") from None
        finally:
            await runner.cleanup()

    async def _push(self, client: AsyncClient, pushes: int, each: int) -> None:
        began = time.time()
        for number in range(pushes):
            due = began + number / _PUSHES_PER_SECOND
            await asyncio.sleep(max(0.0, due - time.time()))
            await client.push_many("in", [{"due": due, "round": self._round, "text": _PADDING}] * each)

    async def _take(self, request: web.Request) -> web.Response:
        now = time.time()
        found = _delivered(await request.read())
        self._waited += [now - one.due for one in found if one.round == self._round]
        return web.Response()
