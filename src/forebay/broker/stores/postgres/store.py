"""The store on PostgreSQL: each method of the protocol in terms of this package's parts."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar, cast

import pyarrow as pa
from psycopg.types.json import Jsonb

from forebay.broker.bulk import (
    CommitOutcome,
    Content,
    QueueBounds,
    RangeRequest,
    Staged,
    StageFigures,
    StageName,
    StagesOf,
)
from forebay.broker.flow_rows import FlowRow
from forebay.broker.messages import (
    ANSWER_BYTES_MAX,
    Acknowledged,
    Acknowledgement,
    Completed,
    Message,
    Popped,
    PopRequest,
    Pushed,
    TransactionOutcome,
)
from forebay.broker.overview import (
    DeadLetterFilter,
    DeadMessage,
    GroupLag,
    LostMessages,
    PartitionStatus,
    QueueStatus,
    SeekPreview,
    SeekTarget,
    StoreFigures,
    StoreTimes,
    TraceEvent,
)
from forebay.broker.room_work import Work
from forebay.broker.store import Waker
from forebay.broker.stores.postgres import (
    acknowledging,
    browsing,
    dead_letters,
    deletion,
    flows,
    groups,
    purging,
    reading,
    retention,
    staging,
    traces,
)
from forebay.broker.stores.postgres.connections import REQUEST_SECONDS_MAX, Connection, Database, opened, rows
from forebay.broker.stores.postgres.limits import PostgresLimits
from forebay.broker.stores.postgres.migrations import migrate
from forebay.broker.stores.postgres.names import partition_number, place_numbers
from forebay.broker.stores.postgres.notices import Notices
from forebay.broker.stores.postgres.popping import Pop, seconds_until_due
from forebay.broker.stores.postgres.push_batcher import PushBatcher
from forebay.broker.stores.postgres.pushing import Availability
from forebay.broker.stores.postgres.queries import query
from forebay.broker.stores.postgres.transactions import Transactions
from forebay.clock import SECOND_US, Clock
from forebay.errors import StoreUnavailable
from forebay.model.histogram import Histogram
from forebay.model.push_run import PushRun
from forebay.model.queue import Queue, QueueOptions, namespace_and_task_of, options_to_wire

T = TypeVar("T")

PUSH_SECONDS_MAX = 10.0
"""Shorter than for other requests: all pushes wait for the one that is under way."""
GROUP_BYTES_MAX = 2 << 20
"""Of pushes that share a transaction. A larger one goes alone."""
MESSAGE_BYTES = 200
"""What a message weighs in a group besides its payload."""


class PostgresStore:
    """Queues in one database, shared by any number of servers.

    `clock` is for tests. Without it the database's clock counts, the one clock that all servers have in common.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
        limits: PostgresLimits | None = None,
    ) -> None:
        self._url = url
        self._limits = limits or PostgresLimits()
        self._clock = clock
        self._server_id = uuid.uuid4().hex
        push_seconds_max = min(request_seconds_max, PUSH_SECONDS_MAX)
        self._database = Database(url, request_seconds_max=request_seconds_max, push_seconds_max=push_seconds_max)
        self._wake: Waker = lambda queue, count: None
        self._times = StoreTimes(Histogram())
        self._dropped = Counter[str]()
        self._pushes = PushBatcher(
            self._database,
            self._server_id,
            self._now_us,
            self._tell,
            self._times.commit,
            size_max=GROUP_BYTES_MAX,
        )
        self._expired = 0
        self._notices = Notices(url, self._database, self._server_id, self._hear)
        self._transactions = Transactions(
            self._database,
            self._server_id,
            self._now_us,
            tell=self._tell,
            tell_freed=self._tell_freed,
            dropped=self._dropped,
            limits=self._limits,
        )

    def _now_us(self) -> int | None:
        return None if self._clock is None else self._clock.now_us()

    def _hear(self, queue: str, count: int) -> None:
        self._wake(queue, count)

    async def open(self, on_available: Waker) -> None:
        self._wake = on_available
        async with opened(self._url) as connection:
            await migrate(connection)
        self._notices.start()

    async def close(self) -> None:
        await self._pushes.close()
        await self._notices.stop()
        await self._database.close()

    async def is_healthy(self) -> bool:
        try:
            await self._database.ask(b"SELECT 1")
        except StoreUnavailable:
            return False
        return True

    # queues

    async def configure(self, queue: str, options: QueueOptions, namespace: str, task: str) -> Queue:
        own_namespace, own_task = namespace_and_task_of(queue)
        values: dict[str, object] = {
            "name": queue,
            "namespace": namespace,
            "task": task,
            "made_namespace": namespace or own_namespace,
            "made_task": task or own_task,
            "options": Jsonb(options_to_wire(options)),
            "priority": options.priority,
            "now_us": self._now_us(),
        }
        [found] = await self._database.ask(query("queue_configure"), values, is_durable=True)
        return browsing.as_queue(*found)  # type: ignore[arg-type]  # the columns of that query

    async def queue(self, name: str) -> Queue | None:
        found = await browsing.find_queue(self._database, name)
        return found[0] if found else None

    async def lost_messages(self) -> list[LostMessages]:
        return []  # the database refuses pages that it cannot read, and knows no more of them

    async def queues(self, name: str | None = None) -> list[QueueStatus]:
        return await browsing.queues(self._database.ask, name)

    async def queues_of(
        self, *, partition_ids: Sequence[str] = (), lease_ids: Sequence[str] = (), stage_ids: Sequence[str] = ()
    ) -> set[str]:
        numbers = [number for one in partition_ids if (number := partition_number(one)) is not None]
        values: dict[str, object] = {"partitions": numbers, "leases": list(lease_ids), "stages": list(stage_ids)}
        return {str(queue) for [queue] in await self._database.ask(query("queues_of"), values)}

    async def partitions(self, queue: str, limit: int, offset: int) -> list[PartitionStatus]:
        return await browsing.partitions(self._database, queue, limit, offset)

    async def delete_queue(self, name: str) -> bool:
        found = await self._database.ask(query("queue_forget"), {"name": name}, is_durable=True)
        for [queue_id] in found:
            await purging.purge(self._database, cast("int", queue_id), self._limits)
        return bool(found)

    # the way in

    def push(self, runs: Sequence[PushRun]) -> Awaitable[Sequence[Pushed]]:
        return self._pushes.submit(runs, sum([run.size_bytes + MESSAGE_BYTES * len(run) for run in runs]))

    def _tell(self, availability: Availability) -> None:
        for queue, count in availability.counts.items():
            self._wake(queue, count)
            if queue in availability.wanted_elsewhere:
                self._notices.tell(queue, count)

    # the way out

    async def pop(self, request: PopRequest) -> Popped:
        pop = self._new_pop(request)
        popped = await pop.run()
        if pop.is_queue_missing and request.subscription_mode != "all":
            # What is pushed from now on is the group's, so the queue has to know it.
            await self._transactions.make_queues({request.queue: ("", "")})
            popped = await self._new_pop(request).run()
        if not popped.messages and await self._notices.note(request.queue):
            # Another server may have pushed before the note was there, and notified none.
            popped = await self._new_pop(request).run()
        return popped

    def _new_pop(self, request: PopRequest) -> Pop:
        return Pop(self._database, request, self._now_us(), self._dropped, self._limits)

    async def seconds_until_due(self, request: PopRequest) -> float | None:
        return await seconds_until_due(self._database, request, self._now_us())

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> list[Acknowledged]:
        async def work(connection: Connection) -> acknowledging.Judged:
            return await acknowledging.acknowledge(connection, acknowledgements, self._now_us())

        judged = await self._database.run(work)
        self._dropped += judged.dropped
        self._tell_freed(await judged.freed())
        return judged.acknowledged

    def _tell_freed(self, queues: Iterable[str]) -> None:
        """Of partitions that others may claim again, at once or after a delay."""
        for queue in queues:
            self._wake(queue, 1)
            self._notices.tell_freed(queue)

    async def complete(self, lease_ids: Sequence[str]) -> list[Completed | None]:
        async def work(connection: Connection) -> dict[str, tuple[Completed | None, acknowledging.Judged]]:
            # In one order for all requests: two requests with the same leases would wait for each other.
            return {
                lease_id: await acknowledging.complete(connection, lease_id, self._now_us())
                for lease_id in sorted(set(lease_ids))
            }

        found = await self._database.run(work)
        for _, judged in found.values():
            self._tell_freed(await judged.freed())
        # A lease that is named twice is completed once.
        return [found.pop(lease_id)[0] if lease_id in found else None for lease_id in lease_ids]

    async def extend(self, lease_id: str, seconds: int) -> int | None:
        async def work(connection: Connection) -> int | None:
            return await acknowledging.extend(connection, lease_id, seconds, self._now_us())

        return await self._database.run(work)

    async def release(self, lease_id: str, *, as_whole: bool = False) -> bool:
        async def work(connection: Connection) -> set[str]:
            return await acknowledging.release(connection, lease_id, self._now_us(), as_whole=as_whole)

        freed = await self._database.run(work)
        self._tell_freed(freed)
        return bool(freed)

    async def transact(
        self, pushes: Sequence[PushRun], acknowledgements: Sequence[Acknowledgement]
    ) -> TransactionOutcome:
        return await self._transactions.transact(pushes, acknowledgements)

    # groups

    async def groups(self, queue: str | None = None) -> list[GroupLag]:
        return await groups.lags(self._database.ask, queue, self._now_us())

    def times(self) -> StoreTimes:
        return self._times

    def dropped(self) -> Mapping[str, int]:
        return dict(self._dropped)

    async def figures(self) -> StoreFigures:
        async def work(connection: Connection) -> StoreFigures:
            ask, now_us = partial(rows, connection), self._now_us()
            [[time_us]] = await ask(query("time_now"), {"now_us": now_us})
            found = await browsing.queues(ask, None)
            return StoreFigures(found, await groups.lags(ask, None, now_us), cast("int", time_us))

        return await self._database.snapshot(work)

    async def seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> int:
        async def work(connection: Connection) -> int:
            return await groups.seek(connection, group, queue, partition, target, self._now_us())

        moved = await self._database.run(work, is_durable=True)
        self._tell_freed([queue])
        return moved

    async def preview_seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> SeekPreview:
        return await groups.preview_seek(self._database, group, queue, partition, target, self._now_us())

    async def delete_group(self, group: str, queue: str | None) -> int:
        async def work(connection: Connection) -> int:
            return await groups.delete(connection, group, queue)

        return await self._database.run(work, is_durable=True)

    # dead letters

    async def dead_letters(
        self, wanted: DeadLetterFilter, limit: int, offset: int, *, bytes_max: int = ANSWER_BYTES_MAX
    ) -> tuple[list[DeadMessage], int]:
        return await dead_letters.page(self._database, wanted, limit, offset, bytes_max)

    async def replay_dead_letters(self, wanted: DeadLetterFilter, *, to_all_groups: bool = False) -> int:
        return await self._transactions.replay_dead_letters(wanted, to_all_groups)

    async def purge_dead_letters(self, wanted: DeadLetterFilter) -> int:
        return await dead_letters.purge(self._database, wanted, self._limits)

    # messages, for browsing

    async def read(
        self,
        queue: str,
        from_seq: int,
        limit: int,
        partition: str | None = None,
        *,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> list[Message]:
        return await browsing.read(self._database, queue, from_seq, limit, partition, bytes_max)

    async def message(self, partition_id: str, transaction_id: str) -> Message | None:
        return await browsing.message(self._database, partition_id, transaction_id)

    async def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        message = await self.message(partition_id, transaction_id)
        place = place_numbers(partition_id)
        if message is None or place is None:
            return False

        async def work(connection: Connection) -> bool:
            return await deletion.delete(connection, *place, message.seq, self._now_us())

        is_deleted = await self._database.run(work, is_durable=True)
        self._tell_freed([message.queue] if is_deleted else [])
        return is_deleted

    async def bury_message(self, partition_id: str, transaction_id: str, reason: str) -> int | None:
        message = await self.message(partition_id, transaction_id)
        place = place_numbers(partition_id)
        if message is None or place is None:
            return None

        async def work(connection: Connection) -> int | None:
            return await deletion.move_to_dead_letters(connection, *place, message.seq, reason, self._now_us())

        letters = await self._database.run(work, is_durable=True)
        self._tell_freed([message.queue] if letters else [])
        return letters

    async def clear_queue(self, name: str, partition: str | None = None) -> int:
        queue_id = await browsing.queue_number(self._database, name)
        removed = await retention.clear(self._database, queue_id, partition, self._now_us(), self._limits)
        self._tell_freed([name])
        return removed

    # traces

    async def add_trace(self, event: TraceEvent) -> None:
        await traces.add(self._database, event)

    async def traces(self, partition_id: str, transaction_id: str) -> list[TraceEvent]:
        return await traces.of_message(self._database, partition_id, transaction_id)

    async def traces_named(self, name: str, limit: int, offset: int) -> tuple[list[TraceEvent], int]:
        return await traces.named(self._database, name, limit, offset)

    async def trace_names(self, limit: int, offset: int) -> tuple[list[tuple[str, int]], int]:
        return await traces.names(self._database, limit, offset)

    async def expire_traces(self, seconds: float) -> int:
        return await traces.expire(self._database, seconds, self._now_us())

    # flows

    async def flows(self) -> list[FlowRow]:
        return await flows.listed(self._database)

    async def report_flow(
        self, name: str, worker: str, report: bytes, *, quiet_seconds: float, is_released: bool = False
    ) -> FlowRow:
        return await flows.report(
            self._database,
            name,
            worker,
            report,
            quiet_seconds=quiet_seconds,
            is_released=is_released,
            now_us=self._now_us(),
        )

    async def pause_flow(self, name: str, is_paused: bool) -> FlowRow:
        return await flows.pause(self._database, name, is_paused)

    async def forget_flow(self, name: str) -> bool:
        return await flows.forget(self._database, name)

    # other rooms

    async def together(self, begin: Callable[[], Work[T]], *, has_stages: bool = False) -> T:
        return await self._transactions.together(begin, has_stages=has_stages)

    async def look(self, begin: Callable[[], Work[T]]) -> T:
        return await self._transactions.together(begin, has_stages=False)

    # the store as a whole

    async def flag(self, name: str) -> bool:
        found = await self._database.ask(query("flag_find"), {"name": name})
        return bool(found and found[0][0])

    async def set_flag(self, name: str, is_set: bool) -> None:
        await self._database.ask(query("flag_set"), {"name": name, "is_set": is_set}, is_durable=True)

    async def time_us(self) -> int:
        [[time_us]] = await self._database.ask(query("time_now"), {"now_us": self._now_us()})
        return cast("int", time_us)

    async def apply_retention(self) -> int:
        return await retention.apply(self._database, self._now_us(), self._limits)

    async def expire_dead_letters(self, seconds: float) -> int:
        oldest_us = await self.time_us() - round(seconds * SECOND_US)
        return await self.purge_dead_letters(DeadLetterFilter(to_us=oldest_us - 1))

    async def expire_groups(self, seconds: float) -> int:
        return await groups.expire(self._database, seconds, self._now_us())

    async def expire_partitions(self, seconds: float) -> int:
        return await retention.expire_partitions(self._database, seconds, self._now_us(), self._limits)

    # Arrow

    async def bounds(self, queue: str, time_us: int | None = None, partitions: Sequence[str] = ()) -> QueueBounds:
        return await reading.bounds(self._database, queue, time_us, partitions)

    async def hold(self, queue: str, reader: str, seq: int, seconds: float) -> bool:
        return await reading.hold(self._database, queue, reader, seq, seconds, self._now_us())

    async def read_batches(self, wanted: RangeRequest) -> AsyncIterator[pa.RecordBatch]:
        return await reading.read_batches(self._database, wanted)

    async def stage(
        self,
        queue: str,
        stage_id: str,
        name: StageName,
        batches: Sequence[pa.RecordBatch],
        content: Content | None = None,
    ) -> Staged:
        return await staging.add(self._database, queue, stage_id, name, batches, content, self._now_us())

    async def commit_stages(self, wanted: StagesOf, stage_ids: Sequence[str]) -> CommitOutcome:
        return await self._transactions.commit_stages(wanted, stage_ids)

    async def abort_stages(self, wanted: StagesOf, *, all_writes: bool = False) -> int:
        return await staging.abort(self._database, wanted, all_writes=all_writes)

    async def stage_figures(self) -> StageFigures:
        return await staging.figures(self._database, self._expired)

    async def expire_stages(self, stage_seconds: float, commit_seconds: float) -> int:
        expired = await staging.expire(self._database, stage_seconds, commit_seconds, self._now_us())
        self._expired += expired
        return expired
