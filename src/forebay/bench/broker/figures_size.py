"""What size costs: many partitions beside few, and a big backlog beside hardly any.

Two servers stand side by side on stores that were filled in the same way, and take turns. The requests are the same on
both sides: a push is 100 messages for one partition, the next push goes to the next partition; a pop claims one
partition and takes 100 messages. Only the size differs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from forebay.bench.broker import servers
from forebay.bench.broker.figures_embedded import RATE
from forebay.bench.broker.filling import fill
from forebay.bench.broker.load_process import LoadProcess
from forebay.bench.broker.plan import BACKLOG_PARTITIONS, BATCH, BATCH_CONNECTIONS, FEW_PARTITIONS, Plan
from forebay.bench.broker.prepared import messages_per_second, push_requests
from forebay.bench.harness import Figure, Measure, at_least, at_most
from forebay.testing.servers import PostgresServer

Tell = Callable[[str], None]
QUEUE = "backlog"
PARTITIONS_IN_TURN_MAX = 1000
"""A prepared request has 100 KiB. Of many partitions, this many get pushes, spread over all of them."""
PREPARED_PUSHES = "prepared requests, 8 connections"
CLIENT_POPS = "AsyncClient, 8 consumers"


class Side(NamedTuple):
    """One of the two servers of a comparison."""

    server: servers.ForebayServer
    client: LoadProcess
    partitions: int

    def push(self, plan: Plan) -> Measure:
        step = max(1, self.partitions // PARTITIONS_IN_TURN_MAX)
        names = [str(number) for number in range(0, self.partitions, step)]
        requests = push_requests(QUEUE, BATCH, names)
        url = self.server.url
        return lambda: messages_per_second(url, requests, BATCH, BATCH_CONNECTIONS, plan.batch_requests)

    def pop(self, plan: Plan) -> Measure:
        load = {"place": QUEUE, "lanes": BATCH_CONNECTIONS, "batch": BATCH, "count": plan.drained}
        return lambda: self.client.run("take", **load)


@contextmanager
def _side(store: str, data: Path, messages: int, partitions: int, tell: Tell) -> Iterator[Side]:
    fill(store, data, QUEUE, messages, partitions, tell)
    with (
        servers.ForebayServer(store=store, data=data) as server,
        LoadProcess("forebay", server.url, lanes=BATCH_CONNECTIONS) as client,
    ):
        yield Side(server, client, partitions)
    shutil.rmtree(data, ignore_errors=True)


def partition_figures(directory: Path, database: PostgresServer, plan: Plan, tell: Tell) -> Iterator[Figure]:
    yield from _partitions("", ("embedded", "embedded"), directory, plan, tell)
    stores = servers.new_database(database, "many"), servers.new_database(database, "few")
    yield from _partitions("PostgreSQL store: ", stores, directory, plan, tell)


def _partitions(prefix: str, stores: tuple[str, str], directory: Path, plan: Plan, tell: Tell) -> Iterator[Figure]:
    # A pop of 100 messages finds 100 in its partition on both sides.
    messages = max(plan.partitions * BATCH, plan.few_messages)
    with (
        _side(stores[0], directory / "many-partitions", messages, plan.partitions, tell) as many,
        _side(stores[1], directory / "few-partitions", messages, FEW_PARTITIONS, tell) as few,
    ):
        beside = f"{FEW_PARTITIONS} partitions"
        for what, measure, note in (
            ("pop + ack 100", Side.pop, CLIENT_POPS),
            ("push 100", Side.push, PREPARED_PUSHES),
        ):
            yield at_most(
                1.5,
                f"{prefix}{what}, {plan.partitions:,} partitions",
                "µs/message",
                _cost(measure(many, plan)),
                beside,
                _cost(measure(few, plan)),
                rounds=plan.rounds,
                note=note,
            )


def _cost(rate: Measure) -> Measure:
    return lambda: 1e6 / rate()


def backlog_figures(directory: Path, plan: Plan, tell: Tell) -> Iterator[Figure]:
    # The small one first: what is popped is the oldest of each, so both have about as much written behind them. What
    # was written last is still in the processor's and the kernel's reach, in a backlog of any size.
    with (
        _side("embedded", directory / "small", plan.few_messages, BACKLOG_PARTITIONS, tell) as small,
        _side("embedded", directory / "big", plan.backlog, BACKLOG_PARTITIONS, tell) as big,
    ):
        behind = f"behind a backlog of {plan.backlog:,}"
        beside = f"a backlog of {plan.few_messages:,}"
        yield at_least(
            0.9,
            f"pop + ack 100 {behind}",
            RATE,
            big.pop(plan),
            beside,
            small.pop(plan),
            rounds=plan.rounds,
            note=CLIENT_POPS,
        )
        yield at_least(
            0.9,
            f"push 100 {behind}",
            RATE,
            big.push(plan),
            beside,
            small.push(plan),
            rounds=plan.rounds,
            note=PREPARED_PUSHES,
        )
        yield at_most(
            1.1,
            f"resident memory {behind}",
            "MiB",
            lambda: servers.resident_mib(big.server),
            beside,
            lambda: servers.resident_mib(small.server),
            rounds=3,
            note="of the server, after the same pushes and pops on both sides",
        )
