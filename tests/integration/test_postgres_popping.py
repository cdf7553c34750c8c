"""Pops and seeks on PostgreSQL while others push and delete, and pops that find more dead messages than living."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import psycopg
import pytest
import pytest_asyncio

from fixtures.postgres_stores import opened
from fixtures.store_steps import configure, finish, ids, push, take, taken_ids
from forebay.broker.messages import PopRequest
from forebay.broker.overview import DeadLetterFilter, SeekTarget
from forebay.broker.stores.postgres import PostgresStore, claiming, groups
from forebay.broker.stores.postgres.connections import DELIVERY, DURABLE, Connection, Cursor, Row, rows
from forebay.broker.stores.postgres.deliveries import Burial, Delivery, bury, save
from forebay.broker.stores.postgres.limits import PostgresLimits
from forebay.broker.stores.postgres.queries import prepared, query
from forebay.errors import StoreUnavailable, UnknownQueue
from forebay.model.push_run import run_of_one
from forebay.model.queue import DEFAULT_GROUP, QueueOptions

pytestmark = pytest.mark.asyncio
SECONDS_MAX = 60


@pytest_asyncio.fixture
async def store(postgres_database: str, limits: PostgresLimits) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_database, limits=limits) as store:
        yield store


async def test_push_between_the_look_and_the_save_is_found(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    [pushed, _] = await push(store, "a", "b")
    await finish(store, await take(store, 1))
    await store.delete_message(pushed.partition_id, "b")

    async def push_first(connection: Connection, deliveries: Sequence[Delivery], now_us: int) -> Cursor | None:
        monkeypatch.setattr(claiming, "save", save)
        assert not any(delivery.state.pending for delivery in deliveries)  # it looked, and found nothing
        await push(store, "c")
        return await save(connection, deliveries, now_us)

    monkeypatch.setattr(claiming, "save", push_first)
    assert ids(await take(store, 1)) == ["c"]


@pytest.mark.parametrize("settings", [DELIVERY, DURABLE], ids=["delivery", "durable"])
async def test_saving_a_delivery_looks_its_next_message_up_in_the_index(
    store: PostgresStore, postgres_database: str, settings: dict[str, str]
) -> None:
    [first, *_] = await store.push([run_of_one("orders", "A", b"x", f"m{n}") for n in range(3_000)])
    await take(store, 1)
    number = int(first.partition_id.rpartition("-")[2])
    text = prepared(query("delivery_save"))
    # In the order of their names: the time, then a column each.
    columns = ["1", str(number), "''::bytea", "1", "1", "0", "''", "0", "NULL::bigint"]
    given = ", ".join(["1", *[f"ARRAY[{column}]" for column in columns]])
    assert len(text.parameters) == 10
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    with psycopg.connect(postgres_database, autocommit=True, options=options) as session:
        session.execute("ANALYZE forebay.messages")  # it knows now that nearly any message is of that partition
        session.execute(b"PREPARE saving AS " + text.text)
        plan = session.execute(f"EXPLAIN EXECUTE saving ({given})".encode()).fetchall()
    assert "Seq Scan on messages" not in str(plan)
    assert "messages_by_partition" in str(plan)


def before_the_lock(monkeypatch: pytest.MonkeyPatch, step: Callable[[], Awaitable[object]]) -> None:
    """Do something, once, after a seek has found its group and before it locks it."""

    async def asked(connection: Connection, text: bytes, values: dict[str, object] | None = None) -> list[Row]:
        if text == query("seek_start"):
            monkeypatch.setattr(groups, "rows", rows)
            await step()
        return await rows(connection, text, values)

    monkeypatch.setattr(groups, "rows", asked)


async def test_seek_of_a_group_that_is_deleted_in_this_moment_makes_it_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await push(store, "a", "b")
    assert await taken_ids(store) == ["a", "b"]
    before_the_lock(monkeypatch, lambda: store.delete_group(DEFAULT_GROUP, None))
    async with asyncio.timeout(SECONDS_MAX):
        assert await store.seek(DEFAULT_GROUP, "orders", None, SeekTarget(seq=2)) == 1
    assert await taken_ids(store) == ["b"]


async def test_seek_on_a_queue_that_is_deleted_in_this_moment_says_that_there_is_none(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await push(store, "a")
    await take(store)
    before_the_lock(monkeypatch, lambda: store.delete_queue("orders"))
    async with asyncio.timeout(SECONDS_MAX):
        with pytest.raises(UnknownQueue):
            await store.seek(DEFAULT_GROUP, "orders", None, SeekTarget(seq=1))


async def test_seek_on_a_queue_that_is_replaced_in_this_moment_is_for_the_new_one(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await push(store, "a")
    await take(store)

    async def replace() -> None:
        await store.delete_queue("orders")
        await push(store, "b", "c", "d")

    before_the_lock(monkeypatch, replace)
    async with asyncio.timeout(SECONDS_MAX):
        assert await store.seek(DEFAULT_GROUP, "orders", "Default", SeekTarget(seq=3)) == 1
    assert await taken_ids(store) == ["d"]


async def expire(store: PostgresStore, url: str, count: int, *, payload: bytes = b"x") -> None:
    """Let so many messages have waited for longer than they may, in partition A."""
    await configure(store, QueueOptions(max_wait_seconds=1_000))
    await store.push([run_of_one("orders", "A", payload, f"m{n}", is_minted=True) for n in range(count)])
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("UPDATE forebay.messages SET created_us = created_us - 2000000000")


async def buried(store: PostgresStore) -> int:
    return (await store.dead_letters(DeadLetterFilter(), 1, 0))[1]


async def test_expired_messages_are_buried_in_pieces_whatever_the_batch_is(
    store: PostgresStore, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await expire(store, postgres_database, 1_200)
    await push(store, "alive", partition="A")
    reads = 0

    async def counted(connection: Connection, text: bytes, values: dict[str, object] | None = None) -> list[Row]:
        nonlocal reads
        reads += text == query("pop_read_fresh")
        return await rows(connection, text, values)

    monkeypatch.setattr(claiming, "rows", counted)
    popped = await take(store, 1)
    assert [(message.transaction_id, message.payload) for message in popped.messages] == [("alive", b"alive")]
    assert reads == 4  # the first one, and pieces of 500
    assert await buried(store) == 1_200


@pytest.mark.parametrize("partition", [None, "A"])
@pytest.mark.parametrize("limits", [PostgresLimits(reach_messages_min=10, buried_messages_max=50)])
async def test_pop_that_fails_keeps_what_it_has_buried(
    store: PostgresStore, postgres_database: str, monkeypatch: pytest.MonkeyPatch, partition: str | None
) -> None:
    await expire(store, postgres_database, 200)
    await push(store, "alive", partition="A")
    calls = 0

    async def fail_at_last(connection: Connection, burials: Sequence[Burial], now_us: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise StoreUnavailable("the third transaction")
        await bury(connection, burials, now_us)

    monkeypatch.setattr(claiming, "bury", fail_at_last)
    with pytest.raises(StoreUnavailable, match="third"):
        await take(store, 1, partition=partition)
    assert 100 <= await buried(store) < 200
    assert ids(await take(store, 1, partition=partition)) == ["alive"]
    assert await buried(store) == 200


@pytest.mark.parametrize("limits", [PostgresLimits(reach_messages_min=2, buried_bytes_max=3_000)])
async def test_one_transaction_buries_a_bounded_number_of_bytes(
    store: PostgresStore, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await expire(store, postgres_database, 12, payload=bytes(1_000))
    await push(store, "alive", partition="A")
    pieces: list[int] = []

    async def counted(connection: Connection, burials: Sequence[Burial], now_us: int) -> None:
        pieces.append(len(burials))
        await bury(connection, burials, now_us)

    monkeypatch.setattr(claiming, "bury", counted)
    assert ids(await take(store, 1)) == ["alive"]
    assert sum(pieces) == 12
    assert max(pieces) <= 4  # what reaches the bound, and the piece that it is in


@pytest.mark.parametrize("partition", [None, "A"])
@pytest.mark.parametrize("limits", [PostgresLimits(reach_messages_min=5, buried_messages_max=10, rounds_max=3)])
async def test_pop_that_only_buries_leaves_the_partition_due_now(
    store: PostgresStore, postgres_database: str, partition: str | None
) -> None:
    await expire(store, postgres_database, 100)
    await push(store, "alive", partition="A")
    request = PopRequest(queue="orders", partition=partition)
    before = -1
    popped = await store.pop(request)
    assert not popped.messages
    while not popped.messages:
        assert before < (before := await buried(store))
        assert await store.seconds_until_due(request) == 0.0
        popped = await store.pop(request)
    assert ids(popped) == ["alive"]
    assert await buried(store) == 100


@pytest.mark.parametrize("limits", [PostgresLimits(reach_messages_min=1, buried_messages_max=1)])
async def test_partition_with_much_to_bury_holds_no_other_up(store: PostgresStore, postgres_database: str) -> None:
    await expire(store, postgres_database, 100)
    assert not (await take(store, 1)).messages
    await push(store, "x", partition="B")
    assert ids(await take(store, 1)) == ["x"]
    assert await buried(store) < 100
