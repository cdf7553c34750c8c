"""Messages in and out of the embedded store: pushes, pops, answers and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial

from forebay.broker.messages import (
    FAILED,
    UNKNOWN,
    Acknowledged,
    Acknowledgement,
    Completed,
    Popped,
    PopRequest,
    Pushed,
    TransactionOutcome,
)
from forebay.broker.numbering import by_run
from forebay.broker.stores.embedded.data_directory import DATABASE_FILE
from forebay.broker.stores.embedded.figures import partitions_behind
from forebay.broker.stores.embedded.popping import CUT_SHORT
from forebay.broker.stores.embedded.pushing import PendingPush
from forebay.broker.stores.embedded.store_calls import StoreCalls
from forebay.broker.stores.embedded.turn import NotYet
from forebay.errors import ForebayError, StoreUnavailable
from forebay.model.push_run import PushRun


class StoreDelivery(StoreCalls):
    """The way in and the way out."""

    def push(self, runs: Sequence[PushRun]) -> Awaitable[Sequence[Pushed]]:
        for run in runs:
            if len(run.transaction_ids) > 1:
                # Here, where the ids were made a moment ago. The store's thread is on another processor.
                run.id_block()
        if len(runs) != 1 and len({run.queue for run in runs}) != 1:
            return self._push_to_several(runs)
        queue = self._engine.queues.by_name.get(runs[0].queue)
        if queue is None or queue.info.options.max_size:
            return self._push_in_turn(runs)
        return self._open_line().submit(None, push=PendingPush(runs))

    async def _push_in_turn(self, runs: Sequence[PushRun]) -> Sequence[Pushed]:
        """To one queue, which may have to be made, or to be counted."""
        while True:
            try:
                return await self._open_line().submit(None, push=PendingPush(runs))  # type: ignore[no-any-return]
            except NotYet:
                continue  # in another cycle, so that others get their turn

    async def _push_to_several(self, runs: Sequence[PushRun]) -> Sequence[Pushed]:
        """As a whole, up to so many queues; more are stored one after the other, and answered run by run."""
        places: dict[str, list[int]] = {}
        for place, run in enumerate(runs):
            places.setdefault(run.queue, []).append(place)
        if not 0 < len(places) <= self._limits.queues_at_once_max:
            return await self._push_one_by_one(runs, list(places.values()))
        await self._make_queues(runs)
        transact = partial(self._engine.transactions.transact, runs, (), duplicates_abort=False)
        return (await self._call(transact, synced=True)).pushed

    async def _push_one_by_one(self, runs: Sequence[PushRun], queues: Sequence[Sequence[int]]) -> Sequence[Pushed]:
        """Each queue in a cycle of its own. `queues`: of each the places of its runs."""
        pushed: dict[int, list[Pushed]] = {}
        for places in queues:
            own = [runs[place] for place in places]
            try:
                pushed.update(zip(places, by_run(own, await self.push(own)), strict=True))
            except ForebayError as error:
                if not pushed:
                    raise
                is_unknown = isinstance(error, StoreUnavailable) and error.is_outcome_unknown
                status = UNKNOWN if is_unknown else FAILED
                pushed.update((place, [Pushed(status, 0, "", str(error), len(runs[place]))]) for place in places)
        return [answer for place in range(len(runs)) for answer in pushed[place]]

    async def _make_queues(self, runs: Sequence[PushRun]) -> None:
        """Where several queues are to be made, make them first, in turns. One is made with what is stored in it."""
        known = self._engine.queues.by_name
        missing = list({run.queue: run for run in runs if run.queue not in known}.values())
        if len(missing) == 1:
            return
        while missing:
            made = await self._call(partial(self._engine.queues.make_some, missing), synced=True)
            missing = missing[made:]

    async def pop(self, request: PopRequest) -> Popped:
        if self._needs_lists(request):
            await self._make_lists(request)
        popped = CUT_SHORT
        while popped is CUT_SHORT:  # in another cycle, so that others get their turn
            popped = await self._call(lambda: self._engine.popper.pop(request), synced=self._makes_group(request))
        return popped

    def _needs_lists(self, request: PopRequest) -> bool:
        queues = self._engine.queues
        chosen = [queues.by_name.get(request.queue)] if request.queue else list(queues.by_id.values())
        for queue in chosen:
            if queue is not None and len(queue.partitions) > self._limits.listed_partitions_max:
                group = queue.groups.get(request.group)
                if group is None or group.ready is None or not group.ready.is_whole:
                    return True
        return False

    async def _make_lists(self, request: PopRequest) -> None:
        """What takes long of a group's first pop since the start, beside the store's thread."""
        synced = self._makes_group(request)
        lists = await self._call(lambda: self._engine.popper.begin_lists(request), synced=synced)
        for each in lists:
            numbers = await asyncio.to_thread(partitions_behind, self._directory / DATABASE_FILE, each)
            await self._call(partial(self._engine.popper.end_list, each, numbers))

    def _makes_group(self, request: PopRequest) -> bool:
        """Whether the pop decides where a group begins: what is pushed after its answer must be the group's."""
        if request.subscription_mode == "all":
            return False
        queues = self._engine.queues
        chosen = [queues.by_name.get(request.queue)] if request.queue else list(queues.by_id.values())
        return any(queue is None or request.group not in queue.groups for queue in chosen)

    async def seconds_until_due(self, request: PopRequest) -> float | None:
        return await self._call(lambda: self._engine.popper.seconds_until_due(request))

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> list[Acknowledged]:
        return await self._call(lambda: self._engine.acknowledging.acknowledge(acknowledgements))

    async def complete(self, lease_ids: Sequence[str]) -> list[Completed | None]:
        return await self._call(lambda: [self._engine.acknowledging.complete(lease_id) for lease_id in lease_ids])

    async def extend(self, lease_id: str, seconds: int) -> int | None:
        return await self._call(lambda: self._engine.acknowledging.extend(lease_id, seconds))

    async def release(self, lease_id: str, *, as_whole: bool = False) -> bool:
        return await self._call(lambda: self._engine.acknowledging.release(lease_id, as_whole=as_whole))

    async def transact(
        self, pushes: Sequence[PushRun], acknowledgements: Sequence[Acknowledgement]
    ) -> TransactionOutcome:
        await self._make_queues(pushes)
        return await self._call(
            lambda: self._engine.transactions.transact(pushes, acknowledgements, duplicates_abort=True), synced=True
        )
