"""The PostgreSQL store, beside what one would write on the same database by hand."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from forebay.bench.broker import insert_app, servers
from forebay.bench.broker.figures_embedded import (
    CLIENTS,
    ONLY_OURS_PREPARED,
    PREPARED,
    PUSH_MANY,
    PUSH_ONE,
    RATE,
    push_many,
)
from forebay.bench.broker.load_process import LoadProcess
from forebay.bench.broker.plan import BATCH, BATCH_CONNECTIONS, MANY_CONNECTIONS, SINGLE_CONNECTIONS, Plan
from forebay.bench.broker.prepared import pushes
from forebay.bench.broker.systems.postgres_table import TABLE
from forebay.bench.harness import Figure, Measure, at_least, for_information
from forebay.testing.servers import PostgresServer

STORE = "PostgreSQL store"


def figures(database: PostgresServer, plan: Plan) -> Iterator[Figure]:
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(TABLE)
    with servers.ForebayServer(store=servers.new_database(database, "ours")) as ours:
        yield from _single(ours.url, database.url, plan)
        yield from _batched(ours.url, database.url, plan)


def _single(url: str, database_url: str, plan: Plan) -> Iterator[Figure]:
    application = "forebay.bench.broker.insert_app:app"
    note = f"{PREPARED}; theirs is an ASGI endpoint on uvicorn with a pool of {insert_app.POOL_CONNECTIONS} connections"
    beside = "one INSERT per request"
    with servers.AsgiServer(application, {insert_app.URL_VARIABLE: database_url}) as by_hand:

        def measures(connections: int) -> tuple[Measure, Measure]:
            count = plan.single_requests
            ours = pushes(url, 1, connections, count)
            return ours, pushes(by_hand.url, 1, connections, count // 4, is_forebay=False)

        ours, theirs = measures(SINGLE_CONNECTIONS)
        yield at_least(4, f"{STORE}: {PUSH_ONE}", RATE, ours, beside, theirs, rounds=plan.rounds, note=note)
        ours, theirs = measures(MANY_CONNECTIONS)
        name = f"{STORE}: push 1 over {MANY_CONNECTIONS} connections"
        yield for_information(name, RATE, ours, beside, theirs, rounds=plan.rounds, note=note)


def _batched(url: str, database_url: str, plan: Plan) -> Iterator[Figure]:
    beside = "bare multi-row inserts"
    with (
        LoadProcess("forebay", url, lanes=BATCH_CONNECTIONS) as client,
        LoadProcess("postgres", database_url, lanes=BATCH_CONNECTIONS) as bare,
    ):
        name, theirs = f"{STORE}: {PUSH_MANY}", push_many(bare, plan)
        ours = push_many(client, plan)
        yield at_least(0.7, name, RATE, ours, beside, theirs, rounds=plan.rounds, note=CLIENTS)
        prepared = pushes(url, BATCH, BATCH_CONNECTIONS, plan.batch_requests)
        yield for_information(
            f"{name}, prepared", RATE, prepared, beside, theirs, rounds=plan.rounds, note=ONLY_OURS_PREPARED
        )
