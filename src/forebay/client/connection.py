"""HTTP/1.1 to one server: connections that are kept, one request at a time on each, whole answers.

A general HTTP client spends on a small request several times what it takes to write the bytes and parse the answer, and
pushes, pops and acks are small requests. So here is as much of HTTP as a Forebay server, or a proxy before one, speaks:
`httptools` parses; bodies come with their length, in chunks, or up to the end of the connection. Redirects are not
followed, nothing is decompressed, and no proxy is looked for in the environment.

| what happens | what is raised |
|---|---|
| no connection | OSError |
| it ends before the answer does | ConnectionResetError; a kept one is first tried anew on a fresh one |
| the answer is no HTTP | `NotHttp` |
| the caller is cancelled | the connection is closed: its answer would be taken for that of the next request |
| the origin is closed | ConnectionError, and nothing is sent any more |
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import unquote, urlsplit

import httptools

JOINED_BYTES_MAX = 64 * 1024
"""Bodies above this leave behind their head and not in one piece with it: copying them would cost more."""


class NotHttp(OSError):
    """The server at that address speaks something else."""


class Response(NamedTuple):
    status: int
    body: bytes
    location: str = ""
    """Where a redirect points to."""


class Tries:
    """What is known of the tries of one request. While one is `unanswered`, a server may have done what it asks for."""

    def __init__(self) -> None:
        self.unanswered = 0


class Connection(asyncio.Protocol):
    """`is_reusable` until it has ended, or an answer said that it was the last."""

    def __init__(self) -> None:
        self.is_reusable = True
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._answer: asyncio.Future[Response] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._location = ""
        self._ends_with_connection = True
        self._is_body_expected = False

    async def exchange(self, head: bytes, body: bytes) -> Response:
        """Send a request, and return its answer."""
        if not self.is_reusable:
            raise ConnectionResetError("the connection has ended")
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._answer = answer
        try:
            if len(body) <= JOINED_BYTES_MAX:
                self._transport.write(head + body)
            else:
                self._transport.writelines((head, body))
            return await answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = None

    def close(self) -> None:
        self.is_reusable = False
        self._transport.abort()

    # asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(NotHttp(f"the answer is no HTTP: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self.is_reusable = False
        if error is None and self._is_body_expected and self._ends_with_connection:
            self._succeed()
        else:
            self._fail(error or ConnectionResetError("the server closed the connection"))
        self.ended.set_result(None)
        del self._parser  # they know each other, and else only the garbage collector would free them

    # the parser's calls

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._ends_with_connection = False
        elif name == b"location":
            self._location = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._is_body_expected = self._parser.get_status_code() >= 200

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # such as 103: the real one follows
            self._parts.clear()
            self._ends_with_connection = True
            return
        if not self._parser.should_keep_alive():
            self.is_reusable = False
        self._succeed()

    def _succeed(self) -> None:
        if self._answer is None or self._answer.done():
            self.is_reusable = False  # an answer without a request
            return
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._answer.set_result(Response(self._parser.get_status_code(), body, self._location))
        self._parts = []
        self._location = ""
        self._ends_with_connection = True
        self._is_body_expected = False

    def _fail(self, error: Exception) -> None:
        self.is_reusable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


class Origin:
    """One server: where it is, what every request to it says, and the connections that are idle."""

    def __init__(self, url: str, headers: Mapping[str, str], ca_file: str | Path | None = None) -> None:
        """`ca_file`: the certificates (PEM) that the server's is checked by; without it, those of the machine."""
        self._ca_file = ca_file
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._is_encrypted = parts.scheme == "https"
        self._port = parts.port or (443 if self._is_encrypted else 80)
        self._prefix = parts.path.rstrip("/")
        lines = {"Host": parts.netloc.rpartition("@")[2], "User-Agent": "forebay", "Accept": "*/*"}
        if parts.username is not None:
            name = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            lines["Authorization"] = f"Basic {b64encode(name.encode()).decode()}"
        self._lines = "".join(f"{name}: {value}\r\n" for name, value in {**lines, **headers}.items())
        self._tls: ssl.SSLContext | None = None
        self._open: set[Connection] = set()
        self._idle: list[Connection] = []
        self._is_closed = False

    async def request(
        self, method: str, target: str, body: bytes | None, content_type: str, tries: Tries | None = None
    ) -> Response:
        """`target` begins with a slash, and is encoded."""
        tries = tries or Tries()
        described = "" if body is None else f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        if body is None and method in ("POST", "PUT"):
            described = "Content-Length: 0\r\n"
        head = f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._lines}{described}\r\n".encode()
        idle = self._idle_connection()
        if idle is not None:
            try:
                return await self._exchange(idle, head, body or b"", tries)
            except ConnectionError:
                if self._is_closed:
                    raise
                # Otherwise the server has closed it, as it may: that says nothing about a new one.
        return await self._exchange(await self._connected(), head, body or b"", tries)

    async def _exchange(self, connection: Connection, head: bytes, body: bytes, tries: Tries) -> Response:
        tries.unanswered += 1
        try:
            response = await connection.exchange(head, body)
            tries.unanswered -= 1
        finally:
            if not connection.is_reusable:
                connection.close()
                self._open.discard(connection)
        if connection.is_reusable:
            self._idle.append(connection)
        return response

    def _idle_connection(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable:
                return connection
            self._open.discard(connection)
        return None

    async def _connected(self) -> Connection:
        if self._is_encrypted and self._tls is None:
            self._tls = ssl.create_default_context(cafile=self._ca_file)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, self._host, self._port, ssl=self._tls)
        if self._is_closed:
            connection.close()
            raise ConnectionAbortedError("closed while it connected")
        self._open.add(connection)
        return connection

    async def close(self) -> None:
        """What waits for an answer fails, and nothing is sent any more."""
        self._is_closed = True
        self._idle.clear()
        ending = [connection.ended for connection in self._open]
        while self._open:
            self._open.pop().close()
        await asyncio.gather(*ending)
