"""Stages: rows wait in a table until a commit makes them messages (`committing`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pyarrow as pa

from forebay.broker.arrow import staged_rows
from forebay.broker.bulk import Content, Staged, StageFigures, StageName, StagesOf
from forebay.broker.stores.postgres.browsing import find_queue
from forebay.broker.stores.postgres.connections import Database
from forebay.broker.stores.postgres.queries import query
from forebay.clock import SECOND_US

_PIECE_BYTES_MAX = 4 << 20


async def add(
    database: Database,
    queue: str,
    stage_id: str,
    name: StageName,
    batches: Sequence[pa.RecordBatch],
    content: Content | None,
    now_us: int | None,
) -> Staged:
    found = await find_queue(database, queue)
    staged_rows.check_sealed(found[0] if found else None, batches)
    if content is None:
        content = await asyncio.to_thread(staged_rows.content_of, batches)
    staged = Staged(stage_id, content)
    values: dict[str, object] = {
        **name._asdict(),
        **staged.content._asdict(),
        "stage_id": stage_id,
        "queue": queue,
        "now_us": now_us,
        "body": await asyncio.to_thread(_packed, batches),
    }
    await database.ask(query("stage_add"), values, is_durable=True)
    return staged


def _packed(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    staged_rows.write(staged_rows.cut(batches, _PIECE_BYTES_MAX), sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


async def abort(database: Database, wanted: StagesOf, *, all_writes: bool) -> int:
    values: dict[str, object] = {**wanted._asdict(), "all_writes": all_writes}
    return len(await database.ask(query("stages_forget"), values, is_durable=True))


async def expire(database: Database, stage_seconds: float, commit_seconds: float, now_us: int | None) -> int:
    stage_us, commit_us = round(stage_seconds * SECOND_US), round(commit_seconds * SECOND_US)
    gone = await database.ask(query("stages_expire"), {"now_us": now_us, "kept_us": stage_us})
    await database.ask(query("stage_commits_expire"), {"now_us": now_us, "kept_us": commit_us})
    return len(gone)


async def figures(database: Database, expired: int) -> StageFigures:
    [(stages, size)] = cast("list[tuple[int, int]]", await database.ask(query("stages_figures")))
    return StageFigures(stages, size, expired)
