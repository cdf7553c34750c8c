"""An answer in one write.

uvicorn writes the head of an answer and its body one after the other, and every write is a call of the kernel, which
on a loopback or a fast network costs more than all the rest of a small answer. Here the head waits for its body.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = b"HTTP/1."
_INTERIM = b"HTTP/1.1 1"
"""Answers such as 100 Continue stand alone: who gets them sends more before the real one."""


class _Joining:
    """A transport that holds back the head of an answer until the next write."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data[:7] == _HEAD and data[:10] != _INTERIM:
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        """What was held back is all there is to say."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._joining = _Joining(transport)
        super().connection_made(self._joining)  # type: ignore[arg-type]  # it has all that uvicorn calls

    def on_response_complete(self) -> None:
        """The answer to a HEAD has no body that its head could wait for."""
        self._joining.flush()
        super().on_response_complete()
