"""What becomes old: finished parcels are removed, and holds on messages that are needed no more move on.

Both go in pieces. A finished parcel takes its steps and its history with it. A flow's definitions stay.

**Holds move on** by a sweep over everything that is unfinished of a flow, since ranges are not in the order of places:
a replay reads old messages at the end of the line. The sweep goes from the highest place down, a piece at a time, each
piece a transaction that only reads; other servers go on meanwhile. What they may do without the sweep seeing it:

| meanwhile | why the new hold is not too high |
|---|---|
| a source is cut | its new parcels read from `next_seq` at the beginning of the sweep on, which is counted as needed |
| a step's output is committed | it lies behind the end that its queue had at the beginning, which is counted, too |
| parcels are joined | the joined parcel stands at its members' lowest place: still to come, or all were seen |
| a parcel is split | its parts have its place, and all of a place is read in one piece |
| a replay, an error, records | its place is new: the last piece reads those, with the flow's row locked against more |

So the hold of each queue becomes the lowest of what was seen and of where things stood at the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from forebay.broker.room_work import Ask, Now, Work
from forebay.clock import SECOND_US
from forebay.dispatch.ledger.holding import edges_of
from forebay.dispatch.tables import SQL

PLACES_IN_PIECE = 10_000


def remove_finished(retention_seconds: float, limit: int) -> Work[int]:
    """Remove parcels that were finished longer ago than this, up to so many, oldest first; how many."""
    now_us = yield Now()
    values = {"before_us": now_us - int(retention_seconds * SECOND_US), "limit": limit}
    rows = yield Ask(SQL["parcels_old"], values)
    if not rows:
        return 0
    dids = [list(row) for row in rows]
    for name in ("events_remove", "steps_remove", "errors_remove", "parcels_remove"):
        yield Ask(SQL[name], {"dids": dids})
    return len(dids)


class Sweep(NamedTuple):
    """How far a sweep over a flow's unfinished steps has come."""

    flow: str
    top: int
    """The last place that was given when the sweep began."""
    below: int
    """Everything from here up to `top` was seen."""
    at_start: Mapping[str, tuple[int, int]]
    """Queues as they were when the sweep began: identity, and the first message that only a later parcel reads."""
    seen: Mapping[str, int]
    """The lowest message that was found to be needed, by queue."""


def sweep_begin(flow: str, queues: frozenset[str]) -> Work[Sweep | None]:
    """Where things stand; `queues`: names that steps of the flow were found to read before. None: no such flow."""
    rows = yield Ask(SQL["sweep_begin"], {"flow": flow})
    if not rows:
        return None
    [[source, queue_id, next_seq, top, _]] = rows
    edges = yield from edges_of(sorted(queues - {source}))
    at_start = {queue: (edge.queue_id, edge.next_seq) for queue, edge in edges.items()}
    if queue_id:
        at_start[source] = (queue_id, next_seq)
    return Sweep(flow, top, top + 1, at_start, {})


def sweep_piece(sweep: Sweep) -> Work[Sweep | None]:
    """The next piece down; None when there is nothing below."""
    rows = yield Ask(SQL["sweep_top"], {"flow": sweep.flow, "below": sweep.below})
    top = rows[0][0]
    if top is None:
        return None
    bottom = top - PLACES_IN_PIECE + 1
    seen = yield from _needed(sweep, bottom, top)
    return sweep._replace(below=bottom, seen=seen)


def _needed(sweep: Sweep, bottom: int, top: int) -> Work[dict[str, int]]:
    rows = yield Ask(SQL["sweep_piece"], {"flow": sweep.flow, "bottom": bottom, "top": top})
    seen = dict(sweep.seen)
    for queue, identity, seq in rows:
        queue_id = sweep.at_start[queue][0] if queue in sweep.at_start else None
        # Of a queue that was deleted nothing can be spared, and its seqs mean nothing in one that was made again.
        if not identity or queue_id is None or identity.startswith(f"{queue_id}-"):
            seen[queue] = min(seq, seen.get(queue, seq))
    return seen


def sweep_end(sweep: Sweep) -> Work[dict[str, int]]:
    """Move the flow's holds on to what the sweep found; by queue, where they are now."""
    locked = yield Ask(SQL["flow_lock"], {"flow": sweep.flow})
    if not locked:
        return {}
    seen = yield from _needed(sweep, sweep.top + 1, (1 << 62))
    # A queue that was not known at the beginning has no end of that time: its hold stays until the next sweep.
    holds = {queue: min(seq, seen.get(queue, seq)) for queue, (_, seq) in sweep.at_start.items()}
    rows = [[sweep.at_start[queue][0], sweep.flow, seq] for queue, seq in sorted(holds.items())]
    yield Ask(SQL["holds_raise"], {"holds": rows})
    return holds
