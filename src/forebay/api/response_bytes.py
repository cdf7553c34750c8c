"""An answer as bytes of HTTP/1.1: what never changes is prepared once, the rest is put together in one step."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from forebay.api.exchange import Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSING = (b"connection", b"close")
"""The header of an answer that is the last of its connection, whatever the client would like."""
LAST_CHUNK = b"0\r\n\r\n"
JOINED_BYTES_MAX = 32 * 1024
"""Bodies above this are handed on as they are: to copy one behind its head costs more than a second buffer."""

_CLOSE = b"connection: close\r\n"
_KEEP = b"connection: keep-alive\r\n"
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


def whole(answer: Response, date: bytes, *, connection: bytes = b"", is_head: bool = False) -> list[bytes | memoryview]:
    """Head and body: in one piece, unless the body is large. `date` and `connection` are lines, or nothing."""
    status, body, content_type, more, more_body = answer
    if status == 204:  # it has no body, and then no length either
        described = b""
    elif not body:
        described = b"content-length: 0\r\n"
    else:
        described = b"content-type: %b\r\ncontent-length: %d\r\n" % (
            content_type,
            len(body) + sum(map(len, more_body)),
        )
    if more:
        described += _lines(more)
    if is_head or status == 204:
        body, more_body = b"", ()
    head = b"%b%b%b%b\r\n" % (_STATUS_LINES[status], date, described, connection)
    return [head + body, *more_body] if len(body) <= JOINED_BYTES_MAX else [head, body, *more_body]


def streamed_head(status: int, content_type: bytes, date: bytes, *, connection: bytes, is_chunked: bool) -> bytes:
    """Of an answer whose length is not known yet."""
    coding = b"transfer-encoding: chunked\r\n" if is_chunked else b""
    return b"%b%bcontent-type: %b\r\n%b%b\r\n" % (_STATUS_LINES[status], date, content_type, coding, connection)


def connection_line(*, closes: bool, is_version_1_0: bool) -> bytes:
    """HTTP/1.1 stays connected unless the request says otherwise, HTTP/1.0 the other way round."""
    if closes:
        return _CLOSE
    return _KEEP if is_version_1_0 else b""


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers if header != CLOSING])
