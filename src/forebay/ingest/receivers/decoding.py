"""Request bodies: undo their compression within a limit, and tell what is in them."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from typing import NamedTuple

import cramjam

from forebay.otlp.json_form import from_json
from forebay.otlp.kinds import Kind
from forebay.otlp.prometheus import without_form
from forebay.otlp.protobufs import count_items, parsed

_SNAPPY_STREAM = b"\xff\x06\x00\x00sNaPpY"
"""What the framed format begins with; some exporters send that, others the raw one."""
ENCODINGS = ("gzip", "zstd", "snappy", "deflate", "zlib", "identity")


class BodyRefused(Exception):
    """A body that is not taken. `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Telemetry(NamedTuple):
    """A request as it goes on: protobuf, and how many items it holds."""

    kind: Kind
    body: bytes
    items: int
    rejected: int = 0
    """How many of them will be left out on the way, because they have no form at the destination."""
    why_rejected: str = ""


def decoded(kind: Kind, body: bytes, *, is_json: bool, is_for_prometheus: bool = False) -> Telemetry:
    """Judge a request. Raises BodyRefused for what is none."""
    try:
        request = from_json(kind, body) if is_json else parsed(kind, body)
    except ValueError as error:
        raise BodyRefused(400, str(error)) from error
    body = request.SerializeToString() if is_json else body
    telemetry = Telemetry(kind, body, count_items(kind, request))
    if not is_for_prometheus or kind is not Kind.METRICS:
        return telemetry
    rejected, reasons = without_form(request)
    return telemetry._replace(rejected=rejected, why_rejected="; ".join(sorted(reasons)))


def decompressed(body: bytes, encoding: str, size_max: int) -> bytes:
    """Raises BodyRefused for an encoding that is not known, a body that is broken, or one that becomes too large."""
    if encoding in ("", "identity"):
        return _within(body, size_max)
    try:
        if encoding in ("gzip", "x-gzip", "zlib", "deflate"):
            return _inflated(body, size_max)
        if encoding == "snappy":
            return _unsnapped(body, size_max)
        if encoding == "zstd":
            return _unzstd(body, size_max)
    except (zlib.error, cramjam.DecompressionError, ValueError) as error:
        raise BodyRefused(400, f"the body is no {encoding}: {error}") from error
    raise BodyRefused(415, f"Content-Encoding {encoding!r} is not known; known are {', '.join(ENCODINGS)}")


def _within(body: bytes, size_max: int) -> bytes:
    if len(body) > size_max:
        raise BodyRefused(413, f"a body of more than {size_max} bytes")
    return body


def _inflated(body: bytes, size_max: int) -> bytes:
    # 47: look at the header to tell gzip from zlib; -15: there is none, as some clients send deflate.
    is_gzip = body[:2] == b"\x1f\x8b"
    has_header = is_gzip or (len(body) > 1 and body[0] & 15 == 8 and int.from_bytes(body[:2]) % 31 == 0)
    machine = zlib.decompressobj(47 if has_header else -15)
    found = machine.decompress(body, size_max + 1)
    if len(found) <= size_max and not machine.eof:
        raise ValueError("it ends too early")
    if len(found) <= size_max and machine.unused_data:
        if not is_gzip:
            raise ValueError(f"{len(machine.unused_data)} bytes follow its end")
        found = _several_inflated(body, size_max)
    return _within(found, size_max)


def _several_inflated(body: bytes, size_max: int) -> bytes:
    """gzip may be several streams, one behind the other."""
    try:
        return gzip.GzipFile(fileobj=io.BytesIO(body)).read(size_max + 1)
    except (OSError, EOFError) as error:
        raise ValueError(str(error)) from error


def _unsnapped(body: bytes, size_max: int) -> bytes:
    if body.startswith(_SNAPPY_STREAM):
        return _into_room(cramjam.snappy.decompress_into, body, size_max)
    if cramjam.snappy.decompress_raw_len(body) > size_max:
        raise BodyRefused(413, f"a body of more than {size_max} bytes")
    return bytes(cramjam.snappy.decompress_raw(body))


def _unzstd(body: bytes, size_max: int) -> bytes:
    return _into_room(cramjam.zstd.decompress_into, body, size_max)


def _into_room(decompress_into: Callable[[bytes, bytearray], int], body: bytes, size_max: int) -> bytes:
    """Decompress into a buffer that is no larger than what is allowed: a bomb ends there."""
    room = bytearray(size_max + 1)
    try:
        size = decompress_into(body, room)
    except cramjam.DecompressionError as error:
        if "write whole buffer" in str(error):
            raise BodyRefused(413, f"a body of more than {size_max} bytes") from error
        raise
    return _within(bytes(memoryview(room)[:size]), size_max)
