"""Pushes on PostgreSQL when their connection breaks, their commit is not answered, or others change what they know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
import pytest_asyncio

from fixtures.store_steps import finish, ids, item, push, take
from forebay.broker.store import PushItem
from forebay.broker.stores.postgres import PostgresStore
from forebay.broker.stores.postgres.attempts import Unanswered
from forebay.broker.stores.postgres.connections import DURABLE
from forebay.broker.stores.postgres.queries import Statement
from forebay.broker.stores.postgres.wire import BEGIN, Wire
from forebay.errors import StoreUnavailable

pytestmark = pytest.mark.asyncio
SECONDS_MAX = 30
Session = psycopg.Connection[tuple[object, ...]]


@pytest_asyncio.fixture
async def store(postgres_database: str) -> AsyncIterator[PostgresStore]:
    """A store whose requests may take a second."""
    store = PostgresStore(postgres_database, request_seconds_max=1)
    await store.open(lambda queue, count: None)
    yield store
    await store.close()


@pytest.fixture
def other(postgres_database: str) -> Iterator[Session]:
    """Somebody else in the same database."""
    with psycopg.connect(postgres_database) as session:
        yield session


@pytest.fixture
def watcher(postgres_database: str) -> Iterator[Session]:
    with psycopg.connect(postgres_database, autocommit=True) as session:
        yield session


async def blocked(watcher: Session) -> int:
    """The process of a session that waits for a lock, as soon as there is one."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            found = watcher.execute("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()
            if found:
                return int(str(found[0]))
            await asyncio.sleep(0.005)


async def test_push_whose_commit_is_not_answered_in_time_is_unknown(store: PostgresStore, other: Session) -> None:
    await push(store, "a")
    other.execute("LOCK TABLE forebay.messages IN SHARE MODE")  # reading goes on, writing waits
    with pytest.raises(StoreUnavailable, match="unknown") as raised:
        await push(store, "b")
    assert raised.value.is_outcome_unknown
    other.rollback()
    async with asyncio.timeout(SECONDS_MAX):
        assert {one.status for one in await push(store, "b")} <= {"queued", "duplicate"}
    assert ids(await take(store)) == ["a", "b"]


async def test_push_that_never_got_its_lock_was_not_done(store: PostgresStore, other: Session) -> None:
    await push(store, "a")
    other.execute("SELECT FROM forebay.queues FOR UPDATE")
    start = time.monotonic()
    with pytest.raises(StoreUnavailable) as raised:
        await push(store, "b")
    assert not raised.value.is_outcome_unknown
    assert time.monotonic() - start < SECONDS_MAX
    other.rollback()
    assert [one.status for one in await push(store, "b")] == ["queued"]


async def test_push_is_repeated_when_its_connection_breaks_before_the_commit(
    store: PostgresStore, other: Session, watcher: Session
) -> None:
    await push(store, "a")
    other.execute("LOCK TABLE forebay.messages IN SHARE MODE")
    pushing = asyncio.create_task(push(store, "b", "c"))
    process = await blocked(watcher)
    other.execute("SELECT pg_terminate_backend(%s)", [process])
    other.rollback()
    assert [(one.status, one.seq) for one in await pushing] == [("queued", 2), ("queued", 3)]


async def test_push_goes_on_after_its_idle_connection_was_cut(store: PostgresStore, watcher: Session) -> None:
    await push(store, "a")
    watcher.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'forebay'")
    assert [one.seq for one in await push(store, "b")] == [2]


async def test_push_leaves_a_connection_to_a_server_that_only_reads(store: PostgresStore, watcher: Session) -> None:
    name = watcher.info.dbname
    watcher.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
    with pytest.raises(StoreUnavailable, match="read-only"):
        await push(store, "a", queue="fresh")
    watcher.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'.encode())
    assert [one.seq for one in await push(store, "a", queue="fresh")] == [1]


async def test_work_is_not_repeated_after_a_commit_without_an_answer(
    store: PostgresStore, other: Session, watcher: Session
) -> None:
    await push(store, "a")
    popped = await take(store)
    watcher.execute(
        "CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$"
    )
    watcher.execute(
        "CREATE CONSTRAINT TRIGGER hold AFTER UPDATE ON forebay.deliveries DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION public.hold()"
    )
    other.execute("SELECT pg_advisory_lock(1)")
    acking = asyncio.create_task(finish(store, popped))
    process = await blocked(watcher)  # in COMMIT, where deferred triggers run
    watcher.execute("SELECT pg_terminate_backend(%s)", [process])
    with pytest.raises(StoreUnavailable, match="unknown") as raised:
        await acking
    assert raised.value.is_outcome_unknown


async def test_partition_numbers_of_a_deleted_queue_are_not_trusted(
    store: PostgresStore, postgres_database: str
) -> None:
    await push(store, "x", "a")
    elsewhere = PostgresStore(postgres_database)
    await elsewhere.open(lambda queue, count: None)
    try:
        await elsewhere.delete_queue("orders")
        await push(elsewhere, "a")
        [again, new] = await push(store, "a", "x")
        assert [(again.status, again.seq), (new.status, new.seq)] == [("duplicate", 1), ("queued", 2)]
        await elsewhere.delete_queue("orders")
        assert [(one.status, one.seq) for one in await push(store, "a")] == [("queued", 1)]
    finally:
        await elsewhere.close()


async def test_push_to_partitions_that_are_known_takes_two_trips(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips: list[int] = []
    exchange = Wire.exchange

    def counted(self: Wire, statements: list[Statement], deadline: float) -> list[list[tuple[object, ...]]]:
        trips.append(len(statements))
        return exchange(self, statements, deadline)

    for name in ("a", "b"):
        await push(store, name)
    monkeypatch.setattr(Wire, "exchange", counted)
    await push(store, "c", "d")
    assert trips == [4, 2]


async def test_value_that_cannot_be_sent_leaves_the_connection_in_order(store: PostgresStore) -> None:
    await push(store, "a")
    with pytest.raises(UnicodeEncodeError):
        await store.push([item("b"), PushItem("orders", "Default", b"", "\ud800")])
    assert [one.seq for one in await push(store, "c")] == [2]


async def test_statement_after_one_that_failed_is_not_run(postgres_database: str) -> None:
    wire = Wire(postgres_database, DURABLE)
    deadline = time.monotonic() + SECONDS_MAX
    make = Statement(b"CREATE TABLE public.t (n bigint)", {})
    try:
        with pytest.raises(psycopg.errors.DivisionByZero):
            wire.exchange([BEGIN, Statement(b"SELECT 1 / 0", {}), make], deadline)
        wire.roll_back()
        [found] = wire.exchange([Statement(b"SELECT to_regclass('public.t') IS NULL", {})], deadline)
        assert found == [(True,)]
    finally:
        wire.close()


async def test_wire_answers_nothing_when_time_is_up(postgres_database: str) -> None:
    wire = Wire(postgres_database, DURABLE)
    with pytest.raises(Unanswered, match="no answer in time"):
        wire.exchange([Statement(b"SELECT pg_sleep(60)", {})], time.monotonic() + 0.05)
    assert not wire.is_usable
