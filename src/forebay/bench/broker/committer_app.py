"""What is left of a broker when everything but durability is taken away: decode, append to the commit log, answer.

No queues, no index, no ids that are looked up, no leases, no metrics. It tells how much of the way between an empty
endpoint and the commit log alone a server in Python can go at all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from forebay.commitlog import CommitLog
from forebay.model.ids import minted_ids
from forebay.model.message import MessageBatch

DIRECTORY_VARIABLE = "BENCH_LOG_DIRECTORY"

_BODY = b'[{"index":0,"status":"queued"}]'
_START = {
    "type": "http.response.start",
    "status": 201,
    "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())],
}
_END = {"type": "http.response.body", "body": _BODY}


class _Item(msgspec.Struct, gc=False):
    payload: msgspec.Raw
    partition: str


class _Push(msgspec.Struct):
    items: list[_Item]


_decode = msgspec.json.Decoder(_Push).decode
_logs: list[CommitLog] = []


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
    items = _decode(b"".join(parts)).items
    count = len(items)
    batch = MessageBatch(
        payloads=[item.payload for item in items],
        created_us=[time.time_ns() // 1000] * count,
        partitions=[item.partition.encode() for item in items],
        transaction_ids=[minted.encode() for minted in minted_ids(count)],
    )
    await _log().append_async(batch)
    await send(_START)
    await send(_END)


def _log() -> CommitLog:
    if not _logs:
        _logs.append(CommitLog.open(os.environ[DIRECTORY_VARIABLE]))
    return _logs[0]
