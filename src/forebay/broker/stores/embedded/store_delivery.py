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
    PushItem,
    TransactionOutcome,
)
from forebay.broker.push_run import PushRun
from forebay.broker.stores.embedded.data_directory import DATABASE_FILE
from forebay.broker.stores.embedded.figures import partitions_behind
from forebay.broker.stores.embedded.popping import CUT_SHORT
from forebay.broker.stores.embedded.pushing import PendingPush
from forebay.broker.stores.embedded.store_calls import StoreCalls
from forebay.broker.stores.embedded.turn import NotYet
from forebay.errors import ForebayError, StoreUnavailable


class StoreDelivery(StoreCalls):
    """The way in and the way out."""

    def push(self, items: Sequence[PushItem]) -> Awaitable[Sequence[Pushed]]:
        if type(items) is PushRun:
            # Here, where the ids were made a moment ago. The store's thread is on another processor.
            items.id_block()
        if len(items) == 1 or type(items) is PushRun or len({item.queue for item in items}) == 1:
            request = PendingPush(items)
            queue = self._engine.queues.by_name.get(request.queue) if items else None
            if items and (queue is None or queue.info.options.max_size):
                return self._push_in_turn(items)
            return self._open_line().submit(request, synced=False)
        return self._push_to_several(items)

    async def _push_in_turn(self, items: Sequence[PushItem]) -> Sequence[Pushed]:
        """To one queue, which may have to be made, or to be counted."""
        while True:
            try:
                return await self._open_line().submit(PendingPush(items), synced=False)  # type: ignore[no-any-return]
            except NotYet:
                continue  # in another cycle, so that others get their turn

    async def _push_to_several(self, items: Sequence[PushItem]) -> Sequence[Pushed]:
        """As a whole, up to so many queues; more are stored one after the other, and answered item by item."""
        places: dict[str, list[int]] = {}
        for place, item in enumerate(items):
            places.setdefault(item.queue, []).append(place)
        if not 0 < len(places) <= self._limits.queues_at_once_max:
            return await self._push_one_by_one(items, list(places.values()))
        await self._make_queues(items)
        transact = partial(self._engine.transactions.transact, items, (), duplicates_abort=False)
        return (await self._call(transact, synced=True)).pushed

    async def _push_one_by_one(self, items: Sequence[PushItem], queues: Sequence[Sequence[int]]) -> Sequence[Pushed]:
        """Each queue in a cycle of its own. `queues`: of each the places of its messages."""
        pushed: dict[int, Pushed] = {}
        for places in queues:
            try:
                pushed.update(zip(places, await self.push([items[place] for place in places]), strict=True))
            except ForebayError as error:
                if not pushed:
                    raise
                is_unknown = isinstance(error, StoreUnavailable) and error.is_outcome_unknown
                failed = Pushed(UNKNOWN if is_unknown else FAILED, 0, "", str(error))
                pushed.update(dict.fromkeys(places, failed))
        return [pushed[place] for place in range(len(items))]

    async def _make_queues(self, items: Sequence[PushItem]) -> None:
        """Where several queues are to be made, make them first, in turns. One is made with what is stored in it."""
        known = self._engine.queues.by_name
        missing = list({item.queue: item for item in items if item.queue not in known}.values())
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
        self, pushes: Sequence[PushItem], acknowledgements: Sequence[Acknowledgement]
    ) -> TransactionOutcome:
        await self._make_queues(pushes)
        return await self._call(
            lambda: self._engine.transactions.transact(pushes, acknowledgements, duplicates_abort=True), synced=True
        )
