"""Messages on their way to a server: what Python has and JSON has not is sent whole, or refused.

| data | on the way | comes back as |
|---|---|---|
| `bytes` | base64, marked as such | `bytes` |
| `Decimal` | a JSON number with all its digits | `raw` has the digits; `data` is a float, unless decoded with a type |
| NaN, infinity | refused with `ValueError` | |
| `bytes` inside of a list or dict | base64 text, as msgspec writes it | text |
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from forebay.client.addresses import Address
from forebay.model.ids import minted_id, minted_ids
from forebay.model.queue import DEFAULT_PARTITION

REQUEST_ITEMS_MAX = 10_000
REQUEST_BYTES_MAX = 32 << 20
"""Half of what a server takes unless it is set otherwise."""

_encode = msgspec.json.Encoder(decimal_format="number").encode
_BYTES = (bytes, bytearray, memoryview)


class Outgoing(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """A message as `POST /push` takes it."""

    queue: str
    partition: str
    payload: Any
    transaction_id: str
    """Given before the first try, so that a second one cannot store the message twice."""
    trace_id: str | None = None
    encoding: Literal["base64"] | None = None


def outgoing(place: Address, data: object, transaction_id: str | None = None, trace_id: str | None = None) -> Outgoing:
    given = transaction_id or minted_id()
    item = Outgoing(place.queue, place.partition or DEFAULT_PARTITION, data, given, trace_id or None)
    return _as_base64(item) if isinstance(data, _BYTES) else item


def all_outgoing(
    place: Address, batch: Iterable[object], transaction_ids: Sequence[str] | None = None
) -> list[Outgoing]:
    payloads = list(batch)
    queue, partition = place.queue, place.partition or DEFAULT_PARTITION
    ids = minted_ids(len(payloads)) if transaction_ids is None else transaction_ids
    if len(ids) != len(payloads):
        raise ValueError(f"{len(payloads)} messages and {len(ids)} transaction ids: each message needs one")
    items = [Outgoing(queue, partition, data, given) for data, given in zip(payloads, ids, strict=True)]
    if not any(map(_BYTES.__contains__, map(type, payloads))):
        return items
    return [_as_base64(item) if isinstance(item.payload, _BYTES) else item for item in items]


def _as_base64(item: Outgoing) -> Outgoing:
    item.payload, item.encoding = b64encode(item.payload).decode(), "base64"
    return item


def encoded(items: Outgoing | Sequence[Outgoing]) -> bytes:
    """One of them, or the list of them, as JSON."""
    text: bytes = _encode(items)
    if b"null" in text:
        # JSON has no NaN, and msgspec writes null for it. Only where there is a null it may have been one.
        for item in [items] if isinstance(items, Outgoing) else items:
            refuse_nan(item.payload)
    return text


def refuse_nan(data: object) -> None:
    """`ValueError` for data with a number that JSON has not."""
    try:
        json.dumps(data, allow_nan=False, skipkeys=True, default=_plain)
    except ValueError as error:
        raise ValueError("the message holds NaN or infinity, which JSON has not: send None or text instead") from error


def _plain(value: object) -> object:
    """What json does not know, as far as there may be a number in it."""
    if isinstance(value, msgspec.Raw | bytes):
        return None
    return msgspec.to_builtins(value, str_keys=True)


def requests_of(items: Sequence[Outgoing]) -> Iterable[tuple[Sequence[Outgoing], bytes]]:
    """The messages cut into requests that a server takes, in order, each as JSON."""
    for start in range(0, len(items), REQUEST_ITEMS_MAX):
        yield from _fitting(items[start : start + REQUEST_ITEMS_MAX])


def _fitting(items: Sequence[Outgoing]) -> Iterable[tuple[Sequence[Outgoing], bytes]]:
    text = encoded(items)
    if len(text) <= REQUEST_BYTES_MAX or len(items) == 1:
        yield items, text
    else:
        half = len(items) // 2
        yield from _fitting(items[:half])
        yield from _fitting(items[half:])


def joined(items: Sequence[bytes]) -> bytes:
    """The list of messages that are JSON already."""
    return b"[" + b",".join(items) + b"]"
