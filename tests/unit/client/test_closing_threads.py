"""Close, without an event loop: calls of other threads end, the client's own thread too, and a fork hangs nobody."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from forebay.client import Client, ClientClosed, Message
from unit.client.hand_made_server import DELIVERY

Call = Callable[[Client], object]


class Calling(threading.Thread):
    """A call in a thread of its own, and how it ended."""

    def __init__(self, client: Client, call: Call) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._call = call
        self.outcome: object = None

    def run(self) -> None:
        try:
            self.outcome = self._call(self._client)
        except Exception as error:  # noqa: BLE001 -- the test looks at it
            self.outcome = error

    def assert_closed(self) -> None:
        self.join(5)
        assert not self.is_alive(), "the call hangs"
        assert isinstance(self.outcome, ClientClosed)


@contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        yield listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def accepted(listener: socket.socket) -> socket.socket:
    """The connection whose request has begun to come."""
    connection, _ = listener.accept()
    connection.settimeout(10)
    assert connection.recv(65536)
    return connection


CALLS: dict[str, Call] = {
    "pop": lambda client: client.pop("q", wait=True),
    "push": lambda client: client.push("q", 1),
    "consume": lambda client: client.consume("q", print),
    "commit": lambda client: client.transaction().push("q", 1).commit(),
    "iter_arrow": lambda client: list(client.iter_arrow("q")),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_that_waits_for_its_answer_ends_with_the_client(name: str) -> None:
    with listening() as (listener, url):
        client = Client(url)
        calling = Calling(client, CALLS[name])
        calling.start()
        with accepted(listener):
            client.close()
            calling.assert_closed()
        assert not client._thread.is_alive()


def test_call_that_pauses_before_its_next_try_ends_with_the_client() -> None:
    with listening() as (listener, url):
        client = Client(url, first_pause_seconds=600)
        calling = Calling(client, CALLS["push"])
        calling.start()
        accepted(listener).close()
        client.close()
        calling.assert_closed()


def test_consume_does_not_wait_for_its_handler_when_the_client_is_closed() -> None:
    handling, released = threading.Event(), threading.Event()

    def handler(message: Message) -> None:
        handling.set()
        released.wait(20)

    with listening() as (listener, url):
        client = Client(url)
        calling = Calling(client, lambda client: client.consume("q", handler))
        calling.start()
        with accepted(listener) as connection:
            connection.sendall(DELIVERY)
            assert handling.wait(10)
            client.close()
            calling.assert_closed()
            released.set()
            assert connection.recv(65536) == b"", "nothing is sent behind the close"


def test_handler_may_close_its_client() -> None:
    with listening() as (listener, url):
        client = Client(url)
        calling = Calling(client, lambda client: client.consume("q", lambda message: client.close()))
        calling.start()
        with accepted(listener) as connection:
            connection.sendall(DELIVERY)
            calling.assert_closed()
        client._thread.join(5)
        assert not client._thread.is_alive()


def test_call_on_a_closed_client_is_refused_without_a_warning() -> None:
    client = Client("http://127.0.0.1:9")
    client.close()
    client.close()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for call in CALLS.values():
            with pytest.raises(ClientClosed, match="the client is closed"):
                call(client)
        gc.collect()
    assert [str(warning.message) for warning in told] == []


def test_client_that_cannot_be_made_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="no server's URL"):
        Client("nonsense")
    assert threading.active_count() == before


FORKING = """
import asyncio, os, signal
from forebay.client import AsyncClient, Client, ClientClosed

client, other = Client("http://127.0.0.1:9", attempts=1), AsyncClient("http://127.0.0.1:9", attempts=1)
child = os.fork()
if child == 0:
    signal.alarm(10)
    for call in (lambda: client.push("q", 1), lambda: asyncio.run(other.push("q", 1))):
        try:
            call()
        except ClientClosed as error:
            print(error, flush=True)
    client.close()
    asyncio.run(other.close())
    os._exit(0)
status = os.waitpid(child, 0)[1]
client.close()
print(status)
"""


def test_call_in_a_forked_child_says_whose_the_client_is() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING], capture_output=True, text=True, check=True, timeout=60
    )
    first, second, status = done.stdout.splitlines()
    assert first == second
    assert first.startswith("the client was made in another process (")
    assert status == "0"
