"""The embedded store: single pushes, batches, pops, and how soon a waiting consumer has its message."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from forebay.bench.broker import servers
from forebay.bench.broker.committer_app import DIRECTORY_VARIABLE
from forebay.bench.broker.load_process import LoadProcess
from forebay.bench.broker.plan import BATCH, BATCH_CONNECTIONS, SINGLE_CONNECTIONS, Plan
from forebay.bench.broker.prepared import pushes
from forebay.bench.harness import Figure, Measure, at_least, at_most, for_information
from forebay.testing.servers import LocalServer, PostgresServer

PUSH_FLOOR = 100_000
"""Messages per second, pushed in batches of 100, that a quiet machine should reach."""
LATENCY_MS_MAX = 5.0
PUSH_ONE = "push 1 over 64 connections"
PUSH_ONE_TASKS = "push 1 by 64 tasks"
PUSH_MANY = "push 100 over 8 connections"
RATE = "messages/s"
PREPARED = "prepared requests on both sides"
BARE = "a bare committer"
BARE_NOTE = "a server that decodes, appends to the commit log and answers: no queues, no index, no leases"
CLIENTS = "each side through its own asyncio client"
ONLY_OURS_PREPARED = "prepared requests on our side, the client on theirs: for information"


def figures(directory: Path, database: PostgresServer, plan: Plan) -> Iterator[Figure]:
    with servers.ForebayServer() as ours, LoadProcess("forebay", ours.url, lanes=SINGLE_CONNECTIONS) as client:
        yield from _ceilings(ours.url, directory, plan)
        if "valkey" not in plan.without:
            yield from _valkey_every_second(ours.url, client, plan)
        yield _latency(client, plan)
        yield from _durable_peers(ours.url, client, database, plan)


def _ceilings(url: str, directory: Path, plan: Plan) -> Iterator[Figure]:
    single = pushes(url, 1, SINGLE_CONNECTIONS, plan.single_requests)
    batched = pushes(url, BATCH, BATCH_CONNECTIONS, plan.batch_requests)
    beside = "an empty ASGI endpoint"
    with servers.AsgiServer("forebay.bench.empty_app:app") as empty, _committer(directory) as committer:
        ceiling = pushes(empty.url, 1, SINGLE_CONNECTIONS, plan.single_requests, is_forebay=False)
        yield at_least(0.4, PUSH_ONE, RATE, single, beside, ceiling, rounds=plan.rounds, note=PREPARED)
        bare = pushes(committer.url, 1, SINGLE_CONNECTIONS, plan.single_requests, is_forebay=False)
        yield for_information(f"{PUSH_ONE}, {BARE}", RATE, bare, beside, ceiling, rounds=plan.rounds, note=BARE_NOTE)
    quiet = "100,000 messages/s"
    yield at_least(1, PUSH_MANY, RATE, batched, quiet, lambda: PUSH_FLOOR, rounds=plan.rounds, note="prepared requests")
    yield from _beside_the_log(batched, directory, plan)


def _beside_the_log(batched: Measure, directory: Path, plan: Plan) -> Iterator[Figure]:
    """With as many appenders as there are connections, and with one, as `bench commitlog` has it."""
    made = "prepared requests; batches of 100 that were made beforehand are appended"
    with LoadProcess("commitlog", str(directory), lanes=1) as log:
        beside, note = "the commit log alone", f"{made} one after the other"
        alone = push_many(log, plan, 1)
        yield for_information(PUSH_MANY, RATE, batched, beside, alone, rounds=plan.rounds, note=note)
    with LoadProcess("commitlog", str(directory), lanes=BATCH_CONNECTIONS) as log:
        beside, note = "the commit log alone, 8 appenders", f"{made} by 8 tasks"
        alone = push_many(log, plan)
        yield at_least(0.6, PUSH_MANY, RATE, batched, beside, alone, rounds=plan.rounds, note=note)
        with servers.AsgiServer("forebay.bench.empty_app:app") as empty:
            ceiling = pushes(empty.url, BATCH, BATCH_CONNECTIONS, plan.batch_requests, is_forebay=False)
            name, note = f"{PUSH_MANY}, empty ASGI endpoint", "a server that reads the requests and does nothing"
            yield for_information(name, RATE, ceiling, beside, alone, rounds=plan.rounds, note=note)
        with _committer(directory) as committer:
            bare = pushes(committer.url, BATCH, BATCH_CONNECTIONS, plan.batch_requests, is_forebay=False)
            name = f"{PUSH_MANY}, {BARE}"
            yield for_information(name, RATE, bare, beside, alone, rounds=plan.rounds, note=BARE_NOTE)


def _committer(directory: Path) -> servers.AsgiServer:
    place = directory / f"committer-{uuid.uuid4().hex}"
    return servers.AsgiServer("forebay.bench.broker.committer_app:app", {DIRECTORY_VARIABLE: str(place)})


def _valkey_every_second(url: str, client: LoadProcess, plan: Plan) -> Iterator[Figure]:
    beside = "Valkey streams, log every second"
    with (
        servers.valkey("everysec") as server,
        LoadProcess("valkey", server.url, lanes=SINGLE_CONNECTIONS) as valkey,
    ):
        theirs = push_one(valkey, plan)
        note = f"{CLIENTS}; ours sends pushes that wait at the same time in one request"
        yield at_least(1, PUSH_ONE_TASKS, RATE, push_one(client, plan), beside, theirs, rounds=plan.rounds, note=note)
        single = pushes(url, 1, SINGLE_CONNECTIONS, plan.single_requests)
        name = f"{PUSH_ONE}, prepared"
        yield for_information(name, RATE, single, beside, theirs, rounds=plan.rounds, note=ONLY_OURS_PREPARED)
        yield at_least(
            1,
            "pop + ack 100, 8 consumers",
            RATE,
            _drain(client, plan),
            beside,
            _drain(valkey, plan),
            rounds=plan.rounds,
            note=f"{CLIENTS}; XREADGROUP + XACK",
        )
        yield for_information(
            "push 1 to a waiting consumer",
            "ms",
            lambda: client.run("latency", count=plan.latencies),
            beside,
            lambda: valkey.run("latency", count=plan.latencies),
            rounds=plan.rounds,
            note=f"medians; {CLIENTS}; less is better",
            more_is_better=False,
        )


def _latency(client: LoadProcess, plan: Plan) -> Figure:
    return at_most(
        1,
        "push 1 to a waiting consumer",
        "ms",
        lambda: client.run("latency", count=plan.latencies),
        "5 ms",
        lambda: LATENCY_MS_MAX,
        rounds=plan.rounds,
        note="median from the call of push until the consumer has the message; AsyncClient",
    )


def _durable_peers(url: str, client: LoadProcess, database: PostgresServer, plan: Plan) -> Iterator[Figure]:
    batched = pushes(url, BATCH, BATCH_CONNECTIONS, plan.batch_requests)
    for beside, system in (
        ("PostgreSQL table, synchronous commit", "postgres"),
        ("Valkey streams, log always", "valkey"),
        ("NATS JetStream, file storage", "nats"),
        ("RabbitMQ, durable queue, confirms", "rabbitmq"),
    ):
        if system in plan.without:
            continue
        with _running(system, database) as peer, LoadProcess(system, peer.url, lanes=BATCH_CONNECTIONS) as load:
            theirs = push_many(load, plan)
            ours = push_many(client, plan)
            yield at_least(1, PUSH_MANY, RATE, ours, beside, theirs, rounds=plan.rounds, note=CLIENTS)
            name = f"{PUSH_MANY}, prepared"
            yield for_information(name, RATE, batched, beside, theirs, rounds=plan.rounds, note=ONLY_OURS_PREPARED)


def _running(system: str, database: PostgresServer) -> AbstractContextManager[LocalServer]:
    if system == "postgres":
        return nullcontext(database)
    if system == "valkey":
        return servers.valkey("always")
    return servers.NatsServer() if system == "nats" else servers.RabbitServer()


def push_one(load: LoadProcess, plan: Plan) -> Measure:
    return lambda: load.run("push", lanes=SINGLE_CONNECTIONS, batch=1, seconds=plan.round_seconds)


def push_many(load: LoadProcess, plan: Plan, lanes: int = BATCH_CONNECTIONS) -> Measure:
    return lambda: load.run("push", lanes=lanes, batch=BATCH, seconds=plan.round_seconds)


def _drain(load: LoadProcess, plan: Plan) -> Measure:
    return lambda: load.run("drain", lanes=BATCH_CONNECTIONS, batch=BATCH, count=plan.drained)
