"""The shapes in which popped messages are answered.

`messages` is Queen's: a list, each message with everything. `columns` has a list for each property instead, which is
less to write and to read when there are many.

`packed` is for programs that take many messages at a time. Payloads are texts of JSON already, and inside a JSON answer
they would be copied one by one and read through again by the client. Here they follow the JSON as they are
stored:

    offset  size  field
    0       4     FBP1
    4       4     u32, little-endian: length of the JSON
    8       n     JSON: as for `columns`, with `data` empty and `ends`: where each payload ends
    8+n           the payloads, one behind the other; ends count from here
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, repeat, starmap

from msgspec import Raw

from forebay.api.exchange import Response
from forebay.api.responses import (
    Autopilot,
    PopColumns,
    PoppedMessage,
    PoppedRun,
    PopResponse,
    answered,
    data_of,
    encode,
    iso,
    message_ids,
)
from forebay.broker.message_columns import MessageColumns, columns_of
from forebay.broker.messages import Popped, PopRequest
from forebay.model.body_formats import PACKED_MARK

PACKED_TYPE = "application/vnd.forebay.packed"
_PACKED_TYPE = PACKED_TYPE.encode()


def shaped(shape: str, wanted: PopRequest, popped: Popped, is_autopilot: bool) -> Response:
    """The answer to a pop. `shape` is `messages`, `columns` or `packed`."""
    found = columns_of(popped.messages)
    if shape == "packed":
        return _packed(wanted, popped, found, is_autopilot)
    if shape == "columns":
        return answered(_in_columns(wanted, popped, found, _data(found), is_autopilot))
    return answered(_one_by_one(wanted, popped, found, is_autopilot))


def _packed(wanted: PopRequest, popped: Popped, found: MessageColumns, is_autopilot: bool) -> Response:
    head = _in_columns(wanted, popped, found, [], is_autopilot)
    pieces: Sequence[bytes | memoryview]
    if any(found.are_binary):
        texts = list(map(bytes, _data(found)))
        pieces, head.ends = [b"".join(texts)], list(accumulate(map(len, texts)))
    else:
        pieces, head.ends = found.payloads.pieces(), found.payloads.ends()
    text = encode(head)
    return Response(200, PACKED_MARK + len(text).to_bytes(4, "little") + text, _PACKED_TYPE, more_body=pieces)


def _in_columns(
    wanted: PopRequest, popped: Popped, found: MessageColumns, data: list[Raw], is_autopilot: bool
) -> PopColumns:
    return PopColumns(
        True,
        popped.lease_id,
        wanted.group,
        popped.partitions_claimed,
        list(starmap(PoppedRun, found.runs)),
        found.seqs,
        found.transaction_ids,
        _times(found),
        found.attempts,
        data,
        _traces(found) if any(found.trace_ids) else None,
        _encodings(found) if any(found.are_binary) else None,
        _autopilot(wanted, is_autopilot),
    )


def _one_by_one(wanted: PopRequest, popped: Popped, found: MessageColumns, is_autopilot: bool) -> PopResponse:
    first = found.runs[0]
    ids = [message_ids(queue, seqs) for queue, seqs in found.seqs_by_run()]
    messages = map(
        PoppedMessage,
        chain.from_iterable(ids),
        found.transaction_ids,
        _traces(found),
        _data(found),
        _times(found),
        found.queues(),
        found.partitions(),
        found.partition_ids(),
        repeat(popped.lease_id),
        repeat(wanted.group),
        found.seqs,
        found.attempts,
        _encodings(found),
    )
    return PopResponse(
        True,
        first.queue,
        first.partition,
        first.partition_id,
        popped.lease_id,
        wanted.group,
        popped.partitions_claimed,
        list(messages),
        _autopilot(wanted, is_autopilot),
    )


def _data(found: MessageColumns) -> list[Raw]:
    if any(found.are_binary):
        return list(map(data_of, found.payloads.as_list(), found.are_binary))
    return list(map(Raw, found.payloads.as_list()))


def _times(found: MessageColumns) -> list[str]:
    first_us = found.created_us[0]
    if found.created_us.count(first_us) == len(found):  # as it is for messages that were pushed together
        return [iso(first_us)] * len(found)
    return list(map(iso, found.created_us))


def _traces(found: MessageColumns) -> list[str | None]:
    return [trace_id or None for trace_id in found.trace_ids]


def _encodings(found: MessageColumns) -> list[str]:
    return ["base64" if is_binary else "json" for is_binary in found.are_binary]


def _autopilot(wanted: PopRequest, is_autopilot: bool) -> Autopilot | None:
    return Autopilot(wanted.batch, wanted.partitions) if is_autopilot else None
