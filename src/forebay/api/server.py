"""The server: a socket, connections behind it, and a stop that loses nothing.

Stopping, in order: say so on `/readyz`, and wait as long as balancers need to notice; accept no more; end long polls
with 204; let requests that are under way finish, up to a limit of time; close the store, which finishes its commits. A
client never sees a connection cut in the middle of an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

from forebay.api.app import App
from forebay.api.certificates import CertificateRefused, Certificates
from forebay.api.connections import Connections
from forebay.api.http_protocol import HttpProtocol
from forebay.api.keyring import FOLLOW_SECONDS
from forebay.api.service import Service
from forebay.errors import Permanent

BACKLOG = 2048
COLLECT_AFTER_OBJECTS = 50_000
"""How many more containers are made than freed before the garbage collector looks; Python's own default is 700."""

_log = logging.getLogger("forebay.api")


class AddressTaken(Permanent):
    """Something listens there already. Stop it, or take another port (`--port 0` finds a free one)."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where and how."""

    socket: socket.socket
    certificates: Certificates | None = None
    stop_seconds: float = 30.0
    delay_seconds: float = 0.0
    """From the signal to stop until the socket is closed."""

    @property
    def url(self) -> str:
        host, port = self.socket.getsockname()[:2]
        scheme = "https" if self.certificates else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def bound_socket(host: str, port: int) -> socket.socket:
    """Listen, or raise the OSError that says why not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _notice_vanished_hosts(listening)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


def _notice_vanished_hosts(listening: socket.socket) -> None:
    """A client whose machine or network is gone says no word, and would be popped for. Connections inherit this."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):  # not everywhere; then the system's own patience counts
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def serve(
    service: Service, listening: Listening, on_ready: Callable[[], None], on_hangup: Callable[[], None]
) -> None:
    """Serve until SIGTERM or SIGINT; the store is closed after the last request. SIGHUP calls `on_hangup`."""
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: (hurry if stop.is_set() else stop).set())
    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    connections = Connections(App(service))
    try:
        # Before the store is there: `/healthz` has to answer, and `/readyz` to tell how recovery goes.
        accepting = await loop.create_server(
            lambda: HttpProtocol(connections),
            sock=listening.socket,
            ssl=listening.certificates.context if listening.certificates else None,
            backlog=BACKLOG,
        )
        stopping = asyncio.create_task(stop.wait())
        starting = asyncio.create_task(service.start())
        following = asyncio.create_task(_follow_files(service, listening.certificates))
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not stop.is_set():
                await starting
                _collect_rarely()
                on_ready()
                _log.info("serving %s", listening.url, extra={"action": "started"})
                await stopping
            _log.info("stopping", extra={"action": "stopping"})
            service.announce_stop()
            await _delayed(hurry, listening.delay_seconds)
        finally:
            accepting.close()
            await _ended(starting, stopping, following)
            await service.stop()
            await connections.stop(listening.stop_seconds)
    finally:
        await service.close()
        listening.socket.close()
        _log.info("stopped", extra={"action": "stopped"})


async def _delayed(hurry: asyncio.Event, seconds: float) -> None:
    """A second signal ends the wait."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await hurry.wait()


async def _follow_files(service: Service, certificates: Certificates | None) -> None:
    """Keys and certificate, when their files change."""
    while True:
        await asyncio.sleep(FOLLOW_SECONDS)
        service.keyring.follow_here()
        if certificates is not None:
            follow_certificate(certificates)


def follow_certificate(certificates: Certificates) -> None:
    try:
        if certificates.reload_if_changed():
            _log.info("the certificate is read again", extra={"action": "certificate_read"})
    except CertificateRefused as refused:
        _log.error("the certificate in force stays so: %s", refused, extra={"action": "certificate_refused"})


async def _ended(*tasks: asyncio.Task[object]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _collect_rarely() -> None:
    """What a request leaves behind is freed by counting references; the collector finds nothing and costs a fifth.

    So it looks rarely, and never again at what was there before the first request. It stays on: a cycle that some
    library makes must not grow for ever.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS, 20, 50)
