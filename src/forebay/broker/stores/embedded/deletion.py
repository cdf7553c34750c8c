"""Queues and single messages that are deleted."""

from __future__ import annotations

from forebay.broker.stores.embedded.browsing import Browsing
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import OpenQueue, Queues


class Deletion:
    def __init__(self, database: Database, queues: Queues, browsing: Browsing) -> None:
        self._database = database
        self._queues = queues
        self._browsing = browsing

    def delete(self, name: str) -> int | None:
        """Take the queue out of the database; its log is removed when that is committed. None when there is none.

        Returns its number: what belonged to it is waste from now on (`purging`).
        """
        queue = self._queues.by_name.get(name)
        if queue is None:
            return None
        self._database.do(query("groups_delete"), (queue.queue_id,))
        # A commit that is repeated writes to the queue that is made anew: what the old one got is gone.
        self._database.do(query("commits_delete"), (name,))
        self._database.do(query("queue_delete"), (queue.queue_id,))
        self._queues.forget(name)
        return queue.queue_id

    def delete_message(self, wire_id: str, transaction_id: str) -> tuple[OpenQueue, int] | None:
        """Take a message out: a row says that it is gone. Its bytes leave the disk with their segment."""
        message, found = self._browsing.message(wire_id, transaction_id), self._queues.of_wire_id(wire_id)
        if message is None or found is None:
            return None
        number = found[1]
        self._database.do(query("deleted_add"), (number, message.seq))
        self._database.do(
            query("id_delete"),
            (number, transaction_id, message.seq),
        )
        self._database.do(query("partition_shrink"), (len(message.payload), number))
        return found
