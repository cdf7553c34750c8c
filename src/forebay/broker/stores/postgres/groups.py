"""Groups: their lag, where they stand, and forgetting them."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from forebay.broker.overview import GroupLag, SeekPreview, SeekTarget
from forebay.broker.stores.postgres.connections import Ask, Connection, Database, rows, send
from forebay.broker.stores.postgres.deliveries import read_state
from forebay.broker.stores.postgres.queries import query
from forebay.clock import SECOND_US
from forebay.errors import UnknownQueue


async def lags(ask: Ask, only_queue: str | None, now_us: int | None) -> list[GroupLag]:
    values: dict[str, object] = {"queue": only_queue, "now_us": now_us}
    leased: Counter[tuple[str, str]] = Counter()
    for found in cast("list[tuple[Any, ...]]", await ask(query("groups_leased"), values)):
        queue, group, column, time_us = found
        state = read_state(column, 0)
        leased[queue, group] += state.leased_count(time_us)
    found_groups = cast("list[tuple[Any, ...]]", await ask(query("groups_list"), values))
    return [
        GroupLag(
            group=group,
            queue=queue,
            subscription_mode=mode,
            subscription_from_us=from_us,
            created_us=created_us,
            partitions=partitions,
            partitions_with_lag=lagging,
            lag_messages=messages,
            lag_seconds=(time_us - oldest_us) / SECOND_US,
            leased=leased[queue, group],
            last_active_us=last_active_us,
            dead_letters=letters,
        )
        for (
            group,
            queue,
            mode,
            from_us,
            created_us,
            last_active_us,
            letters,
            partitions,
            lagging,
            messages,
            oldest_us,
            time_us,
        ) in found_groups
    ]


async def seek(
    connection: Connection, group: str, queue: str, partition: str | None, target: SeekTarget, now_us: int | None
) -> int:
    """Set cursors; leases on them end. Of all partitions at once or of none: a million take seconds."""
    queue_id, group_id, start_seq, time_us = await _lock(connection, group, queue, target, now_us)
    if partition is not None:
        place: dict[str, object] = {
            "group_id": group_id,
            "queue_id": queue_id,
            "partition": partition,
            "start_seq": start_seq,
            "now_us": time_us,
        }
        return len(await rows(connection, query("seek_one"), place))
    await send(connection, query("seek_forget_all"), {"group_id": group_id, "start_seq": start_seq})
    [[count]] = await rows(connection, query("partitions_count"), {"queue_id": queue_id})
    return cast("int", count)


async def preview_seek(
    database: Database, group: str, queue: str, partition: str | None, target: SeekTarget, now_us: int | None
) -> SeekPreview:
    values: dict[str, object] = {
        "group": group,
        "queue": queue,
        "partition": partition,
        "seq": target.seq,
        "time_us": target.time_us,
        "now_us": now_us,
    }
    found = cast("list[tuple[Any, ...]]", await database.ask(query("seek_preview"), values))
    if not found:
        raise UnknownQueue(queue)
    [(is_new, target_seq, partitions, waiting, waiting_after, both, leased, cut, time_us)] = found
    # Under way and behind the target: they wait now, and would then.
    for column in cut or ():
        both += sum(p.seq > target_seq and not p.is_finished for p in read_state(column, 0).pending)
    return SeekPreview(
        from_seq=target_seq + 1,
        is_new=is_new,
        partitions=partitions,
        waiting=waiting,
        waiting_after=waiting_after,
        skipped=waiting - both,
        repeated=waiting_after - both,
        leased=sum(read_state(column, 0).leased_count(time_us) for column in leased or ()),
    )


async def _lock(
    connection: Connection, group: str, queue: str, target: SeekTarget, now_us: int | None
) -> tuple[int, int, int, int]:
    """Lock the group, made if need be; returns its queue, itself, the seq behind which it is to start, and the time.

    Another request may delete the group, or its queue, after it was found and before it is locked. Then both are looked
    for again. A group that this transaction made itself is seen by no other, so that there is an end to it.
    """
    while True:
        found = cast("list[tuple[Any, ...]]", await rows(connection, query("queue_find"), {"name": queue}))
        if not found:
            raise UnknownQueue(queue)
        queue_id = found[0][-1]
        subscription = {"queue_id": queue_id, "group": group, "mode": "all", "from_us": 0, "now_us": now_us}
        await send(connection, query("group_make"), subscription)
        values: dict[str, object] = {
            "queue_id": queue_id,
            "group": group,
            "seq": target.seq,
            "time_us": target.time_us,
            "now_us": now_us,
        }
        locked = cast("list[tuple[int, int, int]]", await rows(connection, query("seek_start"), values))
        for group_id, start_seq, time_us in locked:
            return queue_id, group_id, max(start_seq, 0), time_us


async def delete(connection: Connection, group: str, queue: str | None) -> int:
    """Forget the group; returns how many deliveries went with it.

    In one statement: it is gone for all servers at once, or still there as a whole, and the request may be sent again.
    A million deliveries take seconds.
    """
    values: dict[str, object] = {"group": group, "queue": queue, "before_us": None}
    [[known, _]] = await rows(connection, query("group_delete"), values)
    return cast("int", known)


async def expire(database: Database, seconds: float, now_us: int | None) -> int:
    """Forget groups that have not popped for that long, each in a transaction of its own; returns how many."""
    total = 0
    idle = await database.ask(query("groups_idle"), {"kept_us": round(seconds * SECOND_US), "now_us": now_us})
    for group, queue, before_us in idle:
        values = {"group": group, "queue": queue, "before_us": before_us}
        [[_, gone]] = await database.ask(query("group_delete"), values, is_durable=True)
        total += cast("int", gone)
    return total
