"""Stages and their commits: rows wait in a table, and become messages in one transaction.

A commit claims its epoch first, with the row that will remember it: of two that come together the second waits, and
then finds what the first one did. Then it locks its queues, as a push does, and pushes stage by stage, in pieces; the
locks last until the commit, so nobody sees a part of it, and pushes to those queues wait meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import msgspec
import pyarrow as pa

from forebay.broker.arrow import staged_rows
from forebay.broker.bulk import CommitOutcome, Staged, StageFigures, StageName
from forebay.broker.messages import Pushed, PushItem
from forebay.broker.stores.postgres import push_statements
from forebay.broker.stores.postgres.browsing import find_queue
from forebay.broker.stores.postgres.connections import Connection, Database, rows, send
from forebay.broker.stores.postgres.pushing import Availability, MissingQueues, Push
from forebay.broker.stores.postgres.queries import query
from forebay.errors import PayloadInClear, QueueFull, StageUnknown
from forebay.model.message import SeqRange

COMMIT_SECONDS_MAX = 600.0
_PIECE_BYTES_MAX = 4 << 20
_SECOND_US = 1_000_000
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CommitOutcome).decode


async def add(
    database: Database,
    queue: str,
    stage_id: str,
    name: StageName,
    batches: Sequence[pa.RecordBatch],
    now_us: int | None,
) -> Staged:
    found = await find_queue(database, queue)
    if found is not None and found[0].options.encryption_enabled:
        staged_rows.check_sealed(queue, batches)
    staged = Staged(stage_id, *staged_rows.size_of(batches))
    values: dict[str, object] = {
        **name._asdict(),
        "stage_id": stage_id,
        "queue": queue,
        "messages": staged.messages,
        "size_bytes": staged.size_bytes,
        "now_us": now_us,
        "body": await asyncio.to_thread(_packed, batches),
    }
    await database.ask(query("stage_add"), values, is_durable=True)
    return staged


def _packed(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    staged_rows.write(staged_rows.cut(batches, _PIECE_BYTES_MAX), sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


class StageCommit:
    """One commit, as a part of a transaction."""

    def __init__(self, producer: str, epoch: str, stage_ids: Sequence[str], server_id: str) -> None:
        self._names: dict[str, object] = {"producer": producer, "epoch": epoch}
        self._stage_ids = list(dict.fromkeys(stage_ids))
        self._server_id = server_id

    async def run(self, connection: Connection, now_us: int | None) -> tuple[CommitOutcome, Availability]:
        self._availability = Availability({}, set())
        self._ranges: dict[str, SeqRange] = {}
        self._messages = self._duplicates = 0
        claimed = await rows(connection, query("stage_commit_begin"), {**self._names, "now_us": now_us})
        if not claimed:
            [[told]] = await rows(connection, query("stage_commit_find"), self._names)
            return _decode(cast("bytes", told))._replace(is_repeated=True), self._availability
        queues = await self._lock(connection)
        for stage_id in self._stage_ids:
            await self._push(connection, stage_id, queues[stage_id], cast("int", claimed[0][0]))
        outcome = CommitOutcome(False, self._messages, self._duplicates, self._ranges)
        await send(connection, query("stage_commit_note"), {**self._names, "outcome": _encode(outcome)})
        await send(connection, query("stages_forget"), self._names)
        return outcome, self._availability

    async def _lock(self, connection: Connection) -> dict[str, str]:
        """The stages, then their queues; returns the queue of each stage."""
        found = await rows(connection, query("stages_lock"), {**self._names, "stage_ids": self._stage_ids})
        queues = cast("dict[str, str]", dict(found))  # type: ignore[arg-type]  # two columns
        unknown = [stage_id for stage_id in self._stage_ids if stage_id not in queues]
        if unknown:
            raise StageUnknown(unknown, str(self._names["producer"]), str(self._names["epoch"]))
        wanted = set(queues.values())
        locked = await rows(connection, *push_statements.lock_queues(wanted, self._server_id)) if wanted else []
        missing = wanted - {cast("str", row[1]) for row in locked}
        if missing:
            raise MissingQueues([PushItem(queue, "", b"", "") for queue in sorted(missing)])
        return queues

    async def _push(self, connection: Connection, stage_id: str, queue: str, now_us: int) -> None:
        [[body]] = await rows(connection, query("stage_body"), {"stage_id": stage_id})
        for batch in staged_rows.read(cast("bytes", body)):
            items = await asyncio.to_thread(staged_rows.items_of, queue, batch)
            push = Push(connection, now_us, self._server_id)
            [outcome], availability = await push.store([items])
            if isinstance(outcome, QueueFull | PayloadInClear):
                raise outcome
            self._note(queue, outcome, availability)

    def _note(self, queue: str, outcome: Sequence[Pushed], availability: Availability) -> None:
        seqs = [one.seq for one in outcome if one.status == "queued"]
        self._messages += len(seqs)
        self._duplicates += len(outcome) - len(seqs)
        if seqs:
            earlier = self._ranges.get(queue)
            self._ranges[queue] = SeqRange(earlier.first_seq if earlier else seqs[0], seqs[-1])
        for name, count in availability.counts.items():
            self._availability.counts[name] = self._availability.counts.get(name, 0) + count
        self._availability.wanted_elsewhere.update(availability.wanted_elsewhere)


async def abort(database: Database, producer: str, epoch: str) -> int:
    values: dict[str, object] = {"producer": producer, "epoch": epoch}
    return len(await database.ask(query("stages_forget"), values, is_durable=True))


async def expire(database: Database, stage_seconds: float, commit_seconds: float, now_us: int | None) -> int:
    stage_us, commit_us = round(stage_seconds * _SECOND_US), round(commit_seconds * _SECOND_US)
    gone = await database.ask(query("stages_expire"), {"now_us": now_us, "kept_us": stage_us})
    await database.ask(query("stage_commits_expire"), {"now_us": now_us, "kept_us": commit_us})
    return len(gone)


async def figures(database: Database, expired: int) -> StageFigures:
    [(stages, size)] = cast("list[tuple[int, int]]", await database.ask(query("stages_figures")))
    return StageFigures(stages, size, expired)
