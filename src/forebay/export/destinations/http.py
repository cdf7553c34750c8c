"""Messages of a queue over HTTP, as JSON or NDJSON.

| `format` | the body of a request | `Content-Type` |
|---|---|---|
| `json` | an array of the payloads | `application/json` |
| `ndjson` | a payload on each line | `application/x-ndjson` |
| `envelopes` | an array of `{"queue", "partition", "seq", "transactionId", "createdAt", "data"}` | `application/json` |

Payloads are spliced in as they were pushed; one that is bytes becomes a string in base64.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Literal

import msgspec

from forebay.clock import Clock
from forebay.export.batch import ExportBatch, ExportMessage, MessageBatch
from forebay.export.compression import Compression, compressed
from forebay.export.destination import TAKEN, Prepared, Receipt
from forebay.export.http_sender import HttpOptions, HttpSender
from forebay.export.outcome import ErrorClass, SendFailed
from forebay.otlp.kinds import Kind

Format = Literal["json", "ndjson", "envelopes"]
CONTENT_TYPES = {"json": "application/json", "ndjson": "application/x-ndjson", "envelopes": "application/json"}

_encode = msgspec.json.Encoder().encode


class HttpDestination:
    """A `Destination` for messages. Every request has the header `Idempotency-Key`."""

    kinds = frozenset({Kind.MESSAGES})
    is_in_order = False

    def __init__(
        self,
        name: str,
        options: HttpOptions,
        clock: Clock,
        *,
        body_format: Format = "json",
        compression: Compression = "none",
    ) -> None:
        self.name = name
        self._sender = HttpSender(options, clock)
        self._url = options.url
        self._format: Format = body_format
        self._compression: Compression = compression
        self.is_prepared_inline = compression == "none"

    async def open(self) -> None:
        self._sender.open()

    def prepare(self, batch: ExportBatch) -> Prepared:
        if not isinstance(batch, MessageBatch):
            raise SendFailed(ErrorClass.CLIENT_ERROR, f"{self.name} takes messages, and no {batch.kind}")
        headers = {"Content-Type": CONTENT_TYPES[self._format], "Idempotency-Key": batch.key}
        if self._compression != "none":
            headers["Content-Encoding"] = self._compression
        return Prepared(batch, compressed(body_of(batch, self._format), self._compression), headers)

    async def send(self, prepared: Prepared) -> Receipt:
        await self._sender.post(self._url, prepared.body, prepared.headers)
        return TAKEN

    async def close(self) -> None:
        await self._sender.close()


def body_of(batch: MessageBatch, body_format: Format) -> bytes:
    """The messages as the body of a request."""
    if body_format == "ndjson":
        return lines_of(batch, body_format)
    pieces = (_envelope(message) if body_format == "envelopes" else _value(message) for message in batch.messages)
    return b"[" + b",".join(pieces) + b"]"


def lines_of(batch: MessageBatch, body_format: Format) -> bytes:
    """A line for each message: its payload, or its envelope."""
    make = _envelope if body_format == "envelopes" else _value
    return b"".join(_one_line(make(message)) + b"\n" for message in batch.messages)


def _value(message: ExportMessage) -> bytes:
    return b'"' + base64.b64encode(message.payload) + b'"' if message.is_bytes else message.payload


def _one_line(value: bytes) -> bytes:
    # JSON text that holds line feeds is on several lines; within JSON they can only be white space.
    return value.replace(b"\n", b" ").replace(b"\r", b" ") if b"\n" in value or b"\r" in value else value


def _envelope(message: ExportMessage) -> bytes:
    created = datetime.fromtimestamp(message.created_us / 1_000_000, UTC).isoformat().replace("+00:00", "Z")
    head = {
        "queue": message.queue,
        "partition": message.partition,
        "seq": message.seq,
        "transactionId": message.transaction_id,
        "createdAt": created,
    }
    return _encode(head)[:-1] + b',"data":' + _value(message) + b"}"
