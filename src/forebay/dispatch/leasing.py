"""Leasing, from a worker's request to its completion: the warm tier says what to try, the store decides.

    take       entries leave the warm tier, the classes in turn, and the flows in turn within each (`taking`)
    claim      their rows go from QUEUED to LEASED in one transaction; what cannot be leased now is offered again
    complete   one transaction; then what comes next is offered
    release    one transaction; then what was given back is offered

| what goes wrong | what happens |
|---|---|
| the warm tier is away | parcels are leased from the database itself |
| the warm tier has lost entries | the database is read when the tier has none; the tier is rebuilt (`warm_watch`) |
| killed between take and claim | the rows are QUEUED, the entries gone: as above |
| killed between commit and offer | the same |
| the worker's connection breaks while it waits | nothing was taken, or what was leased for it is given back |
| the server is killed with a lease on its way to the worker | the lease expires; the attempt counts |

A worker that finds nothing waits until parcels of its classes are enqueued through this server, and looks every
second for those of others.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from forebay.broker.store import Store
from forebay.clock import SECOND_US, Clock
from forebay.dispatch.action_times import ActionTimes
from forebay.dispatch.ledger.claiming import (
    Claimed,
    NewLease,
    claim,
    claim_from_database,
    claim_step_from_database,
)
from forebay.dispatch.ledger.completing import complete, refuse
from forebay.dispatch.ledger.enqueue import Enqueued
from forebay.dispatch.ledger.expiry import NextDue
from forebay.dispatch.ledger.leases import heartbeat, note_worker, release, waiting_flows
from forebay.dispatch.limits import DispatchLimits
from forebay.dispatch.loss_log import tell_losses
from forebay.dispatch.taking import Taking
from forebay.dispatch.values import CompleteRequest, Completion, Lease, LeaseRequest
from forebay.dispatch.waiters import Waiters, serves
from forebay.dispatch.warm import WarmEntry, WarmTier, WarmUnavailable
from forebay.errors import LeaseLost

logger = logging.getLogger(__name__)
T = TypeVar("T")
LOOK_SECONDS = 1.0
"""How often a waiting worker looks by itself."""
STALE_TAKES_MAX = 20
"""How often in a row a lease takes entries of which none can be leased, before it asks the database."""
NOTED_WORKERS_MAX = 10_000


class Leasing:
    """Gives parcels to workers and takes them back. One per server."""

    def __init__(
        self,
        store: Store,
        warm: WarmTier,
        limits: DispatchLimits,
        clock: Clock,
        next_due: NextDue,
        room_made: Callable[[Mapping[str, int]], None] = lambda classes: None,
        exporting: Callable[[], None] = lambda: None,
    ) -> None:
        """`room_made` hears of cold classes in which so many parcels less wait warm, `exporting` that steps wait for
        groups from now on."""
        self._store = store
        self._warm = warm
        self._limits = limits
        self._clock = clock
        self._next_due = next_due
        self._room_made = room_made
        self._exporting = exporting
        self._taking = Taking(warm)
        self._waiters = Waiters()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turn = 0
        self._is_ending = False
        self._is_warm_away = False
        self._held: dict[str, int] = {}
        self._noted: dict[str, tuple[object, float]] = {}
        self.times = ActionTimes(clock)

    async def lease(self, request: LeaseRequest) -> Lease | None:
        """Give parcels of the worker's classes, as many as it wants at the most; None if none came while it waited.

        All of them are completed together. The worker prolongs the lease with `heartbeat` while it works. With
        `same_step` they are of one flow, version and step, as many as wait.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + min(request.wait_seconds, self._limits.wait_seconds_max)
        with self._waiters.waiting(request.classes) as woken:
            while True:
                await self._note(request)
                lease = await self._lease_now(request)
                left = end - loop.time()
                if lease is not None or left <= 0 or self._is_ending:
                    return lease
                try:
                    async with asyncio.timeout(min(left, LOOK_SECONDS)):
                        await woken.wait()
                except TimeoutError:
                    pass
                woken.clear()

    async def heartbeat(self, lease_id: str) -> int:
        """Prolong a lease; until when, in microseconds since 1970. `LeaseLost` if it has ended."""
        return await self._store.together(partial(heartbeat, lease_id))

    async def complete(self, request: CompleteRequest) -> Completion:
        """Do what a worker tells of all parcels of its lease, with what it staged: all of it or nothing.

        `LeaseLost`: the lease is another's by now, and what was staged under it is dropped. The same completion once
        more changes nothing.
        """
        return await self._to_its_end(self._complete(request))

    async def release(self, lease_id: str) -> int:
        """Take parcels back that a worker has not worked on; how many. The attempt does not count."""
        return await self._to_its_end(self._release(lease_id))

    async def offer(self, enqueued: Enqueued) -> None:
        """Let workers have what was enqueued in a transaction that is committed."""
        if enqueued.warm:
            await self._add(enqueued.warm)
            self._waiters.wake(entry.action_class for entry in enqueued.warm)

    def look_again(self) -> None:
        """Something changed that parcels were waiting for: a flow goes on, a limit was raised."""
        self._held.clear()
        self._waiters.wake_all()

    def end_waits(self) -> None:
        """The server stops: workers that wait go home with what there is."""
        self._is_ending = True
        self._waiters.wake_all()

    async def close(self) -> None:
        """Wait until what was begun is done."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _complete(self, request: CompleteRequest) -> Completion:
        work = partial(complete, request, self._limits.in_memory_queue_size, self._next_due)
        try:
            done = await self._store.together(work, has_stages=request.wanted is not None)
        except LeaseLost:
            await self._store.together(partial(refuse, request))
            raise
        self.times.ended(request.lease_id)
        tell_losses(done.losses)
        await self.offer(done.enqueued)
        if done.is_exporting:
            self._exporting()
        return done.completion

    async def _release(self, lease_id: str) -> int:
        self.times.forget(lease_id)
        released, enqueued = await self._store.together(partial(release, lease_id, self._limits.in_memory_queue_size))
        await self.offer(enqueued)
        return released

    async def _lease_now(self, request: LeaseRequest) -> Lease | None:
        task = self._begin(self._lease_once(request))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._begin(self._give_back(task))
            raise

    async def _give_back(self, task: asyncio.Task[Lease | None]) -> None:
        """The worker went away while its lease was made."""
        lease = await task
        if lease is not None:
            await self._release(lease.lease_id)

    async def _lease_once(self, request: LeaseRequest) -> Lease | None:
        self._turn += 1
        parcels_max = max(1, min(request.parcels_max, self._limits.lease_parcels_max))
        lease_us = int(self._limits.lease_seconds * SECOND_US)
        lease_id = secrets.token_hex(16)
        wanted = NewLease(
            lease_id, request.worker, lease_us, parcels_max, request.messages_max, self._turn, request.same_step
        )
        claimed = await self._claim_from_warm(wanted, request) or await self._claim_from_database(wanted, request)
        if claimed is None:
            return None
        self.times.began(lease_id, claimed.parcels[0].action_class)
        if request.same_step:
            self._taking.served(claimed.parcels[0].action_class, claimed.parcels[0].flow)
        return Lease(lease_id, claimed.until_us, claimed.parcels, claimed.definitions)

    async def _claim_from_warm(self, wanted: NewLease, request: LeaseRequest) -> Claimed | None:
        try:
            for _ in range(STALE_TAKES_MAX):
                entries = await self._taking.take(request, wanted.parcels_max, self._held_flows(), self._turn)
                self._note_warm("")
                if not entries:
                    break
                claimed = await self._claim(wanted, entries)
                if claimed.parcels:
                    return claimed
        except WarmUnavailable as error:
            self._note_warm(str(error))
        return None

    async def _claim(self, wanted: NewLease, entries: list[WarmEntry]) -> Claimed:
        try:
            claimed = await self._store.together(partial(claim, wanted, entries))
        except BaseException:
            await self._add(entries)
            raise
        if claimed.put_back:
            await self._add(claimed.put_back)
        self._heed(claimed)
        return claimed

    async def _claim_from_database(self, wanted: NewLease, request: LeaseRequest) -> Claimed | None:
        held = self._held_flows()
        flows = [
            waiting
            for waiting in await self._store.look(waiting_flows)
            if waiting.flow not in held and serves(request.classes, waiting.action_class)
        ]
        warm = {waiting.action_class for waiting in flows if waiting.queued}
        starved = {waiting.action_class for waiting in flows if waiting.cold} - warm
        if starved:
            self._room_made(dict.fromkeys(starved, self._limits.in_memory_queue_size))
        if not warm:
            return None
        begins = [partial(claim_from_database, wanted, sorted(warm))]
        if request.same_step:
            keys = self._taking.of_one_step(flows)[:STALE_TAKES_MAX]
            begins = [partial(claim_step_from_database, wanted, *key) for key in keys]
        for begin in begins:
            claimed: Claimed = await self._store.together(begin)
            self._heed(claimed)
            if claimed.parcels:
                return claimed
        return None

    def _heed(self, claimed: Claimed) -> None:
        tell_losses(claimed.losses)
        self._held.update(claimed.held)
        if claimed.room_made:
            self._room_made(claimed.room_made)

    def _held_flows(self) -> set[str]:
        """Flows that are paused, or whose rate limit is used up, as far as known."""
        now_us = self._clock.now_us()
        # A clock that was set back would hold them for as long as it was set back.
        far_us = now_us + int(self._limits.lease_seconds * SECOND_US)
        self._held = {flow: until_us for flow, until_us in self._held.items() if now_us < until_us < far_us}
        return set(self._held)

    async def _add(self, entries: list[WarmEntry]) -> None:
        try:
            await self._warm.add(entries)
        except WarmUnavailable as error:
            # Workers lease them from the database meanwhile, and the tier is rebuilt when it is back.
            self._note_warm(str(error))

    def _note_warm(self, away: str) -> None:
        """Tell once that the tier is away (why), or that it is back."""
        if away and not self._is_warm_away:
            logger.warning("dispatch leases from the database: %s", away, extra={"action": "warm_away"})
        elif not away and self._is_warm_away:
            logger.info("the warm tier is back", extra={"action": "warm_back"})
        self._is_warm_away = bool(away)

    async def _note(self, request: LeaseRequest) -> None:
        """Remember the worker, at most once per heartbeat."""
        lookup = (tuple(request.classes), request.plugin)
        known, at = self._noted.get(request.worker, (None, 0.0))
        now = self._clock.monotonic()
        if known == lookup and now - at < self._limits.heartbeat_seconds:
            return
        await self._store.together(partial(note_worker, request.worker, request.classes, request.plugin))
        if len(self._noted) >= NOTED_WORKERS_MAX:
            self._noted.clear()
        self._noted[request.worker] = (lookup, now)

    async def _to_its_end(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Go on also when the connection of the worker breaks: what follows a commit is to be done."""
        return await asyncio.shield(self._begin(coroutine))

    def _begin(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
