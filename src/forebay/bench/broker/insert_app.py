"""What a careful user would write without Forebay: an endpoint that inserts one row per request and commits.

Uvicorn, the same JSON decoder and the same table shape as the other peers; a pool of connections as psycopg's
documentation has it.
"""

from __future__ import annotations

import importlib
import os
import uuid
from typing import Any

import msgspec

from forebay.bench.asgi import END, START, Receive, Send, body_of
from forebay.bench.broker.systems.postgres_table import INSERT_ONE

POOL_CONNECTIONS = 16
"""On two cores, 8, 16 and 32 gave the same, within what the machine itself varies by."""
URL_VARIABLE = "BENCH_POSTGRES_URL"


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


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    (item,) = _decode(await body_of(receive)).items
    pool = await _pool()
    async with pool.connection() as connection:
        await connection.execute(INSERT_ONE, (str(uuid.uuid4()), item.partition, bytes(item.payload)))
    await send(START)
    await send(END)
