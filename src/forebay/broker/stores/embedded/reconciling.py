"""Opening: what SQLite knows of messages is compared with what the logs hold, and what is missing is noted as lost.

| found                                                    | what happens                                              |
|----------------------------------------------------------|-----------------------------------------------------------|
| the log begins behind messages that the index knows      | lost; floors rise over them                               |
| salvages of the log have reported damage                 | what the index knows of it is lost                        |
| the index goes on behind the log's end                   | lost; the log goes on behind the last seq ever given out  |
| the log goes on behind the index                         | nothing here: the index catches up                        |

The notes are committed before a log skips anything: killed between the two, the next opening finds the same again.
"""

from __future__ import annotations

import logging

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.losses import Losses
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.commitlog.salvage import reported_damage
from forebay.errors import DamagedRange
from forebay.filesystem import Filesystem

logger = logging.getLogger(__name__)


class Reconciler:
    def __init__(self, database: Database, queues: Queues, losses: Losses, filesystem: Filesystem) -> None:
        self._database = database
        self._queues = queues
        self._losses = losses
        self._filesystem = filesystem

    def reconcile(self) -> None:
        """Note what is missing, durably, and let the logs go on behind everything that was ever given out."""
        with self._database.transaction(synced=True):
            for queue in self._queues.by_id.values():
                self._note_missing_front(queue)
                for damage in reported_damage(self._filesystem, queue.log.base):
                    self._losses.note(queue, damage)
            ahead = self._note_missing_ends()
        for queue, last_seq in ahead:
            queue.log.skip_to(last_seq + 1)

    def _note_missing_front(self, queue: OpenQueue) -> None:
        first_seq = queue.log.first_seq
        if first_seq == 1:
            return
        lost = DamagedRange("no segment", 0, 0, 1, first_seq - 1, "their segments are not in the log any more")
        self._losses.note(queue, lost)
        # Nothing is kept below: what is left of the index there tells of messages that are lost.
        floors = self._database.all(
            query("blocks_before"),
            (first_seq, queue.queue_id),
        )
        for number, floor_seq in floors:
            self._database.do(query("partition_raise_floor"), (floor_seq, number))
            self._database.do(query("blocks_delete_upto"), (number, floor_seq))

    def _note_missing_ends(self) -> list[tuple[OpenQueue, int]]:
        """The queues of which the index knows more than the log, each with the last seq that was given out."""
        ahead = []
        known = self._database.all(query("queues_last_seqs"))
        for queue_id, last_seq in known:
            queue = self._queues.by_id[queue_id]
            next_seq = queue.log.next_seq
            if last_seq < next_seq:
                continue
            reason = f"the log ends before them, at seq {next_seq - 1}"
            logger.error(
                "queue %r: the log has lost its end: it holds messages up to seq %d, and %d were given out; "
                "new messages go on behind that",
                queue.info.name,
                next_seq - 1,
                last_seq,
                extra={"action": "store_log_behind"},
            )
            self._losses.note(queue, DamagedRange("no segment", 0, 0, next_seq, last_seq, reason))
            ahead.append((queue, last_seq))
        return ahead
