"""The database of an embedded store: an older one is migrated, a newer one is refused and left as it was."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fixtures.embedded_stores import opened
from fixtures.older_formats import back_to
from forebay.broker.stores.embedded.database import VERSION, Database
from forebay.broker.stores.embedded.queries import query
from forebay.errors import Permanent


def make_older(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(back_to(version))


def test_newer_database_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("CREATE TABLE of_the_future (n INTEGER)")
        newer.execute(f"PRAGMA user_version={VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(Permanent, match=f"newer Forebay .format {VERSION + 1}, this one knows {VERSION}"):
        Database(path)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["store.sqlite"]


def test_stages_of_a_newer_store_are_not_touched(tmp_path: Path) -> None:
    """Their files have no version: the database's stands for them."""

    async def opened_and_closed() -> None:
        store = await opened(tmp_path)
        await store.close()

    asyncio.run(opened_and_closed())
    stage = tmp_path / "stages" / "of-the-future.arrow"
    stage.write_bytes(b"rows as they will be written one day")
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as newer:
        newer.execute(f"PRAGMA user_version={VERSION + 1}")
    with pytest.raises(Permanent, match="newer Forebay"):
        asyncio.run(opened_and_closed())
    assert stage.read_bytes() == b"rows as they will be written one day"


def test_claims_look_for_lost_records_in_an_index_of_those_alone(tmp_path: Path) -> None:
    """Else every claim would look at all records of its partition."""
    database = Database(tmp_path / "store.sqlite")
    statement = f"EXPLAIN QUERY PLAN {query('partition_find')}"
    steps = [step for *_, step in database.all(statement, (1,))]
    assert any("INDEX lost_blocks (partition_id=?)" in step for step in steps), steps
    assert not any(step.startswith("SEARCH blocks USING PRIMARY KEY") for step in steps)
    database.close()


def test_commits_of_format_5_are_known_by_their_queues(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    database = Database(path)
    database.do("DROP TABLE queue_commits")
    database.do("ALTER TABLE stages DROP COLUMN checksum")
    database.do("CREATE TABLE stage_commits (producer TEXT, epoch TEXT, outcome BLOB, created_us INTEGER)")
    for epoch, outcome in (("1", b'[false,5,2,{"left":[3,5],"right":[1,2]}]'), ("2", b"[false,0,0,{}]")):
        database.do("INSERT INTO stage_commits VALUES ('spark', ?, ?, 77)", (epoch, outcome))
    database.close()
    make_older(path, 5)
    database = Database(path)
    columns = 'epoch, "write", queue, rows, checksum, request, messages, first_seq, created_us'
    assert database.all(f"SELECT {columns} FROM queue_commits ORDER BY epoch, queue") == [
        ("1", "", "left", None, None, "", 3, 3, 77),
        ("1", "", "right", None, None, "", 2, 1, 77),
        ("2", "", "", None, None, "", 0, 0, 77),
    ]
    assert database.all("SELECT checksum FROM stages") == []
    database.close()
    Database(path).close()


@pytest.mark.parametrize("version", range(1, VERSION))
def test_older_database_gets_what_is_new(tmp_path: Path, version: int) -> None:
    path = tmp_path / "store.sqlite"
    database = Database(path)
    database.do("DROP TABLE lost_messages")
    database.do("DROP INDEX lost_blocks")
    database.close()
    make_older(path, version)
    database = Database(path)
    assert database.all("SELECT * FROM lost_messages") == []
    assert database.one("PRAGMA user_version") == (VERSION,)
    database.close()


def test_parcels_of_format_8_wait_and_are_retried_as_before(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    database = Database(path)
    database.do(
        "INSERT INTO dispatch_flows (flow, version, state, queue_id, next_seq, updated_us) "
        "VALUES ('shop', 1, 'RUNNING', 7, 11, 1)"
    )
    database.do(
        "INSERT INTO parcel_flows (did, step, flow, flow_type, action, action_class, state, place, ranges, "
        "messages, size, queued_us, due_us) VALUES "
        "('d', 0, 'shop', 'DATA_SINK', 'a', 'a', 'ERROR', 1, '[[\"orders\",1,10]]', 10, 0, 1, 99)"
    )
    database.close()
    make_older(path, 8)
    database = Database(path)
    assert database.one("SELECT removed_seq FROM dispatch_flows") == (None,)
    assert database.one("SELECT ranges, due_us, failed_us FROM parcel_flows") == ('[["orders",1,10]]', 99, None)
    database.close()
