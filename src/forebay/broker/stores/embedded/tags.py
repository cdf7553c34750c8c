"""Tags of log records that count: those of transactions that were committed.

Every reader of a record with a tag finds out here whether it counts: a reader of ranges, browsing, retention, and the
index that catches up with its log. So a tag is needed for as long as a log holds a record with it, and no longer. A
transaction that wrote no record needs none.

**The rule.** With its tag, a transaction notes for each queue that got records the last seq of them. When the log of a
queue begins behind that seq, the note goes; with the last note of a tag goes the tag. A queue that is deleted takes its
notes with it.

A log begins behind a seq only when its segments were truncated, which is on the disk before the log says so, and comes
after the synced commit that raised the floors of their partitions above everything in them. So there are two reasons
why a tag that is gone is never missed: its records are not in the manifest any more, and if some old state of the log
came back, their messages would be below the floors. Notes and tag go in one commit of the database. A crash before it
leaves tags that are never looked up to the next run; there is no state between.

A reader beside the store's thread may hold a record from before the truncation, and look up its tag after the tag has
gone. For this one a tag that is unknown means nothing before it has looked whether the record is still there
(`reading`).

Tags without notes are of a Forebay that made none. Where their records are, is not known: they stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import OpenQueue
from forebay.commitlog.block import NO_TAG


class CommittedTags:
    def __init__(self, database: Database, limits: EmbeddedLimits) -> None:
        self._database = database
        self._limits = limits

    def counts(self, tag: bytes) -> bool:
        """Whether records with this tag are part of the queue: their transaction was committed, or they had none."""
        if tag == NO_TAG:
            return True
        return self._database.one(query("tag_is_committed"), (tag,)) is not None

    def add(self, tag: bytes, last_seqs: Mapping[int, int]) -> None:
        """Commit the tag, with the last seq that has it in each queue that got records."""
        if not last_seqs:
            return
        self._database.do(query("tag_add"), (tag,))
        self._database.many(
            query("tagged_record_add"),
            [(tag, queue_id, last_seq) for queue_id, last_seq in last_seqs.items()],
        )

    def prune(self, queue: OpenQueue) -> bool:
        """Remove some that the queue's log does not hold any more; returns whether there may be others."""
        gone = self._database.all(
            query("tags_before"),
            (queue.queue_id, queue.log.first_seq, self._limits.removed_tags_max),
        )
        self._remove(queue.queue_id, gone)
        return len(gone) == self._limits.removed_tags_max

    def forget_some(self, queue_id: int) -> bool:
        """The queue is deleted: remove some of its tags; returns whether there may be others."""
        statement = query("tags_of_queue")
        gone = self._database.all(statement, (queue_id, self._limits.removed_tags_max))
        self._remove(queue_id, gone)
        return len(gone) == self._limits.removed_tags_max

    def _remove(self, queue_id: int, tags: Sequence[tuple[bytes]]) -> None:
        self._database.many(query("tagged_record_delete"), [(tag, queue_id) for (tag,) in tags])
        self._database.many(
            query("tag_delete_unused"),
            [{"tag": tag} for (tag,) in tags],
        )
