"""The application for ASGI servers: for HTTP/2, and for those who have a server of their own.

    uvicorn --factory forebay.assemble:asgi_application      # settings from FOREBAY_CONFIG and FOREBAY_…

One process, one service: a data directory has one owner. What the connection decides is the ASGI server's business
then: keep-alive, limits of heads, TLS and stopping; a body is taken no faster than a handler reads it, and a long poll
notices that its client is gone. `forebay serve` brings a protocol of its own, which is faster (decision 0013).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import quote

from forebay.api.app import App
from forebay.api.body_stream import HELD_BYTES_MAX, BodyStream
from forebay.api.exchange import Request, Response, StreamedResponse
from forebay.api.response_bytes import CLOSING
from forebay.api.response_writer import dismiss
from forebay.api.service import Service

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AsgiApp:
    """`make_service` is called on the server's event loop, when it starts."""

    def __init__(self, make_service: Callable[[], Service]) -> None:
        self._make_service = make_service
        self._app: App | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http" and self._app is not None:
            await self._answer(self._app, scope, receive, send)
        else:
            raise RuntimeError(f"Forebay takes HTTP requests between start and stop, not {scope['type']!r}")

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start with the server and stop with it."""
        await receive()
        service = self._make_service()
        self._app = App(service)
        try:
            await service.start()
        except Exception as error:
            await service.close()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        service.announce_stop()
        await service.stop()
        await service.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        wanted = asyncio.Event()
        stream = BodyStream(lambda _: wanted.set())
        request = request_of(scope, stream)
        reading = asyncio.create_task(_read(receive, stream, wanted))
        try:
            response = await app.answer(request)
            if response is None:  # the client is gone
                return
            if isinstance(response, Response):
                await _send_whole(response, send, is_head=request.method == "HEAD")
            else:
                await _send_streamed(response, send, is_head=request.method == "HEAD")
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


def request_of(scope: Scope, stream: BodyStream) -> Request:
    raw_path = scope.get("raw_path") or quote(scope["path"]).encode()
    request = Request(
        scope["method"], raw_path.partition(b"?")[0], scope["query_string"], tuple(map(tuple, scope["headers"])), stream
    )
    client = scope.get("client")
    request.address = client[0] if client else ""
    return request


async def _read(receive: Receive, stream: BodyStream, wanted: asyncio.Event) -> None:
    """Feed the body as it is wanted; behind it, notice when the client goes."""
    while True:
        if stream.held_bytes > HELD_BYTES_MAX:
            await wanted.wait()
        message = await receive()
        if message["type"] == "http.disconnect":
            stream.lose()
            return
        if body := message.get("body", b""):
            stream.feed(body)
        if not message.get("more_body", False):
            stream.end()


async def _send_whole(response: Response, send: Send, *, is_head: bool) -> None:
    status, body, content_type, more, more_body = response
    size = len(body) + sum(map(len, more_body))
    # How long the connection lives is the server's business.
    headers = [header for header in more if header != CLOSING]
    if status != 204:
        headers.append((b"content-length", b"%d" % size))
        if size:
            headers.append((b"content-type", content_type))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    parts = [] if is_head or status == 204 else [body, *more_body]
    for part in parts:
        await send({"type": "http.response.body", "body": bytes(part), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _send_streamed(response: StreamedResponse, send: Send, *, is_head: bool) -> None:
    """When a chunk cannot be made, the error ends the connection: that tells the client that it is not whole."""
    headers = [(b"content-type", response.content_type)]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    try:
        if not is_head:
            async for chunk in response.chunks:
                await send({"type": "http.response.body", "body": bytes(chunk), "more_body": True})
    finally:
        await dismiss(response)
    await send({"type": "http.response.body", "body": b""})
