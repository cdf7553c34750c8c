"""Removing on PostgreSQL: old traces, what retention no longer keeps, and what deleted queues held, in small pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import psycopg
import pytest
import pytest_asyncio

from fixtures.postgres_stores import Session, blocked, opened
from fixtures.store_steps import configure, finish, ids, item, push, take
from fixtures.waiting import until_told
from forebay.broker.delivery import DEAD
from forebay.broker.messages import PopRequest
from forebay.broker.overview import DeadLetterFilter, TraceEvent
from forebay.broker.stores.postgres import PostgresStore, purging
from forebay.broker.stores.postgres.connections import DELIVERY, Connection, Row, rows
from forebay.broker.stores.postgres.limits import PostgresLimits
from forebay.broker.stores.postgres.queries import prepared, query
from forebay.errors import StoreUnavailable
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio
SECONDS_MAX = 60
TABLES = ("messages", "deleted_messages", "dead_letters", "traces", "deliveries", "groups", "partitions", "queues")


@pytest_asyncio.fixture
async def store(postgres_database: str, clock: FakeClock, limits: PostgresLimits) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_database, clock=clock, limits=limits) as store:
        yield store


@pytest.fixture
def other(postgres_database: str, store: PostgresStore) -> Iterator[Session]:
    """Somebody else in the same database."""
    with psycopg.connect(postgres_database, autocommit=True) as session:
        yield session


def note_removals(session: Session) -> None:
    """Let the database write down how many rows every statement removes from each table."""
    session.execute("CREATE TABLE forebay.removals (source text, count bigint)")
    session.execute(
        "CREATE FUNCTION forebay.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO forebay.removals SELECT TG_TABLE_NAME, count(*) FROM gone; RETURN NULL; END $$"
    )
    for table in TABLES:
        session.execute(
            f"CREATE TRIGGER noted AFTER DELETE ON forebay.{table} REFERENCING OLD TABLE AS gone "
            "FOR EACH STATEMENT EXECUTE FUNCTION forebay.note()".encode()
        )


def most_removed(session: Session) -> dict[object, object]:
    """Of each table, the most that one statement removed."""
    return dict(session.execute("SELECT source, max(count) FROM forebay.removals GROUP BY source").fetchall())  # type: ignore[arg-type]  # two columns


def left(session: Session) -> dict[str, object]:
    """How many rows there are in the tables that are not empty."""
    counts = {table: session.execute(f"SELECT count(*) FROM forebay.{table}".encode()).fetchone() for table in TABLES}
    return {table: count[0] for table, count in counts.items() if count is not None and count[0]}


def note_events(session: Session, count: int, *, from_us: int) -> None:
    """So many events about a message of the first partition, one per microsecond."""
    session.execute(
        "INSERT INTO forebay.traces (partition_id, transaction_id, group_name, event_type, names, data, created_us) "
        "SELECT min(partition_id), 'a', 'g', 'info', '{}', '', number FROM forebay.partitions, "
        "generate_series(%s::bigint, %s::bigint) AS number GROUP BY number",
        [from_us, from_us + count - 1],
    )


async def test_old_traces_that_another_server_is_removing_are_passed_over(
    store: PostgresStore, other: Session, clock: FakeClock
) -> None:
    await push(store, "a")
    note_events(other, 2_500, from_us=clock.now_us())
    clock.advance(10)
    with other.transaction():
        other.execute(
            "DELETE FROM forebay.traces WHERE created_us < (SELECT min(created_us) + 500 FROM forebay.traces)"
        )
        async with asyncio.timeout(SECONDS_MAX):
            assert await store.expire_traces(5) == 2_000
    assert left(other).get("traces") is None


async def test_event_of_a_server_whose_clock_runs_ahead_keeps_no_older_one(
    store: PostgresStore, clock: FakeClock
) -> None:
    [pushed] = await push(store, "a")
    times = [clock.now_us() + 3_600_000_000, clock.now_us()]
    events = [TraceEvent(pushed.partition_id, "a", "g", "info", (), b"", us) for us in times]
    for event in events:
        await store.add_trace(event)
    clock.advance(10)
    assert await store.expire_traces(5) == 1
    assert await store.traces(pushed.partition_id, "a") == events[:1]


async def test_old_traces_are_looked_for_in_an_index_by_time(
    store: PostgresStore, postgres_database: str, other: Session
) -> None:
    await push(store, "a")
    note_events(other, 5_000, from_us=1)
    other.execute("ANALYZE forebay.traces")
    text = prepared(query("traces_expire"))
    assert text.parameters == ("now_us", "kept_us")
    options = " ".join(f"-c {name}={value}" for name, value in DELIVERY.items())
    with psycopg.connect(postgres_database, options=options) as session:
        session.execute(b"PREPARE expiring AS " + text.text)
        plan = str(session.execute("EXPLAIN EXECUTE expiring (NULL, 1)").fetchall())
    assert "Index Scan using traces_by_time" in plan
    assert "Sort" not in plan


@pytest.mark.parametrize("limits", [PostgresLimits(removed_rows_max=20)])
async def test_retention_of_what_is_finished_reads_each_message_a_few_times_and_not_with_every_piece(
    store: PostgresStore, other: Session, clock: FakeClock
) -> None:
    count = 3_000
    await configure(store, QueueOptions(completed_retention_seconds=60))
    await store.push([item(str(n)) for n in range(count)])
    await take(store, count, auto_ack=True)
    clock.advance(100)
    before = await messages_read(other)
    assert await store.apply_retention() == count
    await store.close()  # a connection that ends tells what it has read

    async def has_told() -> bool:
        return await messages_read(other) >= before + count

    await until_told(has_told)
    assert await messages_read(other) - before < 10 * count


async def messages_read(session: Session) -> int:
    [read] = session.execute(
        "SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE schemaname = 'forebay' AND relname = 'messages'"
    ).fetchone() or [0]
    return int(str(read))


async def test_retention_that_finds_nothing_finished_waits_for_nobody_and_holds_nobody_up(
    store: PostgresStore, other: Session, clock: FakeClock
) -> None:
    await configure(store, QueueOptions(completed_retention_seconds=60))
    await push(store, "a")
    await take(store)
    clock.advance(100)
    with other.transaction():
        other.execute("SELECT FROM forebay.queues FOR UPDATE")
        async with asyncio.timeout(SECONDS_MAX):
            assert await store.apply_retention() == 0


@pytest.mark.parametrize("limits", [PostgresLimits(removed_rows_max=70)])
async def test_retention_removes_what_all_groups_have_finished_in_any_number_of_partitions(
    store: PostgresStore, clock: FakeClock
) -> None:
    await configure(store, QueueOptions(completed_retention_seconds=60))
    names = [f"p{number:04}" for number in range(1_203)]
    await store.push([item(f"{name}:{n}", name) for name in names for n in range(2)])
    for group in ("slow", "fast"):
        await store.pop(PopRequest("orders", group=group, batch=5_000, partitions=5_000, auto_ack=True))
    clock.advance(100)
    await store.push([item(f"{name}:2", name) for name in names[::2]])
    await store.pop(PopRequest("orders", group="fast", batch=5_000, partitions=5_000, auto_ack=True))
    assert await store.apply_retention() == 2 * len(names)
    assert ids(await store.read("orders", 1, 5_000)) == [f"{name}:2" for name in names[::2]]
    clock.advance(100)
    assert await store.apply_retention() == 0  # the slow group has not seen them
    await store.pop(PopRequest("orders", group="slow", batch=5_000, partitions=5_000, auto_ack=True))
    assert await store.apply_retention() == len(names[::2])


@pytest.mark.parametrize(
    "options",
    [QueueOptions(retention_seconds=60), QueueOptions(completed_retention_seconds=60)],
    ids=["old", "finished"],
)
@pytest.mark.parametrize("limits", [PostgresLimits(removed_bytes_max=100)])
async def test_retention_removes_a_bounded_number_of_bytes_at_a_time(
    store: PostgresStore, other: Session, clock: FakeClock, options: QueueOptions
) -> None:
    note_removals(other)
    await configure(store, options)
    await store.push([item(f"m{n}", f"p{n % 2}", payload=b"x" * 60) for n in range(9)])
    await take(store, partitions=2, auto_ack=True)
    clock.advance(100)
    assert await store.apply_retention() == 9
    assert most_removed(other) == {"messages": 2, "deleted_messages": 0}


async def fill_queue(store: PostgresStore, partitions: int) -> None:
    """A queue with a message, a dead letter and a delivery in each partition, and something in every other table."""
    names = [f"p{number:04}" for number in range(partitions)]
    await store.push([item(f"{name}:{n}", name, payload=b"x" * 60) for n in range(2) for name in names])
    wanted = PopRequest("orders", batch=partitions, partitions=partitions)
    await finish(store, await store.pop(wanted), DEAD)
    first, *_ = await store.read("orders", partitions + 1, 1)
    for number in range(3):
        event = TraceEvent(first.partition_id, first.transaction_id, "g", "info", ("name",), b"%d" % number, 1)
        await store.add_trace(event)
    await store.delete_message(first.partition_id, first.transaction_id)


async def test_deleted_queue_is_removed_in_pieces(store: PostgresStore, other: Session) -> None:
    await fill_queue(store, 1_203)
    assert sorted(left(other)) == sorted(TABLES)
    note_removals(other)
    assert await store.delete_queue("orders")
    assert left(other) == {}
    most = most_removed(other)
    assert (most["messages"], most["deliveries"], most["partitions"]) == (2_000, 500, 500)


@pytest.mark.parametrize("limits", [PostgresLimits(removed_rows_max=4)])
async def test_what_refers_to_partitions_of_a_deleted_queue_is_removed_in_pieces_too(
    store: PostgresStore, other: Session
) -> None:
    await fill_queue(store, 10)
    note_removals(other)
    assert await store.delete_queue("orders")
    assert left(other) == {}
    most = most_removed(other)
    assert (most["messages"], most["dead_letters"], most["deliveries"]) == (4, 4, 4)


@pytest.mark.parametrize("limits", [PostgresLimits(removed_bytes_max=100)])
async def test_large_payloads_of_a_deleted_queue_are_removed_a_few_at_a_time(
    store: PostgresStore, other: Session
) -> None:
    await fill_queue(store, 7)
    note_removals(other)
    assert await store.delete_queue("orders")
    assert left(other) == {}
    assert (most_removed(other)["messages"], most_removed(other)["dead_letters"]) == (2, 2)


@pytest.mark.parametrize("limits", [PostgresLimits(letters_bytes_max=100)])
async def test_large_dead_letters_are_purged_a_few_at_a_time(store: PostgresStore, other: Session) -> None:
    await fill_queue(store, 7)
    note_removals(other)
    assert await store.purge_dead_letters(DeadLetterFilter()) == 7
    assert most_removed(other) == {"dead_letters": 2}


def after_removing(monkeypatch: pytest.MonkeyPatch, name: str, step: Callable[[], Awaitable[object]]) -> None:
    """Do something, once, after a query of a purge and before its transaction ends."""

    async def asked(connection: Connection, text: bytes, values: dict[str, object] | None = None) -> list[Row]:
        found = await rows(connection, text, values)
        if text == query(name):
            monkeypatch.setattr(purging, "rows", rows)
            await step()
        return found

    monkeypatch.setattr(purging, "rows", asked)


@pytest.mark.parametrize("limits", [PostgresLimits(removed_rows_max=5)])
async def test_server_that_waited_for_the_piece_of_another_one_removes_the_rest(
    store: PostgresStore,
    postgres_database: str,
    limits: PostgresLimits,
    other: Session,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one is killed after its piece: nobody else would come back for the rest."""
    await fill_queue(store, 20)
    killed = PostgresStore(postgres_database, limits=limits)
    await killed.open(lambda queue, count: None)
    waiting: list[asyncio.Task[int]] = []

    async def start_waiting() -> None:
        waiting.append(asyncio.create_task(store.apply_retention()))
        await blocked(other)
        monkeypatch.setattr(killed._database, "run", refuse)

    async def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("it was killed")

    after_removing(monkeypatch, "purge_messages", start_waiting)
    async with asyncio.timeout(SECONDS_MAX):
        with pytest.raises(StoreUnavailable, match="killed"):
            await killed.delete_queue("orders")
        await waiting[0]
    await killed.close()
    assert left(other) == {}


async def test_delivery_of_a_pop_that_began_before_the_deletion_is_removed_too(
    store: PostgresStore, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    await push(store, "a")
    await take(store, partition="none")  # it makes the group

    async def write_late() -> None:
        other.execute(
            "INSERT INTO forebay.deliveries (group_id, partition_id, state, cursor_seq, seen_seq, seen_position, "
            "open_count, lease_id) SELECT group_id, partition_id, '', 0, 0, 0, 0, '' "
            "FROM forebay.groups, forebay.partitions"
        )

    after_removing(monkeypatch, "purge_of_partitions", write_late)
    assert await store.delete_queue("orders")
    assert left(other) == {}
