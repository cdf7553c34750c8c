"""What is kept about flows, in PostgreSQL."""

from __future__ import annotations

from typing import Any, cast

from forebay.broker.flow_rows import FlowRow
from forebay.broker.stores.postgres.connections import Database
from forebay.broker.stores.postgres.queries import query
from forebay.clock import SECOND_US

Found = list[tuple[Any, ...]]


async def listed(database: Database) -> list[FlowRow]:
    return [_row(found) for found in cast("Found", await database.ask(query("flows_list"), {}))]


async def report(
    database: Database,
    name: str,
    worker: str,
    report: bytes,
    *,
    quiet_seconds: float,
    is_released: bool,
    now_us: int | None,
) -> FlowRow:
    values: dict[str, object] = {
        "name": name,
        "worker": worker,
        "report": report,
        "now_us": now_us,
        "quiet_us": round(quiet_seconds * SECOND_US),
        "is_released": is_released,
    }
    await database.ask(query("flow_report"), values)
    found = cast("Found", await database.ask(query("flow_find"), {"name": name}))
    # A request to another server may have made it forgotten in between.
    return _row(found[0]) if found else FlowRow(name)


async def pause(database: Database, name: str, is_paused: bool) -> FlowRow:
    values: dict[str, object] = {"name": name, "is_paused": is_paused}
    (found,) = cast("Found", await database.ask(query("flow_pause"), values, is_durable=True))
    return _row(found)


async def forget(database: Database, name: str) -> bool:
    return bool(await database.ask(query("flow_forget"), {"name": name}))


def _row(found: tuple[Any, ...]) -> FlowRow:
    name, worker, report, updated_us, is_paused, resumes = found
    return FlowRow(name, worker, bytes(report), updated_us, is_paused, resumes)
