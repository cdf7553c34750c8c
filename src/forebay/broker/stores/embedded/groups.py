"""Groups: where they are set, and that they are deleted."""

from __future__ import annotations

from forebay.broker.delivery import DeliveryState
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.popping import Popper
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import OpenQueue, Queues

SEEK_PARTITIONS_MAX = 10_000
"""Set to another seq before others get their turn."""


class Groups:
    def __init__(self, database: Database, queues: Queues, popper: Popper) -> None:
        self._database = database
        self._queues = queues
        self._popper = popper

    def seek(self, name: str, queue: OpenQueue, partition: str | None, seq: int, after: int) -> tuple[int, int | None]:
        """Set the group's cursors before the seq, on some partitions with numbers above `after`.

        Returns on how many, and the number to go on from, if there may be others.
        """
        group = queue.groups.get(name) or self._popper.add_group(queue, name, "all", 0, 0)
        if partition is None and not after:
            # For partitions that are made later, where the seq is still to come.
            group.start_seq = max(seq - 1, 0)
            self._database.do(query("group_set_start"), (group.start_seq, group.group_id))
            group.ready = queue.waiting = None
        numbers = self._database.all(
            query("partitions_after"),
            {"after": after, "queue_id": queue.queue_id, "name": partition, "limit": SEEK_PARTITIONS_MAX},
        )
        if numbers:
            state = DeliveryState(max(seq - 1, 0))
            self._popper.states.save_all(group, queue, partition, (after + 1, numbers[-1][0]), state)
            group.ready = queue.waiting = None
        return len(numbers), numbers[-1][0] if len(numbers) == SEEK_PARTITIONS_MAX else None

    def delete(self, name: str, queue: str | None) -> tuple[int, list[int]]:
        """Take the group out of the database; where it stood is waste from now on (`purging`).

        Returns how many partitions knew it, and its number on each queue.
        """
        known, numbers = 0, list[int]()
        for found in self._queues.by_id.values():
            group = found.groups.get(name) if queue in (None, found.info.name) else None
            if group is not None:
                (states,) = self._database.one(query("states_count"), (group.group_id,))
                known += states
                self._database.do(query("group_delete"), (group.group_id,))
                del found.groups[name]
                numbers.append(group.group_id)
        return known, numbers
