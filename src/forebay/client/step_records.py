"""Records that go through a step of a flow again: what is said of each, and the requests that they fit into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from forebay.client.messages import Refused
from forebay.client.outgoing import REQUEST_BYTES_MAX, refuse_nan
from forebay.client.paths import quoted
from forebay.client.transport import Transport

REQUEST_RECORDS_MAX = 1_000
"""What a server takes in one request."""
_encode = msgspec.json.Encoder(decimal_format="number").encode
_decode_row = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class StepRecord(Struct, frozen=True):
    """A row in front of a step."""

    did: str
    """The parcel that it was in."""
    key: str
    """What it is known by in that parcel: with the same key it starts once."""
    payload: Any
    """The row as the step reads it: its JSON as `bytes`, or a dictionary."""


class RecordsStarted(Struct, frozen=True):
    """What became of records."""

    parcels: tuple[str, ...]
    """The dids of the new parcels."""
    records: int
    """How many started."""
    repeated: int
    """How many had started before."""

    def plus(self, other: RecordsStarted) -> RecordsStarted:
        """Both together.

        Example: `first.plus(second).records`
        """
        return RecordsStarted(
            self.parcels + other.parcels, self.records + other.records, self.repeated + other.repeated
        )


_decode_started = msgspec.json.Decoder(RecordsStarted).decode


class RecordSender:
    """Sends records to one step."""

    def __init__(self, transport: Transport, flow: str, step: str) -> None:
        self._transport = transport
        self._path = f"/api/v1/dispatch/flows/{quoted(flow)}/records"
        self._step = step

    async def send(self, records: Sequence[StepRecord]) -> RecordsStarted:
        """In as many requests as they need, in order."""
        started = RecordsStarted((), 0, 0)
        for some in _requests([_encoded(record) for record in records]):
            started = started.plus(await self._halved(some))
        return started

    async def _halved(self, records: Sequence[msgspec.Raw]) -> RecordsStarted:
        """In one request, or in smaller ones if the server is set to take less in one."""
        body = _encode({"step": self._step, "records": records})
        try:
            _, answer = await self._transport.request("POST", self._path, body)
            return _decode_started(answer)
        except Refused as refused:
            if refused.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE or len(records) == 1:
                raise
        half = len(records) // 2
        first = await self._halved(records[:half])
        return first.plus(await self._halved(records[half:]))


def _encoded(record: StepRecord) -> msgspec.Raw:
    payload = record.payload if isinstance(record.payload, bytes) else _encode(record.payload)
    try:
        _decode_row(payload.decode())
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ValueError(f"record {record.key!r} is no JSON object: {error}") from error
    if b"null" in payload and not isinstance(record.payload, bytes):
        refuse_nan(record.payload)
    return msgspec.Raw(_encode(StepRecord(record.did, record.key, msgspec.Raw(payload))))


def _requests(records: Sequence[msgspec.Raw]) -> Iterator[list[msgspec.Raw]]:
    some: list[msgspec.Raw] = []
    size = 0
    for record in records:
        length = len(bytes(record))
        if some and (len(some) == REQUEST_RECORDS_MAX or size + length > REQUEST_BYTES_MAX):
            yield some
            some, size = [], 0
        some.append(record)
        size += length
    if some:
        yield some
