"""Other rooms' work on PostgreSQL: one transaction on a connection of a pool of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from psycopg import AsyncConnection

from forebay.broker.bulk import identity_of
from forebay.broker.room_work import (
    Ask,
    CommitStages,
    DeadSeqs,
    DropStages,
    Edge,
    Gaps,
    GroupEdge,
    Now,
    Passed,
    QueueEdge,
    QueueGaps,
    Step,
    TryAlone,
    Work,
    packed,
)
from forebay.broker.stores.postgres.committing import StageCommit
from forebay.broker.stores.postgres.connections import Connection, send
from forebay.broker.stores.postgres.pushing import Availability, MissingQueues
from forebay.broker.stores.postgres.queries import query
from forebay.errors import ForebayError

T = TypeVar("T")


class RoomTransaction:
    """Drives one work's steps on one connection, within a transaction that its caller begins and ends."""

    def __init__(self, connection: Connection, server_id: str, now_us: int | None) -> None:
        self._connection = connection
        self._server_id = server_id
        self._now_us = now_us
        self.availability = Availability({}, set())
        """What became available, for when the transaction is committed."""

    async def run(self, work: Work[T]) -> T:
        try:
            step = next(work)
            while True:
                step = work.send(await self._do(step))
        except StopIteration as end:
            return cast("T", end.value)
        finally:
            work.close()

    async def _do(self, step: Step) -> Any:
        match step:
            case Ask(statement, values):
                return await self._ask(statement.postgres, {name: packed(value) for name, value in values.items()})
            case Now():
                return await self._now()
            case QueueEdge(name):
                found = await self._ask(query("queue_edge"), {"queue": name})
                return _edge(*found[0]) if found else None
            case QueueGaps(name):
                found = await self._ask(query("queue_gaps"), {"queue": name})
                return Gaps(found[0][0], 0) if found else None
            case GroupEdge():
                found = await self._ask(query("group_edge"), step._asdict())
                return Passed(*found[0]) if found else None
            case DeadSeqs():
                return [seq for (seq,) in await self._ask(query("dead_letters_between"), step._asdict())]
            case CommitStages(wanted, stage_ids):
                commit = StageCommit(wanted, stage_ids, self._server_id)
                outcome, availability = await commit.run(self._connection, self._now_us)
                self.availability.counts.update(availability.counts)
                self.availability.wanted_elsewhere.update(availability.wanted_elsewhere)
                return outcome
            case DropStages(wanted):
                await self._ask(query("stages_forget"), {**wanted._asdict(), "all_writes": False})
                return None
            case TryAlone(begin):
                return await self._alone(begin)

    async def _now(self) -> int:
        if self._now_us is None:
            [[found]] = await self._ask(query("time_now"), {"now_us": None})
            self._now_us = found
        return self._now_us

    async def _ask(self, text: bytes, values: dict[str, Any]) -> list[Any]:
        cursor = await send(self._connection, text, values)
        return await cursor.fetchall() if cursor.description else []

    async def _alone(self, begin: Callable[[], Work[Any]]) -> Any:
        try:
            async with cast("AsyncConnection[Any]", self._connection).transaction():
                return await self.run(begin())
        except MissingQueues:
            raise
        except ForebayError as error:
            return error


def _edge(queue_id: int, first_seq: int, next_seq: int, created_us: int) -> Edge:
    return Edge(queue_id, first_seq, next_seq, identity_of(queue_id, created_us))
