"""Messages on their way out, column by column: so they are stored, and so they can be answered.

A message costs a Python object wherever it is touched by itself, and most of what a pop does with a batch it does to
all of its messages alike. Single messages are taken from here too: they are made when they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import NamedTuple, overload

from forebay.broker.messages import Message
from forebay.broker.payloads import Payloads

_place_of = attrgetter("queue", "partition", "partition_id")


class Run(NamedTuple):
    """So many messages in a row are of this partition."""

    queue: str
    partition: str
    partition_id: str
    messages: int


class MessageColumns(Sequence[Message]):
    __slots__ = ("are_binary", "attempts", "created_us", "headers", "payloads", "runs", "seqs", "trace_ids",
                 "transaction_ids")  # fmt: skip

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.seqs: list[int] = []
        self.transaction_ids: list[str] = []
        self.trace_ids: list[str] = []
        self.created_us: list[int] = []
        self.payloads = Payloads()
        self.headers: list[bytes] = []
        self.are_binary: list[bool] = []
        self.attempts: list[int] = []

    def joined(self, other: MessageColumns) -> MessageColumns:
        """These with the others behind them. What is joined is not used any more: one of the two becomes the result."""
        if not self.seqs:
            return other
        self.runs += other.runs
        self.seqs += other.seqs
        self.transaction_ids += other.transaction_ids
        self.trace_ids += other.trace_ids
        self.created_us += other.created_us
        self.payloads.join(other.payloads)
        self.headers += other.headers
        self.are_binary += other.are_binary
        self.attempts += other.attempts
        return self

    def queues(self) -> Iterator[str]:
        """The queue of each message, as the next two are its partition and that one's id."""
        return self._by_message([run.queue for run in self.runs])

    def partitions(self) -> Iterator[str]:
        return self._by_message([run.partition for run in self.runs])

    def partition_ids(self) -> Iterator[str]:
        return self._by_message([run.partition_id for run in self.runs])

    def _by_message(self, values: Sequence[str]) -> Iterator[str]:
        return chain.from_iterable(map(repeat, values, [run.messages for run in self.runs]))

    def seqs_by_run(self) -> Iterator[tuple[str, list[int]]]:
        """The queue and the seqs of each run."""
        start = 0
        for run in self.runs:
            yield run.queue, self.seqs[start : start + run.messages]
            start += run.messages

    def __len__(self) -> int:
        return len(self.seqs)

    def __iter__(self) -> Iterator[Message]:
        return map(
            Message,
            self.seqs,
            self.queues(),
            self.partitions(),
            self.partition_ids(),
            self.transaction_ids,
            self.trace_ids,
            self.created_us,
            self.payloads,
            self.headers,
            self.are_binary,
            self.attempts,
        )

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...
    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        return list(self)[place]


def columns_of(messages: Sequence[Message]) -> MessageColumns:
    """Messages as columns, which they may be already."""
    if isinstance(messages, MessageColumns):
        return messages
    columns = MessageColumns()
    columns.runs = [Run(*place, len(list(own))) for place, own in groupby(messages, _place_of)]
    columns.seqs = [message.seq for message in messages]
    columns.transaction_ids = [message.transaction_id for message in messages]
    columns.trace_ids = [message.trace_id for message in messages]
    columns.created_us = [message.created_us for message in messages]
    columns.payloads = Payloads([message.payload for message in messages])
    columns.headers = [message.headers for message in messages]
    columns.are_binary = [message.is_binary for message in messages]
    columns.attempts = [message.attempts for message in messages]
    return columns
