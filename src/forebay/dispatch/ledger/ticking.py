"""Timed sources: at each tick of its cron expression a flow gets a parcel without messages.

The next tick is kept with the flow, so ticks that were missed while no server ran fire once, and ticks of several
servers fire once: the row is locked. A clock that is set back moves the tick with it, rather than waiting until the
old time comes again.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.broker.room_work import Ask, Now, Work
from forebay.dispatch.dids import new_dids
from forebay.dispatch.flow_control import stop_at_max_errors
from forebay.dispatch.ledger.enqueue import NOTHING_ENQUEUED, Enqueued
from forebay.dispatch.ledger.flows import decoded
from forebay.dispatch.ledger.starting import NewParcel, start_parcels
from forebay.dispatch.schedule import next_tick_us, parse_cron
from forebay.dispatch.tables import SQL


class Tick(NamedTuple):
    enqueued: Enqueued = NOTHING_ENQUEUED
    parcels: int = 0
    stopped: str = ""
    """Not empty: the source was stopped, and why."""


def tick(flow: str, capacity: int) -> Work[Tick]:
    """Make a parcel if the flow's tick has come, and set the next one."""
    now_us = yield Now()
    rows = yield Ask(SQL["tick_lock"], {"flow": flow})
    if not rows:
        return Tick()
    [[text, version, tick_us]] = rows
    definition = decoded(text)
    next_us = next_tick_us(parse_cron(definition.source.cron), now_us)
    is_due = tick_us is not None and tick_us <= now_us
    if not is_due:
        if tick_us is None or tick_us > next_us:
            yield Ask(SQL["tick_keep"], {"flow": flow, "tick_us": next_us})
        return Tick()
    stopped = yield from stop_at_max_errors(definition, now_us)
    if stopped:
        return Tick(stopped=stopped)
    yield Ask(SQL["tick_keep"], {"flow": flow, "tick_us": next_us})
    [did] = new_dids(1, now_us)
    enqueued = yield from start_parcels(definition, version, [NewParcel(did, (), 0)], capacity)
    return Tick(enqueued, 1)
