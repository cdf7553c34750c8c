"""What an exporter carries: the bytes that came in, what they are, and how many items there are in them.

A batch is never taken apart on its way through a queue. On disk it is a length (u32, little-endian), a header
(MessagePack: version, kind, items, accepted_us, key), and the body as it is. In a directory that metrics-governor has
left, a batch is the body alone: an OTLP metrics request, protobuf, which begins with the byte of its first field.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

import msgspec

from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import count_items, parsed
from forebay.sendqueue.queue import Codec

VERSION = 1
OVERHEAD_BYTES = 64
"""What a batch costs beside its body, roughly."""
_LENGTH = Struct("<I")
RESOURCE_METRICS = b"\x0a"
"""Field 1 of a request, of which there is nothing else."""


class ExportBatch:
    """One batch. `key` is its idempotency key, `accepted_us` when it was accepted, by the wall clock."""

    __slots__ = ("accepted_us", "body", "items", "key", "kind")

    def __init__(self, kind: Kind, body: bytes, items: int, accepted_us: int, key: str = "") -> None:
        self.kind = kind
        self.body = body
        self.items = items
        self.accepted_us = accepted_us
        self.key = key or uuid.uuid4().hex

    @property
    def size(self) -> int:
        return len(self.body) + OVERHEAD_BYTES

    def part(self, body: bytes, items: int, number: int) -> ExportBatch:
        """A part of this batch, with a key of its own that is the same whenever it is split again."""
        return ExportBatch(self.kind, body, items, self.accepted_us, f"{self.key}.{number}")


@dataclass(frozen=True, slots=True)
class ExportMessage:
    """A message of a queue, on its way out. `payload` is as it was pushed: JSON text, or bytes if `is_bytes`."""

    queue: str
    partition: str
    seq: int
    transaction_id: str
    created_us: int
    payload: bytes
    is_bytes: bool = False
    partition_id: str = ""
    headers: bytes = b""


class MessageBatch(ExportBatch):
    """Messages that an export has leased. Where they are telemetry, their payloads one behind the other are the body:
    protobuf requests that are joined byte by byte are one request."""

    __slots__ = ("messages",)

    def __init__(
        self, messages: Sequence[ExportMessage], accepted_us: int, key: str, kind: Kind = Kind.MESSAGES
    ) -> None:
        body = b"" if kind is Kind.MESSAGES else b"".join(message.payload for message in messages)
        super().__init__(kind, body, len(messages), accepted_us, key)
        self.messages = messages

    @property
    def size(self) -> int:
        return sum(len(message.payload) for message in self.messages) + OVERHEAD_BYTES


class _Header(msgspec.Struct, array_like=True):
    version: int
    kind: str
    items: int
    accepted_us: int
    key: str


_decode_header = msgspec.msgpack.Decoder(_Header).decode


def encode(batch: ExportBatch) -> bytes:
    header = msgspec.msgpack.encode(_Header(VERSION, batch.kind, batch.items, batch.accepted_us, batch.key))
    return b"".join((_LENGTH.pack(len(header)), header, batch.body))


def decode(data: bytes) -> ExportBatch:
    """Raises ValueError for what is no batch."""
    try:
        return _decode_own(data)
    except ValueError:
        if data[:1] != RESOURCE_METRICS:
            raise
        return _decode_of_the_originals(data)


def _decode_of_the_originals(data: bytes) -> ExportBatch:
    """Its key is made of what is in it, so that it is the same whenever the batch is read again."""
    items = count_items(Kind.METRICS, parsed(Kind.METRICS, data))
    if not items:
        raise ValueError("neither a batch of Forebay's nor an OTLP metrics request with data points")
    return ExportBatch(Kind.METRICS, data, items, 0, hashlib.blake2b(data, digest_size=16).hexdigest())


def _decode_own(data: bytes) -> ExportBatch:
    if len(data) < _LENGTH.size:
        raise ValueError(f"{len(data)} bytes are too few for a batch")
    (length,) = _LENGTH.unpack_from(data)
    body_at = _LENGTH.size + length
    header = _decode_header(data[_LENGTH.size : body_at])
    if header.version != VERSION:
        raise ValueError(f"a batch of version {header.version}; this Forebay reads version {VERSION}")
    return ExportBatch(Kind(header.kind), data[body_at:], header.items, header.accepted_us, header.key)


CODEC: Codec[ExportBatch] = Codec(
    size_of=lambda batch: len(batch.body) + OVERHEAD_BYTES,
    accepted_us=lambda batch: batch.accepted_us,
    encode=encode,
    decode=decode,
)
