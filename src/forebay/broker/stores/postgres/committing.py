"""Commits of stages: their rows become messages of their queues in one transaction.

A commit claims its write first, with the rows that will remember it, one per queue: of two that come together the
second waits, and then finds what the first one did. Then it locks its stages and queues, as a push does, and pushes
stage by stage, in pieces; the locks last until the commit, so no reader sees a part of it, and pushes to those queues
wait meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from forebay.broker.arrow import staged_rows
from forebay.broker.arrow.commits import NO_QUEUE, Committed, Decision, decide, request_of
from forebay.broker.bulk import CommitOutcome, Content, StagesOf
from forebay.broker.messages import DUPLICATE, QUEUED, Pushed
from forebay.broker.numbering import count_of
from forebay.broker.stores.postgres import push_statements
from forebay.broker.stores.postgres.connections import Connection, rows, send
from forebay.broker.stores.postgres.pushing import Availability, MissingQueues, Push
from forebay.broker.stores.postgres.queries import query
from forebay.errors import PayloadInClear, QueueFull, StageUnknown

COMMIT_SECONDS_MAX = 600.0


class StageCommit:
    """One commit, as a part of a transaction."""

    def __init__(self, wanted: StagesOf, stage_ids: Sequence[str], server_id: str) -> None:
        self._wanted = wanted
        self._names: dict[str, object] = {"producer": wanted.producer, "epoch": wanted.epoch, "write": wanted.write}
        self._stage_ids = list(dict.fromkeys(stage_ids))
        self._server_id = server_id

    async def run(self, connection: Connection, now_us: int | None) -> tuple[CommitOutcome, Availability]:
        self._availability = Availability({}, set())
        self._done: dict[str, Committed] = {}
        found = cast("list[tuple[str, str, int, int, int]]", await rows(connection, query("stages_find"), self._names))
        staged = {stage_id: (queue, Content(*content)) for stage_id, queue, *content in found}
        decision, created_us = await self._claimed(connection, staged, now_us)
        chosen = [stage_id for stage_id in self._stage_ids if staged.get(stage_id, ("",))[0] in decision.new]
        await self._lock(connection, chosen, set(decision.new) - {NO_QUEUE} if chosen else set())
        for stage_id in chosen:
            await self._push(connection, stage_id, staged[stage_id][0], created_us)
        for done in self._done.values():
            numbers = {"messages": done.messages, "duplicates": done.duplicates, "first_seq": done.first_seq}
            await send(connection, query("stage_commit_note"), {**self._names, "queue": done.queue, **numbers})
        for queue in decision.new:
            await send(connection, query("stages_forget"), {**self._names, "queue": queue, "all_writes": False})
        return decision.outcome(list(self._done.values())), self._availability

    async def _claimed(
        self, connection: Connection, staged: dict[str, tuple[str, Content]], now_us: int | None
    ) -> tuple[Decision, int]:
        """What of the request is new, and is this transaction's from now on; and when that is."""
        mine: set[str] = set()
        created_us = 0
        while True:
            committed = {queue: one for queue, one in (await self._committed(connection)).items() if queue not in mine}
            decision = decide(self._wanted, self._stage_ids, staged, committed)
            if decision.new.keys() <= mine:
                self._done = {queue: Committed(queue, content, "", 0, 0, 0) for queue, content in decision.new.items()}
                return decision, created_us
            # Those that another transaction has claimed are found committed next time, or free again.
            wanted = sorted(decision.new.keys() - mine)
            contents = [decision.new[queue] for queue in wanted]
            values = {
                "queues": wanted,
                "rows": [content.messages for content in contents],
                "sizes": [content.size_bytes for content in contents],
                "checksums": [content.checksum for content in contents],
                "request": request_of(self._stage_ids),
                "now_us": now_us,
            }
            claimed = await rows(connection, query("stage_commit_begin"), {**self._names, **values})
            for queue, time_us in cast("list[tuple[str, int]]", claimed):
                mine.add(queue)
                created_us = time_us

    async def _committed(self, connection: Connection) -> dict[str, Committed]:
        found = cast("list[tuple[Any, ...]]", await rows(connection, query("stage_commit_find"), self._names))
        return {row[0]: Committed(row[0], None if row[1] is None else Content(*row[1:4]), *row[4:]) for row in found}

    async def _lock(self, connection: Connection, stage_ids: list[str], queues: set[str]) -> None:
        """The stages, then their queues."""
        if not stage_ids:
            return
        found = await rows(connection, query("stages_lock"), {**self._names, "stage_ids": stage_ids})
        there = {cast("str", row[0]) for row in found}
        gone = [stage_id for stage_id in stage_ids if stage_id not in there]
        if gone:
            raise StageUnknown(gone, self._wanted.producer, self._wanted.epoch)
        locked = await rows(connection, *push_statements.lock_queues(queues, self._server_id))
        missing = queues - {cast("str", row[1]) for row in locked}
        if missing:
            raise MissingQueues(dict.fromkeys(sorted(missing), ("", "")))

    async def _push(self, connection: Connection, stage_id: str, queue: str, now_us: int) -> None:
        [[body]] = await rows(connection, query("stage_body"), {"stage_id": stage_id})
        for batch in staged_rows.read(cast("bytes", body)):
            runs = await asyncio.to_thread(staged_rows.runs_of, queue, batch)
            push = Push(connection, now_us, self._server_id)
            [outcome], availability = await push.store([runs])
            if isinstance(outcome, QueueFull | PayloadInClear):
                raise outcome
            self._note(queue, outcome, availability)

    def _note(self, queue: str, outcome: Sequence[Pushed], availability: Availability) -> None:
        first_seq = next((one.seq for one in outcome if one.status == QUEUED), 0)
        done = self._done[queue]
        self._done[queue] = done._replace(
            messages=done.messages + count_of(QUEUED, outcome),
            duplicates=done.duplicates + count_of(DUPLICATE, outcome),
            first_seq=done.first_seq or first_seq,
        )
        for name, count in availability.counts.items():
            self._availability.counts[name] = self._availability.counts.get(name, 0) + count
        self._availability.wanted_elsewhere.update(availability.wanted_elsewhere)
