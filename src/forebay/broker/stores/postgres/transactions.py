"""Transactions that push and do something besides: acknowledge, take dead letters back, commit stages.

They happen as a whole or not at all. Queues that do not exist yet are made outside of them, so that no client that
pushes to such a queue waits for the rest; then the transaction is tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain
from typing import TypeVar

from forebay.broker.bulk import CommitOutcome, StagesOf
from forebay.broker.messages import DUPLICATE, Acknowledgement, Pushed, TransactionOutcome
from forebay.broker.numbering import each_message
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.room_work import Work
from forebay.broker.stores.postgres import acknowledging, dead_letters
from forebay.broker.stores.postgres.committing import COMMIT_SECONDS_MAX, StageCommit
from forebay.broker.stores.postgres.connections import Connection, Database
from forebay.broker.stores.postgres.limits import PostgresLimits
from forebay.broker.stores.postgres.pushing import (
    DELETED_AGAIN,
    MAKE_QUEUES_MAX,
    Availability,
    MissingQueues,
    Push,
    QueuePlaces,
    make_queues,
)
from forebay.broker.stores.postgres.rooms import RoomTransaction
from forebay.errors import PayloadInClear, QueueFull, StoreUnavailable
from forebay.model.push_run import PushRun

T = TypeVar("T")


class _Refused(Exception):
    """Rolls a transaction back; carries why."""


class Transactions:
    """`tell` and `tell_freed` are called after a commit, with what it made available."""

    def __init__(
        self,
        database: Database,
        server_id: str,
        now_us: Callable[[], int | None],
        *,
        tell: Callable[[Availability], None],
        tell_freed: Callable[[Iterable[str]], None],
        dropped: Counter[str],
        limits: PostgresLimits,
    ) -> None:
        self._limits = limits
        self._dropped = dropped
        self._database = database
        self._server_id = server_id
        self._now_us = now_us
        self._tell = tell
        self._tell_freed = tell_freed

    async def make_queues(self, queues: QueuePlaces) -> None:
        await self._database.ask(*make_queues(queues, self._now_us()))

    async def transact(
        self, pushes: Sequence[PushRun], acknowledgements: Sequence[Acknowledgement]
    ) -> TransactionOutcome:
        async def work(connection: Connection) -> tuple[Sequence[Pushed], acknowledging.Judged, Availability]:
            pushed, availability = await self._pushed(connection, pushes)
            ids = chain.from_iterable(run.transaction_ids for run in pushes)
            for transaction_id, one in zip(ids, each_message(pushed), strict=True):
                if one.status == DUPLICATE:
                    raise _Refused(f"duplicate transactionId {transaction_id}")
            judged = await acknowledging.acknowledge(connection, acknowledgements, self._now_us())
            for acknowledged in judged.acknowledged:
                if not acknowledged.answered.is_accepted:
                    raise _Refused(acknowledged.answered.error)
            return pushed, judged, availability

        try:
            pushed, judged, availability = await self._run(work)
        except _Refused as refused:
            return TransactionOutcome([], [], str(refused))
        self._tell(availability)
        self._dropped += judged.dropped
        self._tell_freed(await judged.freed())
        return TransactionOutcome(pushed, judged.acknowledged)

    async def replay_dead_letters(self, wanted: DeadLetterFilter, to_all_groups: bool) -> int:
        span, total = await dead_letters.all_now(self._database), 0

        async def work(connection: Connection) -> tuple[list[dead_letters.Letter], Availability]:
            taken = await dead_letters.take(connection, wanted, span, self._limits, is_whole=True)
            _, availability = await self._pushed(connection, [letter.as_run(to_all_groups) for letter in taken])
            return taken, availability

        while True:
            taken, availability = await self._run(work)
            if not taken:
                return total
            self._tell(availability)
            span, total = span._replace(after_id=taken[-1].letter_id), total + len(taken)

    async def commit_stages(self, wanted: StagesOf, stage_ids: Sequence[str]) -> CommitOutcome:
        commit = StageCommit(wanted, stage_ids, self._server_id)

        async def work(connection: Connection) -> tuple[CommitOutcome, Availability]:
            return await commit.run(connection, self._now_us())

        outcome, availability = await self._run(work, seconds_max=COMMIT_SECONDS_MAX)
        self._tell(availability)
        return outcome

    async def together(self, begin: Callable[[], Work[T]], *, has_stages: bool) -> T:
        async def work(connection: Connection) -> tuple[T, Availability]:
            transaction = RoomTransaction(connection, self._server_id, self._now_us())
            return await transaction.run(begin()), transaction.availability

        async def once() -> tuple[T, Availability]:
            return await self._database.run_room(work, seconds_max=COMMIT_SECONDS_MAX if has_stages else None)

        result, availability = await self._with_queues(once)
        self._tell(availability)
        return result

    async def _pushed(self, connection: Connection, runs: Sequence[PushRun]) -> tuple[Sequence[Pushed], Availability]:
        [outcome], availability = await Push(connection, self._now_us(), self._server_id).store([runs])
        if isinstance(outcome, QueueFull | PayloadInClear):
            raise outcome
        return outcome, availability

    async def _run(self, work: Callable[[Connection], Awaitable[T]], *, seconds_max: float | None = None) -> T:
        return await self._with_queues(lambda: self._database.run(work, is_durable=True, seconds_max=seconds_max))

    async def _with_queues(self, once: Callable[[], Awaitable[T]]) -> T:
        """Try again when queues had to be made first."""
        for _ in range(MAKE_QUEUES_MAX):
            try:
                return await once()
            except MissingQueues as missing:
                await self.make_queues(missing.queues)
        raise StoreUnavailable(DELETED_AGAIN)
