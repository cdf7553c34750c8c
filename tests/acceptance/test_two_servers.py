"""Two servers on one PostgreSQL: what one is told, consumers of the other get, at once and exactly once."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fixtures import netless_serve
from fixtures.running_stores import Http, fresh, running, shared_postgres_database, until_waiting
from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer

__all__ = ["shared_postgres_database"]

SECONDS_MAX = 1.0
"""Half of the consumers are woken within this time, also beside other work. No look of their own helps them."""


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    first = running("postgres", request, tmp_path_factory.mktemp("first"))
    second = running("postgres", request, tmp_path_factory.mktemp("second"))
    with first, second:
        yield [first, second]


@pytest.fixture(scope="module")
def netless(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    """Both of them, and consumers there never look by themselves."""
    servers = [running("postgres", request, tmp_path_factory.mktemp(name)) for name in ("here", "there")]
    for server in servers:
        server.program = (sys.executable, str(Path(netless_serve.__file__)))
    with servers[0], servers[1]:
        yield servers


@pytest.fixture
def pair(netless: list[RunningServer]) -> Iterator[list[Http]]:
    connections = [Http(server.url) for server in netless]
    yield connections
    for connection in connections:
        connection.close()


def woken_after(here: Http, there: RunningServer, queue: str, what: object) -> float:
    """Seconds from what is done here to what a consumer that waits there gets."""
    consumer, watcher = Http(there.url), Http(there.url)
    try:
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(consumer.pop, queue, wait="true", timeout=30_000, autoAck="true")
            until_waiting(watcher, 1)
            began = time.monotonic()
            if isinstance(what, dict):
                here.ack(what)
            else:
                here.push(queue, what)
            (_,) = waiting.result(30)
            return time.monotonic() - began
    finally:
        consumer.close()
        watcher.close()


def test_push_to_one_server_wakes_who_waits_at_the_other(pair: list[Http], netless: list[RunningServer]) -> None:
    queue = fresh()
    woken_after(pair[0], netless[1], queue, "the first makes the queue")
    seconds = [woken_after(pair[0], netless[1], queue, n) for n in range(7)]
    assert statistics.median(seconds) < SECONDS_MAX, seconds


def test_ack_at_one_server_wakes_who_waits_for_the_rest_at_the_other(
    pair: list[Http], netless: list[RunningServer]
) -> None:
    seconds = []
    for _ in range(7):
        queue = fresh()
        pair[0].push(queue, 1, 2)
        (first,) = pair[0].pop(queue)
        seconds.append(woken_after(pair[0], netless[1], queue, first))
    assert statistics.median(seconds) < SECONDS_MAX, seconds


def test_every_message_is_delivered_exactly_once_per_group_over_both(both: list[RunningServer]) -> None:
    queue, partitions, each, groups = fresh(), 6, 40, ("billing", "search")
    total = partitions * each
    seen: dict[str, list[tuple[int, int]]] = {group: [] for group in groups}
    is_enough = threading.Event()

    def produce(number: int) -> None:
        with Http(both[number % 2].url) as http:
            for n in range(0, each, 4):
                http.push(queue, *[[number, n + k] for k in range(4)], partition=f"p{number}")

    def consume(number: int, group: str) -> None:
        with Http(both[number % 2].url) as http:
            while not is_enough.is_set():
                messages = http.pop(queue, batch=7, partitions=2, wait="true", timeout=300, consumerGroup=group)
                for message in messages:
                    seen[group].append(tuple(message["data"]))
                    assert http.ack(message)["success"] is True
                if all(len(got) >= total for got in seen.values()):
                    is_enough.set()

    timer = threading.Timer(60, is_enough.set)
    timer.start()
    with ThreadPoolExecutor(16) as pool:
        work = [pool.submit(consume, number, group) for number in range(4) for group in groups]
        work += [pool.submit(produce, number) for number in range(partitions)]
        for done in work:
            done.result(90)
    timer.cancel()
    for got in seen.values():
        assert Counter(got) == Counter((p, n) for p in range(partitions) for n in range(each))
        for partition in range(partitions):
            assert [n for p, n in got if p == partition] == list(range(each))


def test_maintenance_that_one_server_is_told_of_reaches_the_other(pair: list[Http]) -> None:
    here, there = pair
    queue = fresh()

    def is_set() -> list[bool]:
        state = there.get("/api/v1/system/maintenance").json
        return [state["maintenanceMode"], state["popMaintenanceMode"]]

    there.push(queue, 1)
    for switch, expected in (("", [True, False]), ("/pop", [True, True])):
        assert here.post(f"/system/maintenance{switch}", {"enabled": True}).status == 200
        wait_until(lambda expected=expected: is_set() == expected)  # type: ignore[misc]
    [buffered] = there.push(queue, 2)
    assert buffered["status"] == "buffered"
    assert there.pop(queue) == []
    for switch in ("", "/pop"):
        assert here.post(f"/system/maintenance{switch}", {"enabled": False}).status == 200
    wait_until(lambda: is_set() == [False, False])
    wait_until(lambda: there.get("/api/v1/status/buffers").json["pending"] == 0)
    assert [message["data"] for message in there.pop(queue, batch=9)] == [1, 2]
