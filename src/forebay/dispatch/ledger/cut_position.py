"""Where a source is cut next: behind what was cut, behind what is gone, or at the first message of a queue that is new.

What is gone that was in no parcel is a loss, as long as it was not gone before the flow came to the queue.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.broker.room_work import Ask, Edge, Gaps, QueueGaps, Work
from forebay.dispatch.definition import FlowDefinition
from forebay.dispatch.ledger.holding import hold
from forebay.dispatch.tables import SQL


class Position(NamedTuple):
    definition: FlowDefinition
    version: int
    queue_id: int
    next_seq: int
    waits_us: int | None
    removed_seq: int | None
    """What was removed up to here is no loss, or was reported. None: not known, as an older Forebay has left it."""

    @property
    def flow(self) -> str:
        return self.definition.name


class SourceLoss(NamedTuple):
    """What was gone before it was cut."""

    text: str
    messages: int
    """How many, at the most; 0: not known."""


def begin(position: Position, edge: Edge) -> Work[Position]:
    """The queue is new to the flow: it is cut from its first message on, or from where the source says."""
    is_first = position.queue_id == 0
    start_seq = position.definition.source.start_seq if is_first else None
    first_seq = max(edge.first_seq, start_seq or 1)
    gaps = yield from _gaps(position, 1, 0)
    yield Ask(SQL["hold_drop"], {"flow": position.flow, "queue_id": position.queue_id})
    yield from hold([(edge.queue_id, position.flow, first_seq)])
    new = position._replace(queue_id=edge.queue_id, next_seq=first_seq, waits_us=None, removed_seq=gaps.removed_seq)
    yield from keep(new)
    return new


def keep(position: Position) -> Work[None]:
    """Write down how far the source is cut."""
    kept = {name: getattr(position, name) for name in ("queue_id", "next_seq", "waits_us", "removed_seq")}
    yield Ask(SQL["cut_keep"], {"flow": position.flow, **kept})


def _gaps(position: Position, first_seq: int, last_seq: int) -> Work[Gaps]:
    found: Gaps | None = yield QueueGaps(position.definition.source.queue, first_seq, last_seq)
    return found or Gaps(0, 0)


def replaced(was: Position) -> SourceLoss | None:
    """What is gone with the queue that was there before; None if there was none."""
    if was.queue_id == 0:
        return None
    queue = was.definition.source.queue
    behind = f"what it held from seq {was.next_seq} on, and was in no parcel, is gone"
    return SourceLoss(f"queue {queue!r} was deleted and made again: {behind}", 0)


def behind_what_is_gone(
    position: Position, edge: Edge, seen: tuple[str, int]
) -> Work[tuple[Position, SourceLoss | None]]:
    """Go on behind messages that are gone before they were cut. `seen`: as `CutOptions` has it.

    What was removed is looked for where the front of the queue says that something is missing, and where a look that
    was not part of this transaction has found it: to look at every partition each time would be dear.
    """
    identity, removed_seq = seen
    removed_seq = removed_seq if identity == edge.identity else 0
    next_seq, lost = max(position.next_seq, edge.first_seq), 0
    if edge.first_seq > position.next_seq or position.removed_seq is None:
        gaps = yield from _gaps(position, position.next_seq, edge.first_seq - 1)
        removed_seq, lost = max(removed_seq, gaps.removed_seq), gaps.lost
    known_seq = removed_seq if position.removed_seq is None else position.removed_seq
    is_removed = removed_seq >= position.next_seq and removed_seq > known_seq
    new = position._replace(next_seq=next_seq, removed_seq=max(removed_seq, known_seq))
    if not is_removed and not lost:
        # What is not there was deleted by itself, or never was.
        if new != position:
            yield from keep(new)
        return new, None
    new = new._replace(waits_us=None)
    yield from keep(new)
    last_seq = max(next_seq - 1, removed_seq if is_removed else 0)
    messages = last_seq - position.next_seq + 1 if is_removed else lost
    which = "messages" if last_seq < next_seq else "some of the messages"
    cause = "they were removed before they were cut" if is_removed else "they cannot be read any more"
    text = f"{which} {position.next_seq}-{last_seq} of queue {position.definition.source.queue!r} are gone: {cause}"
    return new, SourceLoss(text, messages)
