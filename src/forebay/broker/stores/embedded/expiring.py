"""Forgetting groups that are idle and partitions that are empty.

Which they are is found beside the store's thread (`retention_plan`). The thread looks again and does the rest, in
pieces: between two of them it does what others have asked for.

The log still holds records of a partition that was removed. So its name and its last seq are kept until they are gone
with their segment: all that reads the log passes over them, and a partition of that name begins behind them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.queues import Queues

PIECE_ROWS_MAX = 1_000
"""Rows of groups, partitions and states that are removed before others get their turn."""
_SECOND_US = 1_000_000
_EMPTY = files("forebay.broker.sql").joinpath("embedded", "empty_partitions.sql").read_text()


class Expiring:
    """For the store's thread."""

    def __init__(self, database: Database, queues: Queues) -> None:
        self._database = database
        self._queues = queues

    def note_activity(self) -> None:
        """Write down when groups last popped."""
        self._database.many(
            "UPDATE groups SET last_active_us = ?1 WHERE id = ?2 AND last_active_us < ?1",
            [
                (group.last_active_us, group.group_id)
                for queue in self._queues.by_id.values()
                for group in queue.groups.values()
                if group.last_active_us
            ],
        )

    def hold(self, queue_name: str, reader: str, seq: int, seconds: float, now_us: int) -> bool:
        """Note where a reader stands that is no group; whether what it had not read was spared until now."""
        queue_id = self._queues.existing(queue_name).queue_id
        statement = "SELECT until_us FROM holds WHERE queue_id = ? AND reader = ?"
        row = self._database.one(statement, (queue_id, reader))
        until_us = now_us + round(seconds * _SECOND_US)
        self._database.do("INSERT OR REPLACE INTO holds VALUES (?, ?, ?, ?)", (queue_id, reader, seq, until_us))
        return row is not None and row[0] > now_us

    def forget_holds(self, now_us: int) -> None:
        """Of readers that were not heard of for longer than they asked for."""
        self._database.do("DELETE FROM holds WHERE until_us <= ?", (now_us,))

    def forget_group(self, queue_id: int, name: str, before_us: int) -> bool | None:
        """Forget some of what is known of an idle group; whether all of it is forgotten, None when it is not idle."""
        queue = self._queues.by_id.get(queue_id)
        group = queue.groups.get(name) if queue else None
        if queue is None or group is None or group.last_active_us >= before_us:
            return None
        (last_active_us,) = self._database.one("SELECT last_active_us FROM groups WHERE id = ?", (group.group_id,))
        if last_active_us >= before_us:
            return None
        group.ready = queue.waiting = None
        removed = self._database.do(
            "DELETE FROM states WHERE group_id = ?1 AND partition_id IN "
            "(SELECT partition_id FROM states WHERE group_id = ?1 LIMIT ?2)",
            (group.group_id, PIECE_ROWS_MAX),
        )
        if removed == PIECE_ROWS_MAX:
            return False
        self._database.do("DELETE FROM groups WHERE id = ?", (group.group_id,))
        del queue.groups[name]
        return True

    def partitions_at_once(self, queue_id: int) -> int:
        """Of how many partitions of the queue the rows are few enough for one piece."""
        queue = self._queues.by_id.get(queue_id)
        return max(PIECE_ROWS_MAX // (len(queue.groups) + 4 if queue else 4), 1)

    def remove_partitions(self, numbers: Sequence[int], before_us: int) -> int:
        """Remove those that are still empty; returns how many."""
        values = {"numbers": json.dumps(numbers), "before_us": before_us}
        statement = f"SELECT * FROM ({_EMPTY}) WHERE id IN (SELECT value FROM json_each(:numbers))"
        found = self._database.execute(statement, values).fetchall()
        for number, queue_id, name, last_seq, pushed in found:
            for table in ("blocks", "transaction_ids", "deleted_messages", "states"):
                self._database.do(f"DELETE FROM {table} WHERE partition_id = ?", (number,))
            self._database.do(
                "UPDATE queues SET gone_pushed = gone_pushed + ?, "
                "gone_seq = max(gone_seq, (SELECT floor_seq FROM partitions WHERE id = ?)) WHERE id = ?",
                (pushed, number, queue_id),
            )
            self._database.do("DELETE FROM partitions WHERE id = ?", (number,))
            self._database.do("INSERT OR REPLACE INTO removed_partitions VALUES (?, ?, ?)", (queue_id, name, last_seq))
            self._queues.by_id[queue_id].forget_partition(name)
            self._queues.by_id[queue_id].waiting = None
        return len(found)

    def prune_removed(self, queue_id: int) -> bool:
        """Forget some removed partitions of which the log holds nothing; returns whether there may be others."""
        queue = self._queues.by_id.get(queue_id)
        if queue is None:
            return False
        removed = self._database.do(
            "DELETE FROM removed_partitions WHERE queue_id = ?1 AND name IN "
            "(SELECT name FROM removed_partitions WHERE queue_id = ?1 AND floor_seq < ?2 LIMIT ?3)",
            (queue_id, queue.log.first_seq, PIECE_ROWS_MAX),
        )
        return removed == PIECE_ROWS_MAX
