"""One request and its answer. The body is read within its limit, whatever its announced length or its encoding."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl

from forebay.api.body_stream import BODY_BYTES_MAX, BODY_SECONDS_MAX, BodyStream, too_large
from forebay.api.body_stream import ClientGone as ClientGone
from forebay.api.callers import ANY_CALLER
from forebay.api.memory import NO_WAIT_BYTES_MAX, Memory
from forebay.api.problems import JSON_PROBLEM, Problem, wrong

QUERY_FIELDS_MAX = 100
INLINE_BYTES_MAX = 1024 * 1024
"""Compressed bodies are decompressed up to this size at once; larger ones in a thread, while other requests go on."""
JSON = b"application/json"


class Response(NamedTuple):
    status: int
    body: bytes = b""
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    more_body: Sequence[bytes | memoryview] = ()
    """What follows `body` and belongs to it: large pieces, which are sent from where they are."""


NO_CONTENT = Response(204)


def refusal(problem: Problem) -> Response:
    return Response(problem.status, problem.body(), JSON_PROBLEM, problem.headers)


class StreamedResponse(NamedTuple):
    """An answer whose body is made while it is sent. If making it fails, the connection is cut: nothing ends it."""

    status: int
    chunks: AsyncIterator[bytes | memoryview]
    content_type: bytes


class Request:
    """What a handler sees: `path` holds the parameters of the path, decoded, in order.

    Names of headers are in lower case. `raw_path` and `query_string` are as they were sent, percent signs and all.
    """

    __slots__ = (
        "_query",
        "address",
        "body_bytes_max",
        "body_seconds_max",
        "caller",
        "headers",
        "is_admin_action",
        "is_kept_alive",
        "is_routine",
        "is_version_1_0",
        "memory",
        "method",
        "path",
        "query_string",
        "raw_path",
        "stream",
        "subject",
        "taken_bytes",
    )

    def __init__(
        self,
        method: str,
        raw_path: bytes,
        query_string: bytes = b"",
        headers: Sequence[tuple[bytes, bytes]] = (),
        stream: BodyStream | None = None,
        *,
        is_kept_alive: bool = True,
        is_version_1_0: bool = False,
    ) -> None:
        self.method = method
        self.raw_path = raw_path
        self.query_string = query_string
        self.headers = headers
        self.stream = stream or BodyStream()
        self.is_kept_alive = is_kept_alive
        self.is_version_1_0 = is_version_1_0
        self.path: tuple[str, ...] = ()
        self.address = ""
        """Of the client."""
        self.caller = ANY_CALLER
        self.is_admin_action = False
        """Whether it is written into the audit log, although its route is not."""
        self.is_routine = False
        """Whether it is an admin action that a program does over and over."""
        self.subject = ""
        """What it is done to, for the audit log, where the path does not say so."""
        self.body_bytes_max = BODY_BYTES_MAX
        self.body_seconds_max = BODY_SECONDS_MAX
        self.memory: Memory | None = None
        self.taken_bytes = 0
        """Of `memory`, for the body."""
        self._query: dict[str, str] | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.raw_path.decode('latin-1')}"

    @property
    def query(self) -> dict[str, str]:
        """Query parameters; of one that is given twice, the last counts."""
        if self._query is None:
            self._query = _parsed(self.query_string)
        return self._query

    def values(self, name: str) -> tuple[str, ...]:
        """All that a query parameter was given, in order."""
        return tuple([value for key, value in _pairs(self.query_string) if key == name])

    def header(self, name: bytes) -> bytes:
        for known, value in self.headers:
            if known == name:
                return value
        return b""

    async def body(self) -> bytes:
        """The whole body as it was before any Content-Encoding."""
        return bytes(await self.text())

    async def text(self) -> bytes | memoryview:
        """The same, where it lies: perhaps as a part of what came over the wire."""
        stream, limit = self.stream, self.body_bytes_max
        encoding = self.header(b"content-encoding").strip().lower()
        is_compressed = encoding not in (b"", b"identity")
        if is_compressed and encoding not in (b"gzip", b"x-gzip", b"deflate"):
            raise Problem(
                415,
                f"Content-Encoding {encoding.decode('latin-1')!r} is not known; known are gzip and deflate",
                code="unknown_encoding",
                headers=((b"accept-encoding", b"gzip, deflate"),),
            )
        is_late = not stream.is_whole
        if is_late:
            announced = self._announced_bytes()
            # For what it becomes too: a request that has room and waits for more could wait for one that does the same.
            await self._take_before(announced + limit if is_compressed and announced > INLINE_BYTES_MAX else announced)
            await self._arrived()
        # Parts are put together in one go, which takes 40 ms of 64 MiB.
        raw = stream.whole(limit) if stream.size <= INLINE_BYTES_MAX else await asyncio.to_thread(stream.whole, limit)
        text = await self._decompressed(raw) if is_compressed else raw
        if is_late or self.taken_bytes:
            self._hold(len(text))
        return text

    async def _decompressed(self, raw: bytes | memoryview) -> bytes:
        limit = self.body_bytes_max
        if len(raw) <= INLINE_BYTES_MAX:
            text = decompressed(raw, min(INLINE_BYTES_MAX, limit))
            if text is not None:
                return text
            if limit <= INLINE_BYTES_MAX:
                raise too_large(limit)
            self._hold(0)
            await self._take(limit)
        text = await asyncio.to_thread(decompressed, raw, limit)
        if text is None:
            raise too_large(limit)
        return text

    async def _arrived(self) -> None:
        """The body is counted as it comes; a slow client may lose the memory that it holds."""
        stream, memory = self.stream, self.memory
        if memory is None:
            await stream.arrived(self.body_bytes_max)
            return
        memory.watch(stream)
        try:
            await stream.arrived(self.body_bytes_max, self._count_arrived, self.body_seconds_max)
        finally:
            memory.unwatch(stream)

    # memory

    async def _take_before(self, size: int) -> None:
        """What is small is counted when it is there."""
        if size > NO_WAIT_BYTES_MAX:
            await self._take(size)

    def _count_arrived(self, size: int) -> None:
        if self.memory is not None and size > self.taken_bytes:
            self.memory.take_arrived(size - self.taken_bytes)
            self.taken_bytes = size

    async def _take(self, size: int) -> None:
        if self.memory is not None:
            self.taken_bytes = await self.memory.take(size)

    async def take_more(self, size: int) -> None:
        """Memory for what the body is made into, until the request is answered.

        All is taken anew: a request that holds some and waits for more could wait for another that does the same.
        """
        held_bytes = self.taken_bytes
        self._hold(0)
        await self._take(held_bytes + size)

    def _hold(self, size: int) -> None:
        """No more and no less than that."""
        if self.memory is not None:
            self.memory.give_back(self.taken_bytes - size)
            self.taken_bytes = size

    def end(self) -> None:
        """It is answered."""
        if self.taken_bytes:
            self._hold(0)

    def _announced_bytes(self) -> int:
        """What is above the limit is not kept, so it needs no memory. 0 where nothing is announced (chunks)."""
        return min(int(self.header(b"content-length") or 0), self.body_bytes_max)

    def disconnected(self) -> asyncio.Future[None]:
        """Done when the client has gone away (`stream.is_gone`), or when so much has come behind this that its end
        would go unnoticed. Only for requests whose body no handler wants.
        """
        return self.stream.gone()


def decompressed(raw: bytes | memoryview, limit: int) -> bytes | None:
    """Undo gzip or deflate (with zlib's header or, as some send it, without). None if it becomes larger than that."""
    # 47: look at the header to tell gzip from zlib; -15: there is no header.
    has_header = raw[:2] == b"\x1f\x8b" or (len(raw) > 1 and raw[0] & 0x0F == 8 and (raw[0] << 8 | raw[1]) % 31 == 0)
    machine = zlib.decompressobj(47 if has_header else -15)
    try:
        text = machine.decompress(raw, limit + 1)
    except zlib.error as error:
        raise wrong(None, f"the body cannot be decompressed: {error}") from error
    if len(text) > limit:
        return None
    if not machine.eof or machine.unused_data:
        raise wrong(None, "the compressed body is cut off or has something behind it")
    return text


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
