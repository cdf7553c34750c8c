"""Messages on their way to a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from forebay.client.addresses import Address
from forebay.model.ids import minted_id, minted_ids
from forebay.model.queue import DEFAULT_PARTITION

_encode = msgspec.json.Encoder().encode


class Outgoing(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """A message as `POST /push` takes it."""

    queue: str
    partition: str
    payload: Any
    transaction_id: str
    """Given before the first try, so that a second one cannot store the message twice."""
    trace_id: str | None = None


def outgoing(place: Address, data: object, transaction_id: str | None = None, trace_id: str | None = None) -> Outgoing:
    given = transaction_id or minted_id()
    return Outgoing(place.queue, place.partition or DEFAULT_PARTITION, data, given, trace_id or None)


def all_outgoing(place: Address, batch: Iterable[object]) -> list[Outgoing]:
    payloads = list(batch)
    queue, partition = place.queue, place.partition or DEFAULT_PARTITION
    ids = minted_ids(len(payloads))
    return [Outgoing(queue, partition, data, minted) for data, minted in zip(payloads, ids, strict=True)]


def encoded(items: Sequence[Outgoing]) -> bytes:
    """The list of them as JSON."""
    return _encode(items)


def joined(items: Sequence[bytes]) -> bytes:
    """The list of messages that are JSON already."""
    return b"[" + b",".join(items) + b"]"
