"""The messages: JSON objects of 200 bytes, the SQL that works on them, and a queue full of them."""

from __future__ import annotations

import base64
import os
import uuid

import pyarrow as pa

from forebay.bench.spark.plan import MESSAGE_BYTES
from forebay.client import Client

STAGE_ROWS = 50_000
SLOWEST_MS = 2_000
SCHEMA = "user STRING, page STRING, ms INT, text STRING"
SQL = f"""
    SELECT to_json(struct(m.user, m.page, m.ms)) AS payload
    FROM (SELECT from_json(cast(payload AS string), '{SCHEMA}') AS m FROM input)
    WHERE m.ms >= 1000
"""
"""Parse, filter, project: half of the messages remain."""


def payload(number: int) -> bytes:
    """One message. Its text is random, so that Snappy has to keep it."""
    before = f'{{"user":"u{number % 9973}","page":"/item/{number % 1009}","ms":{number * 7919 % SLOWEST_MS},"text":"'
    length = MESSAGE_BYTES - len(before) - 2
    text = base64.b64encode(os.urandom(length)).decode()[:length]
    return f'{before}{text}"}}'.encode()


def payload_or_bad(number: int, bad_percent: int) -> bytes:
    """The message, or, for so many of a hundred, the first half of it, which is no JSON."""
    whole = payload(number)
    return whole[: MESSAGE_BYTES // 2] if number % 100 < bad_percent else whole


def fill(url: str, queue: str, messages: int, bad_percent: int = 0) -> None:
    """A queue with so many messages, all of them visible at once."""
    producer = uuid.uuid4().hex
    stages: list[str] = []
    with Client(url) as client:
        for start in range(0, messages, STAGE_ROWS):
            numbers = range(start, min(start + STAGE_ROWS, messages))
            rows = pa.table(
                {"payload": pa.array([payload_or_bad(number, bad_percent) for number in numbers], pa.binary())}
            )
            stages += client.stage(queue, rows, producer=producer, epoch=0)
        client.commit(stages, producer=producer, epoch=0)
