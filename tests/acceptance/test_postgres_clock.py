"""Somebody sets the clock of the database by an hour under a running server: nothing is lost or kept for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from fixtures.running_stores import Http, fresh
from forebay.testing.running_server import RunningServer

OPTIONS: dict[str, dict[str, int]] = {
    "leased": {"leaseTime": 60},
    "failed": {"retryDelay": 60_000},
    "rest": {"leaseTime": 60, "retryDelay": 60_000},
    "delayed": {"delayedProcessing": 60},
    "windowed": {"windowBuffer": 60},
}


@pytest.fixture
def server(postgres_database: str, tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path / "forebay-data", store=postgres_database) as running_server:
        yield running_server


def set_clock(url: str, seconds: int) -> None:
    """The one clock that all servers on this database go by."""
    text = (
        "CREATE OR REPLACE FUNCTION forebay.now_us() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS "
        f"'SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint + ({seconds * 1_000_000})'"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(text.encode())


def within_seconds(http: Http, queue: str, count: int) -> list[dict[str, object]]:
    """That many messages, long before any lease, retry or delay of these queues would end by itself."""
    deadline = time.monotonic() + 20
    found: list[dict[str, object]] = []
    while len(found) < count and time.monotonic() < deadline:
        found += http.pop(queue, batch=9, wait="true", timeout=1_000)
    return found


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_clock_of_the_database_is_set_and_nothing_is_lost_or_kept(
    server: RunningServer, postgres_database: str, seconds: int
) -> None:
    http = Http(server.url)
    queues = {kind: fresh(kind) for kind in OPTIONS}
    for kind, queue in queues.items():
        http.post("/configure", {"queue": queue, "options": OPTIONS[kind]})
        http.push(queue, 1, 2)
    held = http.pop(queues["leased"], batch=2)
    for message in http.pop(queues["failed"], batch=2):
        assert http.ack(message, "failed")["success"] is True
    assert http.ack(http.pop(queues["rest"], batch=2)[0], "failed")["success"] is True
    for queue in queues.values():
        assert http.pop(queue, batch=2) == []
    set_clock(postgres_database, seconds)
    attempts = {}
    for kind, queue in queues.items():
        messages = within_seconds(http, queue, 2)
        assert [message["data"] for message in messages] == [1, 2], kind
        attempts[kind] = [message["attempts"] for message in messages]
        if kind == "leased":
            assert http.ack(held[0])["success"] is False
        assert [http.ack(message)["success"] for message in messages] == [True, True]
    assert attempts == {
        "leased": [2, 2],
        "failed": [2, 2],
        "rest": [2, 1],
        "delayed": [1, 1],
        "windowed": [1, 1],
    }
    set_clock(postgres_database, 0)
    (_,) = http.push(queues["leased"], 3)
    assert [message["data"] for message in within_seconds(http, queues["leased"], 1)] == [3]
    lags = {group["queueName"]: group for group in http.get("/api/v1/consumer-groups").json}
    assert set(queues.values()) <= set(lags)
    http.close()
