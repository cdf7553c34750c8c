"""Partitions and groups of the embedded store that are forgotten: what a restart and the log still know of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fixtures.embedded_stores import opened
from fixtures.older_formats import back_to
from fixtures.store_steps import configure, ids, push, taken_ids
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.commitlog import LogOptions
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

COLUMNS_OF_FORMAT_4 = "id, name, namespace, task, options, created_us, indexed_seq"
QUEUES_OF_FORMAT_4 = """
CREATE TABLE IF NOT EXISTS queues (
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice: it names the queue's log directory
    name        TEXT NOT NULL UNIQUE,
    namespace   TEXT NOT NULL,
    task        TEXT NOT NULL,
    options     BLOB NOT NULL,
    created_us  INTEGER NOT NULL,
    indexed_seq INTEGER NOT NULL DEFAULT 0         -- every message up to here is in blocks, or does not count
)
"""
SMALL = LogOptions(segment_bytes=4096, compress=False)


def asked(directory: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(directory / "store.sqlite")) as database:
        return database.execute(statement).fetchall()


async def without_partition(store: EmbeddedStore, clock: FakeClock) -> None:
    """Partition `p1` held `a` and `b`, and was removed; `p0` holds `first`, which keeps their segment."""
    await configure(store, QueueOptions(completed_retention_seconds=1))
    await push(store, "first", partition="p0")
    await push(store, "a", "b", partition="p1")
    await taken_ids(store, partition="p1")
    clock.advance(200)
    assert await store.apply_retention() == 2
    assert await store.expire_partitions(100) == 1


async def test_removed_partition_stays_so_after_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await opened(tmp_path, clock, options=SMALL)
    await without_partition(store, clock)
    await store.close()
    store = await opened(tmp_path, clock, options=SMALL)
    assert [found.name for found in await store.partitions("orders", 10, 0)] == ["p0"]
    [pushed] = await push(store, "a", partition="p1")
    assert pushed.status == "queued"
    assert ids(await store.read("orders", 1, 10)) == ["first", "a"]
    assert await taken_ids(store, partition="p1") == ["a"]
    await store.close()


async def test_name_of_a_removed_partition_is_kept_no_longer_than_its_records(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await opened(tmp_path, clock, options=SMALL)
    await without_partition(store, clock)
    assert asked(tmp_path, "SELECT name, floor_seq FROM removed_partitions") == [("p1", 3)]
    await push(store, "x" * 4000, "y" * 4000)
    await push(store, "z" * 4000)
    await taken_ids(store)
    await taken_ids(store)
    clock.advance(2)
    assert await store.apply_retention() > 0
    assert await store.expire_partitions(10_000) == 0
    assert asked(tmp_path, "SELECT * FROM removed_partitions") == []
    await store.close()


async def test_when_a_group_last_popped_is_known_after_a_kill(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await opened(tmp_path, clock, options=SMALL)
    await push(store, "a")
    await taken_ids(store)
    clock.advance(1000)
    await taken_ids(store)
    await store.apply_retention()
    assert asked(tmp_path, "SELECT last_active_us FROM groups") == [(clock.now_us(),)]
    await store.close()


async def test_groups_of_an_older_store_are_not_taken_for_idle(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await opened(tmp_path, clock, options=SMALL)
    await push(store, "a")
    await taken_ids(store)
    await store.close()
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as database:
        database.execute("ALTER TABLE queues RENAME TO newer")
        database.execute(QUEUES_OF_FORMAT_4)
        database.execute(f"INSERT INTO queues SELECT {COLUMNS_OF_FORMAT_4} FROM newer")
        database.execute("DROP TABLE newer")
        database.execute("UPDATE groups SET last_active_us = 0")
        database.commit()
        database.executescript(back_to(4))
    store = await opened(tmp_path, clock, options=SMALL)
    assert await store.expire_groups(60) == 0
    assert [found.pushed for found in await store.queues()] == [1]
    await store.close()
