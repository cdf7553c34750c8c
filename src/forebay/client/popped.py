"""A pop's answer, in whichever of its shapes a server sends it."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from itertools import chain, pairwise, repeat

import msgspec

from forebay.client.messages import Message
from forebay.model.body_formats import PACKED_MARK


class _Delivered(msgspec.Struct, rename="camel", gc=False):
    transaction_id: str
    partition_id: str
    partition: str
    created_at: str
    data: msgspec.Raw
    trace_id: str | None = None
    seq: int = 0
    attempts: int = 0
    encoding: str = "json"


class _Run(msgspec.Struct, rename="camel", gc=False):
    """So many messages in a row are of this partition."""

    queue: str
    partition: str
    partition_id: str
    messages: int


class _Popped(msgspec.Struct, rename="camel"):
    """Columns, as requested; or the messages that a server answers with which does not know of columns."""

    lease_id: str | None = None
    """One for all of them."""
    runs: list[_Run] = []
    seq: list[int] = []
    transaction_id: list[str] = []
    created_at: list[str] = []
    attempts: list[int] = []
    data: list[msgspec.Raw] = []
    trace_id: list[str | None] | None = None
    encoding: list[str] | None = None
    """Given if one of them is not JSON."""
    ends: list[int] = []
    """Where each payload ends in what follows the JSON, if they are not in `data`."""
    queue: str = ""
    messages: list[_Delivered] = []


_HEAD_AT = 8
"""Behind the mark stands how long the JSON is; behind that, the payloads."""
_decode_popped = msgspec.json.Decoder(_Popped).decode


def messages_of(body: bytes, group: str) -> list[Message]:
    """The messages of a pop's answer; payloads are cut out of it, not decoded."""
    payloads: Iterable[bytes]
    if body.startswith(PACKED_MARK):
        payloads_at = _HEAD_AT + int.from_bytes(body[len(PACKED_MARK) : _HEAD_AT], "little")
        popped = _decode_popped(memoryview(body)[_HEAD_AT:payloads_at])
        ends = pairwise(chain((0,), popped.ends))
        payloads = [body[payloads_at + start : payloads_at + end] for start, end in ends]
    else:
        popped = _decode_popped(body)
        payloads = map(bytes, popped.data)
    if popped.messages:
        return _one_by_one(popped, group)
    are_binary: Iterable[bool] = repeat(False)
    if popped.encoding is not None:
        are_binary = [encoding == "base64" for encoding in popped.encoding]
        payloads = [_bytes_of(text) if binary else text for text, binary in zip(payloads, are_binary, strict=True)]
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
            payloads,
            repeat(len(popped.seq)),
            are_binary,
        )
    )


def _bytes_of(text: bytes) -> bytes:
    """Of a JSON string of base64."""
    return b64decode(text[1:-1])


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
            _bytes_of(bytes(found.data)) if found.encoding == "base64" else bytes(found.data),
            len(popped.messages),
            found.encoding == "base64",
        )
        for found in popped.messages
    ]
