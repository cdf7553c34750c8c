"""Cold to warm: the oldest cold parcels of a class take the room that leases have made.

A piece at a time, each in a transaction of its own, so that leases of the class need not wait for all of it.
Refilling begins below 90 % of the capacity and goes up to it; a class whose cold parcels are drained is warm again at
80 %.

A paused flow drains nothing. When others of its class wait cold while its parcels take their room, those go cold, the
newest first, so that the order within the flow stays; they come back when the flow goes on.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.broker.room_work import Ask, Work
from forebay.dispatch.ledger.classes import ClassCounts, count_classes, lock_classes, set_modes
from forebay.dispatch.ledger.enqueue import COLD
from forebay.dispatch.tables import SQL
from forebay.dispatch.tiering import ClassSizes, is_cold_mode, refill_amount
from forebay.dispatch.warm import WarmEntry


class Refilled(NamedTuple):
    warmed: list[WarmEntry]
    """To be offered to workers."""
    cooled: list[WarmEntry]
    """Of paused flows: to be offered no more."""
    is_more: bool
    """There is room for another piece."""


def classes_to_refill() -> Work[list[str]]:
    """Classes with cold parcels, and those that were left cold without any."""
    rows = yield Ask(SQL["classes_to_refill"])
    return [action_class for [action_class] in rows]


def refill(action_class: str, capacity: int, piece: int) -> Work[Refilled]:
    """Warm up to `piece` of the oldest cold parcels of a class, as far as there is room."""
    modes = yield from lock_classes([action_class])
    counts = (yield from count_classes([action_class]))[action_class]
    cooled = yield from _make_room(action_class, counts, capacity, piece)
    counts = counts._replace(warm=counts.warm - len(cooled))
    sizes = counts.sizes(is_cold=modes[action_class])
    room = refill_amount(sizes, capacity)
    warmed: list[WarmEntry] = []
    if room and counts.paused_cold + len(cooled):
        warmed = yield from _warm_of_flows(action_class, min(room, piece))
    elif room:
        rows = yield Ask(SQL["refill_oldest"], {"action_class": action_class, "parcels_max": min(room, piece)})
        warmed = [WarmEntry(action_class, *row) for row in rows]
    after = ClassSizes(sizes.warm + len(warmed), sizes.cold - len(warmed), sizes.is_cold)
    yield from set_modes(modes, {action_class: is_cold_mode(after, capacity)})
    return Refilled(warmed, cooled, is_more=len(warmed) == piece < room or len(cooled) == piece)


def _make_room(action_class: str, counts: ClassCounts, capacity: int, piece: int) -> Work[list[WarmEntry]]:
    is_blocked = counts.cold > 0 and refill_amount(counts.sizes(is_cold=True), capacity) == 0
    if not (is_blocked and counts.paused_warm):
        return []
    rows = yield Ask(SQL["paused_go_cold"], {"action_class": action_class, "parcels_max": piece})
    return [WarmEntry(action_class, *row) for row in rows]


def _warm_of_flows(action_class: str, parcels_max: int) -> Work[list[WarmEntry]]:
    """The oldest cold parcels of flows that are not paused, however many older ones of paused flows there are."""
    flows = yield Ask(SQL["cold_flows"], {"action_class": action_class})
    of_flows = {"flows": [list(row) for row in flows], "state": COLD, "action_class": action_class}
    heads = yield Ask(SQL["cold_heads"], {**of_flows, "parcels_max": parcels_max})
    rows = yield Ask(SQL["refill_these"], {"keys": [(did, step, COLD) for _, did, step in heads]})
    return [WarmEntry(action_class, *row) for row in rows]
