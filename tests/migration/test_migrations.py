"""The schema is the sum of its migrations, whoever runs them and however often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg
import pytest

from fixtures.arrow_steps import commit, stage
from forebay.broker.bulk import Content, Staged
from forebay.broker.messages import PopRequest
from forebay.broker.stores.postgres import PostgresStore, SchemaRefused
from forebay.broker.stores.postgres.connections import Connection, opened
from forebay.broker.stores.postgres.migrations import Migration, migrate, migrations

pytestmark = pytest.mark.asyncio

T = TypeVar("T")

_SCHEMA = """
SELECT 'column', table_name, column_name, data_type, is_nullable, column_default, collation_name
    FROM information_schema.columns WHERE table_schema = 'forebay'
UNION ALL SELECT 'index', tablename, indexname, indexdef, '', '', '' FROM pg_indexes WHERE schemaname = 'forebay'
UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '', ''
    FROM pg_constraint WHERE connamespace = to_regnamespace('forebay')
UNION ALL SELECT 'function', proname, pg_get_functiondef(oid), '', '', '', ''
    FROM pg_proc WHERE pronamespace = to_regnamespace('forebay')
UNION ALL SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid), tgenabled::text, '', ''
    FROM pg_trigger WHERE NOT tgisinternal
    AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace('forebay'))
UNION ALL SELECT 'view', viewname, definition, '', '', '', '' FROM pg_views WHERE schemaname = 'forebay'
UNION ALL SELECT 'options', relname, reloptions::text, relpersistence::text, '', '', ''
    FROM pg_class WHERE relnamespace = to_regnamespace('forebay')
ORDER BY 1, 2, 3, 4
"""


def schema_of(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(_SCHEMA).fetchall()


def with_migrations_run_by_hand(url: str) -> list[tuple[object, ...]]:
    """What the files make by themselves, one after the other, in a database that saw nothing else."""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA forebay")
        for migration in migrations():
            connection.execute(migration.text)
        made = connection.execute(_SCHEMA).fetchall()
        connection.rollback()
    return made


async def on(url: str, work: Callable[[Connection], Awaitable[T]]) -> T:
    async with opened(url) as connection:
        return await work(connection)


async def test_schema_is_the_sum_of_its_migrations(postgres_database: str) -> None:
    by_hand = with_migrations_run_by_hand(postgres_database)
    assert await on(postgres_database, migrate) == len(migrations())
    by_migrate = [row for row in schema_of(postgres_database) if "schema_migrations" not in str(row)]
    assert by_migrate == by_hand
    assert {row[1] for row in by_hand if row[0] == "column"} >= {"queues", "partitions", "messages", "deliveries"}
    assert {row[0] for row in by_hand} >= {"index", "constraint", "function", "trigger"}


async def test_migrations_are_numbered_from_one_without_gaps() -> None:
    assert [migration.number for migration in migrations()] == list(range(1, len(migrations()) + 1))


async def test_second_run_changes_nothing(postgres_database: str) -> None:
    await on(postgres_database, migrate)
    before = schema_of(postgres_database)
    assert await on(postgres_database, migrate) == 0
    assert schema_of(postgres_database) == before


async def test_servers_that_start_together_migrate_once(postgres_database: str) -> None:
    counts = await asyncio.gather(*[on(postgres_database, migrate) for _ in range(6)])
    assert sorted(counts) == [0] * 5 + [len(migrations())]


async def test_stores_that_open_together_all_work(postgres_database: str) -> None:
    stores = [PostgresStore(postgres_database) for _ in range(3)]
    await asyncio.gather(*[store.open(lambda queue, count: None) for store in stores])
    assert [await store.is_healthy() for store in stores] == [True] * 3
    await asyncio.gather(*[store.close() for store in stores])


async def test_failed_migration_leaves_nothing(postgres_database: str) -> None:
    broken = [*migrations(), Migration(len(migrations()) + 1, "broken", b"CREATE TABLE forebay.half (); SELECT 1/0")]
    with pytest.raises(psycopg.errors.DivisionByZero):
        await on(postgres_database, lambda connection: migrate(connection, broken))
    assert schema_of(postgres_database) == []
    assert await on(postgres_database, migrate) == len(migrations())


async def test_database_of_a_newer_forebay_is_refused(postgres_database: str) -> None:
    newer = [*migrations(), Migration(len(migrations()) + 1, "newer", b"CREATE TABLE forebay.newer ()")]
    await on(postgres_database, lambda connection: migrate(connection, newer))
    before = schema_of(postgres_database)
    with pytest.raises(SchemaRefused, match=f"at migration {len(newer)}"):
        await PostgresStore(postgres_database).open(lambda queue, count: None)
    assert schema_of(postgres_database) == before


async def test_database_of_another_text_is_refused(postgres_database: str) -> None:
    first, *others = migrations()
    changed = [first._replace(text=first.text + b"\n-- changed"), *others]
    await on(postgres_database, lambda connection: migrate(connection, changed))
    with pytest.raises(SchemaRefused, match="migration 1"):
        await on(postgres_database, migrate)


async def test_messages_of_a_database_before_partitions_had_stretches_are_delivered(postgres_database: str) -> None:
    await on(postgres_database, lambda connection: migrate(connection, migrations()[:3]))
    with psycopg.connect(postgres_database) as connection:
        connection.execute(
            "INSERT INTO forebay.queues (name, namespace, task, options, priority, created_us, next_seq) "
            "VALUES ('orders', '', '', '{}', 0, 1, 2001)"
        )
        connection.execute(
            "INSERT INTO forebay.partitions (queue_id, name, last_seq, last_position, newest_us) "
            "SELECT queue_id, number::text, number, 1, 1 FROM forebay.queues, generate_series(1, 2000) AS number"
        )
        connection.execute(
            "INSERT INTO forebay.messages SELECT queue_id, last_seq, partition_id, 1, 1, false, false, name, '', '', "
            "'0' FROM forebay.partitions"
        )
    store = PostgresStore(postgres_database)
    await store.open(lambda queue, count: None)
    found: set[str] = set()
    while messages := (await store.pop(PopRequest("orders", batch=1000, partitions=1000))).messages:
        found |= {message.transaction_id for message in messages}
    await store.close()
    assert found == {str(number) for number in range(1, 2001)}


async def test_commits_from_before_they_knew_their_queue_are_honoured_for_it_and_for_no_other(
    postgres_database: str,
) -> None:
    await on(postgres_database, lambda connection: migrate(connection, migrations()[:6]))
    with psycopg.connect(postgres_database) as connection:
        connection.execute(
            "INSERT INTO forebay.stage_commits (producer, epoch, outcome, created_us) VALUES "
            "('spark', '1', %s, 1), ('spark', '2', %s, 1)",
            [b'[false,5,1,{"orders":[3,7]}]', b"[false,0,0,{}]"],
        )
    store = PostgresStore(postgres_database)
    await store.open(lambda queue, count: None)
    assert await commit(store, await stage(store, b"whatever")) == (True, 5, 1, {"orders": (3, 7)})
    assert await commit(store, Staged("gone", Content())) == (True, 5, 1, {"orders": (3, 7)})
    assert await commit(store, await stage(store, b"1", queue="other")) == (False, 1, 0, {"other": (1, 1)})
    await store.close()


async def test_newer_server_brings_an_older_database_up_to_date(postgres_database: str) -> None:
    await on(postgres_database, migrate)
    newer = [*migrations(), Migration(len(migrations()) + 1, "newer", b"CREATE TABLE forebay.newer ()")]
    assert await on(postgres_database, lambda connection: migrate(connection, newer)) == 1
    with psycopg.connect(postgres_database) as connection:
        assert connection.execute("SELECT count(*) FROM forebay.newer").fetchone() == (0,)


async def test_flows_and_parcels_from_before_they_knew_of_losses_stay_as_they_are(postgres_database: str) -> None:
    await on(postgres_database, lambda connection: migrate(connection, migrations()[:11]))
    with psycopg.connect(postgres_database) as connection:
        connection.execute(
            "INSERT INTO forebay.dispatch_flows (flow, version, state, queue_id, next_seq, updated_us) "
            "VALUES ('shop', 1, 'RUNNING', 7, 11, 1)"
        )
        connection.execute(
            "INSERT INTO forebay.parcel_flows (did, step, flow, flow_type, action, action_class, state, place, ranges, "
            "messages, size, queued_us, due_us) VALUES "
            "('d', 0, 'shop', 'DATA_SINK', 'a', 'a', 'ERROR', 1, '[[\"orders\",1,10]]', 10, 0, 1, 99)"
        )
    await on(postgres_database, migrate)
    with psycopg.connect(postgres_database) as connection:
        assert connection.execute("SELECT removed_seq FROM forebay.dispatch_flows").fetchall() == [(None,)]
        steps = connection.execute("SELECT ranges, due_us, failed_us FROM forebay.parcel_flows").fetchall()
    assert steps == [('[["orders",1,10]]', 99, None)]
