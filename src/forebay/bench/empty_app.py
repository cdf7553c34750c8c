"""The ceiling for any HTTP server on uvicorn: an application that reads the body and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

_BODY = b'[{"index":0,"status":"queued"}]'
_START = {
    "type": "http.response.start",
    "status": 201,
    "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())],
}
_END = {"type": "http.response.body", "body": _BODY}


async def app(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send(_START)
    await send(_END)
