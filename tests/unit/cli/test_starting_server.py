"""Which process is a server that is about to listen on a port."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from forebay.cli.starting_server import DEFAULT_PORT, may_serve, starting_server, wait_while_starting


@pytest.mark.parametrize(
    ("words", "port", "expected"),
    [
        ("", DEFAULT_PORT, True),
        ("", 7000, False),
        ("--port 7000", 7000, True),
        ("--port 7000", DEFAULT_PORT, False),
        ("-server-port=7000", 7000, True),
        ("--server-port=7000 -c forebay.yaml", 7001, False),
        ("-c forebay.yaml", 7000, True),
        ("--data-dir port", 7000, False),
    ],
)
def test_server_is_taken_for_one_of_the_port_that_it_was_told(words: str, port: int, expected: bool) -> None:
    assert may_serve(words.split(), port) is expected


def process(*words: str) -> subprocess.Popen[bytes]:
    """One that looks like a command of ours, and ends with its standard input."""
    return subprocess.Popen([sys.executable, "-c", "input()", *words], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.fixture
def port() -> int:
    return 1  # of nobody


@pytest.fixture
def starting(port: int) -> Iterator[subprocess.Popen[bytes]]:
    with process("forebay", "serve", "--port", str(port)) as running:
        yield running


def test_server_that_does_not_listen_yet_is_found(starting: subprocess.Popen[bytes], port: int) -> None:
    assert starting_server(port) == starting.pid
    assert starting_server(port + 1) is None


def test_other_commands_are_no_servers(port: int) -> None:
    with process("forebay", "pop", "serve", "--port", str(port)), process("serve", "--port", str(port)):
        assert starting_server(port) is None


def test_nothing_is_waited_for_where_no_server_is_starting(port: int) -> None:
    for url in (
        f"http://127.0.0.1:{port}",
        f"http://localhost:{port}/x",
        "http://elsewhere.invalid",
        "no url",
        "http://[",
    ):
        wait_while_starting(url)


def test_wait_ends_with_the_process(starting: subprocess.Popen[bytes], port: int) -> None:
    assert starting.stdin is not None
    starting.stdin.close()
    wait_while_starting(f"http://127.0.0.1:{port}")
    assert starting.wait(10) != 0
