"""What consumers answer: the deliveries are locked in order, `delivery` judges, dead letters and states are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from forebay.broker import delivery
from forebay.broker.delivery import Answered, DeliveryState, Verdict
from forebay.broker.messages import Acknowledged, Acknowledgement, Completed, judged_together
from forebay.broker.stores.postgres.connections import Connection, Cursor, rows
from forebay.broker.stores.postgres.deliveries import Burial, Delivery, bury, read_state, save
from forebay.broker.stores.postgres.names import partition_number, stored_options
from forebay.broker.stores.postgres.queries import query
from forebay.model.queue import QueueOptions


class Judged(NamedTuple):
    acknowledged: list[Acknowledged]
    given_back: set[str]
    """Queues of which a partition is not under a lease any more."""
    planned: Cursor | None
    """When the deliveries that changed are due."""
    dropped: Mapping[str, int] = {}
    """Messages of which no dead letter is kept, by the kind of reason."""

    async def freed(self) -> set[str]:
        """After the commit: queues of which a partition has more for others, at once or after a delay."""
        if self.planned is None or not self.given_back:
            return set()
        has_more = any(due is not None for [due] in await self.planned.fetchall())
        return self.given_back if has_more else set()


@dataclass(slots=True)
class _Locked:
    group_id: int
    partition_id: int
    group: str
    state: DeliveryState
    queue: str
    options: QueueOptions
    partition: str
    is_changed: bool = False
    dropped: int = 0
    burials: list[Burial] = field(default_factory=list)


async def acknowledge(
    connection: Connection, acknowledgements: Sequence[Acknowledgement], now_us: int | None
) -> Judged:
    """Judge the answers in order and write what came of them. One that is refused changes nothing."""
    locked, time_us = await _lock(connection, acknowledgements, now_us)
    acknowledged = _judge_all(locked, acknowledgements, time_us)
    changed = [one for one in locked.values() if one.is_changed]
    await bury(connection, [burial for one in changed for burial in one.burials], time_us)
    saved = [
        Delivery(
            one.group_id, one.partition_id, one.state, delivery.due_us(one.state, one.options, time_us), one.dropped
        )
        for one in changed
    ]
    planned = await save(connection, saved, time_us)
    given_back = {one.queue for one in changed if not one.state.lease_id or one.state.yielded_us}
    dropped = delivery.dropped_by_kind(burial.letter for one in changed for burial in one.burials)
    return Judged(acknowledged, given_back, planned, dropped)


async def _lock(
    connection: Connection, acknowledgements: Sequence[Acknowledgement], now_us: int | None
) -> tuple[dict[tuple[int, str], _Locked], int]:
    wanted = {
        (number, acknowledgement.group)
        for acknowledgement in acknowledgements
        if (number := partition_number(acknowledgement.partition_id)) is not None
    }
    if not wanted:
        return {}, 0
    values: dict[str, object] = {
        "partition_ids": [number for number, _ in wanted],
        "groups": [group for _, group in wanted],
        "now_us": now_us,
    }
    locked: dict[tuple[int, str], _Locked] = {}
    time_us = 0
    for found in cast("list[tuple[Any, ...]]", await rows(connection, query("ack_lock"), values)):
        partition_id, group, group_id, state, cursor_seq, queue, options, partition, time_us = found
        locked[partition_id, group] = _Locked(
            group_id,
            partition_id,
            group,
            read_state(state, cursor_seq),
            queue,
            stored_options(options),
            partition,
        )
    return locked, time_us


def _judge_all(
    locked: dict[tuple[int, str], _Locked], acknowledgements: Sequence[Acknowledgement], time_us: int
) -> list[Acknowledged]:
    """All answers under one lease to one partition are judged together: judging copies the state."""
    judged: dict[int, Acknowledged] = {}
    for (partition_id, group, lease), places in judged_together(acknowledgements).items():
        number = partition_number(partition_id)
        one = None if number is None else locked.get((number, group))
        answers = [acknowledgements[place].answer for place in places]
        judged |= zip(places, _judge(one, lease, answers, time_us), strict=True)
    return [judged[place] for place in range(len(acknowledgements))]


def _judge(one: _Locked | None, lease: delivery.Lease, answers: list[Verdict], time_us: int) -> list[Acknowledged]:
    if one is None:
        refused = [Answered(answer.transaction_id, False, delivery.LEASE_INVALID) for answer in answers]
        return [Acknowledged(answered, "", "") for answered in refused]
    judged, dead, one.state = delivery.acknowledge(one.state, lease, answers, one.options, now_us=time_us)
    one.is_changed = one.is_changed or any(answered.is_accepted for answered in judged)
    one.dropped += sum(letter.is_dropped for letter in dead)
    one.burials += [Burial(one.partition_id, one.group, letter) for letter in dead]
    return [Acknowledged(answered, one.queue, one.partition) for answered in judged]


class _Held(NamedTuple):
    """A delivery under a lease, locked."""

    group_id: int
    partition_id: int
    queue: str
    partition: str
    options: QueueOptions
    state: DeliveryState

    def changed(self, state: DeliveryState, now_us: int) -> Delivery:
        return Delivery(self.group_id, self.partition_id, state, delivery.due_us(state, self.options, now_us))


async def _held(connection: Connection, lease_id: str, now_us: int | None) -> tuple[list[_Held], int]:
    """What is held under the lease, and the time."""
    values: dict[str, object] = {"lease_id": lease_id, "now_us": now_us}
    held: list[_Held] = []
    time_us = 0
    for found in cast("list[tuple[Any, ...]]", await rows(connection, query("lease_lock"), values)):
        group_id, partition_id, queue, partition, options, column, cursor_seq, time_us = found
        state = read_state(column, cursor_seq)
        if state.is_leased_at(time_us):
            held.append(_Held(group_id, partition_id, queue, partition, stored_options(options), state))
    return held, time_us


async def extend(connection: Connection, lease_id: str, seconds: int, now_us: int | None) -> int | None:
    """Until when the lease now lasts; None when it is not held."""
    held, time_us = await _held(connection, lease_id, now_us)
    longer = [delivery.extended(one.state, now_us=time_us, seconds=seconds) for one in held]
    saved = [one.changed(state, time_us) for one, state in zip(held, longer, strict=True)]
    await save(connection, saved, time_us)
    return max([state.lease_until_us for state in longer], default=None)


async def complete(connection: Connection, lease_id: str, now_us: int | None) -> tuple[Completed | None, Judged]:
    """Finish all that is held under the lease; None when it is not held. What was judged says what it freed."""
    held, time_us = await _held(connection, lease_id, now_us)
    after = [delivery.completed(one.state) for one in held]
    saved = [one.changed(state, time_us) for one, (_, state) in zip(held, after, strict=True)]
    judged = Judged([], {one.queue for one in held}, await save(connection, saved, time_us))
    if not held:
        return None, judged
    return Completed(sum(count for count, _ in after), [(one.queue, one.partition) for one in held]), judged


async def release(connection: Connection, lease_id: str, now_us: int | None, *, as_whole: bool) -> set[str]:
    """Undo a claim; returns the queues that it was on, none when the lease is not held."""
    held, time_us = await _held(connection, lease_id, now_us)

    def after(state: DeliveryState) -> DeliveryState:
        return delivery.given_back(state, now_us=time_us) if as_whole else delivery.released(state)

    await save(connection, [one.changed(after(one.state), time_us) for one in held], time_us)
    return {one.queue for one in held}
