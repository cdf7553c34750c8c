"""Holds: from which message on retention spares a queue for a flow.

A hold is there before retention could take what it protects: it is made, or lowered, in the transaction that makes the
parcel or its next step. It is only raised by `forebay.dispatch.hold_sweep`, which reads everything unfinished first.
A hold that is too low keeps messages a little longer; one that is too high would lose them.

Holds are written after the classes of the transaction are locked, by everything that does both: a completion and a
replay would otherwise wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from forebay.broker.room_work import Ask, Edge, QueueEdge, Work
from forebay.dispatch.tables import SQL
from forebay.dispatch.values import Range


def hold_ranges(flow: str, ranges: Iterable[Range]) -> Work[None]:
    """Spare these messages for the flow. A queue that is gone has nothing to be spared."""
    wanted = list(ranges)
    edges = yield from edges_of(sorted({reading.queue for reading in wanted}))
    lowest: dict[int, int] = {}
    for reading in wanted:
        edge = edges.get(reading.queue)
        if edge is not None and reading.identity in ("", edge.identity):
            lowest[edge.queue_id] = min(reading.first_seq, lowest.get(edge.queue_id, reading.first_seq))
    yield from hold([(queue_id, flow, seq) for queue_id, seq in lowest.items()])


def hold(holds: Sequence[tuple[int, str, int]]) -> Work[None]:
    """Spare messages from a seq on, for each (queue_id, flow, seq); a hold that is lower already stays."""
    if holds:
        yield Ask(SQL["hold_lower"], {"holds": [list(entry) for entry in sorted(holds)]})


def edges_of(queues: Iterable[str]) -> Work[dict[str, Edge]]:
    """Where these queues end; one that is not there is left out."""
    edges: dict[str, Edge] = {}
    for queue in queues:
        edge: Edge | None = yield QueueEdge(queue)
        if edge is not None:
            edges[queue] = edge
    return edges


def holds_of(flow: str) -> Work[Mapping[int, int]]:
    """The flow's holds: queue_id to seq."""
    rows = yield Ask(SQL["holds_of_flow"], {"flow": flow})
    return dict(rows)
