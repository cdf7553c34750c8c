"""The way out: find partitions that are due for a group, lock them, let `delivery` decide, write the leases.

Finding never looks at all partitions. Those that the group has dealt with have a row in `deliveries` that says when
they are due next; those that got messages since the group last looked (`looked_seq`) are found by their last seq.
"""

from __future__ import annotations

import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from forebay.broker import delivery
from forebay.broker.messages import Message, Popped, PopRequest
from forebay.broker.stores.postgres.claiming import Claimed, Claiming, QueueAndGroup, Taken
from forebay.broker.stores.postgres.connections import Connection, Database, rows
from forebay.broker.stores.postgres.deliveries import read_state, without_removed
from forebay.broker.stores.postgres.limits import PostgresLimits
from forebay.broker.stores.postgres.names import stored_options
from forebay.broker.stores.postgres.queries import query
from forebay.clock import SECOND_US
from forebay.model.queue import QueueOptions

_NOTHING = Claimed(0, [], is_cut_short=False)


class _Round(NamedTuple):
    """What came of locking deliveries once."""

    locked: int
    claimed: int
    is_cut_short: bool


class Pop:
    """One request on its way through the queues that it covers."""

    def __init__(
        self,
        database: Database,
        request: PopRequest,
        now_us: int | None,
        dropped: Counter[str],
        limits: PostgresLimits,
    ) -> None:
        """`dropped`: where messages are counted of which no dead letter is kept."""
        self._dropped = dropped
        self._limits = limits
        self._database = database
        self._request = request
        self._now_us = now_us
        self._lease_id = str(uuid.uuid4())
        self._messages: list[Message] = []
        self._size_bytes = 0
        self._claimed = 0
        self._is_done = False
        """Whether it has all that it gets: a lost lease as a whole, or what came before one."""
        self.is_queue_missing = False
        """Whether it asks for a queue that does not exist."""

    async def run(self) -> Popped:
        for place in await self._places():
            await self._take_from(place)
            if self._is_full():
                break
        lease_id = self._lease_id if self._messages and not self._request.auto_ack else ""
        return Popped(lease_id, self._messages, self._claimed)

    def _is_full(self) -> bool:
        request = self._request
        return (
            self._is_done
            or self._claimed >= request.partitions
            or len(self._messages) >= request.batch
            or self._size_bytes >= request.bytes_max
        )

    async def _places(self) -> list[QueueAndGroup]:
        request = self._request
        values: dict[str, object] = {"group": request.group, "queue": request.queue, "now_us": self._now_us}
        if not request.queue:
            values |= {"namespace": request.namespace, "task": request.task}
        text = query("pop_find_queue" if request.queue else "pop_find_queues")
        found = cast("list[tuple[Any, ...]]", await self._database.ask_for_delivery(text, values))
        self.is_queue_missing = bool(request.queue) and not found
        unknown = [queue_id for queue_id, _, _, group_id, *_ in found if group_id is None]
        if unknown:
            for queue_id in unknown:
                await self._database.ask_for_delivery(query("group_make"), self._subscription(queue_id))
            found = cast("list[tuple[Any, ...]]", await self._database.ask_for_delivery(text, values))
        for _, _, _, group_id, last_active_us, now_us in found:
            if group_id is not None and abs(now_us - last_active_us) >= SECOND_US:
                await self._touch(group_id, is_clock_back=now_us < last_active_us, now_us=now_us)
        return [
            QueueAndGroup(queue_id, name, stored_options(options), group_id)
            for queue_id, name, options, group_id, *_ in found
            if group_id is not None
        ]

    def _subscription(self, queue_id: int) -> dict[str, object]:
        request = self._request
        return {
            "queue_id": queue_id,
            "group": request.group,
            "mode": request.subscription_mode,
            "from_us": request.subscription_from_us,
            "now_us": self._now_us,
        }

    async def _touch(self, group_id: int, *, is_clock_back: bool, now_us: int) -> None:
        values: dict[str, object] = {"group_id": group_id, "now_us": now_us}
        if is_clock_back:
            await self._database.ask_for_delivery(query("group_clock_went_back"), values)
        await self._database.ask_for_delivery(query("group_touch"), values)

    async def _take_from(self, place: QueueAndGroup) -> None:
        if self._request.partition is not None:
            values: dict[str, object] = {
                "group_id": place.group_id,
                "partition": self._request.partition,
                "now_us": self._now_us,
            }
            await self._database.ask_for_delivery(query("pop_plan_partition"), values)
            for _ in range(self._limits.rounds_max):
                done = await self._round(place, "pop_take_partition", values)
                if self._is_full() or not done.is_cut_short:
                    return
            return
        has_looked = False
        for _ in range(self._limits.rounds_max):
            wanted = self._request.partitions - self._claimed
            values = {"group_id": place.group_id, "now_us": self._now_us, "limit": wanted}
            done = await self._round(place, "pop_take_due", values)
            if self._is_full():
                return
            if (done.locked < wanted or done.claimed == 0) and not has_looked:
                # What is due is taken, or is of no use; now what came in since.
                has_looked = not await self._look_around(place)
            elif done.locked == 0:
                # Nothing is due, or others have it in hand: wait for them, so that nothing is missed.
                if (await self._round(place, "pop_wait_due", {**values, "limit": 1})).locked == 0:
                    return
                if self._is_full():
                    return

    async def _look_around(self, place: QueueAndGroup) -> bool:
        """True when there may be more to look at."""
        values: dict[str, object] = {"group_id": place.group_id, "now_us": self._now_us}
        found = await self._database.ask_for_delivery(query("pop_look_around"), values)
        return bool(found) and cast("int", found[0][0]) >= 1000

    async def _round(self, place: QueueAndGroup, name: str, values: dict[str, object]) -> _Round:
        """Lock deliveries with one query and take from them."""
        left = self._request.after(len(self._messages), self._size_bytes)

        async def work(connection: Connection) -> tuple[int | str, Claimed]:
            """How many were locked, and what was claimed; or a lost lease that has to be taken as a whole."""
            found = cast("list[tuple[Any, ...]]", await rows(connection, query(name), values))
            if not found:
                return 0, _NOTHING
            taken, now_us = _taken(found)
            lost = next(_lost_leases(taken, place.options, now_us), "") if left.whole_leases else ""
            if lost:
                return lost, _NOTHING
            claiming = Claiming(connection, place, left, self._lease_id, now_us, self._limits)
            return len(found), await claiming.claim(taken)

        locked, claimed = await self._database.run(work)
        if isinstance(locked, str):
            return await self._whole_round(place, locked)
        self._note(claimed)
        return _Round(locked, claimed.partitions, claimed.is_cut_short)

    async def _whole_round(self, place: QueueAndGroup, lost: str) -> _Round:
        """Take what a lost lease covered, unless the pop has something else already.

        In a transaction of its own, which locks it in the order in which all lock a lease: two servers that have each
        found one of its partitions would wait for each other.
        """
        self._is_done = bool(self._messages)
        if self._is_done:
            return _Round(0, 0, is_cut_short=False)
        unlimited = self._request._replace(batch=sys.maxsize, bytes_max=sys.maxsize)
        values: dict[str, object] = {"lease_id": lost, "group_id": place.group_id, "now_us": self._now_us}

        async def work(connection: Connection) -> Claimed:
            found = cast("list[tuple[Any, ...]]", await rows(connection, query("pop_take_lease"), values))
            if not found:  # another server was quicker
                return _NOTHING
            taken, now_us = _taken(found)
            still = [one for one in taken if delivery.lost_lease(one.state, place.options, now_us) == lost]
            claiming = Claiming(connection, place, unlimited, self._lease_id, now_us, self._limits, is_whole=True)
            return await claiming.claim(still)

        claimed = await self._database.run(work)
        self._note(claimed)
        self._is_done = bool(claimed.messages)
        return _Round(1, claimed.partitions, is_cut_short=True)

    def _note(self, claimed: Claimed) -> None:
        self._dropped.update(claimed.dropped)
        self._claimed += claimed.partitions
        self._messages += claimed.messages
        self._size_bytes += sum(len(message.payload) for message in claimed.messages)


def _taken(found: list[tuple[Any, ...]]) -> tuple[list[Taken], int]:
    """Deliveries that were locked, and the time."""
    taken = [
        Taken(partition_id, partition, newest_us, without_removed(read_state(state, cursor_seq), removed_seq))
        for partition_id, state, cursor_seq, partition, newest_us, removed_seq, _ in found
    ]
    return taken, int(found[0][-1])


def _lost_leases(taken: list[Taken], options: QueueOptions, now_us: int) -> Iterator[str]:
    return filter(None, (delivery.lost_lease(one.state, options, now_us) for one in taken))


async def seconds_until_due(database: Database, request: PopRequest, now_us: int | None) -> float | None:
    """When a pop that found nothing may find what only waits for its time."""
    values: dict[str, object] = {"group": request.group, "queue": request.queue, "now_us": now_us}
    if request.partition is None:
        values |= {"namespace": request.namespace, "task": request.task}
        found = await database.ask_for_delivery(query("pop_next_due"), values)
    else:
        values["partition"] = request.partition
        found = await database.ask_for_delivery(query("pop_next_due_partition"), values)
    times = [cast("int", us) for [us] in found if us is not None]
    return max(min(times), 0) / SECOND_US if times else None
