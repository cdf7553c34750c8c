"""`Dispatcher`: all of dispatch together, as the rest of the house sees it. One per server.

What is changed here is offered to workers after its commit, so that a worker that waits on this server has it at once;
workers that wait elsewhere find it within a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from forebay.broker.store import Store
from forebay.clock import Clock
from forebay.dispatch.cached import Cached
from forebay.dispatch.definition import FlowDefinition, FlowState, Retry
from forebay.dispatch.export_watch import ExportWatch
from forebay.dispatch.leasing import Leasing
from forebay.dispatch.ledger import details, ending, flows, parcels, resuming
from forebay.dispatch.ledger.enqueue import Enqueued
from forebay.dispatch.ledger.finding import find_parcels
from forebay.dispatch.ledger.flow_work import flow_work
from forebay.dispatch.limits import DispatchLimits
from forebay.dispatch.record_starts import start_step_records
from forebay.dispatch.retries import Failure, ResumePolicy
from forebay.dispatch.sources import Sources
from forebay.dispatch.upkeep import Loop, Upkeep
from forebay.dispatch.values import CompleteRequest, Completion, Lease, LeaseRequest, RecordsStarted, StartRecords
from forebay.dispatch.views import (
    DispatchFigures,
    FlowStatus,
    FlowWork,
    ParcelFilter,
    ParcelHistory,
    ParcelInfo,
    QueueDetails,
    RunningTask,
)
from forebay.dispatch.warm import WarmEntry, WarmTier, WarmUnavailable
from forebay.model.histogram import Distribution

POLICIES_SECONDS = 2.0
"""How old the policies may be that a failure is judged by: another server may have changed them."""
FIGURES_SECONDS = 1.0
RUNNING_MAX = 10_000


class Dispatcher:
    """Has to be made on the event loop that it will run on."""

    def __init__(self, store: Store, warm: WarmTier, limits: DispatchLimits, clock: Clock) -> None:
        self.limits = limits
        self._store = store
        self._warm = warm
        self._policies: Sequence[ResumePolicy] = ()
        self._upkeep = Upkeep(store, warm, limits, self._next_due)
        self._exports = ExportWatch(store, limits, clock)
        self._leasing = Leasing(
            store, warm, limits, clock, self._next_due, self._upkeep.room_made, self._exports.woken.set
        )
        self._sources = Sources(store, limits, clock, self._leasing.offer)
        self._detailed = Cached(lambda: store.look(details.detailed), limits.metrics_seconds, clock)
        self._figures = Cached(self._count, FIGURES_SECONDS, clock)
        self._flow_work = Cached(lambda: store.look(flow_work), FIGURES_SECONDS, clock)

    async def start(self) -> None:
        """Begin what runs by the clock. A store that is away at this moment is waited for by the loops."""
        exports = Loop("exports", self._exports.turn, self._exports.woken)
        self._upkeep.start(self._leasing, [Loop("policies", self._read_policies), exports, *self._sources.loops()])

    def end_waits(self) -> None:
        """The server stops: workers that wait for parcels go home."""
        self._leasing.end_waits()

    async def stop(self) -> None:
        """After the last request."""
        await self._upkeep.stop()
        await self._leasing.close()
        await self._warm.close()

    # flows

    async def define(self, definition: FlowDefinition) -> FlowStatus:
        """Make the flow, or change it. `FlowRefused` with all that is wrong with it."""
        before = await self.flow(definition.name)
        status = await self._store.together(partial(flows.define, definition))
        if before is not None and _follower(before.definition) != _follower(definition):
            await self._forget_group(before.definition)
        self._leasing.look_again()
        return status

    async def _forget_group(self, definition: FlowDefinition) -> None:
        """The cursor showed how far a flow was that has another one now, or is gone."""
        if definition.source.kind == "queue":
            await self._store.delete_group(definition.group, definition.source.queue)

    async def flows(self) -> list[FlowStatus]:
        return await self._store.look(flows.statuses)

    async def flow(self, name: str) -> FlowStatus | None:
        return await self._store.look(partial(flows.find, name))

    async def set_state(self, name: str, state: FlowState) -> FlowStatus:
        """`UnknownFlow` if there is none."""
        status = await self._store.together(partial(flows.set_state, name, state))
        self._leasing.look_again()
        return status

    async def forget(self, name: str) -> bool:
        """With its consumer group. False when there is none. `FlowUnfinished` while parcels of it are."""
        before = await self.flow(name)
        is_forgotten = await self._store.together(partial(flows.forget, name))
        if is_forgotten and before is not None:
            await self._forget_group(before.definition)
        return is_forgotten

    # work

    async def lease(self, request: LeaseRequest) -> Lease | None:
        """Parcels for a worker; None if none came while it waited."""
        return await self._leasing.lease(request)

    async def heartbeat(self, lease_id: str) -> int:
        """Prolong a lease; until when. `LeaseLost` if it has ended."""
        return await self._leasing.heartbeat(lease_id)

    async def complete(self, request: CompleteRequest) -> Completion:
        """All of it or nothing. `LeaseLost` if the lease has ended: what was staged under it is dropped."""
        return await self._leasing.complete(request)

    async def offer(self, enqueued: Enqueued) -> None:
        """Let workers have what was enqueued by work of the caller's own, after its commit."""
        await self._leasing.offer(enqueued)

    async def release(self, lease_id: str) -> int:
        """Take parcels back that a worker has not worked on; how many."""
        return await self._leasing.release(lease_id)

    # parcels

    async def parcels(self, wanted: ParcelFilter, limit: int, after: tuple[int, str] | None) -> list[ParcelInfo]:
        """Newest first; `after`: place and did of the last one of the page before."""
        return await self._store.look(partial(find_parcels, wanted, limit, after))

    async def parcel(self, did: str) -> ParcelHistory | None:
        return await self._store.look(partial(parcels.show, did))

    async def resume(self, wanted: ParcelFilter) -> int:
        """Queue parcels in ERROR again that fit, a piece at a time; how many."""
        total = 0
        while total < self.limits.resume_parcels_max:
            piece = min(self.limits.piece_parcels, self.limits.resume_parcels_max - total)
            work = partial(resuming.resume, wanted, piece, self.limits.in_memory_queue_size)
            resumed = await self._store.together(work)
            await self._leasing.offer(resumed.enqueued)
            total += resumed.parcels
            if resumed.parcels < piece:
                break
        return total

    async def cancel(self, wanted: ParcelFilter) -> int:
        """Cancel unfinished parcels that fit, a piece at a time; how many."""
        total = 0
        while total < self.limits.resume_parcels_max:
            piece = min(self.limits.piece_parcels, self.limits.resume_parcels_max - total)
            cancelled = await self._store.together(partial(ending.cancel, wanted, piece))
            await self._withdraw(cancelled.warm)
            total += cancelled.parcels
            if cancelled.parcels < piece:
                break
        return total

    async def _withdraw(self, entries: Sequence[WarmEntry]) -> None:
        try:
            await self._warm.remove(entries)
        except WarmUnavailable:
            return  # what it still offers cannot be leased

    async def replay(self, did: str) -> str:
        """A new parcel of the same messages; its did. `RangeIncomplete` if some of them are gone, `QueueReplaced` if
        the queue of that name is another one."""
        replayed = await self._store.together(partial(parcels.replay, did, self.limits.in_memory_queue_size))
        await self._leasing.offer(replayed.enqueued)
        return replayed.did

    async def start_records(self, request: StartRecords) -> RecordsStarted:
        """Send records through a step of their flow again, each once. `RecordsRefused` says what is wrong."""
        done = await start_step_records(self._store, request, self.limits.in_memory_queue_size)
        await self._leasing.offer(done.enqueued)
        return done.started

    async def annotate(self, did: str, annotations: Mapping[str, str], *, overwrite: bool) -> ParcelInfo:
        return await self._store.together(partial(parcels.annotate, did, annotations, overwrite=overwrite))

    # policies

    async def policies(self) -> list[ResumePolicy]:
        return await self._store.look(resuming.policies)

    async def set_policy(self, policy: ResumePolicy) -> None:
        """Also for what is in ERROR already. `PolicyRefused` with all that is wrong with it."""
        await self._store.together(partial(resuming.set_policy, policy))
        await self._read_policies()

    async def remove_policy(self, name: str) -> bool:
        is_removed = await self._store.together(partial(resuming.remove_policy, name))
        await self._read_policies()
        return is_removed

    async def _read_policies(self) -> float:
        self._policies = await self._store.look(resuming.policies)
        return POLICIES_SECONDS

    def _next_due(self, retry: Retry, failure: Failure, now_us: int) -> int | None:
        return resuming.next_due_of(self._policies)(retry, failure, now_us)

    # what there is to see

    async def detailed(self) -> QueueDetails:
        """What waits, by class, flow and action; up to five seconds old."""
        return await self._detailed.get()

    async def running(self) -> list[RunningTask]:
        return await self._store.look(partial(details.running, self.limits.stale_seconds, RUNNING_MAX))

    async def plugins(self) -> dict[str, str]:
        return await self._store.look(details.plugins)

    def action_times(self) -> dict[str, Distribution]:
        """How long workers had parcels, by action class: of leases that were given and completed here."""
        return self._leasing.times.now()

    async def flow_work(self) -> Mapping[str, FlowWork]:
        """What was done for each flow; up to a second old."""
        return await self._flow_work.get()

    async def figures(self) -> DispatchFigures:
        """For metrics and health checks; up to a second old."""
        return await self._figures.get()

    async def _count(self) -> DispatchFigures:
        found = await self._store.look(partial(details.figures, self.limits.worker_seconds))
        work = await self._flow_work.get()
        lost = {flow: done.lost for flow, done in work.items() if done.lost}
        return found._replace(untaken=self._exports.untaken(), lost=lost)


def _follower(definition: FlowDefinition) -> tuple[str, str]:
    """The queue and the group that shows how far the flow is in it."""
    return definition.source.queue, definition.group
