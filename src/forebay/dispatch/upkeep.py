"""What dispatch does by itself: loops that look, do a piece of work, and look again.

| loop | every | what |
|---|---|---|
| refill | 5 s, and at once when leases made room | cold parcels become warm |
| sizes | 2 s | the warm tier is compared with the database, and rebuilt |
| expiry | 1 s | leases that ended, errors that are due |

The sources, the exports and the ageing of parcels are further loops, given by the caller. Every server runs all of
them: each piece of work is a transaction that locks what it changes, and finds nothing to do where another server was
faster. A loop that fails says so and goes on with its next turn: the database may be away for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from forebay.broker.store import Store
from forebay.dispatch.leasing import Leasing
from forebay.dispatch.ledger.enqueue import Enqueued
from forebay.dispatch.ledger.expiry import NextDue, expire, requeue_due
from forebay.dispatch.ledger.refill import classes_to_refill, refill
from forebay.dispatch.limits import DispatchLimits
from forebay.dispatch.tiering import REFILL_BELOW_PERCENT
from forebay.dispatch.warm import WarmEntry, WarmTier, WarmUnavailable
from forebay.dispatch.warm_watch import WarmWatch
from forebay.errors import ForebayError

logger = logging.getLogger(__name__)
LEASES_MAX = 10
"""How many leases one transaction ends: each may have as many parcels as a lease may hold."""


class Loop(NamedTuple):
    name: str
    turn: Callable[[], Awaitable[float]]
    """Do a piece of work; after how many seconds to look again. 0: there is more to do."""
    woken: asyncio.Event | None = None
    """Look again at once when it is set. The turn clears it."""


class Upkeep:
    """Runs the loops between `start` and `stop`. Each turn can be called by itself as well."""

    def __init__(self, store: Store, warm: WarmTier, limits: DispatchLimits, next_due: NextDue) -> None:
        self._store = store
        self._warm = warm
        self._limits = limits
        self._next_due = next_due
        self._leasing: Leasing | None = None
        self._room: Counter[str] = Counter()
        self._is_room_made = asyncio.Event()
        self._stopping = asyncio.Event()
        self._loops: list[Loop] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.watch = WarmWatch(store, warm)

    def attach(self, leasing: Leasing) -> None:
        """Let workers have through `leasing` what becomes warm. Before the first turn."""
        self._leasing = leasing

    def start(self, leasing: Leasing, more: Iterable[Loop] = ()) -> None:
        """Begin all loops, and those of the caller."""
        self.attach(leasing)
        self._stopping.clear()
        self._loops = [Loop("sizes", self.sizes_turn), Loop("expiry", self.expiry_turn), *more]
        self._tasks = [asyncio.create_task(self._run(loop), name=f"dispatch-{loop.name}") for loop in self._loops]
        self._tasks.append(asyncio.create_task(self._refill_loop(), name="dispatch-refill"))

    async def stop(self) -> None:
        """End all loops, each after the turn that it is in."""
        self._stopping.set()
        self._is_room_made.set()
        for loop in self._loops:
            if loop.woken is not None:
                loop.woken.set()
        await asyncio.gather(*self._tasks)
        self._tasks = []

    def room_made(self, classes: Mapping[str, int]) -> None:
        """So many parcels less wait warm in these cold classes: they are refilled when that is worth it."""
        self._room.update(classes)
        worth = max(1, self._limits.in_memory_queue_size * (100 - REFILL_BELOW_PERCENT) // 100)
        if any(made >= worth for made in self._room.values()):
            self._is_room_made.set()

    async def refill_turn(self, classes: Sequence[str] | None = None) -> int:
        """Warm what there is room for, of these classes or of all; how many parcels."""
        found = await self._store.look(classes_to_refill) if classes is None else classes
        return sum([await self._refill(action_class) for action_class in found])

    async def sizes_turn(self) -> float:
        """Compare the warm tier with the database."""
        rebuilt = await self.watch.turn()
        if rebuilt and self._leasing is not None:
            self._leasing.look_again()
        return self._limits.sizes_seconds

    async def expiry_turn(self) -> float:
        """End leases whose time is up, and queue errors that are due."""
        capacity, piece = self._limits.in_memory_queue_size, self._limits.piece_parcels
        expired = await self._store.together(partial(expire, capacity, self._next_due, LEASES_MAX))
        await self._offer(expired.enqueued)
        due, enqueued = await self._store.together(partial(requeue_due, capacity, piece))
        await self._offer(enqueued)
        return 0 if expired.leases == LEASES_MAX or due == piece else self._limits.expiry_seconds

    async def _refill(self, action_class: str) -> int:
        warmed = 0
        while True:
            work = partial(refill, action_class, self._limits.in_memory_queue_size, self._limits.piece_parcels)
            refilled = await self._store.together(work)
            warmed += len(refilled.warmed)
            if refilled.cooled:
                await self._remove(refilled.cooled)
            await self._offer(Enqueued(refilled.warmed, []))
            if not refilled.is_more or self._stopping.is_set():
                return warmed

    async def _offer(self, enqueued: Enqueued) -> None:
        if self._leasing is not None:
            await self._leasing.offer(enqueued)

    async def _remove(self, entries: Sequence[WarmEntry]) -> None:
        try:
            await self._warm.remove(entries)
        except WarmUnavailable:
            logger.debug("the warm tier is away: what it still offers cannot be leased", extra={"action": "warm_away"})

    async def _refill_loop(self) -> None:
        while not self._stopping.is_set():
            is_signalled = await self._wait(self._is_room_made, self._limits.cold_to_warm_seconds)
            if self._stopping.is_set():
                return
            self._is_room_made.clear()
            classes, self._room = self._room, Counter()
            await self._try("refill", partial(self.refill_turn, sorted(classes) if is_signalled else None))

    async def _run(self, loop: Loop) -> None:
        while not self._stopping.is_set():
            seconds = await self._try(loop.name, loop.turn)
            await self._wait(loop.woken or self._stopping, 1.0 if seconds is None else seconds)

    async def _try(self, name: str, turn: Callable[[], Awaitable[float]]) -> float | None:
        try:
            return await turn()
        except ForebayError as error:
            logger.warning("dispatch, %s: %s", name, error, extra={"action": "upkeep_failed"})
        except Exception:
            # A loop that ends for a reason that was not foreseen would stop all flows in silence.
            logger.exception("dispatch, %s", name, extra={"action": "upkeep_failed"})
        return None

    @staticmethod
    async def _wait(event: asyncio.Event, seconds: float) -> bool:
        """Until the event, or so long; whether it was the event."""
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True
