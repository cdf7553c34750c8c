"""What belonged to queues and groups that were deleted: removed in turns, after the queue or the group itself.

Either is deleted by its own row, in one synced commit: from then on nothing finds what belonged to it, and one of the
same name is another one. The rest is waste, whose amount may be anything; a process that dies before all of it is gone
leaves it to the next retention.
"""

from __future__ import annotations

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.queries import query, query_with
from forebay.broker.stores.embedded.tags import CommittedTags

_OF_PARTITIONS = (
    ("blocks", "first_seq"),
    ("transaction_ids", "transaction_id"),
    ("deleted_messages", "seq"),
    ("states", "group_id"),
    ("traces", "id"),
)
"""Tables of which a partition has rows, and what tells those apart."""
_OF_QUEUES = (
    ("dead_letters", "id"),
    ("lost_messages", "first_seq"),
    ("removed_partitions", "name"),
    ("holds", "reader"),
    ("parcel_holds", "flow"),
)


_GROUPS_GONE = query("groups_gone")


class Purger:
    def __init__(self, database: Database, tags: CommittedTags, limits: EmbeddedLimits) -> None:
        self._database = database
        self._tags = tags
        self._limits = limits
        self._rows = 0

    def waste(self) -> list[int]:
        """Numbers of queues that are gone and have left something behind."""
        tables = ("partitions", "tagged_records", *(table for table, _ in _OF_QUEUES))
        found = (self._database.all(query_with("rows_without_queue", table=table)) for table in tables)
        return sorted({number for rows in found for (number,) in rows})

    def waste_of_groups(self) -> list[int]:
        """Numbers of groups that are gone and have left something behind."""
        return [number for (number,) in self._database.all(_GROUPS_GONE)]

    def purge_group(self, group_id: int) -> bool:
        """Remove some of what a deleted group has left behind; returns whether that was all."""
        self._rows = 0
        return self._is_emptied("states", "group_id", group_id, "partition_id")

    def purge(self, queue_id: int) -> bool:
        """Remove some of what a deleted queue has left behind; returns whether that was all."""
        self._rows = 0
        partitions = self._database.all(query("partitions_some"), (queue_id, self._limits.removed_partitions_max))
        for (number,) in partitions:
            self._database.do(
                query("trace_names_purge"),
                (number, self._limits.removed_rows_max),
            )
            for table, key in _OF_PARTITIONS:
                if not self._is_emptied(table, "partition_id", number, key):
                    return False
            self._database.do(query("partition_delete"), (number,))
        if len(partitions) == self._limits.removed_partitions_max:
            return False
        if not all(self._is_emptied(table, "queue_id", queue_id, key) for table, key in _OF_QUEUES):
            return False
        return not self._tags.forget_some(queue_id)

    def _is_emptied(self, table: str, owner: str, number: int, key: str) -> bool:
        """Remove some of the owner's rows; False when others have to get their turn first."""
        self._rows += self._database.do(
            query_with("rows_purge", table=table, owner=owner, key=key),
            {"number": number, "limit": self._limits.removed_rows_max},
        )
        return self._rows < self._limits.removed_rows_max
