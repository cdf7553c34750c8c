"""Moves holds on messages on, and with them the cursor of a flow's group: the one that its source names, else its own.

The group's cursor follows the oldest message that is not finished, so that `forebay groups` shows a flow's true lag.
It is a view, set after the holds are: a crash in between leaves it behind until the next sweep.
"""

from __future__ import annotations

import logging
from functools import partial

from forebay.broker.overview import SeekTarget
from forebay.broker.room_work import Ask, Work
from forebay.broker.store import Store
from forebay.clock import Clock
from forebay.dispatch.ledger.ageing import Sweep, sweep_begin, sweep_end, sweep_piece
from forebay.dispatch.ledger.holding import edges_of, holds_of
from forebay.dispatch.tables import SQL
from forebay.errors import ForebayError

logger = logging.getLogger(__name__)
SWEEP_SECONDS = 1.0
FLOW_SHARE = 100
"""After a sweep of a flow this many times as long as it took is waited until the next one of the same flow: with
100,000 parcels that wait it takes a quarter of a second, and should not keep a server busy that has nothing else to do.
Other flows do not wait for it: a new one shows its lag within seconds."""
TURN_SHARE = 20
"""The same after a turn of all flows that were due: small ones, when there are many."""
SWEEP_SECONDS_MAX = 60.0
"""Until the next one all the same: the lag that `forebay groups` shows is so old at the most."""


class HoldSweep:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._queues: dict[str, set[str]] = {}
        """Queues that steps of a flow were found to read."""
        self._due: dict[str, float] = {}
        """When each flow is swept again."""
        self._cursors: dict[tuple[str, str, str], int] = {}
        """Where the group of a flow was set to, by flow, group and queue."""

    async def turn(self) -> float:
        """Move the holds of the flows that are due on; after how many seconds to look again."""
        began = self._clock.monotonic()
        flows = await self._store.look(_held_flows)
        self._due = {flow: self._due.get(flow, began) for flow in flows}
        for flow in flows:
            started = self._clock.monotonic()
            if started < self._due[flow]:
                continue
            await self.sweep(flow)
            ended = self._clock.monotonic()
            self._due[flow] = ended + min(FLOW_SHARE * (ended - started), SWEEP_SECONDS_MAX)
        return min(max(SWEEP_SECONDS, TURN_SHARE * (self._clock.monotonic() - began)), SWEEP_SECONDS_MAX)

    async def sweep(self, flow: str) -> None:
        """Move the holds of one flow on."""
        known = self._queues.setdefault(flow, set())
        await self._learn_names(flow, known)
        sweep = await self._store.look(partial(sweep_begin, flow, frozenset(known)))
        if sweep is None:
            self._queues.pop(flow, None)
            self._cursors = {key: seq for key, seq in self._cursors.items() if key[0] != flow}
            return
        while True:
            further = await self._store.look(partial(sweep_piece, sweep))
            if further is None:
                break
            sweep = further
        known.update(sweep.seen)
        if await self._store.look(partial(_can_rise, sweep)):
            await self._store.together(partial(sweep_end, sweep))
        await self._follow(sweep)

    async def _learn_names(self, flow: str, known: set[str]) -> None:
        """Holds have a queue's identity only, which no other queue has: find the names of those that are not known."""
        unknown = await self._store.look(partial(_unknown, flow, frozenset(known)))
        if not unknown:
            return
        names = [status.queue.name for status in await self._store.queues()]
        edges = await self._store.look(partial(edges_of, names))
        found = {edge.queue_id: name for name, edge in edges.items()}
        known.update(found[queue_id] for queue_id in unknown if queue_id in found)
        for queue_id in unknown - found.keys():
            await self._store.together(partial(_drop, flow, queue_id))

    async def _follow(self, sweep: Sweep) -> None:
        """Set the group's cursor of the flow's source to where its hold is now."""
        for (group, queue), seq in (await self._store.look(partial(_source_hold, sweep.flow))).items():
            if self._cursors.get((sweep.flow, group, queue)) == seq:
                continue
            try:
                await self._store.seek(group, queue, None, SeekTarget(seq=seq))
            except ForebayError as error:
                logger.warning(
                    "flow %s: its group on queue %s stays where it is: %s",
                    sweep.flow,
                    queue,
                    error,
                    extra={"action": "parcel_group_not_moved"},
                )
            else:
                self._cursors[sweep.flow, group, queue] = seq


def _held_flows() -> Work[list[str]]:
    rows = yield Ask(SQL["held_flows"])
    return [flow for [flow] in rows]


def _unknown(flow: str, known: frozenset[str]) -> Work[set[int]]:
    rows = yield Ask(SQL["sweep_begin"], {"flow": flow})
    edges = yield from edges_of(sorted(known))
    holds = yield from holds_of(flow)
    return set(holds) - {edge.queue_id for edge in edges.values()} - {row[1] for row in rows}


def _drop(flow: str, queue_id: int) -> Work[None]:
    yield Ask(SQL["hold_drop"], {"flow": flow, "queue_id": queue_id})


def _can_rise(sweep: Sweep) -> Work[bool]:
    """Whether a hold is lower than what the sweep found: a look, so that a flow at rest writes nothing."""
    holds = yield from holds_of(sweep.flow)
    return any(
        queue_id in holds and holds[queue_id] < min(seq, sweep.seen.get(queue, seq))
        for queue, (queue_id, seq) in sweep.at_start.items()
    )


def _source_hold(flow: str) -> Work[dict[tuple[str, str], int]]:
    """Where the flow's group is to stand, by group and queue."""
    rows = yield Ask(SQL["sweep_begin"], {"flow": flow})
    holds = yield from holds_of(flow)
    return {(group or flow, queue): holds[queue_id] for queue, queue_id, *_, group in rows if queue_id in holds}
