"""What the applications that stand beside Forebay have in common: as little of ASGI as they need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_BODY = b'[{"index":0,"status":"queued"}]'
START = {
    "type": "http.response.start",
    "status": 201,
    "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())],
}
END = {"type": "http.response.body", "body": _BODY}
"""The two events of the answer: it is stored."""


async def body_of(receive: Receive) -> bytes:
    """The whole body of a request."""
    parts = []
    while True:
        event = await receive()
        parts.append(event.get("body", b""))
        if not event.get("more_body"):
            return b"".join(parts)
