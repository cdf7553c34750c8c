"""Dead letters: looking at them, removing them, and pushing them again."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from forebay.broker.delivery import addressed
from forebay.broker.messages import Message
from forebay.broker.overview import DeadLetterFilter, DeadMessage
from forebay.broker.stores.postgres.connections import Connection, Database, rows
from forebay.broker.stores.postgres.limits import PostgresLimits
from forebay.broker.stores.postgres.names import wire_id
from forebay.broker.stores.postgres.queries import query
from forebay.model.ids import replay_id
from forebay.model.push_run import PushRun, run_of_one


async def page(
    database: Database, wanted: DeadLetterFilter, limit: int, offset: int, bytes_max: int
) -> tuple[list[DeadMessage], int]:
    """Newest first, and how many there are in all."""
    chosen = wanted._asdict()
    [[total]] = await database.ask(query("dead_letters_count"), chosen)
    parameters = {**chosen, "limit": limit, "offset": offset, "bytes_max": bytes_max}
    found = await database.ask(query("dead_letters_list"), parameters)
    return [_as_letter(*row) for row in cast("list[tuple[Any, ...]]", found)], cast("int", total)


class Span(NamedTuple):
    """Which dead letters are left to do something with: those behind the first id, up to the last."""

    after_id: int
    last_id: int


class Letter(NamedTuple):
    """One that was removed."""

    letter_id: int
    queue: str
    partition: str
    group: str
    transaction_id: str
    payload: bytes | None
    trace_id: str
    headers: bytes
    is_binary: bool

    def as_run(self, to_all_groups: bool) -> PushRun:
        """As a message that can be pushed, for its group unless for all: under a new id, or it would be a duplicate."""
        return run_of_one(
            queue=self.queue,
            partition=self.partition,
            payload=self.payload or b"",
            transaction_id=replay_id(self.transaction_id),
            is_minted=True,
            trace_id=self.trace_id,
            headers=addressed(self.headers, None if to_all_groups else self.group),
            is_binary=self.is_binary,
        )


async def all_now(database: Database) -> Span:
    """Those that there are now: letters that are written later may be of messages that died again."""
    [[last_id]] = await database.ask(query("dead_letters_last"))
    return Span(0, cast("int", last_id))


async def take(
    connection: Connection, wanted: DeadLetterFilter, span: Span, limits: PostgresLimits, *, is_whole: bool
) -> list[Letter]:
    """Remove the next of them; with what they held if `is_whole`."""
    values: dict[str, object] = {
        **wanted._asdict(),
        **span._asdict(),
        "limit": limits.letters_max,
        "bytes_max": limits.letters_bytes_max,
        "is_whole": is_whole,
    }
    found = cast("list[tuple[Any, ...]]", await rows(connection, query("dead_letters_take"), values))
    return [Letter(*row) for row in found]


async def purge(database: Database, wanted: DeadLetterFilter, limits: PostgresLimits) -> int:
    """Remove all of them, in pieces; returns how many."""
    span, total = await all_now(database), 0

    async def work(connection: Connection) -> list[Letter]:
        return await take(connection, wanted, span, limits, is_whole=False)

    while taken := await database.run(work, is_durable=True):
        span, total = span._replace(after_id=taken[-1].letter_id), total + len(taken)
    return total


def _as_letter(
    letter_id: int,
    seq: int,
    queue: str,
    partition: str,
    queue_id: int,
    partition_id: int,
    transaction_id: str,
    trace_id: str,
    created_us: int,
    payload: bytes,
    headers: bytes,
    is_binary: bool,
    attempts: int,
    group: str,
    reason: str,
    failed_us: int,
) -> DeadMessage:
    message = Message(
        seq=seq,
        queue=queue,
        partition=partition,
        partition_id=wire_id(queue_id, partition_id),
        transaction_id=transaction_id,
        trace_id=trace_id,
        created_us=created_us,
        payload=payload,
        headers=headers,
        is_binary=is_binary,
        attempts=attempts,
    )
    return DeadMessage(letter_id, message, group, reason, failed_us)
