"""A server on a PostgreSQL that is stopped and started, and requests to it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forebay.bench.broker.servers import ForebayServer
from forebay.errors import Permanent
from forebay.testing.servers import PostgresServer

SETTLE_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.005


class NotSettled(Permanent):
    """The server did not get to where the benchmark needs it. Its log says why."""


def buffers(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/api/v1/status/buffers", timeout=60) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def metric(url: str, name: str, kind: str) -> int:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    wanted = f'{name}{{kind="{kind}"}} '
    return int(next(line for line in text.splitlines() if line.startswith(wanted)).removeprefix(wanted))


def push_one(url: str, queue: str) -> str:
    """One message; returns its status."""
    body = json.dumps({"items": [{"queue": queue, "payload": 1}]}).encode()
    request = urllib.request.Request(f"{url}/api/v1/push", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.loads(answer.read())[0]["status"])


def wait_until_drained(url: str) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while (status := buffers(url))["pending"] or not status["dbHealthy"]:
        if time.monotonic() > deadline:
            raise NotSettled(f"{status['pending']} events still wait, dbHealthy: {status['dbHealthy']}")
        time.sleep(LOOK_SECONDS)


@contextmanager
def away(database: PostgresServer, server: ForebayServer) -> Iterator[None]:
    """PostgreSQL is stopped, and the server knows it."""
    database.stop("fast")
    while push_one(server.url, "noticing") != "buffered":
        time.sleep(LOOK_SECONDS)
    try:
        yield
    finally:
        if not database.is_running:
            database.start()
