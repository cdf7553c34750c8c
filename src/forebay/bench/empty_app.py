"""The ceiling for any HTTP server on uvicorn: an application that reads the body and answers."""

from __future__ import annotations

from typing import Any

from forebay.bench.asgi import END, START, Receive, Send


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send(START)
    await send(END)
