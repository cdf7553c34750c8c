"""One request and its answer. The body is read within its limit, whatever its announced length or its encoding."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from forebay.api.problems import Problem, wrong

Receive = Callable[[], Awaitable[Mapping[str, Any]]]

QUERY_FIELDS_MAX = 100
BODY_BYTES_MAX = 64 * 1024 * 1024
DISCARDED_BYTES_MAX = 4 * BODY_BYTES_MAX
"""What is read and thrown away of a body that is too large, so that its sender reads the answer instead of an error."""
INLINE_BYTES_MAX = 256 * 1024
"""Compressed bodies above this are decompressed in a thread, so that other requests go on meanwhile."""
JSON = b"application/json"


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


NO_CONTENT = Answer(204)


class StreamedAnswer(NamedTuple):
    """An answer whose body is made while it is sent. If making it fails, the connection is cut: nothing ends it."""

    status: int
    chunks: AsyncIterator[bytes | memoryview]
    content_type: bytes


class Request:
    """What a handler sees: `path` holds the parameters of the path, decoded, in order."""

    __slots__ = ("_query", "_receive", "body_bytes_max", "path", "scope")

    def __init__(self, scope: Mapping[str, Any], receive: Receive, path: tuple[str, ...], body_bytes_max: int) -> None:
        self.scope = scope
        self.path = path
        self.body_bytes_max = body_bytes_max
        self._receive = receive
        self._query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """Query parameters; of one that is given twice, the last counts."""
        if self._query is None:
            self._query = _parsed(self.scope["query_string"])
        return self._query

    def values(self, name: str) -> tuple[str, ...]:
        """All that a query parameter was given, in order."""
        return tuple([value for key, value in _pairs(self.scope["query_string"]) if key == name])

    def header(self, name: bytes) -> bytes:
        for known, value in self.scope["headers"]:
            if known == name:
                return bytes(value)
        return b""

    async def body(self) -> bytes:
        """The whole body as it was before any Content-Encoding."""
        raw = await self._read(self.body_bytes_max)
        encoding = self.header(b"content-encoding").strip().lower()
        if encoding in (b"", b"identity"):
            return raw
        if encoding not in (b"gzip", b"x-gzip", b"deflate"):
            raise Problem(
                415,
                f"Content-Encoding {encoding.decode('latin-1')!r} is not known; known are gzip and deflate",
                code="unknown_encoding",
                headers=((b"accept-encoding", b"gzip, deflate"),),
            )
        if len(raw) <= INLINE_BYTES_MAX:
            return decompressed(raw, self.body_bytes_max)
        return await asyncio.to_thread(decompressed, raw, self.body_bytes_max)

    async def _read(self, limit: int) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        first: bytes = message.get("body", b"")
        if not message.get("more_body"):
            if len(first) > limit:
                raise _too_large(limit)
            return first
        parts, size = [first], len(first)
        while message.get("more_body"):
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size <= limit:
                parts.append(part)
            else:
                parts.clear()
                if size > DISCARDED_BYTES_MAX:
                    break
        if size > limit:
            raise _too_large(limit)
        return b"".join(parts)

    async def disconnected(self) -> None:
        """Return when the client has gone away. Only for requests whose body nobody wants."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class ClientGone(Exception):
    """Nobody is there to answer to."""


def decompressed(raw: bytes, limit: int) -> bytes:
    """Undo gzip or deflate (with zlib's header or, as some send it, without)."""
    # 47: look at the header to tell gzip from zlib; -15: there is no header.
    has_header = raw[:2] == b"\x1f\x8b" or (len(raw) > 1 and raw[0] & 0x0F == 8 and (raw[0] << 8 | raw[1]) % 31 == 0)
    machine = zlib.decompressobj(47 if has_header else -15)
    try:
        text = machine.decompress(raw, limit + 1)
    except zlib.error as error:
        raise wrong(None, f"the body cannot be decompressed: {error}") from error
    if len(text) > limit:
        raise _too_large(limit)
    if not machine.eof or machine.unused_data:
        raise wrong(None, "the compressed body is cut off or has something behind it")
    return text


def _too_large(limit: int) -> Problem:
    return Problem(
        413,
        f"the body is larger than {limit} bytes",
        code="too_large",
        headers=((b"connection", b"close"),),
    )


def _parsed(query: bytes) -> dict[str, str]:
    return dict(_pairs(query)) if query else {}


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        text = query.decode()
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX)
    except UnicodeDecodeError as error:
        raise wrong(None, "the query is not UTF-8") from error
    except ValueError as error:
        raise wrong(None, f"the query has more than {QUERY_FIELDS_MAX} parameters") from error
