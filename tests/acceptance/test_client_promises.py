"""What the Python client promises of data, large batches, order, several servers, and of a server that is not there."""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from fixtures.running_stores import any_server, fresh, shared_postgres_database
from fixtures.served_app import tls_contexts
from forebay.client import (
    AsyncClient,
    Client,
    DispatchWorker,
    Message,
    ParcelLease,
    ParcelWork,
    Refused,
    SyncDispatchWorker,
    Unreachable,
)
from forebay.client import outgoing as going_out
from forebay.testing.running_server import RunningServer

__all__ = ["any_server", "shared_postgres_database"]

BYTES = bytes(range(256))


@pytest.fixture
def client(any_server: RunningServer) -> Iterator[Client]:
    with Client(any_server.url) as made:
        yield made


def dead_url() -> str:
    """Of a port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_bytes_come_back_as_bytes(client: Client) -> None:
    queue = fresh()
    client.push(queue, BYTES)
    client.push_many(queue, [b"", {"a": 1}, bytearray(b"x"), None])
    client.transaction().push(queue, b"\xff", 1).commit()
    popped = client.pop(queue, batch=9)
    assert [message.data for message in popped] == [BYTES, b"", {"a": 1}, b"x", None, b"\xff", 1]
    assert [message.is_binary for message in popped] == [True, True, False, True, False, True, False]
    assert client.ack(popped)
    client.push(queue, b"buffered", buffer_ms=1)
    assert [message.data for message in client.pop(queue, wait=True)] == [b"buffered"]


def test_bytes_survive_a_dead_letter_and_its_replay(client: Client) -> None:
    queue = fresh()
    client.push(queue, BYTES)
    client.ack(client.pop(queue), "dlq")
    assert client.replay_dead_letters(queue) == 1
    (message,) = client.pop(queue)
    assert message.data == BYTES


def test_decimals_keep_their_digits(client: Client) -> None:
    queue, price = fresh(), Decimal("0.1000000000000000000000000000001")
    client.push(queue, {"price": price})
    (message,) = client.pop(queue)
    assert message.raw == b'{"price":0.1000000000000000000000000000001}'
    assert message.data_as(dict[str, Decimal]) == {"price": price}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_has_not_are_refused_and_nothing_is_pushed(client: Client, number: float) -> None:
    queue = fresh()
    pushes: list[Callable[[], object]] = [
        lambda: client.push(queue, number),
        lambda: client.push(queue, {"deep": [{"n": number, "none": None}]}),
        lambda: client.push_many(queue, [1, None, {"n": number}]),
        lambda: client.transaction().push(queue, {"n": number}),
    ]
    for push in pushes:
        with pytest.raises(ValueError, match="NaN or infinity"):
            push()
    with pytest.raises(Refused):
        client.push(queue, Decimal("NaN"))
    client.push(queue, {"none": None})
    assert [message.data for message in client.pop(queue, batch=9)] == [{"none": None}]


def test_more_than_a_request_holds_goes_in_several_and_in_order(client: Client) -> None:
    queue = fresh()
    pushed = client.push_many(queue, range(25_000))
    assert [one.seq for one in pushed] == list(range(1, 25_001))
    popped = client.pop(queue, batch=10_000)
    assert [message.data for message in popped] == list(range(10_000))


def test_large_batch_is_cut_by_its_bytes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(going_out, "REQUEST_BYTES_MAX", 1 << 20)
    queue, large = fresh(), "x" * 300_000
    pushed = client.push_many(queue, [large] * 10)
    assert [one.seq for one in pushed] == list(range(1, 11))


def test_server_that_takes_less_in_a_request_gets_it_in_smaller_ones(tmp_path: Path) -> None:
    small = RunningServer(tmp_path / "data", arguments=["--server-body-size", "100KiB"])
    with small as server, Client(server.url) as client:
        assert len(client.push_many("q", ["x" * 30_000] * 10)) == 10
        with pytest.raises(Refused):
            client.push_many("q", ["x" * 200_000])


def test_ids_of_a_batch_make_it_safe_to_push_again(client: Client) -> None:
    queue, ids = fresh(), [f"order-{n}" for n in range(5)]
    assert [one.status for one in client.push_many(queue, range(5), transaction_ids=ids)] == ["queued"] * 5
    assert [one.status for one in client.push_many(queue, range(5), transaction_ids=ids)] == ["duplicate"] * 5
    with pytest.raises(ValueError, match="5 messages and 4 transaction ids"):
        client.push_many(queue, range(5), transaction_ids=ids[1:])


def test_consume_keeps_the_order_of_a_partition_when_a_message_fails(client: Client) -> None:
    queue = fresh()
    client.configure(queue, {"retryDelay": 0})
    for partition in ("a", "b"):
        client.push_many(f"{queue}/{partition}", [f"{partition}{n}" for n in range(5)])
    seen: list[str] = []

    def handle(message: Message) -> None:
        seen.append(message.data)
        if message.data == "a1" and seen.count("a1") == 1:
            raise RuntimeError("not yet")

    client.consume(f"{queue}@g", handle, batch=10, partitions=2, wait=False)
    own = {name: [text for text in seen if text.startswith(name)] for name in ("a", "b")}
    assert own == {"a": ["a0", "a1", "a1", "a2", "a3", "a4"], "b": ["b0", "b1", "b2", "b3", "b4"]}
    assert client.dead_letters(queue) == []


def test_second_server_of_a_list_is_asked_when_the_first_is_away(any_server: RunningServer) -> None:
    queue = fresh()
    with Client([dead_url(), any_server.url]) as client:
        assert client.push(queue, 1).status == "queued"

    async def run() -> None:
        async with AsyncClient([dead_url(), any_server.url], first_pause_seconds=0.01) as other:
            assert [message.data for message in await other.pop(queue)] == [1]

    asyncio.run(run())


def test_queues_groups_and_dead_letters_are_methods(client: Client) -> None:
    queue = fresh()
    client.configure(queue, {"leaseTime": 7})
    client.push_many(queue, [1, 2, 3])
    (popped,) = client.pop(f"{queue}@g")
    client.ack(popped, "dlq", error="poison")
    assert [found["name"] for found in client.queues(search=queue)] == [queue]
    assert [group["totalLag"] for group in client.groups() if group["queueName"] == queue] == [2]
    assert [letter["errorMessage"] for letter in client.dead_letters(queue, group="g")] == ["poison"]
    assert client.replay_dead_letters(queue, group="other") == 0
    assert client.purge_dead_letters(queue) == 1
    assert [message["data"] for message in client.read(queue, limit=2)] == [1, 2]
    assert client.clear_queue(queue) == 3
    assert client.delete_queue(queue) is True
    assert client.delete_queue(queue) is False


def test_no_server_is_said_with_a_remedy() -> None:
    url = dead_url()
    with Client(url, attempts=2, first_pause_seconds=0.01) as client, pytest.raises(Unreachable) as raised:
        client.push("q", 1)
    assert raised.value.remedy == f"Start one with `forebay serve`, or name another; tried: {url}"


def test_https_server_is_checked_by_the_certificates_that_are_named(tmp_path: Path) -> None:
    tls_contexts(tmp_path)  # leaves key and certificate in one file
    file = str(tmp_path / "certificate.pem")
    words = ["--server-certificate", file, "--server-certificate-key", file]
    with RunningServer(tmp_path / "data", store="memory://", arguments=words) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        with Client(url, ca_file=file) as client:
            assert client.push("q", 1).status == "queued"
        with Client(url, attempts=1) as client, pytest.raises(Unreachable, match="certificate"):
            client.push("q", 1)
        command = [sys.executable, "-m", "forebay", "pop", "q", "--url", url]
        done = subprocess.run(
            command,
            env={**os.environ, "FOREBAY_CA_FILE": file},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_certificates_that_are_no_file_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"ca_file 'nowhere.pem' is no file"):
        Client("https://127.0.0.1", ca_file="nowhere.pem")


@pytest.mark.parametrize("kind", [AsyncClient, Client, DispatchWorker, SyncDispatchWorker, ParcelWork, ParcelLease])
def test_every_public_method_says_what_it_does_with_an_example(kind: type) -> None:
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_"):
            continue
        assert "Example: `" in (method.__doc__ or ""), f"{kind.__name__}.{name}"
        named = inspect.signature(method).parameters.values()
        assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in named), f"{kind.__name__}.{name}"


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {n: list(inspect.signature(m).parameters) for n, m in found if not n.startswith("_")}

    assert methods(AsyncClient) == methods(Client)
