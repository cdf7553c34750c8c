"""Forgetting groups that are idle and partitions that are empty.

Which they are is found beside the store's thread (`retention_plan`). The thread looks again and does the rest:
partitions in pieces, between which it serves other requests, and a group by its own row (`purging`).

The log still holds records of a partition that was removed. So its name and its last seq are kept until they are gone
with their segment: all that reads the log passes over them, and a partition of that name begins behind them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.queries import query, query_with
from forebay.broker.stores.embedded.queues import Queues
from forebay.clock import SECOND_US

PIECE_ROWS_MAX = 1_000
"""Rows of partitions, and of what is known of them, that are removed before others get their turn."""


class Expiring:
    """For the store's thread."""

    def __init__(self, database: Database, queues: Queues) -> None:
        self._database = database
        self._queues = queues

    def note_activity(self) -> None:
        """Write down when groups last popped."""
        self._database.many(
            query("group_touch"),
            [
                {"active_us": group.last_active_us, "group_id": group.group_id}
                for queue in self._queues.by_id.values()
                for group in queue.groups.values()
                if group.last_active_us
            ],
        )

    def hold(self, queue_name: str, reader: str, seq: int, seconds: float, now_us: int) -> bool:
        """Note where a reader stands that is no group; whether what it had not read was spared until now."""
        queue_id = self._queues.existing(queue_name).queue_id
        statement = query("hold_find")
        row = self._database.one(statement, (queue_id, reader))
        until_us = now_us + round(seconds * SECOND_US)
        self._database.do(query("hold_set"), (queue_id, reader, seq, until_us))
        return row is not None and row[0] > now_us

    def forget_holds(self, now_us: int) -> None:
        """Of readers that have not called for longer than they requested."""
        self._database.do(query("holds_expire"), (now_us,))

    def forget_group(self, queue_id: int, name: str, before_us: int) -> int | None:
        """Take a group out of the database if it is idle; its number: where it stood is waste now (`purging`)."""
        queue = self._queues.by_id.get(queue_id)
        group = queue.groups.get(name) if queue else None
        if queue is None or group is None or group.last_active_us >= before_us:
            return None
        (last_active_us,) = self._database.one(query("group_last_active"), (group.group_id,))
        if last_active_us >= before_us:
            return None
        self._database.do(query("group_delete"), (group.group_id,))
        del queue.groups[name]
        return group.group_id

    def partitions_at_once(self, queue_id: int) -> int:
        """Of how many partitions of the queue the rows are few enough for one piece."""
        queue = self._queues.by_id.get(queue_id)
        return max(PIECE_ROWS_MAX // (len(queue.groups) + 4 if queue else 4), 1)

    def remove_partitions(self, numbers: Sequence[int], before_us: int) -> int:
        """Remove those that are still empty; returns how many."""
        values = {"numbers": json.dumps(numbers), "before_us": before_us}
        found = self._database.execute(query("empty_partitions_still"), values).fetchall()
        for number, queue_id, name, last_seq, pushed in found:
            for table in ("blocks", "transaction_ids", "deleted_messages", "states"):
                self._database.do(query_with("rows_of_partition_delete", table=table), (number,))
            self._database.do(
                query("queue_note_gone_partition"),
                (pushed, number, queue_id),
            )
            self._database.do(query("partition_delete"), (number,))
            self._database.do(query("removed_partition_note"), (queue_id, name, last_seq))
            self._queues.by_id[queue_id].forget_partition(name)
            self._queues.by_id[queue_id].waiting = None
        return len(found)

    def prune_removed(self, queue_id: int) -> bool:
        """Forget some removed partitions of which the log holds nothing; returns whether there may be others."""
        queue = self._queues.by_id.get(queue_id)
        if queue is None:
            return False
        removed = self._database.do(
            query("removed_partitions_prune"),
            {"queue_id": queue_id, "first_seq": queue.log.first_seq, "limit": PIECE_ROWS_MAX},
        )
        return removed == PIECE_ROWS_MAX
