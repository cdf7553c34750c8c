"""Dead letters: messages that used up their attempts, with a copy of their content."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from forebay.broker.delivery import DeadLetter, addressed
from forebay.broker.messages import ANSWER_BYTES_MAX, Message, count_within
from forebay.broker.overview import DeadLetterFilter, DeadMessage
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.queries import query, query_with
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.clock import Clock
from forebay.model.ids import replay_id
from forebay.model.message import PAYLOAD_IS_BINARY
from forebay.model.push_run import PushRun, run_of_one


class DeadLetters:
    def __init__(self, database: Database, queues: Queues, clock: Clock, limits: EmbeddedLimits) -> None:
        self._database = database
        self._queues = queues
        self._clock = clock
        self._limits = limits

    def add(self, queue: OpenQueue, partition_id: int, group: str, letter: DeadLetter, message: Message) -> None:
        self._database.do(
            query("dead_letter_add"),
            (
                queue.queue_id,
                partition_id,
                group,
                letter.seq,
                letter.attempts,
                letter.reason,
                self._clock.now_us(),
                message.transaction_id,
                message.trace_id,
                message.headers,
                message.payload,
                PAYLOAD_IS_BINARY * message.is_binary,
                message.created_us,
            ),
        )

    def find(self, wanted: DeadLetterFilter, limit: int, offset: int, bytes_max: int) -> tuple[list[DeadMessage], int]:
        """Newest first, and how many there are in all."""
        where, values = self._where(wanted)
        ids = self._page(where, values, "DESC", limit, offset, bytes_max)
        (total,) = self._database.one(query_with("dead_letters_count", conditions=where), values)
        return self._letters(ids)[::-1], total

    def last_id(self) -> int:
        (found,) = self._database.one(query("dead_letters_last_id"))
        return int(found)

    def purge(self, wanted: DeadLetterFilter, after_id: int, last_id: int) -> list[int]:
        """Remove the next ones of those up to that id; returns which."""
        return self.remove(self._next(wanted, after_id, last_id, inf))

    def remove(self, ids: list[int]) -> list[int]:
        self._database.many(query("dead_letter_delete"), [(letter_id,) for letter_id in ids])
        return ids

    def next(self, wanted: DeadLetterFilter, after_id: int, last_id: int) -> list[DeadMessage]:
        """The next ones of those up to that id, in their old order."""
        return self._letters(self._next(wanted, after_id, last_id, ANSWER_BYTES_MAX))

    def _next(self, wanted: DeadLetterFilter, after_id: int, last_id: int, bytes_max: float) -> list[int]:
        where, values = self._where(wanted)
        within = [*values, after_id, last_id]
        conditions = f"{where} AND d.id > ? AND d.id <= ?"
        return self._page(conditions, within, "ASC", self._limits.letters_max, 0, bytes_max)

    def _page(
        self, where: str, values: Sequence[object], order: str, limit: int, offset: int, bytes_max: float
    ) -> list[int]:
        """The ids of letters whose payloads are given out together."""
        found = self._database.all(
            query_with("dead_letters_page", conditions=where, order=order),
            (*values, limit, offset),
        )
        return [letter_id for letter_id, _ in found[: count_within((size for _, size in found), bytes_max)]]

    def _letters(self, ids: Sequence[int]) -> list[DeadMessage]:
        """In the order in which they were written."""
        text = query("dead_letter_find")
        return [self._message(row) for letter_id in sorted(ids) for row in self._database.all(text, (letter_id,))]

    def as_runs(self, letters: Sequence[DeadMessage], to_all_groups: bool) -> list[PushRun]:
        """The letters as pushes, each for its group unless for all, with new ids: their old ones are taken."""
        return [
            run_of_one(
                queue=message.queue,
                partition=message.partition,
                payload=message.payload,
                transaction_id=replay_id(message.transaction_id),
                is_minted=True,
                trace_id=message.trace_id,
                headers=addressed(message.headers, None if to_all_groups else letter.group),
                is_binary=message.is_binary,
            )
            for letter in letters
            for message in (letter.message,)
        ]

    def _message(self, row: tuple[Any, ...]) -> DeadMessage:
        letter_id, queue_id, partition_id, partition, group, seq, attempts, reason, failed_us = row[:9]
        transaction_id, trace_id, headers, payload, flags, created_us = row[9:]
        queue = self._queues.by_id[queue_id]
        message = Message(
            seq=seq,
            queue=queue.info.name,
            partition=partition,
            partition_id=queue.wire_id(partition_id),
            transaction_id=transaction_id,
            trace_id=trace_id,
            created_us=created_us,
            payload=payload,
            headers=headers,
            is_binary=bool(flags & PAYLOAD_IS_BINARY),
            attempts=attempts,
        )
        return DeadMessage(letter_id, message, group, reason, failed_us)

    def _where(self, wanted: DeadLetterFilter) -> tuple[str, list[object]]:
        conditions: list[str] = ["1"]
        values: list[object] = []
        if wanted.queue is not None:
            queue = self._queues.by_name.get(wanted.queue)
            conditions.append("d.queue_id = ?")
            values.append(queue.queue_id if queue else -1)
        for column, value in (
            ("d.group_name = ?", wanted.group),
            ("p.name = ?", wanted.partition),
            ("d.transaction_id = ?", wanted.transaction_id),
            ("d.failed_us >= ?", wanted.from_us),
            ("d.failed_us <= ?", wanted.to_us),
        ):
            if value is not None:
                conditions.append(column)
                values.append(value)
        return " AND ".join(conditions), values
