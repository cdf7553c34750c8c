"""`forebay tail`: the last messages of any queue and of any partition, and those that follow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from fixtures.running_stores import module_server as server
from forebay.client import Address, Client
from forebay.testing.running_server import RunningServer

__all__ = ["server"]


def command(server: RunningServer, *words: str) -> list[str]:
    return [sys.executable, "-m", "forebay", "tail", *words, "-o", "json", "--url", server.url]


def tail(server: RunningServer, *words: str) -> list[object]:
    done = subprocess.run(command(server, *words), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["data"] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", ["my queue", "f\u00fcllung", "a#b", "50%25", "what?"])
def test_queue_of_any_name_is_shown(server: RunningServer, client: Client, name: str) -> None:
    client.push(Address(name), name)
    client.push_many("a", ["another queue"] * 30)
    assert tail(server, name) == [name]


def test_last_messages_of_a_partition_are_found_behind_those_of_others(server: RunningServer, client: Client) -> None:
    for start in range(0, 20, 4):
        client.push_many("busy/rare", range(start, start + 4))
        client.push_many("busy/other", ["noise"] * 500)
    assert tail(server, "busy/rare") == list(range(10, 20))
    assert tail(server, "busy/rare", "-n", "1") == [19]
    assert tail(server, "busy/rare", "-n", "5") == list(range(15, 20))
    assert tail(server, "busy/rare", "-n", "100") == list(range(20))
    assert tail(server, "busy/rare", "-n", "0") == []
    assert tail(server, "busy/nobody") == []


def test_deleted_messages_are_not_among_the_last(server: RunningServer, client: Client) -> None:
    client.push_many("thinned", range(6))
    found = client.pop("thinned", batch=6)
    for message in found[3:]:
        path = f"{server.url}/api/v1/messages/{message.partition_id}/{message.transaction_id}"
        subprocess.run(["curl", "-sf", "-X", "DELETE", path], check=True, capture_output=True, timeout=30)
    assert tail(server, "thinned", "-n", "2") == [1, 2]


def test_partition_is_followed_without_gaps_or_repeats(server: RunningServer, client: Client) -> None:
    client.push_many("followed/mine", range(3))
    client.push_many("followed/other", ["noise"] * 50)
    words = command(server, "followed/mine", "-n", "2", "-f")
    with subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        assert process.stdout is not None
        timer = threading.Timer(30, process.terminate)
        timer.start()
        seen = [process.stdout.readline() for _ in range(2)]
        for start in range(3, 12, 3):
            client.push_many("followed/mine", range(start, start + 3))
            client.push_many("followed/other", ["noise"] * 50)
            seen += [process.stdout.readline() for _ in range(3)]
        timer.cancel()
        process.terminate()
        rest = process.stdout.read()
    assert [json.loads(line)["data"] for line in seen if line] == list(range(1, 12))
    assert rest == b""
