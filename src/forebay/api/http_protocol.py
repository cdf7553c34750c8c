"""One connection of HTTP/1.1: requests in line, answers in the same order, and neither faster than it can be taken.

A request that arrives whole, as nearly all do, costs one task and one write. Requests that come before the last was
answered wait in line; while the line is long, or a body lies here that no handler reads, nothing more is read.

A client whose socket is not read cannot be seen to disconnect. So while a handler watches its client (a long poll) more
is taken than that, and when it is too much all the same, the watch is ended, and with it the wait: no client waits
unwatched.

A client that sends no more may still read (a half-close). What has come whole is answered, then the connection is
closed; what has not is never begun. But a handler that watches takes it for the client's end, which it mostly is:
neither its request is answered nor what is behind it. In TLS it is the end for all, since nothing can be sent any more.

What cannot be parsed is answered (400, or 431 for a head that is too large) when everything before it is, and then the
connection is closed: where the next request would begin, is not known.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import cast

from forebay.api import response_bytes
from forebay.api.body_stream import DISCARDED_BYTES_MAX, HELD_BYTES_MAX, BodyStream
from forebay.api.connections import Connections
from forebay.api.exchange import Request, Response, StreamedResponse, refusal
from forebay.api.problems import Problem
from forebay.api.request_parser import RequestParser
from forebay.api.response_writer import ResponseWriter, dismiss

REQUESTS_IN_LINE_MAX = 8
"""Above this nothing more is read; what one read brought is taken all the same."""
WATCHED_HELD_BYTES_MAX = 1024 * 1024
WATCHED_REQUESTS_IN_LINE_MAX = 64
"""The same while a handler watches, all bodies in line together."""

_log = logging.getLogger("forebay.api")


class HttpProtocol(asyncio.Protocol):
    """`task` answers what is in line; while there is one, the first request in line is under way."""

    def __init__(self, connections: Connections) -> None:
        self.task: asyncio.Task[None] | None = None
        self._connections = connections
        self._line: deque[Request] = deque()
        self._parser = RequestParser(self._line, self._on_wanted, connections.heads)
        self._refusal: Problem | None = None
        self._is_deaf = False
        self._is_held_back = False
        self._is_half_closed = False
        self._quiet_since = connections.now
        self._unsent_bytes = 0
        self._address = ""
        self._held_bytes = 0
        """What lies here and no handler has taken, as it is counted in the server's memory."""

    # the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        self._writer = ResponseWriter(self._transport, self._connections)
        self._connections.add(self)
        if self._connections.is_stopping:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_deaf = True
        self._hold(0)
        self._writer.lose()
        for request in self._line:
            request.stream.lose()
        self._parser.forget()
        if self.task is None:
            self._connections.discard(self)

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        parser = self._parser
        if parser.is_progressing:
            self._quiet_since = self._connections.now
        try:
            parser.feed(data)
        except Problem as problem:
            self._refuse(problem)
        if self._line and self.task is None:
            self.task = self._connections.loop.create_task(self._serve())
        if parser.arriving is not None or len(self._line) > 1:
            self._count_held()
            self._hold_back()

    def eof_received(self) -> bool:
        """Whether the transport stays open for what is still to be answered."""
        if self._is_watched:
            self._line[0].stream.lose()  # at once: what is not sent yet may keep the connection for long
        elif self.task is not None and self._transport.can_write_eof():
            self._is_half_closed = True
            self._give_up_arriving()
        return self._is_half_closed

    # faults

    def _give_up_arriving(self) -> None:
        """The rest of it will never come. A request that has not begun is not begun."""
        broken = self._parser.arriving
        if broken is not None and self._line and self._line[-1].stream is broken:
            if self.task is not None and len(self._line) == 1:
                broken.lose()
            else:
                self._line.pop()

    def _refuse(self, problem: Problem) -> None:
        self._is_deaf = True
        self._refusal = problem
        self._give_up_arriving()
        if self.task is None and not self._line:
            self._send_refusal(problem)

    def _send_refusal(self, problem: Problem) -> None:
        if not self._transport.is_closing():
            self._writer.send(Request("GET", b""), refusal(problem), closes=True)
            self._close()

    # at whose pace

    def _on_wanted(self, stream: BodyStream) -> None:
        """A handler waits for the body that is arriving, or watches its client."""
        self._quiet_since = self._connections.now
        self._count_held()
        if self._parser.owes_continue and stream is self._parser.arriving:
            self._parser.owes_continue = False
            self._transport.write(response_bytes.CONTINUE)
        if self._is_half_closed:
            stream.lose()
        else:
            self._go_on_reading(in_any_case=self._keeps_watch())

    def _count_held(self) -> None:
        if not self._writer.is_lost:
            self._hold(sum([request.stream.held_bytes for request in self._line]))

    def _hold(self, size: int) -> None:
        self._connections.app.memory.unasked += size - self._held_bytes
        self._held_bytes = size

    @property
    def _is_watched(self) -> bool:
        return self.task is not None and self._line[0].stream.is_watched

    def _keeps_watch(self) -> bool:
        """Whether to read on because a handler watches. When too much has come behind it, it is to watch no longer."""
        if not self._is_watched:
            return False
        bytes_max = HELD_BYTES_MAX if self._connections.app.memory.is_full else WATCHED_HELD_BYTES_MAX
        if len(self._line) > WATCHED_REQUESTS_IN_LINE_MAX or self._held_bytes > bytes_max:
            self._line[0].stream.end_watch()
        return self._is_watched

    def _has_enough(self) -> bool:
        if len(self._line) > REQUESTS_IN_LINE_MAX or (self._held_bytes and self._connections.app.memory.is_full):
            return True
        arriving = self._parser.arriving
        return arriving is not None and arriving.held_bytes > HELD_BYTES_MAX

    def _hold_back(self) -> None:
        if self._transport.is_closing():
            return
        arriving = self._parser.arriving
        if self.task is None and arriving is not None and arriving.size > DISCARDED_BYTES_MAX:
            self._close()  # its request is answered already, and this is more than a sender in good faith would need
        elif not self._is_held_back and self._has_enough() and not self._keeps_watch():
            self._is_held_back = True
            self._transport.pause_reading()

    def _go_on_reading(self, *, in_any_case: bool = False) -> None:
        if self._is_held_back and not self._transport.is_closing() and (in_any_case or not self._has_enough()):
            self._is_held_back = False
            self._transport.resume_reading()

    # answers

    async def _serve(self) -> None:
        line, writer, app = self._line, self._writer, self._connections.app
        try:
            while line and not self._transport.is_closing():
                if writer.is_paused:
                    await writer.drained()
                request = line[0]
                request.address = self._address
                answer = await app.answer(request)
                if answer is None or writer.is_lost:
                    await dismiss(answer)
                    break
                closes = self._closes_after(request, answer)
                if isinstance(answer, Response):
                    writer.send(request, answer, closes=closes)
                    if writer.is_paused:
                        await writer.taken(app.memory)
                elif not await writer.stream(request, answer, closes=closes):
                    break
                line.popleft()
                if closes:
                    self._close()
                elif not request.stream.is_whole:
                    request.stream.discard()
                if self._held_bytes:
                    self._count_held()
                self._go_on_reading()
        except Exception:  # noqa: BLE001 - else it would be lost with its task, and the client would wait for ever
            _log.exception("BUG: a connection is cut off", extra={"action": "connection_bug"})
            self._transport.abort()
        finally:
            self._served()

    def _served(self) -> None:
        """The line is empty, or the rest of it will never be answered."""
        self.task = None
        self._quiet_since = self._connections.now
        if self._writer.is_lost:
            self._connections.discard(self)
        elif self._refusal is not None:
            self._send_refusal(self._refusal)
        elif self._is_half_closed:
            self._close()
        elif self._line and not self._transport.is_closing():
            self._transport.abort()

    def _closes_after(self, request: Request, answer: Response | StreamedResponse) -> bool:
        if not request.is_kept_alive or self._connections.is_stopping:
            return True
        # A client that was not sent `100 Continue` may send the body or not: what comes next cannot be known.
        if self._parser.owes_continue and not request.stream.is_whole:
            return True
        if isinstance(answer, StreamedResponse):
            return request.is_version_1_0
        return response_bytes.CLOSING in answer.headers

    def _close(self) -> None:
        self._is_deaf = True
        self._transport.close()

    # what `Connections` asks for

    def sweep(self, quiet_before: float) -> None:
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes = unsent_bytes
            self._quiet_since = self._connections.now
        if self._quiet_since > quiet_before or not self._waits_for_client():
            return
        if self.task is None and not self._transport.is_closing():
            self._close()
        else:
            self._transport.abort()

    def _waits_for_client(self) -> bool:
        arriving = self._parser.arriving
        return self.task is None or self._writer.is_paused or (arriving is not None and arriving.is_awaited)

    def stop(self) -> None:
        if self.task is None:
            self._close()

    def abort(self) -> None:
        self._transport.abort()
