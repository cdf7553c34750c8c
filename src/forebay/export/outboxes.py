"""The outboxes: every destination gets what is in the queue `.export.NAME`, without an entry in the settings.

A flow's last step puts its results there, in the partition of its flow (`forebay.model.internal_queues`). The export of
the same name (`.export.NAME`, group `export`) sends them like any other export: in order per partition, until the
destination has said yes. The group's cursor is how the flow's parcels learn that they are exported.

Most destinations have no outbox, because no flow has named them yet. So an export *rests* until its queue is there: it
has no workers, no connections and no group. All resting exports of a server together cost one look per second. The
queue is made by the first completion that commits rows to it, on this server or on another one of the same store.

What is sent is needed no more, and no user looks after an internal queue. So an outbox that has the options of a new
queue is given a *completed retention* of an hour: messages that all its groups have passed are removed then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from forebay.broker.room_work import Edge, QueueEdge, Work
from forebay.broker.store import Store
from forebay.export.queue_export import QueueExport
from forebay.model.queue import QueueOptions

LOOK_SECONDS = 1.0
COMPLETED_RETENTION_SECONDS = 3600


class Outboxes:
    """Exports that rest until their queues are there."""

    def __init__(self, exports: Iterable[QueueExport] = ()) -> None:
        self._resting = {export.name: export for export in exports}

    def __contains__(self, name: str) -> bool:
        return name in self._resting

    def __iter__(self) -> Iterator[QueueExport]:
        return iter(self._resting.values())

    def __len__(self) -> int:
        return len(self._resting)

    async def awake(self, store: Store) -> list[QueueExport]:
        """Those whose queues are there: they rest no longer, and are the caller's to start."""
        queues = [export.feed.options.queue for export in self]
        there = set(await store.look(partial(_there, queues))) if queues else set()
        found = [export for export in self if export.feed.options.queue in there]
        for export in found:
            await _bound(store, export.feed.options.queue)
            del self._resting[export.name]
        return found


def _there(queues: list[str]) -> Work[list[str]]:
    found = []
    for queue in queues:
        edge: Edge | None = yield QueueEdge(queue)
        if edge is not None:
            found.append(queue)
    return found


async def _bound(store: Store, name: str) -> None:
    """Let what was sent be removed, unless a person has given the queue options of its own."""
    queue = await store.queue(name)
    if queue is not None and queue.options == QueueOptions():
        options = replace(queue.options, completed_retention_seconds=COMPLETED_RETENTION_SECONDS)
        await store.configure(name, options, queue.namespace, queue.task)
