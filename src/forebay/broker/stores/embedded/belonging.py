"""Which queues partitions, leases and stages are of."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.queries import query
from forebay.broker.stores.embedded.queues import Queues


class Belonging:
    """For the store's thread."""

    def __init__(self, database: Database, queues: Queues) -> None:
        self._database = database
        self._queues = queues

    def queues_of(self, partition_ids: Sequence[str], lease_ids: Sequence[str], stage_ids: Sequence[str]) -> set[str]:
        places = [found for one in partition_ids if (found := self._queues.of_wire_id(one)) is not None]
        # The number of the queue stands in the id beside that of the partition: a forged one may have another's.
        queues = {queue.info.name for queue, _ in places}
        queues |= self._found("queues_of_partitions", "numbers", [number for _, number in places])
        queues |= self._found("queues_of_leases", "ids", lease_ids)
        return queues | self._found("queues_of_stages", "ids", stage_ids)

    def _found(self, name: str, parameter: str, given: Sequence[int | str]) -> set[str]:
        if not given:
            return set()
        values = {parameter: msgspec.json.encode(list(given)).decode()}
        return {queue for (queue,) in self._database.execute(query(name), values).fetchall()}
