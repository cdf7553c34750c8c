"""What is answered: one struct per shape, encoded in one step. Payloads are `Raw`: their bytes are copied as they are.

These structs are also what the description of the API (`openapi`) is made from.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct

from forebay.api.exchange import Response
from forebay.broker.messages import Message
from forebay.model.ids import CountedIds

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - everything here is UTC; adding to it is exact, a float would not be
encode = msgspec.json.Encoder().encode


def answered(document: object, status: int = 200) -> Response:
    return Response(status, encode(document))


def iso(us: int) -> str:
    """A time as people and JavaScript read it."""
    seconds, fraction = divmod(us, 1_000_000)
    return f"{_second(seconds)}.{fraction:06}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def iso_or_none(us: int) -> str | None:
    return iso(us) if us else None


@lru_cache(maxsize=4096)
def _id_prefix(queue: str) -> str:
    mark = blake2b(queue.encode(), digest_size=8).hexdigest()
    return f"{mark[:8]}-{mark[8:12]}-8{mark[12:15]}-8"


def message_id(queue: str, seq: int) -> str:
    """`hhhhhhhh-hhhh-8hhh-8sss-ssssssssssss`: a hash of the queue's name and the seq, as a UUID of version 8."""
    return message_ids(queue, [seq])[0] if seq >> 48 else f"{_id_prefix(queue)}000-{seq:012x}"


def message_ids(queue: str, seqs: Sequence[int]) -> Sequence[str]:
    prefix = _id_prefix(queue)
    if isinstance(seqs, range) and seqs.stop <= 1 << 48:
        return CountedIds(f"{prefix}000-", seqs.start, len(seqs))
    # Through bytes, because a format would take twice as long, and every message has an id.
    if max(seqs, default=0) < 1 << 48:
        prefix += "000-"
        return [prefix + seq.to_bytes(6, "big").hex() for seq in seqs]
    return [prefix + seq.to_bytes(8, "big").hex("-", 6)[1:] for seq in seqs]


def data_of(payload: bytes, is_binary: bool) -> Raw:
    """The payload as JSON text. Bytes that came by another way than JSON are answered as base64."""
    return Raw(b'"' + b64encode(payload) + b'"' if is_binary else payload)


class PushedItem(Struct, gc=False):
    """What became of one message. Some names stand twice, because Queen's clients read either."""

    index: int
    status: str
    transactionId: str  # noqa: N815 - the wire's name; renaming would cost a second table
    transaction_id: str
    messageId: str | None  # noqa: N815
    message_id: str | None
    partitionId: str  # noqa: N815
    partition_id: str
    seq: int | None
    """None while the message is buffered: it gets its number when it is stored."""
    receipt: str
    traceId: str | None  # noqa: N815
    trace_id: str | None


class BufferedItem(PushedItem, gc=False):
    """A message that is accepted and not stored yet."""

    dbHealthy: bool  # noqa: N815


class FailedItem(Struct, rename="camel", tag_field="status", tag="failed"):
    """A message of a push that was accepted in part: it was not, or that is not known."""

    index: int
    transaction_id: str
    error: str
    outcome_unknown: bool
    """True: it may be stored all the same. Sent again with its transactionId it is stored once."""


class PushSummary(Struct, rename="camel"):
    pushed: bool
    qos0: bool
    db_healthy: bool
    messages: int
    receipt: str | None
    """The weakest of the messages' receipts; None when there are no messages."""


class PoppedMessage(Struct, rename="camel", gc=False):
    id: str
    transaction_id: str
    trace_id: str | None
    data: Raw
    created_at: str
    queue: str
    partition: str
    partition_id: str
    lease_id: str
    consumer_group: str
    seq: int
    attempts: int
    encoding: str = "json"


class Autopilot(Struct, rename="camel"):
    batch: int
    partitions: int


class PopResponse(Struct, rename="camel", omit_defaults=True):
    success: bool
    queue: str
    partition: str
    partition_id: str
    lease_id: str
    consumer_group: str
    partitions_claimed: int
    messages: list[PoppedMessage]
    autopilot: Autopilot | None = None


class PoppedRun(Struct, rename="camel", gc=False):
    """So many of the messages, in a row, are of this partition."""

    queue: str
    partition: str
    partition_id: str
    messages: int


class PopColumns(Struct, rename="camel", omit_defaults=True):
    """The answer to a pop with `shape=columns`: each list has one value for every message, in order."""

    success: bool
    lease_id: str
    consumer_group: str
    partitions_claimed: int
    runs: list[PoppedRun]
    seq: list[int]
    transaction_id: list[str]
    created_at: list[str]
    attempts: list[int]
    data: list[Raw]
    trace_id: list[str | None] | None = None
    """Left out when no message has one."""
    encoding: list[str] | None = None
    """Left out when all are `json`."""
    autopilot: Autopilot | None = None
    ends: list[int] | None = None
    """With `packed` alone: where each payload ends in what follows the JSON."""


class AckResult(Struct, rename="camel", gc=False):
    index: int
    transaction_id: str
    success: bool
    error: str | None
    queue_name: str | None
    partition_name: str | None
    lease_released: bool
    dlq: bool


class CompleteResult(Struct, rename="camel", omit_defaults=True):
    lease_id: str
    success: bool
    messages: int
    """How many were completed; those that were answered or deleted before are not among them."""
    error: str | None = None


class TransactionPushResult(Struct, rename="camel", tag_field="type", tag="push"):
    index: int
    success: bool
    status: str
    transaction_id: str
    message_id: str
    partition_id: str
    seq: int


class TransactionAckResult(Struct, rename="camel", tag_field="type", tag="ack"):
    index: int
    success: bool
    transaction_id: str
    dlq: bool


class TransactionResponse(Struct, rename="camel", omit_defaults=True):
    transaction_id: str
    success: bool
    results: list[TransactionPushResult | TransactionAckResult]
    error: str | None = None


class ExtendResult(Struct, rename="camel"):
    index: int
    lease_id: str
    success: bool
    error: str | None
    expires_at: str | None
    new_expires_at: str | None


class ConfigureResponse(Struct):
    configured: bool
    queue: str
    namespace: str
    task: str
    options: dict[str, int | bool]


class BrowsedMessage(Struct, rename="camel"):
    id: str
    transaction_id: str
    trace_id: str | None
    data: Raw
    created_at: str
    queue: str
    partition: str
    partition_id: str
    seq: int
    encoding: str = "json"


def browsed(message: Message) -> BrowsedMessage:
    return BrowsedMessage(
        message_id(message.queue, message.seq),
        message.transaction_id,
        message.trace_id or None,
        data_of(message.payload, message.is_binary),
        iso(message.created_us),
        message.queue,
        message.partition,
        message.partition_id,
        message.seq,
        "base64" if message.is_binary else "json",
    )


class Pagination(Struct):
    limit: int
    offset: int
    total: int | None = None


class Done(Struct, omit_defaults=True):
    success: bool
    message: str = ""
    count: int | None = None


Document = dict[str, Any]
"""An answer that is described by its example rather than by a struct."""
