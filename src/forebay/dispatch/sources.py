"""Where parcels come from, and what is done for them without a request: turns that the upkeep loops call.

| turn | what | how often |
|---|---|---|
| `queues_turn` | cuts queues into parcels | 50 ms while messages arrive, else 200 ms; 1 s without any flow |
| `timers_turn` | makes parcels of timed sources | when the next tick comes, at least every second |
| `errors_turn` | makes parcels of other flows' errors | 2 s |
| `joins_turn` | joins what is full or old enough | 1 s |
| `holds_turn` | moves holds on messages on | 1 s, or ten times as long as it took |
| `ageing_turn` | removes what was finished long ago | 10 s |

A turn looks first, beside the store's other work, and only opens a transaction where there is something to do. Every
server does all of them; what another server did meanwhile is found done. A flow that cannot be cut keeps no other one
waiting: its fault is logged, and it is tried again with the next turn.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from forebay.broker.room_work import Ask, Edge, Now, QueueEdge, Work
from forebay.broker.store import Store
from forebay.clock import SECOND_US, Clock
from forebay.dispatch.hold_sweep import HoldSweep
from forebay.dispatch.ledger.ageing import remove_finished
from forebay.dispatch.ledger.catching import catch_errors
from forebay.dispatch.ledger.cutting import CutOptions, CutResult, cut
from forebay.dispatch.ledger.enqueue import Enqueued
from forebay.dispatch.ledger.flows import decoded
from forebay.dispatch.ledger.joining import joins_ready, release_due
from forebay.dispatch.ledger.ticking import tick
from forebay.dispatch.limits import DispatchLimits
from forebay.dispatch.schedule import next_tick_us, parse_cron
from forebay.dispatch.tables import SQL
from forebay.dispatch.upkeep import Loop
from forebay.errors import ForebayError

logger = logging.getLogger(__name__)
CUTS_IN_TURN = 10
"""How often one flow is cut before the next one is looked at."""
TIMER_SECONDS = 1.0
NO_SOURCE_SECONDS = 1.0
"""How often a server without a flow that has a queue looks for one."""
LOOK_SECONDS = 10.0
"""How long the mean size of a queue's messages is believed, and that nothing was removed of some of its partitions."""
JOIN_GROUPS = 100
"""How many joins one transaction releases."""
SHARE = 10
"""Looks take a tenth of the time at the most, however many flows there are."""


class _Seen(NamedTuple):
    message_bytes: int
    """The mean size of the messages."""
    removed: tuple[str, int]
    """The queue's identity, and the last message that was removed of it."""
    until: float
    """How long that is believed, by the monotonic clock."""


class Sources:
    """One per server. `offer` gives workers what was enqueued."""

    def __init__(
        self,
        store: Store,
        limits: DispatchLimits,
        clock: Clock,
        offer: Callable[[Enqueued], Awaitable[None]],
    ) -> None:
        self._store = store
        self._limits = limits
        self._clock = clock
        self._offer = offer
        self._seen: dict[str, _Seen] = {}
        self._holds = HoldSweep(store, clock)

    def loops(self) -> list[Loop]:
        """For the upkeep: each turn says after how many seconds to call it again; 0: there is more to do."""
        return [
            Loop("queues", self.queues_turn),
            Loop("timers", self.timers_turn),
            Loop("errors", self.errors_turn),
            Loop("joins", self.joins_turn),
            Loop("holds", self.holds_turn),
            Loop("ageing", self.ageing_turn),
        ]

    async def queues_turn(self) -> float:
        """Cut all queue sources."""
        began = self._clock.monotonic()
        waiting, sources = await self._store.look(sources_waiting)
        pause = SHARE * (self._clock.monotonic() - began)
        if not sources:
            return NO_SOURCE_SECONDS
        is_more = False
        for flow, queue in waiting:
            try:
                is_more = await self._cut(flow, queue) or is_more
            except ForebayError as error:
                logger.warning("flow %s: cannot be cut: %s", flow, error, extra={"action": "cut_failed"})
        if is_more:
            return 0
        return max(pause, self._limits.cut_seconds if waiting else self._limits.cut_idle_seconds)

    async def _cut(self, flow: str, queue: str) -> bool:
        """Cut one flow; whether there is more to cut at once."""
        seen = await self._look_at(queue)
        limits = self._limits
        options = CutOptions(limits.in_memory_queue_size, limits.piece_parcels, seen.message_bytes, seen.removed)
        for _ in range(CUTS_IN_TURN):
            result = await self._store.together(partial(cut, flow, options))
            await self._offer(result.enqueued)
            _tell(flow, result)
            if not result.is_more:
                return False
        return True

    async def _look_at(self, queue: str) -> _Seen:
        """What the queue holds, as it was lately."""
        seen = self._seen.get(queue)
        now = self._clock.monotonic()
        if seen is None or now >= seen.until:
            bounds = await self._store.bounds(queue)
            mean = bounds.size_bytes // max(1, bounds.next_seq - bounds.first_seq)
            seen = self._seen[queue] = _Seen(mean, (bounds.identity, bounds.removed_seq), now + LOOK_SECONDS)
        return seen

    async def timers_turn(self) -> float:
        """Make the parcels of ticks that have come."""
        due, seconds = await self._store.look(timers_due)
        for flow in due:
            done = await self._store.together(partial(tick, flow, self._limits.in_memory_queue_size))
            await self._offer(done.enqueued)
            if done.stopped:
                logger.warning("flow %s: stopped: %s", flow, done.stopped, extra={"action": "source_stopped"})
        return seconds

    async def errors_turn(self) -> float:
        """Make parcels of errors that no source has seen."""
        if not await self._store.look(_has_errors):
            return self._limits.error_source_seconds
        piece = self._limits.piece_parcels
        caught = await self._store.together(partial(catch_errors, self._limits.in_memory_queue_size, piece))
        await self._offer(caught.enqueued)
        for flow, why in caught.stopped:
            logger.warning("flow %s: stopped: %s", flow, why, extra={"action": "source_stopped"})
        return 0 if caught.errors == piece else self._limits.error_source_seconds

    async def joins_turn(self) -> float:
        """Join what is full or old enough."""
        began = self._clock.monotonic()
        ready = await self._store.look(joins_ready)
        pause = max(self._limits.join_seconds, SHARE * (self._clock.monotonic() - began))
        if not ready.groups and not ready.is_clock_back:
            return pause
        done = await self._store.together(partial(release_due, self._limits.in_memory_queue_size, JOIN_GROUPS))
        await self._offer(done.enqueued)
        return 0 if len(ready.groups) > JOIN_GROUPS else pause

    async def holds_turn(self) -> float:
        """Move holds on messages on, and the groups of flows with them."""
        return await self._holds.turn()

    async def ageing_turn(self) -> float:
        """Remove a piece of what was finished long ago."""
        piece = self._limits.piece_parcels
        removed = await self._store.together(partial(remove_finished, self._limits.finished_retention_seconds, piece))
        return 0 if removed == piece else self._limits.ageing_seconds


def _tell(flow: str, result: CutResult) -> None:
    if result.cancelled:
        logger.warning(
            "flow %s: its queue was deleted and made again: %d parcels were cancelled that do not know which one they "
            "read: an older Forebay has cut them",
            flow,
            result.cancelled,
            extra={"action": "source_replaced"},
        )
    if result.lost:
        logger.warning("flow %s: %s", flow, result.lost, extra={"action": "source_messages_gone"})
    if result.stopped:
        logger.warning("flow %s: stopped: %s", flow, result.stopped, extra={"action": "source_stopped"})


def sources_waiting() -> Work[tuple[list[tuple[str, str]], int]]:
    """Flows whose queues hold something that is in no parcel, or are other ones than before, and the queues; and how
    many flows have a queue at all."""
    rows = yield Ask(SQL["sources"])
    edges: dict[str, Edge | None] = {}
    waiting, sources = [], 0
    for flow, text, queue_id, next_seq, *_ in rows:
        source = decoded(text).source
        if source.kind != "queue":
            continue
        sources += 1
        if source.queue not in edges:
            edges[source.queue] = yield QueueEdge(source.queue)
        edge = edges[source.queue]
        if edge is not None and (edge.queue_id != queue_id or edge.next_seq > next_seq):
            waiting.append((flow, source.queue))
    return waiting, sources


def timers_due() -> Work[tuple[list[str], float]]:
    """Timed sources whose tick has come, is not set or has to be set again; and in how many seconds to look again."""
    now_us = yield Now()
    rows = yield Ask(SQL["sources"])
    due, seconds = [], TIMER_SECONDS
    for flow, text, *_, tick_us in rows:
        if decoded(text).source.kind != "timer":
            continue
        cron = parse_cron(decoded(text).source.cron)
        if tick_us is None or tick_us <= now_us or tick_us > next_tick_us(cron, now_us):
            due.append(flow)
        else:
            seconds = min(seconds, (tick_us - now_us) / SECOND_US)
    return due, seconds


def _has_errors() -> Work[bool]:
    rows = yield Ask(SQL["errors_waiting"])
    return bool(rows)
