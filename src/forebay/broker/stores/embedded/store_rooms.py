"""Other rooms' work on the embedded store: changes in the store's thread, looks beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, TypeVar

from forebay.broker.room_work import (
    Ask,
    DeadSeqs,
    GroupEdge,
    Now,
    QueueEdge,
    QueueGaps,
    Step,
    Work,
    drive,
    sqlite_values,
)
from forebay.broker.stores.embedded.data_directory import DATABASE_FILE, read_only
from forebay.broker.stores.embedded.group_edges import dead_seqs, gaps_of, group_edge
from forebay.broker.stores.embedded.store_calls import StoreCalls
from forebay.broker.stores.embedded.transactions import edge_of
from forebay.errors import InvariantBroken

T = TypeVar("T")


class StoreRooms(StoreCalls):
    """Work of `forebay.broker.room_work`."""

    async def together(self, begin: Callable[[], Work[T]], *, has_stages: bool = False) -> T:
        engine = self._engine
        return await self._call(lambda: engine.transactions.together(begin, self._clock.now_us()), synced=True)

    async def queues_of(
        self, *, partition_ids: Sequence[str] = (), lease_ids: Sequence[str] = (), stage_ids: Sequence[str] = ()
    ) -> set[str]:
        belonging = self._engine.belonging
        return await self._call(lambda: belonging.queues_of(partition_ids, lease_ids, stage_ids))

    async def look(self, begin: Callable[[], Work[T]]) -> T:
        self._open_line()
        return await asyncio.to_thread(self._look, begin)

    def _look(self, begin: Callable[[], Work[T]]) -> T:
        now_us = self._clock.now_us()
        with closing(read_only(self._directory / DATABASE_FILE)) as connection:
            connection.execute("BEGIN")

            def do(step: Step) -> Any:
                match step:
                    case Ask(statement, values):
                        return connection.execute(statement.sqlite, sqlite_values(values)).fetchall()
                    case Now():
                        return now_us
                    case QueueEdge(name):
                        return edge_of(self._engine.queues, name)
                    case QueueGaps():
                        return gaps_of(connection.execute, self._engine.queues, step)
                    case GroupEdge():
                        return group_edge(connection.execute, self._engine.queues, step, now_us)
                    case DeadSeqs():
                        return dead_seqs(connection.execute, step)
                raise InvariantBroken(f"work that only looks requested {type(step).__name__}")

            return drive(begin(), do)
