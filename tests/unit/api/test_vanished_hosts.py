"""A client whose machine is gone says no word, so the kernel has to ask."""

from __future__ import annotations

import asyncio
import socket

from fixtures.served_app import Scripted, echo, on_uvloop
from fixtures.waiting import until
from forebay.api.connections import Connections
from forebay.api.http_protocol import HttpProtocol
from forebay.api.server import bound_socket


@on_uvloop
async def test_kernel_asks_quiet_clients_whether_they_are_there() -> None:
    listening = bound_socket("127.0.0.1", 0)
    made: list[socket.socket] = []

    class Noted(HttpProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport.get_extra_info("socket"))
            super().connection_made(transport)

    connections = Connections(Scripted(echo))
    server = await asyncio.get_running_loop().create_server(lambda: Noted(connections), sock=listening)
    _, writer = await asyncio.open_connection(*listening.getsockname())
    await until(lambda: made)
    assert made[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert made[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
    writer.close()
    server.close()
    await connections.stop(0.5)
