"""What the client gives out and raises."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

import msgspec

from forebay.errors import ForebayError, Permanent, Transient


class Pushed(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """What became of a message: `queued`; `duplicate` when its partition holds the id already; `buffered` when the
    store is away: it is accepted, and stored later."""

    status: str
    transaction_id: str
    message_id: str | None = None
    partition_id: str = ""
    seq: int | None = None
    """Its number in the queue; of a duplicate, that of the message that was there before; None while buffered."""
    receipt: str = ""
    """What keeps it: `log` or `postgres` for a message that is stored, `buffer` for one that is buffered."""
    error: str = ""


class PushSummary(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The answer to a push with a buffer option."""

    pushed: bool
    qos0: bool
    db_healthy: bool
    messages: int
    receipt: str | None = None
    """`os` for messages that wait in a buffer file."""


class CommittedSeqs(msgspec.Struct, rename="camel", frozen=True, gc=False):
    first_seq: int
    last_seq: int


class Committed(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """What a commit of staged rows did; with `already`, what an earlier one of the same epoch did."""

    already: bool
    messages: int
    duplicates: int
    """Rows whose id their partition held already; they were left out."""
    queues: dict[str, CommittedSeqs]


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as it was delivered. `raw` is the payload's JSON text, byte for byte as it was pushed."""

    queue: str
    partition: str
    partition_id: str
    transaction_id: str
    trace_id: str | None
    lease_id: str
    group: str
    seq: int
    attempts: int
    created_at: str
    raw: bytes
    delivered_together: int = 0
    """How many messages its pop delivered. Who answers for all of them at once finishes their lease as a whole."""

    @property
    def data(self) -> Any:
        """The payload, decoded."""
        return msgspec.json.decode(self.raw)


class Refused(Permanent):
    """The server will not do it: the request is wrong. `status` is the HTTP status, `detail` what it said."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"the server refused the request ({status}): {detail}")
        self.status = status
        self.detail = detail


class Unreachable(Transient):
    """No server could do it, after all attempts. A push may or may not have been stored: push it again with its id."""


class TransactionFailed(ForebayError):
    """Nothing of the transaction happened."""


class _Delivered(msgspec.Struct, rename="camel", gc=False):
    transaction_id: str
    partition_id: str
    partition: str
    created_at: str
    data: msgspec.Raw
    trace_id: str | None = None
    seq: int = 0
    attempts: int = 0


class _Run(msgspec.Struct, rename="camel", gc=False):
    """So many messages in a row are of this partition."""

    queue: str
    partition: str
    partition_id: str
    messages: int


class _Popped(msgspec.Struct, rename="camel"):
    """Columns, as they were asked for; or the messages that a server answers with which does not know of columns."""

    lease_id: str | None = None
    """One for all of them."""
    runs: list[_Run] = []
    seq: list[int] = []
    transaction_id: list[str] = []
    created_at: list[str] = []
    attempts: list[int] = []
    data: list[msgspec.Raw] = []
    trace_id: list[str | None] | None = None
    queue: str = ""
    messages: list[_Delivered] = []


_decode_popped = msgspec.json.Decoder(_Popped).decode


def messages_of(body: bytes, group: str) -> list[Message]:
    """The messages of a pop's answer; payloads are cut out of it, not decoded."""
    popped = _decode_popped(body)
    if popped.messages:
        return _one_by_one(popped, group)
    runs = popped.runs
    counts = [run.messages for run in runs]
    return list(
        map(
            Message,
            chain.from_iterable(map(repeat, [run.queue for run in runs], counts)),
            chain.from_iterable(map(repeat, [run.partition for run in runs], counts)),
            chain.from_iterable(map(repeat, [run.partition_id for run in runs], counts)),
            popped.transaction_id,
            popped.trace_id or repeat(None),
            repeat(popped.lease_id or ""),
            repeat(group),
            popped.seq,
            popped.attempts,
            popped.created_at,
            map(bytes, popped.data),
            repeat(len(popped.seq)),
        )
    )


def _one_by_one(popped: _Popped, group: str) -> list[Message]:
    queue, lease_id = popped.queue, popped.lease_id or ""
    return [
        Message(
            queue,
            found.partition,
            found.partition_id,
            found.transaction_id,
            found.trace_id,
            lease_id,
            group,
            found.seq,
            found.attempts,
            found.created_at,
            bytes(found.data),
            len(popped.messages),
        )
        for found in popped.messages
    ]


_lease_of = attrgetter("lease_id")
_seq_of = attrgetter("seq")


def is_whole_delivery(messages: Sequence[Message]) -> bool:
    """Whether these are all that one pop delivered under a lease, each once."""
    first = messages[0]
    return (
        first.delivered_together == len(messages)
        and bool(first.lease_id)
        and set(map(_lease_of, messages)) == {first.lease_id}
        and len(set(map(_seq_of, messages))) == len(messages)
    )


class Acknowledging(msgspec.Struct, rename="camel", gc=False):
    """An answer for one message, as it is sent."""

    transaction_id: str
    partition_id: str
    lease_id: str
    status: str
    error: str | None


class _Acknowledged(msgspec.Struct, gc=False):
    success: bool


class _Completed(msgspec.Struct, gc=False):
    messages: int


_decode_completed = msgspec.json.Decoder(_Completed).decode
_decode_acknowledged = msgspec.json.Decoder(list[_Acknowledged]).decode


def completed_count(body: bytes) -> int:
    """How many messages were completed with their lease; 0 when it is lost."""
    return _decode_completed(body).messages


def is_all_taken(body: bytes) -> bool:
    """Whether the server took every one of the answers."""
    return all([one.success for one in _decode_acknowledged(body)])  # noqa: C419 - a generator takes twice as long
