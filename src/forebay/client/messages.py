"""What the client gives out and raises."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from forebay.errors import ForebayError, Permanent, Transient

T = TypeVar("T")

encode_body = msgspec.json.Encoder().encode
decode_body = msgspec.json.decode


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
    outcome_unknown: bool = False


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
    """A message as it was delivered. `raw` is the payload byte for byte as it was pushed: JSON text, or bytes."""

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
    """How many messages its pop delivered. An answer for all of them at once finishes their lease as a whole."""
    is_binary: bool = False
    """Whether it was pushed as bytes: then `raw` and `data` are those bytes."""

    @property
    def data(self) -> Any:
        """The payload: bytes as they were pushed, or JSON decoded."""
        return self.raw if self.is_binary else msgspec.json.decode(self.raw)

    def data_as(self, kind: type[T]) -> T:
        """The payload decoded as a type, as msgspec does; `msgspec.ValidationError` if it is none.

        Example: `message.data_as(dict[str, Decimal])` keeps all digits of numbers.
        """
        return msgspec.json.decode(self.raw, type=kind)


class Refused(Permanent):
    """The server will not do it: the request is wrong. `status` is the HTTP status, `detail` what it said."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"the server refused the request ({status}): {detail}")
        self.status = status
        self.detail = detail


class Unreachable(Transient):
    """No server could do it, after all attempts. A push may or may not have been stored: push it again with its id."""


class OutcomeUnknown(Unreachable):
    """It was refused when it was sent again, after the answer to an earlier try was lost. That try may have done
    it, and be the reason for the refusal; or nothing was done. Look what is there before you do it anew."""


class ClientClosed(Permanent):
    """This client sends nothing any more: it was closed, or a fork left it in the child. What was under way when it was
    closed may or may not have been done."""

    def __init__(self, message: str) -> None:
        super().__init__(message, remedy="Make a new client")


class TransactionFailed(ForebayError):
    """Nothing of the transaction happened."""


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
    dlq: bool = False


_decode_acknowledged = msgspec.json.Decoder(list[_Acknowledged]).decode


def is_all_taken(body: bytes) -> bool:
    """Whether the server took every one of the answers."""
    return all([one.success for one in _decode_acknowledged(body)])  # noqa: C419 - a generator takes twice as long


def is_dead(body: bytes) -> bool:
    """Whether the one message that was answered has become a dead letter."""
    return _decode_acknowledged(body)[0].dlq
