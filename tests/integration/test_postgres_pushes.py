"""Pushes on PostgreSQL when their connection breaks, their commit is not answered, or others change what they know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence

import psycopg
import pytest
import pytest_asyncio

from fixtures.postgres_stores import Session, blocked, opened
from fixtures.store_steps import finish, ids, item, push, take
from fixtures.tcp_proxy import TcpProxy
from fixtures.waiting import until
from forebay.broker.stores.postgres import PostgresStore
from forebay.broker.stores.postgres.attempts import CommitUnknown
from forebay.broker.stores.postgres.connections import Database, Row
from forebay.broker.stores.postgres.one_trip_push import OneTripPush
from forebay.broker.stores.postgres.push_batcher import OVERLAP_BYTES_MIN
from forebay.broker.stores.postgres.push_lookups import PushLookups, Requests, Settled
from forebay.broker.stores.postgres.queries import Statement, prepared, query
from forebay.broker.stores.postgres.transaction_stream import Packed, Then, TransactionStream, packed
from forebay.errors import QueueFull, StoreUnavailable
from forebay.model.push_run import run_of_one
from forebay.model.queue import QueueOptions

pytestmark = pytest.mark.asyncio
SECONDS_MAX = 30


@pytest_asyncio.fixture
async def store(postgres_database: str) -> AsyncIterator[PostgresStore]:
    """A store whose requests may take a second."""
    async with opened(postgres_database, request_seconds_max=1) as store:
        yield store


@pytest.fixture
def other(postgres_database: str) -> Iterator[Session]:
    """Somebody else in the same database."""
    with psycopg.connect(postgres_database) as session:
        yield session


@pytest.fixture
def watcher(postgres_database: str) -> Iterator[Session]:
    with psycopg.connect(postgres_database, autocommit=True) as session:
        yield session


def hold_commits(watcher: Session, table: str, change: str) -> None:
    """Let commits of such a change wait for advisory lock 1: deferred triggers run in COMMIT."""
    watcher.execute(
        "CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$"
    )
    watcher.execute(
        f"CREATE CONSTRAINT TRIGGER hold AFTER {change} ON forebay.{table} DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION public.hold()".encode()
    )


async def test_push_whose_commit_is_not_answered_in_time_is_unknown(
    store: PostgresStore, other: Session, watcher: Session
) -> None:
    await push(store, "a")
    await is_streaming(store)
    hold_commits(watcher, "messages", "INSERT")
    other.execute("SELECT pg_advisory_lock(1)")
    with pytest.raises(StoreUnavailable, match="unknown") as raised:
        await push(store, "b")
    assert raised.value.is_outcome_unknown
    other.execute("SELECT pg_advisory_unlock(1)")
    async with asyncio.timeout(SECONDS_MAX):
        assert {one.status for one in await push(store, "b")} <= {"queued", "duplicate"}
    assert ids(await take(store)) == ["a", "b"]


async def test_push_that_is_not_written_in_time_was_not_done(store: PostgresStore, other: Session) -> None:
    await push(store, "a")
    await is_streaming(store)
    other.execute("LOCK TABLE forebay.messages IN SHARE MODE")  # reading goes on, writing waits
    with pytest.raises(StoreUnavailable) as raised:
        await push(store, "b")
    assert not raised.value.is_outcome_unknown
    other.rollback()
    assert [one.status for one in await push(store, "b")] == ["queued"]


async def test_push_that_never_got_its_lock_was_not_done(store: PostgresStore, other: Session) -> None:
    await push(store, "a")
    await is_streaming(store)
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
    await is_streaming(store)
    other.execute("LOCK TABLE forebay.messages IN SHARE MODE")
    pushing = asyncio.create_task(push(store, "b", "c"))
    process = await blocked(watcher)
    other.execute("SELECT pg_terminate_backend(%s)", [process])
    other.rollback()
    assert [(one.status, one.seq) for one in await pushing] == [("queued", 2), ("queued", 3)]


async def test_push_goes_on_after_its_idle_connection_was_cut(store: PostgresStore, watcher: Session) -> None:
    await push(store, "a")
    await is_streaming(store)
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
    hold_commits(watcher, "deliveries", "UPDATE")
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
    await is_streaming(store)
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


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The texts of what is sent together, from now on; of a group that is looked up, none."""
    sent: list[list[bytes]] = []
    looked_up, send = PushLookups.write, TransactionStream.send

    async def written(self: PushLookups, requests: Requests) -> Settled:
        sent.append([])
        return await looked_up(self, requests)

    def streamed(self: TransactionStream, statements: Sequence[Packed], then: Then) -> None:
        sent.append([one.statement.text for one in statements])
        send(self, statements, then)

    monkeypatch.setattr(PushLookups, "write", written)
    monkeypatch.setattr(TransactionStream, "send", streamed)
    return sent


def is_known(texts: list[bytes]) -> bool:
    return prepared(query("push_write_known")).text in texts


async def is_streaming(store: PostgresStore) -> None:
    """Return when the store has its connection for known pushes."""
    await until(lambda: store._pushes._stream is not None)


async def test_push_to_partitions_that_are_known_takes_one_trip(store: PostgresStore, sent: list[list[bytes]]) -> None:
    await push(store, "a")
    await is_streaming(store)
    sent.clear()
    assert [one.seq for one in await push(store, "b", "c")] == [2, 3]
    [trip] = sent
    assert is_known(trip)


async def test_push_that_waited_for_another_server_counts_on_from_where_that_ended(
    store: PostgresStore, other: Session, watcher: Session
) -> None:
    """What the waiting statement saw before it waited is old by then."""
    await push(store, "a")
    await is_streaming(store)
    other.execute("UPDATE forebay.queues SET next_seq = next_seq + 5")
    other.execute("UPDATE forebay.partitions SET last_seq = last_seq + 5, last_position = last_position + 5")
    waiting = asyncio.create_task(push(store, "b", "c"))
    await blocked(watcher)
    other.commit()
    assert [one.seq for one in await waiting] == [7, 8]
    found = watcher.execute("SELECT transaction_id, seq, position FROM forebay.messages ORDER BY seq").fetchall()
    assert found == [("a", 1, 1), ("b", 7, 7), ("c", 8, 8)]
    assert watcher.execute("SELECT last_seq, last_position FROM forebay.partitions").fetchall() == [(8, 8)]


async def test_known_pushes_of_two_servers_leave_no_gap_and_meet_nowhere(
    store: PostgresStore, postgres_database: str, watcher: Session, sent: list[list[bytes]]
) -> None:
    second = PostgresStore(postgres_database)
    await second.open(lambda queue, count: None)
    places = [("orders", "p"), ("orders", "q"), ("bills", "p")]
    for one in (store, second):
        await asyncio.gather(*[one.push([run_of_one(*place, b"1", f"first {id(one)}")]) for place in places])
        await is_streaming(one)

    async def produce(one: PostgresStore, name: str) -> None:
        for number in range(40):
            items = [run_of_one(*place, b"1", f"{name} {number}") for place in places[number % 2 :]]
            alone = run_of_one(*places[number % 3], b"1", f"{name} {number} alone")
            await asyncio.gather(one.push([alone]), one.push(items))

    sent.clear()
    await asyncio.gather(*[produce(one, f"{id(one)} {lane}") for one in (store, second) for lane in range(4)])
    assert all(map(is_known, sent))
    await second.close()
    for of, count in (("queue_id", "seq"), ("partition_id", "position")):
        found = watcher.execute(
            f"SELECT count(*), count(DISTINCT {count}), min({count}), max({count}) "
            f"FROM forebay.messages GROUP BY {of}".encode()
        ).fetchall()
        assert all(total == distinct == last and first == 1 for total, distinct, first, last in found), (of, found)
    in_order = "SELECT bool_and(ok) FROM (SELECT seq > lag(seq, 1, 0::bigint) OVER w AS ok FROM forebay.messages"
    text = f"{in_order} WINDOW w AS (PARTITION BY partition_id ORDER BY position)) found"
    assert watcher.execute(text.encode()).fetchone() == (True,)


async def test_large_group_leaves_before_the_one_before_it_is_answered(
    store: PostgresStore, other: Session, watcher: Session, sent: list[list[bytes]]
) -> None:
    await push(store, "a")
    await is_streaming(store)
    other.execute("SELECT FROM forebay.queues FOR UPDATE")
    sent.clear()
    first = asyncio.create_task(push(store, "b"))
    await blocked(watcher)
    large = [run_of_one("orders", "Default", bytes(OVERLAP_BYTES_MIN), name) for name in ("c", "d")]
    second = asyncio.ensure_future(store.push(large))
    small = asyncio.create_task(push(store, "e"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert list(map(is_known, sent)) == [True, True]
    other.rollback()
    assert [one.seq for one in await first] == [2]
    assert [one.seq for one in await second] == [3, 4]
    assert [one.seq for one in await small] == [5]
    assert list(map(is_known, sent)) == [True, True, True]
    assert ids(await take(store)) == ["a", "b", "c", "d", "e"]


async def test_group_goes_on_that_stands_behind_one_which_is_refused(
    store: PostgresStore, other: Session, watcher: Session
) -> None:
    await push(store, "a")
    await is_streaming(store)
    other.execute("SELECT FROM forebay.queues FOR UPDATE")
    first = asyncio.create_task(push(store, "a", "b"))
    await blocked(watcher)
    second = asyncio.ensure_future(store.push([run_of_one("orders", "Default", bytes(OVERLAP_BYTES_MIN), "c")]))
    await asyncio.sleep(0)
    other.rollback()
    assert [one.status for one in await second] == ["queued"]
    assert [one.status for one in await first] == ["duplicate", "queued"]
    assert sorted(ids(await take(store))) == ["a", "b", "c"]


async def test_push_whose_connection_breaks_in_silence_is_unknown(postgres_database: str) -> None:
    async with TcpProxy(postgres_database) as proxy:
        store = PostgresStore(proxy.url)
        await store.open(lambda queue, count: None)
        await push(store, "a")
        await is_streaming(store)
        proxy.cut_after(b"SELECT 1")  # how the database says that all of it is written
        with pytest.raises(StoreUnavailable, match="unknown") as raised:
            await push(store, "b")
        assert raised.value.is_outcome_unknown
        assert [one.status for one in await push(store, "b")] == ["duplicate"]
        assert ids(await take(store)) == ["a", "b"]
        await store.close()


async def test_answer_that_cannot_be_read_is_told_and_those_behind_it_are_read(
    store: PostgresStore, other: Session, watcher: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    await push(store, "a")
    await is_streaming(store)
    decided = OneTripPush.decided
    monkeypatch.setattr(OneTripPush, "decided", lambda *_: 1 / 0)
    other.execute("SELECT FROM forebay.queues FOR UPDATE")
    first = asyncio.create_task(push(store, "b"))
    await blocked(watcher)
    second = asyncio.ensure_future(store.push([run_of_one("orders", "Default", bytes(OVERLAP_BYTES_MIN), "c")]))
    await asyncio.sleep(0)
    other.rollback()
    for one in (first, second):
        with pytest.raises(StoreUnavailable, match="could not be read") as raised:
            await one
        assert raised.value.is_outcome_unknown
    monkeypatch.setattr(OneTripPush, "decided", decided)
    assert [one.status for one in await push(store, "b", "c", "d")] == ["duplicate", "duplicate", "queued"]


async def test_large_group_is_written_again_when_the_commit_before_it_is_not_answered(
    store: PostgresStore, other: Session, watcher: Session
) -> None:
    await push(store, "a")
    await is_streaming(store)
    hold_commits(watcher, "messages", "INSERT")
    other.execute("SELECT pg_advisory_lock(1)")
    other.execute("SELECT FROM forebay.queues FOR UPDATE")
    first = asyncio.create_task(push(store, "b"))
    await blocked(watcher)
    second = asyncio.ensure_future(store.push([run_of_one("orders", "Default", bytes(OVERLAP_BYTES_MIN), "c")]))
    await asyncio.sleep(0)
    other.rollback()
    process = await blocked(watcher, "advisory")
    watcher.execute("SELECT pg_terminate_backend(%s)", [process])
    with pytest.raises(StoreUnavailable) as raised:
        await first
    assert raised.value.is_outcome_unknown
    other.execute("SELECT pg_advisory_unlock_all()")
    assert [one.status for one in await second] == ["queued"]
    assert ids(await take(store)) == ["a", "c"]


async def test_id_that_is_there_makes_a_known_push_look(store: PostgresStore, sent: list[list[bytes]]) -> None:
    await push(store, "a", "b")
    await is_streaming(store)
    sent.clear()
    pushed = await push(store, "b", "c")
    assert [(one.status, one.seq) for one in pushed] == [("duplicate", 2), ("queued", 3)]
    assert is_known(sent[0])
    sent.clear()
    assert [one.status for one in await push(store, "c", "d", "d")] == ["duplicate", "queued", "duplicate"]
    assert not any(map(is_known, sent))  # producers that repeat themselves do it more than once
    assert ids(await take(store)) == ["a", "b", "c", "d"]


async def test_queue_that_was_given_a_size_refuses_what_is_too_much(
    store: PostgresStore, postgres_database: str
) -> None:
    await push(store, "a")
    await is_streaming(store)
    elsewhere = PostgresStore(postgres_database)
    await elsewhere.open(lambda queue, count: None)
    try:
        await elsewhere.configure("orders", QueueOptions(max_size=2), "", "")
        with pytest.raises(QueueFull):
            await push(store, "b", "c")
        assert [one.seq for one in await push(store, "b")] == [2]
        await elsewhere.configure("orders", QueueOptions(), "", "")
        assert [one.seq for one in await push(store, "c")] == [3]
        assert [one.seq for one in await push(store, "d")] == [4]
    finally:
        await elsewhere.close()


async def test_two_servers_that_push_in_turn_to_what_both_know(store: PostgresStore, postgres_database: str) -> None:
    elsewhere = PostgresStore(postgres_database)
    await elsewhere.open(lambda queue, count: None)
    try:
        for number in range(6):
            pushed = await push((store, elsewhere)[number % 2], f"{number}")
            assert [one.seq for one in pushed] == [number + 1]
        assert [one.status for one in await push(elsewhere, "4")] == ["duplicate"]
        both = await asyncio.gather(
            *(push(one, f"{one is store}-{n}") for one in (store, elsewhere) for n in range(20))
        )
        assert sorted(one.seq for [one] in both) == list(range(7, 47))
        assert len(await store.read("orders", 0, 100)) == 46
    finally:
        await elsewhere.close()


async def test_value_that_cannot_be_sent_leaves_the_connection_in_order(store: PostgresStore) -> None:
    await push(store, "a")
    await is_streaming(store)
    with pytest.raises(UnicodeEncodeError):
        await store.push([item("b"), run_of_one("orders", "Default", b"", "\ud800")])
    assert [one.seq for one in await push(store, "c")] == [2]


@pytest_asyncio.fixture
async def stream(postgres_database: str) -> AsyncIterator[TransactionStream]:
    database = Database(postgres_database, request_seconds_max=SECONDS_MAX, push_seconds_max=1)
    connection = await database.connection_for_pushes()
    stream = TransactionStream(connection, asyncio.get_running_loop(), seconds_max=0.2)
    yield stream
    stream.close()
    await database.close()


async def outcome_of(stream: TransactionStream, *texts: bytes) -> list[list[Row]] | Exception:
    """Of one transaction."""
    came: asyncio.Future[list[list[Row]] | Exception] = asyncio.get_running_loop().create_future()
    stream.send(packed([Statement(text, {}) for text in texts]), came.set_result)
    async with asyncio.timeout(SECONDS_MAX):
        return await came


async def test_statement_after_one_that_failed_is_not_run_and_the_connection_goes_on(stream: TransactionStream) -> None:
    failing, make = b"SELECT 1 / (SELECT 0)", b"CREATE TABLE public.t (n bigint)"
    for _ in range(2):  # the second one was not prepared by the first transaction, whose end it did not see
        assert isinstance(await outcome_of(stream, failing, make), psycopg.errors.DivisionByZero)
    assert isinstance(await outcome_of(stream, b"SELECT nothing"), psycopg.errors.UndefinedColumn)
    assert isinstance(await outcome_of(stream, b"SELECT nothing"), psycopg.errors.UndefinedColumn)
    assert await outcome_of(stream, b"SELECT to_regclass('public.t') IS NULL") == [[(True,)]]
    assert await outcome_of(stream, make, b"SELECT to_regclass('public.t') IS NULL") == [[], [(False,)]]
    assert stream.is_alive()


async def test_transaction_that_is_not_answered_in_time_is_of_unknown_outcome(stream: TransactionStream) -> None:
    assert isinstance(await outcome_of(stream, b"SELECT pg_sleep(60)"), CommitUnknown)
    assert not stream.is_alive()
