"""The store on PostgreSQL where a double would prove nothing: several servers, late commits, restarts and kill -9."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import psycopg
import pytest

from fixtures.store_steps import configure, finish, ids, item, push, take
from fixtures.waiting import until
from forebay.broker.messages import PopRequest
from forebay.broker.store import Store
from forebay.broker.stores.postgres import PostgresStore
from forebay.broker.stores.postgres.connections import Connection, Database
from forebay.errors import StoreUnavailable
from forebay.model.queue import QueueOptions
from forebay.testing.servers import PostgresServer

pytestmark = pytest.mark.asyncio
SECONDS_MAX = 60
T = TypeVar("T")


class Bell:
    """Rings when the store tells of messages."""

    def __init__(self) -> None:
        self.rung = asyncio.Event()
        self.calls: list[tuple[str, int]] = []

    def __call__(self, queue: str, count: int) -> None:
        self.calls.append((queue, count))
        self.rung.set()


@contextlib.asynccontextmanager
async def servers(url: str, count: int) -> AsyncIterator[list[PostgresStore]]:
    """Stores that share nothing but the database."""
    stores = [PostgresStore(url) for _ in range(count)]
    for store in stores:
        await store.open(Bell())
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


async def drain(store: Store, seen: list[str], expected: int, group: str) -> None:
    while len(seen) < expected:
        popped = await store.pop(PopRequest(queue="orders", group=group, batch=9, partitions=2))
        seen.extend(ids(popped))
        await finish(store, popped, group=group)


async def test_two_servers_deliver_every_message_exactly_once_per_group(postgres_database: str) -> None:
    partitions, per_partition = 8, 30

    async def produce(store: Store, partition: int) -> None:
        for n in range(0, per_partition, 3):
            await push(store, *[f"{partition}:{n + k}" for k in range(3)], partition=str(partition))

    async with servers(postgres_database, 2) as both:
        seen: dict[str, list[str]] = {"one": [], "two": []}
        total = partitions * per_partition
        consumers = [drain(store, seen[group], total, group) for group in seen for store in both for _ in range(3)]
        producers = [produce(both[partition % 2], partition) for partition in range(partitions)]
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.gather(*producers, *consumers)
        for got in seen.values():
            assert len(got) == len(set(got)) == total
            for partition in range(partitions):
                own = [text for text in got if text.startswith(f"{partition}:")]
                assert own == [f"{partition}:{n}" for n in range(per_partition)]


@pytest.mark.slow
async def test_reader_never_skips_a_late_committer(postgres_database: str) -> None:
    writers, pushes = 8, 25
    chance = random.Random(7)
    is_done = asyncio.Event()

    async def write(store: Store, writer: int) -> None:
        for n in range(pushes):
            # Of one and of many, alone and with another queue, so that commits take long and short.
            size = chance.choice([1, 1, 3, 60])
            items = [item(f"{writer}:{n}:{k}", f"p{chance.randrange(5)}") for k in range(size)]
            await store.push([*items, *[item(f"x{writer}:{n}", queue=f"q{writer % 3}")][: chance.randrange(2)]])

    async def read(store: Store) -> list[int]:
        """A reader with a cursor: it never looks back."""
        seqs: list[int] = []
        while True:
            was_done = is_done.is_set()
            found = await store.read("orders", seqs[-1] + 1 if seqs else 1, 1_000)
            seqs += [message.seq for message in found]
            if was_done and not found:
                return seqs

    async with servers(postgres_database, 4) as stores:
        await push(stores[0], "first")
        readers = [asyncio.create_task(read(store)) for store in stores[:2]]
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.gather(*[write(stores[writer % 4], writer) for writer in range(writers)])
            is_done.set()
            for seqs in await asyncio.gather(*readers):
                assert seqs == list(range(1, seqs[-1] + 1))
                assert len(seqs) > writers * pushes


async def test_notice_from_another_server_arrives_within_100_ms(postgres_database: str) -> None:
    pushing, waiting = PostgresStore(postgres_database), PostgresStore(postgres_database)
    bell = Bell()
    await pushing.open(Bell())
    await waiting.open(bell)
    try:
        await waiting._notices.is_listening.wait()
        assert ids(await take(waiting)) == []  # it waits now, for a queue that does not exist yet
        seconds = []
        for n in range(10):
            bell.rung.clear()
            start = time.monotonic()
            await push(pushing, f"m{n}", f"n{n}")
            await asyncio.wait_for(bell.rung.wait(), SECONDS_MAX)
            seconds.append(time.monotonic() - start)
            assert ids(await take(waiting, auto_ack=True)) == [f"m{n}", f"n{n}"]
        assert sorted(seconds)[5] < 0.1, seconds
        assert bell.calls == [("orders", 2)] * 10
    finally:
        await pushing.close()
        await waiting.close()


async def test_nobody_is_told_of_queues_that_nobody_waits_for(postgres_database: str) -> None:
    pushing, waiting = PostgresStore(postgres_database), PostgresStore(postgres_database)
    bell = Bell()
    await pushing.open(Bell())
    await waiting.open(bell)
    try:
        await waiting._notices.is_listening.wait()
        await take(waiting, queue="awaited")
        await push(pushing, "a", queue="other")
        assert not pushing._notices._outgoing
        await push(pushing, "b", queue="awaited")
        await asyncio.wait_for(bell.rung.wait(), SECONDS_MAX)
        assert bell.calls == [("awaited", 1)]
    finally:
        await pushing.close()
        await waiting.close()


async def test_store_says_that_postgres_is_away_and_comes_back_by_itself(postgres_server: PostgresServer) -> None:
    async with servers(postgres_server.url, 1) as [store]:
        await push(store, "a")
        await asyncio.to_thread(postgres_server.stop)
        assert not await store.is_healthy()
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await push(store, "b")
        with pytest.raises(StoreUnavailable):
            await take(store)
        await asyncio.to_thread(postgres_server.start)
        assert await store.is_healthy()
        assert [one.seq for one in await push(store, "b")] == [2]
        assert ids(await take(store)) == ["a", "b"]
        await asyncio.wait_for(store._notices.is_listening.wait(), SECONDS_MAX)


async def test_store_does_not_open_without_postgres(postgres_server: PostgresServer) -> None:
    await asyncio.to_thread(postgres_server.stop)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await PostgresStore(postgres_server.url).open(Bell())


@pytest.mark.slow
async def test_hung_postgres_fails_requests_in_time_and_loses_nothing(postgres_server: PostgresServer) -> None:
    store = PostgresStore(postgres_server.url, request_seconds_max=1)
    await store.open(Bell())
    try:
        await push(store, "a")
        await asyncio.to_thread(postgres_server.pause)
        start = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await push(store, "b")
        assert time.monotonic() - start < 10  # the time of one request, and of connecting
        await asyncio.to_thread(postgres_server.resume)
        assert {one.status for one in await _insist(lambda: push(store, "b"))} <= {"queued", "duplicate"}
        assert ids(await _insist(lambda: take(store))) == ["a", "b"]
    finally:
        await store.close()


@pytest.mark.slow
async def test_postgres_that_hangs_while_a_connection_is_made_for_known_pushes_holds_nobody_up(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = Database.connection_for_pushes
    is_paused = asyncio.Event()

    async def hang(self: Database) -> Connection:
        monkeypatch.setattr(Database, "connection_for_pushes", connect)
        postgres_server.pause()
        is_paused.set()
        return await connect(self)

    monkeypatch.setattr(Database, "connection_for_pushes", hang)
    store = PostgresStore(postgres_server.url, request_seconds_max=1)
    await store.open(Bell())
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await push(store, "a")
            await is_paused.wait()
            with pytest.raises(StoreUnavailable):
                await push(store, "b")
            await asyncio.to_thread(postgres_server.resume)
            assert {one.status for one in await _insist(lambda: push(store, "b"))} <= {"queued", "duplicate"}
            while store._pushes._stream is None:
                # Behind a group that was written the connection is tried again.
                await push(store, "x", queue="others")
                await asyncio.sleep(0.01)
            assert [one.status for one in await push(store, "c")] == ["queued"]
        assert ids(await take(store)) == ["a", "b", "c"]
    finally:
        await asyncio.to_thread(postgres_server.resume)
        await store.close()


async def _insist(request: Callable[[], Awaitable[T]]) -> T:
    """Ask until the store answers."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                return await request()
            except StoreUnavailable:
                await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fast", "immediate", "kill"])
async def test_restart_under_load_loses_nothing_that_was_acknowledged(
    postgres_server: PostgresServer, mode: str
) -> None:
    acknowledged: list[str] = []
    delivered: list[str] = []
    is_over = asyncio.Event()

    async def produce(store: Store, partition: int) -> None:
        number = 0
        while not is_over.is_set():
            texts = [f"{partition}:{number + k}" for k in range(4)]
            await _insist(partial(push, store, *texts, partition=str(partition)))
            acknowledged.extend(texts)
            number += 4

    async def consume(store: Store) -> None:
        while not is_over.is_set() or (await _insist(store.groups))[0].lag_messages:
            popped = await _insist(lambda: take(store, 10, partitions=2))
            delivered.extend(ids(popped))
            with contextlib.suppress(AssertionError):  # the crash undid the lease: the batch comes again
                await _insist(partial(finish, store, popped))

    async with servers(postgres_server.url, 2) as stores:
        await configure(stores[0], QueueOptions(lease_seconds=1, retry_limit=1_000))
        load = [asyncio.create_task(produce(stores[n % 2], n)) for n in range(4)]
        load += [asyncio.create_task(consume(store)) for store in stores]
        async with asyncio.timeout(SECONDS_MAX):
            for _ in range(3):
                goal = len(acknowledged) + 60
                await until(lambda goal=goal: len(acknowledged) >= goal)  # type: ignore[misc]
                await asyncio.to_thread(postgres_server.restart, mode)
            goal = len(acknowledged) + 60
            await until(lambda: len(acknowledged) >= goal)
            is_over.set()
            await asyncio.gather(*load)
        stored = ids(await stores[0].read("orders", 1, 100_000))
        assert len(stored) == len(set(stored))
        assert set(stored) == set(acknowledged) == set(delivered)
        for partition in range(4):
            own = [int(text.partition(":")[2]) for text in stored if text.startswith(f"{partition}:")]
            assert own == list(range(len(own)))
            firsts = list(dict.fromkeys(text for text in delivered if text.startswith(f"{partition}:")))
            assert firsts == [f"{partition}:{n}" for n in range(len(own))]


@pytest.mark.slow
async def test_kill_9_of_a_server_loses_nothing_that_was_acknowledged(postgres_database: str) -> None:
    chance = random.Random(3)
    pushed: dict[str, int] = {}
    finished: list[str] = []
    kills = 6
    async with servers(postgres_database, 1) as [store]:
        await configure(store, QueueOptions(lease_seconds=1, retry_limit=1_000))
        for run in range(kills):
            lines = await asyncio.to_thread(run_until_killed, postgres_database, run, chance.randint(20, 200))
            pushed |= {name: int(seq) for word, name, *seqs in lines for seq in seqs if word == "pushed"}
            finished += [name for word, name, *_ in lines if word == "finished"]
        left: list[str] = []
        async with asyncio.timeout(SECONDS_MAX):
            while (await store.groups())[0].lag_messages:
                popped = await take(store, 50, partitions=9)
                left += ids(popped)
                await finish(store, popped)
        # Now, and not before: the database may have finished a commit of the killed process after its end.
        messages = await store.read("orders", 1, 100_000)
        stored = {message.transaction_id: message.seq for message in messages}
        assert pushed.items() <= stored.items()
        assert [message.seq for message in messages] == list(range(1, len(messages) + 1))
        assert len(finished) == len(set(finished))
        assert set(finished).isdisjoint(left)
        # What is in neither was acked and the process killed before it could say so: one batch per consumer and kill.
        assert len(stored) - len(finished) - len(left) <= kills * 2 * 4
        for name in ("0", "1", "2"):
            own = [n for n in left if n.split(":")[1] == name]
            assert own == sorted(own, key=stored.__getitem__)


def run_until_killed(url: str, run: int, lines_min: int) -> list[list[str]]:
    program = Path(__file__).with_name("postgres_store_process.py")
    with subprocess.Popen(
        [sys.executable, str(program), url, f"run{run}"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        lines = [process.stdout.readline() for _ in range(lines_min)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    return [line.split() for line in lines if line.endswith("\n")]


@pytest.mark.parametrize("fault", ["read-only", "no rights"])
async def test_database_that_refuses_to_be_migrated_is_away_and_no_bug(postgres_database: str, fault: str) -> None:
    name = postgres_database.rpartition("/")[2]
    role, url = f"clerk_{name}", postgres_database
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        if fault == "read-only":
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        else:
            connection.execute(f"CREATE ROLE {role} LOGIN")
            url = urlsplit(url)._replace(netloc=f"{role}@{urlsplit(url).netloc.rpartition('@')[2]}").geturl()
        store = PostgresStore(url)
        with pytest.raises(StoreUnavailable, match=r"read-only transaction|permission denied"):
            await store.open(Bell())
        await store.close()
        if fault == "read-only":
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
        else:
            connection.execute(f"GRANT CREATE ON DATABASE {name} TO {role}")
    store = PostgresStore(url)
    await store.open(Bell())
    await push(store, "a")
    await store.close()
    if fault == "no rights":
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {role} CASCADE")
            connection.execute(f"DROP ROLE {role}")
