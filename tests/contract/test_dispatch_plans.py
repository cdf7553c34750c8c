"""Leasing takes as long with a million cold parcels as with none: each of its statements finds its rows by an index.

PostgreSQL plans a statement once per connection (`connections.ROOMS`), most likely while the tables are empty. So
plans are looked at on empty tables of a new database, where an index that fits only half is as cheap as the right one.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from forebay.broker.room_work import Statement
from forebay.broker.stores.embedded.database import VERSION, numbered_format
from forebay.broker.stores.postgres import PostgresStore
from forebay.broker.stores.postgres.connections import ROOMS
from forebay.dispatch.tables import SQL

LARGE = {"parcel_flows", "parcels", "parcel_events", "cold_queue_entries", "parcel_awaits"}
STATEMENTS = (
    "annotations_lock",
    "annotations_set",
    "awaits_next",
    "awaits_passed",
    "awaits_remove",
    "children_add",
    "cold_heads",
    "events_add",
    "exports_fail",
    "lease_candidates",
    "lease_steps",
    "parcels_in_flight",
    "parcels_move",
    "paused_go_cold",
    "queued_heads",
    "records_parents",
    "records_sent",
    "refill_oldest",
    "refill_these",
    "steps_due",
    "steps_exported",
    "steps_finish",
    "steps_lease",
    "steps_requeue",
    "steps_to_requeue",
    "warm_page",
)
NARROW = re.compile(r"\b(did|parent|lease_id|due_us|action_class|flow|queue)\b")
WHOLE_NUMBERS = {
    "now_us",
    "queued_us",
    "parcels_max",
    "parcels_each",
    "steps_max",
    "place",
    "step",
    "queue_id",
    "next_seq",
    "limit",
}


@pytest.fixture(scope="module")
def sqlite_tables() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    for number in range(7, VERSION + 1):
        connection.executescript(numbered_format(number))
    yield connection
    connection.close()


@pytest.mark.parametrize("name", STATEMENTS)
def test_sqlite_searches_and_does_not_scan(name: str, sqlite_tables: sqlite3.Connection) -> None:
    text = SQL[name].sqlite
    values = {given: 1 if given in WHOLE_NUMBERS else "[]" for given in re.findall(r":(\w+)", text)}
    plan = [row[3] for row in sqlite_tables.execute(f"EXPLAIN QUERY PLAN {text}", values)]
    subqueries = ("oldest", "paused", "passed")
    scans = [
        line for line in plan if line.startswith("SCAN") and "VIRTUAL TABLE" not in line and line[5:] not in subqueries
    ]
    assert scans == [], plan


@pytest.mark.asyncio
async def test_postgres_plans_for_the_right_index_while_tables_are_empty(postgres_database: str) -> None:
    store = PostgresStore(postgres_database)
    await store.open(lambda queue, count: None)
    await store.close()
    settings = " ".join(f"-c {name}={value}" for name, value in ROOMS.items())
    with psycopg.connect(postgres_database, options=settings, autocommit=True) as connection:
        wrong = {name: plan for name in STATEMENTS if (plan := _without_condition(connection, SQL[name]))}
    assert wrong == {}


def _without_condition(connection: psycopg.Connection[Any], asked: Statement) -> list[str]:
    """Scans of large tables that are not narrowed by an index's columns."""
    text = asked.postgres.decode().replace("%%", "%")
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)b", text)))
    for number, name in enumerate(names, 1):
        text = text.replace(f"%({name})b", f"${number}")
    types = ", ".join("bigint" if name in WHOLE_NUMBERS else "text" for name in names)
    values = ", ".join("1" if name in WHOLE_NUMBERS else "'[]'" for name in names)
    connection.execute(f"PREPARE {asked.name} ({types}) AS {text}".encode())
    [[plan]] = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE {asked.name} ({values})".encode()).fetchall()
    found = plan if isinstance(plan, list) else json.loads(plan)
    scans = [node for node in _nodes(found[0]["Plan"]) if node.get("Relation Name") in LARGE]
    return [f"{scan['Node Type']} on {scan['Relation Name']}" for scan in scans if not _is_narrow(scan)]


def _is_narrow(scan: dict[str, Any]) -> bool:
    """Whether it reads what it looks for. All rows of a state are too many."""
    conditions = [node["Index Cond"] for node in (scan, *scan.get("Plans", ())) if "Index Cond" in node]
    return scan["Node Type"] == "ModifyTable" or any(NARROW.search(condition) for condition in conditions)


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)
