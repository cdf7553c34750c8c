"""What happened to parcels, and how often what was done.

An event's number follows those that the parcel has. The caller has changed the parcel's row in `parcels` before, in
the same transaction, so no other server adds events to the parcel at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from forebay.broker.room_work import Ask, Work
from forebay.dispatch.tables import SQL

REQUEUES = "requeues"
"""Steps that were queued again: after an error, an expired lease, a release, or by a person."""
LEASE_EXPIRIES = "lease_expiries"
"""Leases that ended without a completion."""
LOST = "LOST"
"""An event: messages that the parcel was to read are gone, and it went on without them."""


class Event(NamedTuple):
    """One line of a parcel's history."""

    did: str
    step: int
    action: str
    event: str
    """What happened: ACTION, COMPLETE, FILTERED, ERROR, SPLIT, EXPIRED, LEFT_OUT, RELEASED, LOST, ..."""
    at_us: int
    started_us: int | None = None
    worker: str = ""
    attempt: int = 0
    rows_in: int | None = None
    rows_out: int | None = None
    filtered: int | None = None
    bad: int | None = None
    text: str = ""


def history(events: Sequence[Event]) -> Work[None]:
    """Append to the parcels' histories, in the order given."""
    if not events:
        return
    seen: Counter[str] = Counter()
    rows: list[tuple[object, ...]] = []
    for event in events:
        rows.append((event.did, seen[event.did], *event[1:]))
        seen[event.did] += 1
    yield Ask(SQL["events_add"], {"events": rows})


def count(numbers: Mapping[str, int]) -> Work[None]:
    """Add to numbers that only grow. Last in a transaction: other servers wait for these rows."""
    rows = [[name, number] for name, number in sorted(numbers.items()) if number]
    if rows:
        yield Ask(SQL["numbers_add"], {"numbers": rows})
