"""Tags of log records that count: those of transactions that were committed.

Whoever reads a record with a tag asks here whether it counts: a reader of ranges, browsing, retention, and the index
that catches up with its log. So a tag is needed for as long as a log holds a record with it, and no longer. A
transaction that wrote no record needs none.

**The rule.** With its tag, a transaction notes for each queue that got records the last seq of them. When the log of a
queue begins behind that seq, the note goes; with the last note of a tag goes the tag. A queue that is deleted takes its
notes with it.

A log begins behind a seq only when its segments were truncated, which is on the disk before the log says so, and comes
after the synced commit that raised the floors of their partitions above everything in them. So there are two reasons
why nobody misses a tag that is gone: its records are not in the manifest any more, and if some old state of the log
came back, their messages would be below the floors. Notes and tag go in one commit of the database. A crash before it
leaves tags that nobody asks for to the next run; there is no state between.

Who reads beside the store's thread may hold a record from before the truncation, and ask for its tag after the tag has
gone. For this one a tag that is unknown means nothing before it has looked whether the record is still there
(`reading`).

Tags without notes are of a Forebay that made none. Where their records are, nobody knows: they stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.queues import OpenQueue
from forebay.commitlog.block import NO_TAG

PIECE_TAGS_MAX = 200
"""Removed before others get their turn."""


class CommittedTags:
    def __init__(self, database: Database) -> None:
        self._database = database

    def counts(self, tag: bytes) -> bool:
        """Whether records with this tag are part of the queue: their transaction was committed, or they had none."""
        if tag == NO_TAG:
            return True
        return self._database.one("SELECT 1 FROM committed_tags WHERE tag = ?", (tag,)) is not None

    def add(self, tag: bytes, last_seqs: Mapping[int, int]) -> None:
        """Commit the tag, with the last seq that has it in each queue that got records."""
        if not last_seqs:
            return
        self._database.do("INSERT INTO committed_tags (tag) VALUES (?)", (tag,))
        self._database.many(
            "INSERT INTO tagged_records (tag, queue_id, last_seq) VALUES (?, ?, ?)",
            [(tag, queue_id, last_seq) for queue_id, last_seq in last_seqs.items()],
        )

    def prune(self, queue: OpenQueue) -> bool:
        """Remove some that the queue's log does not hold any more; returns whether there may be others."""
        gone = self._database.all(
            "SELECT tag FROM tagged_records WHERE queue_id = ? AND last_seq < ? LIMIT ?",
            (queue.queue_id, queue.log.first_seq, PIECE_TAGS_MAX),
        )
        self._remove(queue.queue_id, gone)
        return len(gone) == PIECE_TAGS_MAX

    def forget_some(self, queue_id: int) -> bool:
        """The queue is deleted: remove some of its tags; returns whether there may be others."""
        statement = "SELECT tag FROM tagged_records WHERE queue_id = ? LIMIT ?"
        gone = self._database.all(statement, (queue_id, PIECE_TAGS_MAX))
        self._remove(queue_id, gone)
        return len(gone) == PIECE_TAGS_MAX

    def _remove(self, queue_id: int, tags: Sequence[tuple[bytes]]) -> None:
        self._database.many(
            "DELETE FROM tagged_records WHERE tag = ? AND queue_id = ?", [(tag, queue_id) for (tag,) in tags]
        )
        self._database.many(
            "DELETE FROM committed_tags WHERE tag = ?1 AND NOT EXISTS (SELECT 1 FROM tagged_records WHERE tag = ?1)",
            tags,
        )
