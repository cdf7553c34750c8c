"""Leases: parcels are a worker's until a time, prolonged by heartbeats, and given back.

A lease is one row. What a worker holds is the steps that carry its id (`claiming`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from forebay.broker.room_work import Ask, Now, Work
from forebay.dispatch.ledger.classes import lock_classes
from forebay.dispatch.ledger.enqueue import NOTHING_ENQUEUED, Enqueued, WaitingStep, enqueue_again_locked
from forebay.dispatch.ledger.history import Event, history
from forebay.dispatch.tables import SQL
from forebay.errors import LeaseLost


class WaitingFlow(NamedTuple):
    """How many parcels of a flow wait in a class. Paused flows are left out."""

    action_class: str
    flow: str
    queued: int
    cold: int


def waiting_flows() -> Work[list[WaitingFlow]]:
    """What there is to lease, or to be warmed first."""
    rows = yield Ask(SQL["waiting_flows"])
    return [WaitingFlow(*row) for row in rows]


def heartbeat(lease_id: str) -> Work[int]:
    """Prolong a lease by the time that it was given for; until when. `LeaseLost` if it has ended."""
    now_us = yield Now()
    rows = yield Ask(SQL["lease_prolong"], {"lease_id": lease_id, "now_us": now_us})
    if not rows:
        raise LeaseLost(lease_id, "it has ended")
    until_us: int = rows[0][0]
    return until_us


def release(lease_id: str, capacity: int) -> Work[tuple[int, Enqueued]]:
    """Give all parcels of a lease back, unworked: they are queued at their old place, and the attempt does not count.

    A lease that has ended, or is not known, has nothing to give back.
    """
    now_us = yield Now()
    rows = yield Ask(SQL["lease_steps"], {"leases": [[lease_id]]})
    steps = [step for row in rows if (step := WaitingStep(*row[:9])).state == "LEASED"]
    modes = yield from lock_classes(step.action_class for step in steps)
    ended = yield Ask(SQL["lease_release"], {"lease_id": lease_id})
    if not ended:
        return 0, NOTHING_ENQUEUED
    [[worker, started_us]] = ended
    given_back = [step._replace(attempts=max(0, step.attempts - 1)) for step in steps]
    enqueued = yield from enqueue_again_locked(given_back, capacity, modes)
    yield from history(
        [
            Event(step.did, step.step, step.action, "RELEASED", now_us, started_us, worker, step.attempts)
            for step in steps
        ]
    )
    return len(steps), enqueued


def note_worker(worker: str, classes: Sequence[str], plugin: str) -> Work[None]:
    """Remember that a worker requested parcels of these classes."""
    now_us = yield Now()
    patterns = msgspec.json.encode(list(classes)).decode()
    yield Ask(SQL["worker_note"], {"worker": worker, "classes": patterns, "plugin": plugin, "now_us": now_us})
