"""What is left of a broker when everything but durability is taken away: decode, append to the commit log, answer.

No queues, no index, no ids that are looked up, no leases, no metrics. It stands between an empty endpoint and the
commit log alone, and is no limit: it runs on uvicorn, and a quicker HTTP server would get further.
"""

from __future__ import annotations

import os
import time
from typing import Any

import msgspec

from forebay.bench.asgi import END, START, Receive, Send, body_of
from forebay.bench.batched_log import BatchedLog
from forebay.commitlog import CommitLog
from forebay.model.ids import minted_ids
from forebay.model.message import MessageBatch

DIRECTORY_VARIABLE = "BENCH_LOG_DIRECTORY"


class _Item(msgspec.Struct, gc=False):
    payload: msgspec.Raw
    partition: str


class _Push(msgspec.Struct):
    items: list[_Item]


_decode = msgspec.json.Decoder(_Push).decode
_logs: list[BatchedLog] = []


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    items = _decode(await body_of(receive)).items
    count = len(items)
    batch = MessageBatch(
        payloads=[item.payload for item in items],
        created_us=[time.time_ns() // 1000] * count,
        partitions=[item.partition.encode() for item in items],
        transaction_ids=[minted.encode() for minted in minted_ids(count)],
    )
    await _log().append(batch)
    await send(START)
    await send(END)


def _log() -> BatchedLog:
    if not _logs:
        _logs.append(BatchedLog(CommitLog.open(os.environ[DIRECTORY_VARIABLE])))
    return _logs[0]
