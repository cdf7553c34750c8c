"""The messages of a parcel, and what of them is gone.

Pages of messages do not say what is missing between them. So the queue is looked at before the reading, which finds
that it is another one by now before any of its messages is taken for the parcel's, and after it, which finds what was
met as lost meanwhile (`forebay.model.missing`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from forebay.client.messages import Refused, decode_body
from forebay.client.parcels import MessageRange, MessagesGone, MissingMessages, Parcel
from forebay.client.transport import Transport
from forebay.model.missing import REPLACED, QueueState, gaps_in

_PAGE = 1_000


class _Lost(msgspec.Struct, rename="camel"):
    first_seq: int
    last_seq: int
    messages: int


class _Bounds(msgspec.Struct, rename="camel"):
    identity: str = ""
    removed_seq: int = 0
    lost: list[_Lost] = []


_decode_bounds = msgspec.json.Decoder(_Bounds).decode


async def read_parcel(
    transport: Transport, parcel: Parcel, missing: list[MissingMessages] | None
) -> AsyncIterator[dict[str, Any]]:
    """`missing`: where what is gone is noted; None: it raises `MessagesGone`."""
    before = await _gaps(transport, parcel.ranges)
    _check(before.values(), missing)
    replaced = {reading for reading, gaps in before.items() if _is_replaced(gaps)}
    for reading in parcel.ranges:
        if reading not in replaced:
            async for message in _messages(transport, reading):
                yield message
    after = await _gaps(transport, parcel.ranges)
    _check(after.values(), missing)
    # Of a queue that went in the middle some messages may have come from another one: that is no way to go on.
    _check([gaps for reading, gaps in after.items() if reading not in replaced and _is_replaced(gaps)], None)
    if missing is not None:
        missing.extend(gap for gaps in after.values() for gap in gaps)


def _is_replaced(gaps: Iterable[MissingMessages]) -> bool:
    return any(gap.cause == REPLACED for gap in gaps)


def _check(found: Iterable[list[MissingMessages]], missing: list[MissingMessages] | None) -> None:
    gone = [gap for gaps in found for gap in gaps]
    if gone and missing is None:
        raise MessagesGone(gone)


async def _gaps(transport: Transport, ranges: Iterable[MessageRange]) -> Mapping[MessageRange, list[MissingMessages]]:
    """What of each range is gone, as things stand now."""
    states: dict[str, QueueState | None] = {}
    found = {}
    for one in ranges:
        if one.queue not in states:
            states[one.queue] = await _state(transport, one.queue)
        gaps = gaps_in(one.first_seq, one.last_seq, one.identity, one.removed_up_to, states[one.queue])
        found[one] = [MissingMessages(one.queue, gap.first_seq, gap.last_seq, gap.messages, gap.cause) for gap in gaps]
    return found


async def _state(transport: Transport, queue: str) -> QueueState | None:
    try:
        _, body = await transport.request("GET", f"/api/v1/arrow/queues/{quote(queue, safe='')}/range")
    except Refused as refused:
        if refused.status != HTTPStatus.NOT_FOUND:
            raise
        return None
    bounds = _decode_bounds(body)
    lost = [(one.first_seq, one.last_seq, one.messages) for one in bounds.lost]
    return QueueState(bounds.identity, bounds.removed_seq, lost)


async def _messages(transport: Transport, reading: MessageRange) -> AsyncIterator[dict[str, Any]]:
    next_seq: int | None = reading.first_seq
    while next_seq is not None and next_seq <= reading.last_seq:
        size = min(_PAGE, reading.last_seq - next_seq + 1)
        query = urlencode({"queue": reading.queue, "fromSeq": next_seq, "limit": size})
        _, body = await transport.request("GET", f"/api/v1/messages?{query}")
        page = decode_body(body)
        for message in page["messages"]:
            if message["seq"] <= reading.last_seq:
                yield message
        next_seq = page["nextSeq"]
