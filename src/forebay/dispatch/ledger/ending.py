"""Cancelling: steps that wait, run or failed end for good, and the messages that they read are needed no more.

A step under a lease is cancelled too. It leaves the lease, so the worker's completion is refused as a whole, what it
staged is dropped, and the other parcels of the lease are queued again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from forebay.broker.room_work import Ask, Now, Work
from forebay.dispatch.ledger.classes import lock_classes
from forebay.dispatch.ledger.finding import UNFINISHED, find_parcels
from forebay.dispatch.ledger.history import Event, history
from forebay.dispatch.tables import SQL
from forebay.dispatch.values import PARCEL_STATES
from forebay.dispatch.views import ParcelFilter
from forebay.dispatch.warm import WarmEntry

CANCELLED = "CANCELLED"


class Cancelled(NamedTuple):
    parcels: int
    warm: Sequence[WarmEntry]
    """What the caller takes out of the warm tier after the commit."""


NONE_CANCELLED = Cancelled(0, ())


def cancel(wanted: ParcelFilter, limit: int) -> Work[Cancelled]:
    """Cancel unfinished parcels that fit, up to so many; ask again while it is as many as the limit."""
    if wanted.state in PARCEL_STATES and wanted.state not in ("IN_FLIGHT", "ERROR"):
        return NONE_CANCELLED
    if not wanted.state:
        wanted = wanted._replace(state=UNFINISHED)
    found = yield from find_parcels(wanted, limit)
    keys = [(parcel.did, parcel.step, parcel.action_class) for parcel in found]
    return (yield from cancel_steps(keys, ""))


def cancel_readers(flow: str, queue: str, reason: str, limit: int) -> Work[Cancelled]:
    """Cancel steps of a flow that would read a queue, up to so many."""
    rows = yield Ask(SQL["steps_reading"], {"flow": flow, "queue": queue, "limit": limit})
    return (yield from cancel_steps(rows, reason))


def cancel_steps(keys: Sequence[tuple[str, int, str]], reason: str) -> Work[Cancelled]:
    """Cancel these, each given as did, step and action class; one that is finished meanwhile stays finished."""
    if not keys:
        return NONE_CANCELLED
    now_us = yield Now()
    yield from lock_classes(action_class for _, _, action_class in keys)
    rows = yield Ask(SQL["steps_cancel"], {"steps": [[did, step] for did, step, _ in keys]})
    yield Ask(SQL["parcels_move"], {"parcels": [[row[0], CANCELLED] for row in rows], "now_us": now_us})
    yield from history([Event(did, step, action, CANCELLED, now_us, text=reason) for did, step, action, *_ in rows])
    warm = [WarmEntry(action_class, flow, place, did, step) for did, step, _, action_class, flow, place in rows]
    return Cancelled(len(rows), warm)
