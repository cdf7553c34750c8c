"""Pushes while the store is away, and what happens when it is back."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator

from forebay.bench.broker.servers import ForebayServer
from forebay.bench.harness import Figure, at_least, at_most
from forebay.bench.ingest.outages import away, push_one, wait_until_drained
from forebay.bench.ingest.plan import CONNECTIONS, Plan
from forebay.bench.latency import push_seconds
from forebay.client import AsyncClient
from forebay.testing.servers import PostgresServer

FAILOVER_SECONDS_MAX = 2.0
DRAIN_RATE_MIN = 20_000.0
BATCH = 500


def figures(server: ForebayServer, database: PostgresServer, plan: Plan) -> Iterator[Figure]:
    yield _latency(server, database, plan)
    yield at_most(
        1,
        "failover begins after the database froze",
        "s",
        lambda: _failover_seconds(server, database),
        f"{FAILOVER_SECONDS_MAX:g} s",
        lambda: FAILOVER_SECONDS_MAX,
        rounds=plan.rounds,
    )
    yield at_least(
        1,
        f"drain of {plan.backlog:,} events",
        "events/s",
        lambda: _drain_rate(server, database, plan.backlog),
        f"{DRAIN_RATE_MIN:,.0f} events/s",
        lambda: DRAIN_RATE_MIN,
        rounds=max(2, plan.rounds // 2),
        note="from the database's return, the probe that notices it included",
    )


def _latency(server: ForebayServer, database: PostgresServer, plan: Plan) -> Figure:
    with ForebayServer() as embedded, away(database, server):
        figure = at_most(
            3,
            "99th percentile of single pushes during an outage",
            "ms",
            _p99_ms(server.url, plan.outage_pushes),
            "the same on a healthy embedded store",
            _p99_ms(embedded.url, plan.outage_pushes),
            rounds=plan.rounds,
            note=f"{CONNECTIONS} connections, each sends when it was answered",
        )
    wait_until_drained(server.url)
    return figure


def _p99_ms(url: str, count: int) -> Callable[[], float]:
    def measure() -> float:
        seconds = sorted(push_seconds(url, f"latency-{uuid.uuid4().hex}", CONNECTIONS, count))
        return seconds[int(len(seconds) * 0.99)] * 1000

    return measure


def _failover_seconds(server: ForebayServer, database: PostgresServer) -> float:
    push_one(server.url, "steady")
    database.pause()
    began = time.monotonic()
    try:
        while push_one(server.url, "steady") != "buffered":
            pass
        return time.monotonic() - began
    finally:
        database.resume()
        wait_until_drained(server.url)


def _drain_rate(server: ForebayServer, database: PostgresServer, backlog: int) -> float:
    with away(database, server):
        asyncio.run(_fill(server.url, backlog))
        database.start()
        began = time.monotonic()
        wait_until_drained(server.url)
        return backlog / (time.monotonic() - began)


async def _fill(url: str, backlog: int) -> None:
    queue = f"backlog-{uuid.uuid4().hex}"
    async with AsyncClient(url) as client:
        for start in range(0, backlog, BATCH):
            await client.push_many(f"{queue}/{start // BATCH % 20}", [{"n": start + n} for n in range(BATCH)])
