"""Other rooms' work: on a SQLite database in memory, beside what the store itself holds."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

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
    drive,
    sqlite_values,
)
from forebay.broker.stores.embedded.database import VERSION, numbered_format
from forebay.clock import Clock
from forebay.errors import ForebayError
from forebay.testing.memory_store.arrow import ArrowStages

T = TypeVar("T")


class Rooms(ArrowStages):
    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._rooms = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        # It has nothing to lose: a test may drop the store without closing it.
        weakref.finalize(self, self._rooms.close)
        for number in range(7, VERSION + 1):
            self._rooms.executescript(numbered_format(number))

    async def together(self, begin: Callable[[], Work[T]], *, has_stages: bool = False) -> T:
        wake, woken = self._wake, []
        self._wake = lambda queue, count: woken.append((queue, count))
        self._rooms.execute("BEGIN")
        try:
            result = self._in_savepoint(begin)
        finally:
            self._rooms.execute("COMMIT")
            self._wake = wake
        for queue, count in woken:
            wake(queue, count)
        return result

    async def look(self, begin: Callable[[], Work[T]]) -> T:
        return drive(begin(), self._do)

    def _in_savepoint(self, begin: Callable[[], Work[T]]) -> T:
        kept, stages, commits = self._kept(), dict(self._stages), dict(self._commits)
        self._rooms.execute("SAVEPOINT part")
        try:
            return drive(begin(), self._do)
        except BaseException:
            self._rooms.execute("ROLLBACK TO part")
            self._put_back(kept)
            self._stages, self._commits = stages, commits
            raise
        finally:
            self._rooms.execute("RELEASE part")

    def _do(self, step: Step) -> Any:
        match step:
            case Ask(statement, values):
                return self._rooms.execute(statement.sqlite, sqlite_values(values)).fetchall()
            case Now():
                return self._clock.now_us()
            case QueueEdge(name):
                return self._edge(name)
            case QueueGaps(name):
                queue = self._queues.get(name)
                return None if queue is None else Gaps(queue.removed_seq(), 0)
            case GroupEdge():
                return self._group_edge(step)
            case DeadSeqs():
                return self._dead_seqs(step)
            case CommitStages(wanted, stage_ids):
                return self._commit_stages(wanted, stage_ids)
            case DropStages(wanted):
                return self._abort_stages(wanted, all_writes=False)
            case TryAlone(begin):
                try:
                    return self._in_savepoint(begin)
                except ForebayError as error:
                    return error

    def _edge(self, name: str) -> Edge | None:
        queue = self._queues.get(name)
        if queue is None:
            return None
        messages = queue.messages()
        identity = identity_of(queue.number, queue.info.created_us)
        return Edge(queue.number, messages[0].seq if messages else queue.next_seq, queue.next_seq, identity)

    def _group_edge(self, wanted: GroupEdge) -> Passed | None:
        queue = self._queues.get(wanted.queue)
        if queue is None:
            return None
        if wanted.group not in queue.groups:
            return Passed(queue.number, None)
        partition = queue.partitions.get(wanted.partition)
        waiting = queue.waiting(partition, wanted.group) if partition is not None else []
        return Passed(queue.number, min((message.seq for message in waiting), default=queue.next_seq))

    def _dead_seqs(self, wanted: DeadSeqs) -> list[int]:
        place = (wanted.queue, wanted.partition, wanted.group)
        seqs = sorted(
            letter.message.seq
            for letter in self._letters.values()
            if (letter.message.queue, letter.message.partition, letter.group) == place
        )
        return [seq for seq in seqs if wanted.first_seq <= seq <= wanted.last_seq][: wanted.limit]

    def held_by_parcels(self, queue_id: int) -> int | None:
        """The first seq of a queue that an unfinished parcel needs."""
        statement = "SELECT min(seq) FROM parcel_holds WHERE queue_id = ?"
        found: int | None = self._rooms.execute(statement, (queue_id,)).fetchone()[0]
        return found

    def forget_parcel_holds(self, queue_id: int) -> None:
        self._rooms.execute("DELETE FROM parcel_holds WHERE queue_id = ?", (queue_id,))
