"""The way out of a connection: answers as bytes, no faster than the client takes them."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncGenerator

from forebay.api import response_bytes
from forebay.api.connections import Connections
from forebay.api.exchange import Request, Response, StreamedResponse, refusal
from forebay.api.memory import Memory
from forebay.api.problems import Problem
from forebay.errors import ForebayError

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: the client's read fails, instead of ending."""

STREAMED_BYTES = 4 << 20
"""What is taken for an answer that is made while it is sent: the chunk that is sent, and the next one."""

_log = logging.getLogger("forebay.api")


class ResponseWriter:
    __slots__ = ("_connections", "_drained", "_transport", "_unsent_bytes", "held_since", "is_lost", "is_paused")

    def __init__(self, transport: asyncio.Transport, connections: Connections) -> None:
        self._transport = transport
        self._connections = connections
        self._drained: asyncio.Future[None] | None = None
        self.is_lost = False
        self.is_paused = False
        self.held_since = 0.0
        """When the client began to be waited for, in the event loop's time."""
        self._unsent_bytes = 0
        """Then."""

    # how fast

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def lose(self) -> None:
        """The client is gone."""
        self.is_lost = True
        self.resume()

    async def drained(self) -> None:
        """Return when the client has taken most of what was written, or has gone."""
        if self.is_paused:
            self._drained = self._connections.loop.create_future()
            await self._drained

    async def taken(self, memory: Memory) -> None:
        """The same. What lies here until then is counted, and a slow client may lose it."""
        size = self._transport.get_write_buffer_size()
        self._unsent_bytes, self.held_since = size, self._connections.loop.time()
        memory.take_now(size)
        memory.watch(self)
        try:
            await self.drained()
        finally:
            memory.unwatch(self)
            memory.give_back(size)

    @property
    def moved_bytes(self) -> int:
        return self._unsent_bytes - self._transport.get_write_buffer_size()

    def lose_room(self) -> None:
        _log.warning(
            "an answer is cut off: its client takes it slowly, and others wait for the memory that it holds",
            extra={"action": "answer_cut_off_slow"},
        )
        self._transport.abort()

    # what

    def send(self, request: Request, answer: Response, *, closes: bool) -> None:
        line = response_bytes.connection_line(closes=closes, is_version_1_0=request.is_version_1_0)
        written = response_bytes.whole(
            answer, self._connections.date, connection=line, is_head=request.method == "HEAD"
        )
        if len(written) == 1:
            self._transport.write(written[0])
        else:
            self._transport.writelines(written)

    async def stream(self, request: Request, answer: StreamedResponse, *, closes: bool) -> bool:
        """Send chunk by chunk, and stop when the client has gone. False when the answer is not whole.

        When a chunk cannot be made, the body is never ended and the connection is cut: the only way to tell a client
        that has seen a 200 already.
        """
        memory, taken_bytes = self._connections.app.memory, 0
        try:
            taken_bytes = await memory.take(STREAMED_BYTES)
            return await self._all_chunks(request, answer, closes=closes)
        except Problem as problem:  # nothing is sent yet
            self.send(request, refusal(problem), closes=closes)
            return True
        except Exception as error:  # noqa: BLE001 - whatever it is, the client has to see that the answer is not whole
            _log.warning(
                "%s: cut off: %s",
                request,
                error,
                exc_info=not isinstance(error, ForebayError),
                extra={"action": "answer_cut_off"},
            )
            self._cut(request)
            return False
        finally:
            memory.give_back(taken_bytes)
            await dismiss(answer)

    async def _all_chunks(self, request: Request, answer: StreamedResponse, *, closes: bool) -> bool:
        is_chunked = not request.is_version_1_0
        line = response_bytes.connection_line(closes=closes, is_version_1_0=request.is_version_1_0)
        # The head leaves with the first chunk.
        unsent = response_bytes.streamed_head(
            answer.status, answer.content_type, self._connections.date, connection=line, is_chunked=is_chunked
        )
        if request.method == "HEAD":
            self._transport.write(unsent)
            return True
        async for chunk in answer.chunks:
            if self.is_lost:
                return False
            if chunk:  # an empty one would end the body
                framed = (unsent + b"%x\r\n" % len(chunk), chunk, b"\r\n") if is_chunked else (unsent, chunk)
                self._transport.writelines(framed)
                unsent = b""
            if self.is_paused:
                await self.taken(self._connections.app.memory)
        if self.is_lost:
            return False
        self._transport.write(unsent + response_bytes.LAST_CHUNK if is_chunked else unsent)
        return True

    def _cut(self, request: Request) -> None:
        if request.is_version_1_0 and not self.is_lost:
            # There the end of the connection is the end of the answer, so it has to end badly.
            own_socket = self._transport.get_extra_info("socket")
            own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._transport.abort()
        else:
            self._transport.close()


async def dismiss(answer: Response | StreamedResponse | None) -> None:
    """Let go of what an answer would be made from."""
    if isinstance(answer, StreamedResponse) and isinstance(answer.chunks, AsyncGenerator):
        await answer.chunks.aclose()
