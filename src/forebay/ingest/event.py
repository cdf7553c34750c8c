"""One buffered message as JSON, and back.

The seed's members (`queue`, `partition`, `payload`, `namespace`, `task`, `traceId`, `transactionId`, `failover`) and:

- `crc`: CRC-32C of the payload's text as it stands here, 8 hex digits;
- `acceptedUs`: when it was accepted, microseconds;
- `encoding`: absent for JSON, `base64` for bytes; `sealed` and `sealed-base64` for the same, encrypted
  (`broker.encryption`) and then in base64;
- `headers`: base64, where there are any;
- `check`: always last, CRC-32C of all the event's bytes before `,"check"`: names matter as much as payloads.

An event without `crc` and `check` is read too: other programs may write one. Frames have no version. A member that is
not known is passed over, so what changes a payload's meaning has to be an `encoding` of its own: one that is not known
is refused, and its bytes are set aside as they are.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import hexlify
from collections.abc import Sequence

import msgspec
from crc32c import crc32c
from msgspec import Raw, Struct

from forebay.broker.encryption import Address, Cipher
from forebay.errors import BatchRefused, Permanent
from forebay.model.push_run import PushRun, Row, neighbours
from forebay.model.queue import DEFAULT_PARTITION
from forebay.model.text_block import TextBlock

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 64 << 20
"""The highest byte of a length is then a control character, which no JSON text holds: see `frames`."""

ENCODINGS = frozenset({"", "base64", "sealed", "sealed-base64"})
_CHECK = b',"check":"'
_CHECK_BYTES = len(_CHECK) + 8 + 2


class Event(Struct, rename="camel", omit_defaults=True, gc=False):
    queue: str
    payload: Raw
    transaction_id: str
    partition: str = DEFAULT_PARTITION
    namespace: str = ""
    task: str = ""
    trace_id: str = ""
    failover: bool = False
    crc: str = ""
    accepted_us: int = 0
    encoding: str = ""
    headers: str = ""
    check: str = ""


class NotAnEvent(Exception):
    """The bytes hold no event, or not the one that was written."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


def frames_of(runs: Sequence[PushRun], *, is_failover: bool, now_us: int, cipher: Cipher | None) -> list[bytes]:
    """The messages as frames. With a cipher every payload is sealed: it is not known here which queue is encrypted."""
    return [_frame(run, row, is_failover, now_us, cipher) for run in runs for row in run.rows()]


def _frame(run: PushRun, row: Row, is_failover: bool, now_us: int, cipher: Cipher | None) -> bytes:
    payload, encoding = _written(run, row, cipher)
    text = _encoder.encode(
        Event(
            run.queue,
            Raw(payload),
            row.transaction_id,
            row.partition,
            run.namespace,
            run.task,
            row.trace_id,
            is_failover,
            crc32c(payload).to_bytes(4).hex(),
            now_us,
            encoding,
            b64encode(row.headers).decode() if row.headers else "",
        )
    )
    text = text[:-1]
    size = len(text) + _CHECK_BYTES
    if size > FRAME_BYTES_MAX:
        raise BatchRefused(f"a message of {size} bytes does not fit into a buffer file")
    return b"".join((size.to_bytes(LENGTH_BYTES, "little"), text, _CHECK, _sum_of(text), b'"}'))


def _sum_of(text: bytes) -> bytes:
    """Its check sum, 8 hex digits."""
    return hexlify(crc32c(text).to_bytes(4))


def _written(run: PushRun, row: Row, cipher: Cipher | None) -> tuple[bytes, str]:
    if cipher is not None:
        encoding = "sealed-base64" if run.is_binary else "sealed"
        sealed = cipher.seal(row.payload, Address(run.queue, row.partition, row.transaction_id))
        return b'"%b"' % b64encode(sealed), encoding
    return (b'"%b"' % b64encode(row.payload), "base64") if run.is_binary else (row.payload, "")


def read_event(body: bytes) -> Event:
    """The event in a frame, checked."""
    is_checked = body[-_CHECK_BYTES : len(_CHECK) - _CHECK_BYTES] == _CHECK
    if is_checked and body[-10:-2] != _sum_of(body[:-_CHECK_BYTES]):
        raise NotAnEvent("its check sum is another")
    try:
        event = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotAnEvent(str(error)) from error
    if event.crc and not is_checked:
        raise NotAnEvent("its check sum is missing")
    if event.crc and event.crc != crc32c(bytes(event.payload)).to_bytes(4).hex():
        raise NotAnEvent("the check sum of its payload is another")
    if event.encoding not in ENCODINGS:
        raise NotAnEvent(f"its encoding {event.encoding!r} is not known: a newer Forebay wrote it")
    return event


def runs_of(events: Sequence[Event], cipher: Cipher | None) -> list[PushRun]:
    """The messages as the store takes them: their ids count as the producers' own, so that they are stored once."""
    keys = [(event.queue, is_binary(event), event.namespace, event.task) for event in events]
    return [
        PushRun(
            queue,
            [event.partition for event in own],
            TextBlock.of([payload_of(event, cipher) for event in own]),
            [event.transaction_id for event in own],
            is_binary=has_bytes,
            trace_ids=[event.trace_id for event in own],
            headers=[b64decode(event.headers) if event.headers else b"" for event in own],
            namespace=namespace,
            task=task,
        )
        for (queue, has_bytes, namespace, task), places in neighbours(keys)
        for own in (events[places],)
    ]


def is_binary(event: Event) -> bool:
    return event.encoding.endswith("base64")


def payload_of(event: Event, cipher: Cipher | None) -> bytes:
    """The payload as it came."""
    payload = bytes(event.payload)
    if event.encoding:
        payload = b64decode(payload[1:-1])
    if not event.encoding.startswith("sealed"):
        return payload
    if cipher is None:
        raise Permanent(
            f"a buffered message of queue {event.queue!r} is encrypted and there is no key",
            remedy="Start the server with the key that it had when the message was accepted",
        )
    return cipher.open(payload, Address(event.queue, event.partition, event.transaction_id))
