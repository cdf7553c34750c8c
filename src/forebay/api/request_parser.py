"""Bytes to requests. llhttp (by way of `httptools`) parses; here is decided what becomes of what was parsed.

llhttp refuses what two parsers could read in two ways: a length beside chunks, two lengths, a broken chunk, a header on
two lines. What it lets pass is refused here: two hosts, chunks in HTTP/1.0, chunks that are compressed as a whole. And
limited: the size of a head, and of the trailers behind a body.

A request whose head is known from before (see `request_head_cache`) goes past llhttp, with its body: that is most of
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import cast

import httptools

from forebay.api.body_stream import BodyStream
from forebay.api.exchange import Request
from forebay.api.problems import Problem, wrong
from forebay.api.request_head_cache import Head, RequestHeadCache

HEAD_BYTES_MAX = 64 * 1024
VIEWED_BYTES_MIN = 16 * 1024
"""A body of this size that came with its head is not copied out of what came."""

_METHODS = {name.encode(): name for name in ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS")}
_IS_1_0 = {"1.0": True, "1.1": False}


class RequestParser:
    """Puts requests into a line as soon as their heads are read; their bodies follow.

    `arriving` is the body that the parser is in, which is always that of the last request.
    """

    __slots__ = (
        "_begun",
        "_body_bytes_left",
        "_headers",
        "_heads",
        "_is_between",
        "_keeps_alive",
        "_on_wanted",
        "_parser",
        "_silent_bytes",
        "_target",
        "_waiting",
        "arriving",
        "owes_continue",
    )

    def __init__(
        self, waiting: deque[Request], on_wanted: Callable[[BodyStream], None], heads: RequestHeadCache
    ) -> None:
        """`on_wanted` is called when a handler waits for the body that is arriving, or watches its client."""
        self._waiting = waiting
        self._on_wanted = on_wanted
        self._heads = heads
        self._begun = b""
        """What llhttp was given when a request began, until its head has been read."""
        self._is_between = True
        """Whether the next byte begins a request."""
        self._keeps_alive = True
        self._body_bytes_left = 0
        """Of the body behind a known head."""
        self.arriving: BodyStream | None = None
        self.owes_continue = False
        """The client waits for our word before it sends the body."""
        self._silent_bytes = 0
        self._parse_anew()

    def _parse_anew(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._parser = httptools.HttpRequestParser(self)
        # What follows a `Connection: close` is ignored, instead of making a fault of the request before it.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def forget(self) -> None:
        """After the end: the parsers know each other, and else only the garbage collector would free them."""
        del self._parser, self._on_wanted

    @property
    def is_progressing(self) -> bool:
        """Whether the last bytes ended something. Else they are a piece of a head, or of what is around a body."""
        return not self._silent_bytes

    def feed(self, data: bytes) -> None:
        """Raise the problem when this is no HTTP."""
        if self._body_bytes_left:
            data = self._feed_known_body(data)
        while data and self._is_between:
            head = self._heads.find(data)
            if head is None:
                self._begun = data
                break
            data = self._feed_known(head, data)
        if data:
            self._feed_unknown(data)

    def _feed_known(self, head: Head, data: bytes) -> bytes:
        """Take a request; returns what is behind it."""
        start, method, raw_path, query_string, headers, body_bytes = head
        self._silent_bytes = 0
        stream = BodyStream(self._on_wanted)
        self._waiting.append(Request(method, raw_path, query_string, headers, stream))
        end = start + body_bytes
        if end > len(data):
            self.arriving = stream
            self._is_between = False
            self._body_bytes_left = body_bytes
            return self._feed_known_body(memoryview(data)[start:])
        if body_bytes >= VIEWED_BYTES_MIN:
            stream.feed(memoryview(data)[start:end])
        elif body_bytes:
            stream.feed(data[start:end])
        stream.is_whole = True
        return data[end:]

    def _feed_known_body(self, data: bytes | memoryview) -> bytes:
        """Take what belongs to the body; returns what is behind it."""
        stream, left = cast(BodyStream, self.arriving), self._body_bytes_left
        stream.feed(data if len(data) <= left else data[:left])
        self._body_bytes_left = max(left - len(data), 0)
        if not self._body_bytes_left:
            self.arriving = None
            self._is_between = True
            stream.end()
        return bytes(data[left:])

    def _feed_unknown(self, data: bytes) -> None:
        self._silent_bytes += len(data)
        self._feed(data)
        if self._silent_bytes > HEAD_BYTES_MAX:
            raise _head_too_large()

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # Nothing is upgraded here. llhttp takes what follows for another protocol: it gets the head once more.
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
            except httptools.HttpParserError as error:
                if isinstance(error.__context__, Problem):
                    raise error.__context__ from None
                raise wrong(None, f"this is no HTTP request: {error}") from error
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        if method == b"CONNECT":
            raise wrong(None, "this is no proxy: CONNECT is not known")
        lines = [b"%b: %b\r\n" % header for header in self._headers if header[0] != b"upgrade"]
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self._target, version, b"".join(lines))
        self._parse_anew()
        return head

    # llhttp's calls

    def on_message_begin(self) -> None:
        self._is_between = False

    def on_url(self, part: bytes) -> None:
        self._target += part
        self._silent_bytes = self._silent_bytes or 1  # a head that began behind the end of the request before it

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._headers.append((name, value))
        if name == b"expect" and value.strip().lower() == b"100-continue":
            self.owes_continue = True

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser.should_upgrade():
            return
        if self._silent_bytes > HEAD_BYTES_MAX and self._head_bytes() > HEAD_BYTES_MAX:
            raise _head_too_large()
        is_version_1_0 = _IS_1_0.get(parser.get_http_version())
        if is_version_1_0 is None:
            raise wrong(None, "only HTTP/1.1 and HTTP/1.0 are known here")
        _check_framing(self._headers, is_version_1_0=is_version_1_0)
        method = parser.get_method()
        raw_path, query = _split(self._target)
        self.arriving = stream = BodyStream(self._on_wanted)
        known_method = _METHODS.get(method)
        request = Request(known_method or method.decode(), raw_path, query, self._headers, stream)
        request.is_kept_alive = self._keeps_alive = parser.should_keep_alive()
        request.is_version_1_0 = is_version_1_0
        self._waiting.append(request)
        if self._begun and known_method and request.is_kept_alive and not is_version_1_0:
            self._heads.learn(self._begun, known_method, raw_path, query, self._headers)
        self._begun = b""  # where the head of another request in the same data begins, is not known
        self._target = b""
        self._headers = []  # trailers come as headers too, and must not get among those of the head
        self._silent_bytes = 0

    def _head_bytes(self) -> int:
        return len(self._target) + sum([len(name) + len(value) + 4 for name, value in self._headers])

    def on_body(self, part: bytes) -> None:
        if self.arriving is not None:
            self.arriving.feed(part)
        self._silent_bytes = 0
        self.owes_continue = False

    def on_message_complete(self) -> None:
        if self.arriving is None:  # a request to upgrade, whose head is read once more
            return
        self.arriving.end()
        self.arriving = None
        self._is_between = self._keeps_alive
        self.owes_continue = False
        if self._headers:
            self._headers = []
        self._silent_bytes = 0


def _check_framing(headers: list[tuple[bytes, bytes]], *, is_version_1_0: bool) -> None:
    """Refuse what a proxy might read otherwise: whose request it is, and where its body ends."""
    names = [name for name, _ in headers]
    if names.count(b"host") > 1:
        raise wrong(None, "there are two Host headers")
    if b"transfer-encoding" in names:
        codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
        if is_version_1_0:
            raise wrong(None, "HTTP/1.0 knows no Transfer-Encoding")
        if codings != [b"chunked"]:
            raise wrong(None, "the only Transfer-Encoding known here is chunked")


def _split(target: bytes) -> tuple[bytes, bytes]:
    """Path and query, as they were sent. Proxies may send the whole URL."""
    if target[:1] == b"/" and b"#" not in target:
        raw_path, _, query = target.partition(b"?")
        return raw_path, query
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError as error:
        raise wrong(None, f"this is no target of a request: {target.decode('latin-1')!r}") from error
    return url.path or b"/", url.query or b""


def _head_too_large() -> Problem:
    return Problem(431, f"the head of a request has {HEAD_BYTES_MAX} bytes at the most", code="head_too_large")
