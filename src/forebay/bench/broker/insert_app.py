"""What a careful user would write without Forebay: an endpoint that inserts one row per request and commits.

Uvicorn, the same JSON decoder and the same table shape as the other peers; a pool of connections as psycopg's
documentation has it.
"""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from forebay.bench.broker.systems.postgres_table import INSERT_ONE

POOL_CONNECTIONS = 16
"""On two cores, 8, 16 and 32 gave the same, within what the machine itself varies by."""
URL_VARIABLE = "BENCH_POSTGRES_URL"

_BODY = b'[{"index":0,"status":"queued"}]'
_START = {
    "type": "http.response.start",
    "status": 201,
    "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())],
}
_END = {"type": "http.response.body", "body": _BODY}


class _Item(msgspec.Struct):
    queue: str
    payload: msgspec.Raw
    partition: str = "Default"


class _Push(msgspec.Struct):
    items: list[_Item]


_decode = msgspec.json.Decoder(_Push).decode
_pools: list[Any] = []


async def _pool() -> Any:
    # Made by the first request: a pool needs the event loop that it will run on.
    if not _pools:
        pools = importlib.import_module("psycopg_pool")
        _pools.append(
            pools.AsyncConnectionPool(
                os.environ[URL_VARIABLE],
                min_size=POOL_CONNECTIONS,
                max_size=POOL_CONNECTIONS,
                kwargs={"autocommit": True},
                open=False,
            )
        )
        await _pools[0].open()
    return _pools[0]


async def app(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    if scope["type"] != "http":
        return
    parts = []
    while True:
        event = await receive()
        parts.append(event.get("body", b""))
        if not event.get("more_body"):
            break
    (item,) = _decode(b"".join(parts)).items
    pool = await _pool()
    async with pool.connection() as connection:
        await connection.execute(INSERT_ONE, (str(uuid.uuid4()), item.partition, bytes(item.payload)))
    await send(_START)
    await send(_END)
