"""OTLP over HTTP on a port of its own: `/v1/metrics`, `/v1/traces`, `/v1/logs`; and remote write, `/api/v1/write`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web
from google.rpc.status_pb2 import Status

from forebay.errors import ForebayError
from forebay.ingest.receivers.decoding import BodyRefused, Telemetry, decoded, decompressed
from forebay.ingest.receivers.in_flight import InFlight, Share
from forebay.ingest.receivers.intake_sink import RETRY_SECONDS, Accept, status_of
from forebay.ingest.receivers.partial_success import response_to
from forebay.otlp.kinds import Kind

PROTOBUF, JSON = "application/x-protobuf", "application/json"
PATHS = {
    "/v1/metrics": Kind.METRICS,
    "/v1/traces": Kind.TRACES,
    "/v1/logs": Kind.LOGS,
    "/api/v1/write": Kind.REMOTE_WRITE,
    "/write": Kind.REMOTE_WRITE,
}
DECODED_INLINE_BYTES = 64 << 10
BODY_SECONDS_MAX = 60.0

_log = logging.getLogger("forebay.receivers")


class HttpReceiver:
    """A server for some `kinds` of requests; the paths of others are unknown to it. `requests` are counted by status,
    accepted `items` by kind. With `is_for_prometheus` what has no form there is named in the response."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        accept: Accept,
        size_max: int,
        kinds: frozenset[Kind],
        in_flight: InFlight,
        *,
        is_for_prometheus: bool = False,
        body_seconds_max: float = BODY_SECONDS_MAX,
    ) -> None:
        self.name = name
        self.requests: Counter[int] = Counter()
        self.items: Counter[str] = Counter()
        self._address = (host, port)
        self._accept = accept
        self._size_max = size_max
        self._in_flight = in_flight
        self._is_for_prometheus = is_for_prometheus
        self._body_seconds_max = body_seconds_max
        self._runner: web.AppRunner | None = None
        app = web.Application()
        for path, kind in PATHS.items():
            if kind in kinds:
                app.router.add_post(path, self._handler(kind))
        self._app = app
        self.port = port

    async def start(self) -> None:
        """Listen. Raises OSError if the address is taken."""
        self._runner = web.AppRunner(self._app, access_log=None, auto_decompress=False, shutdown_timeout=5.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, *self._address)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Answer what is under way, and close."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _handler(self, kind: Kind) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            is_json = request.content_type == JSON and kind is not Kind.REMOTE_WRITE
            try:
                with self._in_flight.request() as share:
                    telemetry = await self._read(request, kind, share, is_json=is_json)
                    receipt = await self._accept(telemetry)
            except BodyRefused as refused:
                answer = _refusal(refused.status, refused.message, is_json=is_json)
            except ForebayError as error:
                answer = _refusal(status_of(error), str(error), is_json=is_json)
            except Exception:  # noqa: BLE001 - logged, counted and answered
                _log.exception("%s: a bug", self.name, extra={"action": "receiver_failed"})
                answer = _refusal(500, "an error of this server, see its log", is_json=is_json)
            else:
                self.items[kind] += telemetry.items
                answer = _taken(telemetry, receipt, is_json=is_json)
            self.requests[answer.status] += 1
            return answer

        return handle

    async def _read(self, request: web.Request, kind: Kind, share: Share, *, is_json: bool) -> Telemetry:
        if request.headers.get("Origin"):
            # Only browsers send it. A page whose name leads here (DNS rebinding) needs no leave to send JSON.
            raise BodyRefused(403, "web pages may not send telemetry here")
        if not is_json and request.content_type != PROTOBUF:
            known = PROTOBUF if kind is Kind.REMOTE_WRITE else f"{PROTOBUF} and {JSON}"
            raise BodyRefused(415, f"Content-Type {request.content_type!r} is not known; known are {known}")
        if "io.prometheus.write.v2" in request.headers.get("Content-Type", ""):
            raise BodyRefused(415, "remote write 2.0 is not known; known is 1.0")
        try:
            async with asyncio.timeout(self._body_seconds_max):
                body = await self._body(request, share)
        except TimeoutError:
            raise BodyRefused(408, f"the body did not arrive within {self._body_seconds_max:g} s") from None
        except (web.RequestPayloadError, aiohttp.ClientError, OSError) as error:
            raise BodyRefused(400, f"the body broke off: {error}") from error
        encoding = request.headers.get("Content-Encoding", "").strip().lower()
        if kind is Kind.REMOTE_WRITE and encoding != "snappy":
            raise BodyRefused(415, f"Content-Encoding {encoding!r}: remote write is snappy")
        if len(body) <= DECODED_INLINE_BYTES and not encoding:
            return decoded(kind, body, is_json=is_json, is_for_prometheus=self._is_for_prometheus)
        telemetry = await asyncio.to_thread(self._decode, kind, body, encoding, is_json)
        share.add(len(telemetry.body) if encoding else 0)
        return telemetry

    async def _body(self, request: web.Request, share: Share) -> bytes:
        pieces: list[bytes] = []
        left = self._size_max
        if (request.content_length or 0) > left:
            raise BodyRefused(413, f"a body of more than {self._size_max} bytes")
        async for piece in request.content.iter_any():
            left -= len(piece)
            if left < 0:
                raise BodyRefused(413, f"a body of more than {self._size_max} bytes")
            share.add(len(piece))
            pieces.append(piece)
        return b"".join(pieces)

    def _decode(self, kind: Kind, body: bytes, encoding: str, is_json: bool) -> Telemetry:
        plain = decompressed(body, encoding, self._size_max)
        return decoded(kind, plain, is_json=is_json, is_for_prometheus=self._is_for_prometheus)


def _taken(telemetry: Telemetry, receipt: str, *, is_json: bool) -> web.Response:
    headers = {"Forebay-Receipt": receipt}
    if telemetry.kind is Kind.REMOTE_WRITE:
        return web.Response(status=204, headers=headers)
    body = response_to(telemetry, is_json=is_json)
    return web.Response(body=body, content_type=JSON if is_json else PROTOBUF, headers=headers)


def _refusal(status: int, message: str, *, is_json: bool) -> web.Response:
    headers = {"Retry-After": str(RETRY_SECONDS)} if status in (429, 503) else {}
    if status >= 500:
        _log.warning("a request is answered with %d: %s", status, message, extra={"action": "receiver_refused"})
    if is_json:
        return web.json_response({"code": 0, "message": message}, status=status, headers=headers)
    body = Status(message=message).SerializeToString()
    return web.Response(status=status, body=body, content_type=PROTOBUF, headers=headers)
