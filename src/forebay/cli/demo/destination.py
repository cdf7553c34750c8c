"""The demo's destination: an HTTP server in this process that can be away, and knows what it was sent before.

`/clicks` takes envelopes, `/api/v1/write` remote write. Delivery is at least once: a request whose answer was lost
comes again. So a click is known by its place in the outbox, a sample by its series and time, and each counts once.
"""

from __future__ import annotations

import cramjam
import msgspec
from aiohttp import web

from forebay.cli.demo.clicks import ScoredClick
from forebay.cli.demo.metrics import Sample, samples_of
from forebay.testing.servers.machine import free_port

BODY_BYTES_MAX = 64 << 20
CLICKS_PATH = "/clicks"
WRITE_PATH = "/api/v1/write"


class Envelope(msgspec.Struct):
    partition: str
    seq: int
    data: ScoredClick


_envelopes = msgspec.json.Decoder(list[Envelope]).decode


class Destination:
    """Use `open`, `close` and `open` again: the port stays the same, and so does what it knows."""

    def __init__(self) -> None:
        self.port = free_port()
        self.clicks: list[tuple[int, ScoredClick]] = []
        """By their number: each once, and once more if it came again with other values."""
        self.samples: dict[Sample, float] = {}
        self.requests = 0
        self.sent_again = 0
        """Clicks that were here before."""
        self._known: dict[tuple[str, int], ScoredClick] = {}
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def received(self) -> tuple[int, int]:
        """How many clicks and samples are here, each counted once."""
        return len(self._known), len(self.samples)

    async def open(self) -> None:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_post(CLICKS_PATH, self._take_clicks)
        app.router.add_post(WRITE_PATH, self._take_samples)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()

    async def close(self) -> None:
        """From now on nothing listens here; requests under way get no answer."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Destination:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _take_clicks(self, request: web.Request) -> web.Response:
        for envelope in _envelopes(await request.read()):
            place = (envelope.partition, envelope.seq)
            before = self._known.get(place)
            self.sent_again += before is not None
            if before != envelope.data:
                self._known[place] = envelope.data
                self.clicks.append((envelope.data["n"], envelope.data))
        self.requests += 1
        return web.Response()

    async def _take_samples(self, request: web.Request) -> web.Response:
        body = bytes(cramjam.snappy.decompress_raw(await request.read()))
        self.samples.update(samples_of(body))
        self.requests += 1
        return web.Response(status=204)
