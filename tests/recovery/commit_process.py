"""Processes that commit, seek, delete, cut or complete on either store, and kill themselves at one step.

One for each line `STORE OPERATION STEP` on standard input. STORE is a directory or the URL of a PostgreSQL. STEP is the
number of the point at which it dies, or `sent`: COMMIT has left for the database, and its answer was not read. Points
are counted from the operation on: on the embedded store every record, SQLite's commit and the answer, each before and
after it; on PostgreSQL every statement and the answer. Each is told on standard output as it is reached, and at last
`exit CODE`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import psycopg

from fixtures.arrow_steps import commit, stage
from fixtures.store_steps import answer, item, push, take
from forebay.broker.bulk import StagesOf
from forebay.broker.delivery import DEAD
from forebay.broker.overview import SeekTarget
from forebay.broker.store import Store
from forebay.broker.stores.embedded import EmbeddedStore, store_thread
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.postgres import PostgresStore
from forebay.commitlog import CommitLog
from forebay.dispatch.definition import FlowDefinition, Source, Step
from forebay.dispatch.ledger import flows
from forebay.dispatch.ledger.claiming import NewLease, claim_from_database
from forebay.dispatch.ledger.completing import complete
from forebay.dispatch.ledger.cutting import CutOptions, cut
from forebay.dispatch.values import CompleteRequest, Outcome
from forebay.model.queue import DEFAULT_GROUP
from forebay.testing.fake_clock import FakeClock

FLOW = FlowDefinition(
    name="flow",
    source=Source(queue="left", parcel_messages=1),
    steps=(Step(action="first", action_class="c"), Step(action="second", action_class="d")),
)
Operation = Coroutine[Any, Any, None]


async def transaction(store: Store) -> Callable[[], Operation]:
    await push(store, "a", "b", queue="left")
    await push(store, "x", queue="right")
    left, right = await take(store, 2, queue="left"), await take(store, 1, queue="right")

    async def transact() -> None:
        acks = [answer(left, left.messages[0]), answer(right, right.messages[0], DEAD)]
        outcome = await store.transact([item("t1", queue="target"), item("t2", queue="right")], acks)
        assert outcome.error == ""

    return transact


async def stages(store: Store) -> Callable[[], Operation]:
    await push(store, "a", "b", queue="left")
    await push(store, "x", queue="right")
    parts = [await stage(store, b"t1", queue="target", part="0"), await stage(store, b"t2", queue="right", part="1")]

    async def commit_both() -> None:
        assert (await commit(store, *parts)).messages == 2

    return commit_both


async def seek(store: Store) -> Callable[[], Operation]:
    await push(store, "a", "b", queue="left")
    await push(store, "x", queue="right")
    await take(store, 2, queue="left")

    async def to_the_end() -> None:
        assert await store.seek(DEFAULT_GROUP, "left", None, SeekTarget(to_end=True)) == 1

    return to_the_end


async def deletion(store: Store) -> Callable[[], Operation]:
    await push(store, "a", "b", queue="left")
    await push(store, "x", queue="right")
    await take(store, 1, queue="right")

    async def delete() -> None:
        assert await store.delete_queue("right")

    return delete


async def group(store: Store) -> Callable[[], Operation]:
    await push(store, "a", "b", queue="left")
    await push(store, "x", queue="right")

    async def begin_with_new_messages() -> None:
        assert not (await take(store, queue="left", group="late", subscription_mode="new")).messages

    return begin_with_new_messages


async def flow_on_left(store: Store) -> None:
    await push(store, "a", "b", queue="left")
    await push(store, "x", queue="right")
    await store.together(partial(flows.define, FLOW))


async def cutting(store: Store) -> Callable[[], Operation]:
    await flow_on_left(store)

    async def cut_in_two() -> None:
        assert (await store.together(partial(cut, FLOW.name, CutOptions(1)))).parcels == 2

    return cut_in_two


async def claiming(store: Store) -> Callable[[], Operation]:
    await flow_on_left(store)
    await store.together(partial(cut, FLOW.name, CutOptions(1)))

    async def claim() -> None:
        claimed = await store.together(partial(claim_from_database, NewLease("l", "worker", 60_000_000, 1), ["c"]))
        assert len(claimed.parcels) == 1

    return claim


async def completing(store: Store) -> Callable[[], Operation]:
    await flow_on_left(store)
    await store.together(partial(cut, FLOW.name, CutOptions(1)))
    claimed = await store.together(partial(claim_from_database, NewLease("l", "worker", 60_000_000, 1), ["c"]))
    staged = await stage(store, b"t1", queue="target", epoch="l")
    outcome = Outcome(claimed.parcels[0].did, "COMPLETE", output=("target", 1))
    request = CompleteRequest("l", [outcome], StagesOf("spark", "l"), [staged.stage_id])

    async def complete_with_its_rows() -> None:
        done = await store.together(partial(complete, request, 1, lambda *given: None), has_stages=True)
        assert done.completion.messages == 1

    return complete_with_its_rows


OPERATIONS = {one.__name__: one for one in (transaction, stages, seek, deletion, group, cutting, claiming, completing)}


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Points:
    def __init__(self, step: str) -> None:
        self._step = step
        self._passed = 0

    def arm(self, store: Store) -> None:
        if isinstance(store, EmbeddedStore):
            self._watch(CommitLog, "append_record", "record")
            self._watch(CommitLog, "append_columns", "record")
            self._watch(Database, "_commit", "commit")
            self._watch(store_thread, "_answer", "answer")
        else:
            self._watch_statements()

    def reach(self, name: str) -> None:
        self._passed += 1
        tell(name)
        if self._step == str(self._passed):
            die()

    def _watch(self, owner: Any, method: str, name: str) -> None:
        original = getattr(owner, method)

        def watched(*given: Any, **options: Any) -> Any:
            self.reach(f"before {name}")
            result = original(*given, **options)
            self.reach(f"after {name}")
            return result

        setattr(owner, method, watched)

    def _watch_statements(self) -> None:
        original = psycopg.AsyncConnection.execute

        async def watched(connection: Any, statement: bytes, *given: Any, **options: Any) -> Any:
            self.reach(f"before {statement.split()[0].decode()}")
            if statement == b"COMMIT" and self._step == "sent":
                connection.pgconn.send_query(statement)
                while connection.pgconn.flush():
                    pass
                die()
            return await original(connection, statement, *given, **options)

        setattr(psycopg.AsyncConnection, "execute", watched)  # noqa: B010 -- a method, as mypy sees it


async def main(where: str, operation: str, step: str) -> None:
    clock = FakeClock()
    store: Store = PostgresStore(where, clock=clock) if "://" in where else EmbeddedStore(where, clock=clock)
    await store.open(lambda queue, count: None)
    work = await OPERATIONS[operation](store)
    points = Points(step)
    points.arm(store)
    await work()
    points.reach("before told")
    tell("done")
    die()


def serve() -> None:
    """What takes long, the imports, is done once; each process is a fork."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            asyncio.run(main(*line.split()))
        _, status = os.waitpid(child, 0)
        tell(f"exit {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    serve()
