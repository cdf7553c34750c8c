"""Prepared pushes: the bytes of requests, made once, and the rate at which a server takes them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from forebay.bench import load
from forebay.bench.broker.plan import text
from forebay.bench.broker.systems.forebay_client import delete_queue
from forebay.bench.harness import Measure

_REQUESTS = 16
"""Different requests that connections take turns with: enough that no cache sees one message all the time."""


def push_requests(queue: str, batch: int, partitions: Sequence[str]) -> list[bytes]:
    """One request per partition. They have no transaction ids: a request sent twice would be a duplicate."""
    made = []
    for partition in partitions:
        items = [{"queue": queue, "partition": partition, "payload": text()} for _ in range(batch)]
        made.append(load.post("/api/v1/push", json.dumps({"items": items}).encode()))
    return made


def messages_per_second(url: str, requests: Sequence[bytes], batch: int, connections: int, count: int) -> float:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    return batch * load.drive(host, port, requests, connections=connections, count=count)


def pushes(url: str, batch: int, connections: int, count: int, *, is_forebay: bool = True) -> Measure:
    """Rounds of `count` requests, each on a queue of its own, which is there before the clock runs.

    The queue of the round before is deleted right before the next, as all systems here do it: a system that writes
    where another has just freed memory and disk is faster than one that does not.
    """
    partitions = [str(number) for number in range(_REQUESTS)]
    queues: list[str] = []

    def measure() -> float:
        if is_forebay:
            renew_queue(url, queues)
        requests = push_requests(queues[0] if queues else "bench", batch, partitions)
        return messages_per_second(url, requests, batch, connections, count)

    return measure


def renew_queue(url: str, queues: list[str]) -> None:
    """Delete the queue, if there is one, and have another."""
    while queues:
        delete_queue(url, queues.pop())
    queues.append(f"bench-{uuid.uuid4().hex}")
    body = json.dumps({"queue": queues[0]}).encode()
    urlopen(Request(f"{url}/api/v1/configure", body, {"Content-Type": "application/json"})).close()
