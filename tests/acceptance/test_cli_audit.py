"""`forebay audit` beside real servers: balanced whatever clients do, and not when storage is changed behind them."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from acceptance.test_http_dispatch import Flow
from fixtures.running_stores import Http
from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PostgresServer

PATIENT = ("--buffer-store-timeout", "60s")


@pytest.fixture(params=["embedded", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningServer]:
    is_postgres = request.param == "postgres"
    store = request.getfixturevalue("postgres_database") if is_postgres else "embedded"
    with RunningServer(tmp_path / "data", store=store, arguments=PATIENT) as running:
        yield running


def audit(server: RunningServer, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", "audit", "--url", server.url, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def audited(server: RunningServer, *, code: int = 0) -> dict[str, Any]:
    """The JSON, with queues by name."""
    done = audit(server, "-o", "json")
    assert done.returncode == code, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return {**told, "queues": {one["queue"]: one for one in told["queues"]}}


def test_every_message_is_accounted_for(server: RunningServer) -> None:
    http = Http(server.url)
    pushed = [http.push("orders", n, partition=f"p{n % 3}")[0] for n in range(60)]
    http.push("quiet", *range(5))
    for message in http.pop("orders", batch=10, partitions=3, consumerGroup="billing"):
        assert http.ack(message)["success"]
    dead = http.pop("orders", batch=1, consumerGroup="billing")
    assert http.ack(dead[0], "dlq", error="broken")["success"]
    leased = http.pop("orders", batch=4, partitions=3, consumerGroup="billing")
    gone = pushed[-1]
    assert http.send("DELETE", f"/api/v1/messages/{gone['partitionId']}/{gone['transactionId']}").json["success"]
    waiting = [{"queue": "orders", "payload": n} for n in range(7)]
    assert http.post("/push", {"items": waiting, "bufferMs": 3_600_000, "bufferMax": 1000}).status == 201
    told = audited(server)
    assert (told["balanced"], told["notes"]) == (True, [])
    orders = told["queues"]["orders"]
    assert (orders["accepted"], orders["buffered"], orders["stored"], orders["removed"]) == (67, 7, 59, 1)
    assert (orders["dead"], orders["exact"], orders["differences"]) == (1, True, [])
    (group,) = orders["groups"]
    assert (group["group"], group["leased"], group["dead"]) == ("billing", len(leased), 1)
    assert group["waiting"] == 59 - 10 - 1 - len(leased)
    assert orders["accepted"] == orders["buffered"] + sum(group[n] for n in ("done", "waiting", "leased", "dead"))
    assert (told["queues"]["quiet"]["stored"], told["queues"]["quiet"]["groups"]) == (5, [])
    table = audit(server)
    assert table.returncode == 0
    assert table.stdout.splitlines()[-1] == "balanced: 64 messages counted in 2 queues"
    assert audit(server, "--queue", "quiet").stdout.splitlines()[-1] == "balanced: 5 messages counted in 1 queues"
    missing = audit(server, "--queue", "nowhere")
    assert (missing.returncode, "there is no queue 'nowhere'" in missing.stderr) == (1, True)
    http.close()


def test_audit_is_balanced_while_clients_push_and_pop(server: RunningServer) -> None:
    stop = threading.Event()
    pushed = 0
    http = Http(server.url)
    http.push("busy", 0)

    def work() -> None:
        nonlocal pushed
        while not stop.is_set():
            http.push("busy", *range(20), partition="a")
            pushed += 20
            http.pop("busy", batch=10, consumerGroup="fast", autoAck="true")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(2):
            told = audited(server)
            assert (told["balanced"], told["queues"]["busy"]["differences"]) == (True, [])
    finally:
        stop.set()
        thread.join()
        http.close()
    told = audited(server)
    assert (told["queues"]["busy"]["exact"], told["queues"]["busy"]["stored"]) == (True, pushed + 1)


def test_audit_says_that_the_store_is_away_and_is_balanced_when_the_buffer_is_drained(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with RunningServer(tmp_path / "data", store=postgres_server.url) as server:
        http = Http(server.url)
        http.push("tasks", *range(10))
        postgres_server.stop("fast")
        for n in range(10, 30):
            assert http.push("tasks", n)[0]["status"] == "buffered"
        away = audit(server)
        assert (away.returncode, "PostgreSQL does not answer" in away.stderr) == (1, True)
        assert "Traceback" not in away.stderr
        postgres_server.start()
        wait_until(lambda: http.get("/api/v1/status/buffers").json["pending"] == 0)
        tasks = audited(server)["queues"]["tasks"]
        assert (tasks["accepted"], tasks["stored"], tasks["buffered"], tasks["exact"]) == (30, 30, 0, True)
        http.close()


def lose_one_row(server: RunningServer) -> None:
    """A message goes, and no counter knows of it."""
    with psycopg.connect(server.store, autocommit=True) as connection:
        deleted = connection.execute(
            "DELETE FROM forebay.messages WHERE seq = 4 AND queue_id = "
            "(SELECT queue_id FROM forebay.queues WHERE name = 'orders')"
        )
        assert deleted.rowcount == 1


def count_one_more(server: RunningServer) -> None:
    """A counter knows of a message that is not there."""
    server.stop()
    with closing(sqlite3.connect(server.data_dir / "store.sqlite")) as connection, connection:
        changed = connection.execute(
            "UPDATE partitions SET pushed = pushed + 1 WHERE name = 'p1' AND queue_id = "
            "(SELECT id FROM queues WHERE name = 'orders')"
        )
        assert changed.rowcount == 1
    server.start()


def test_storage_changed_behind_the_server_is_not_balanced(server: RunningServer) -> None:
    http = Http(server.url)
    for n in range(10):
        http.push("orders", n, partition=f"p{n % 2}")
    http.push("other", 1)
    http.close()
    assert audited(server)["balanced"] is True
    is_embedded = server.store == "embedded"
    (count_one_more if is_embedded else lose_one_row)(server)
    told = audited(server, code=1)
    assert told["balanced"] is False
    stored, counted, held = (10, 11, (5, 6)) if is_embedded else (9, 10, (4, 5))
    assert told["queues"]["orders"]["differences"] == [
        f"{stored} messages are stored; the server counts {counted}",
        f"partition 'p1': {held[0]} messages are stored; the server counts {held[1]}",
    ]
    assert told["queues"]["other"]["differences"] == []
    table = audit(server)
    assert (table.returncode, "difference: queue 'orders': " in table.stdout) == (1, True)
    assert table.stdout.splitlines()[-1].startswith("NOT balanced: ")


def parcels_of(http: Http) -> Flow:
    """Parcels of a flow: three that wait, one that is leased, one in ERROR, one that is over."""
    flow = Flow(http)
    flow.push(60)
    wait_until(lambda: flow.show()["nextSeq"] == 61)
    flow.complete(flow.lease(parcels=1))
    flow.complete(flow.lease(parcels=1), "ERROR", error="broken")
    flow.lease(parcels=1)
    return flow


def stage(told: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [one for one in told["stages"] if one["name"] == name]
    return dict(found)


def test_parcels_are_recounted_one_by_one(server: RunningServer) -> None:
    http = Http(server.url)
    flow = parcels_of(http)
    told = audited(server)
    found = stage(told, flow.name)
    assert (told["balanced"], found["stage"], found["exact"], found["differences"]) == (True, "flow", True, [])
    parts = found["parts"]
    assert (parts["error"], parts["leased"], parts.get("queued", 0) + parts.get("cold", 0)) == (1, 1, 3)
    assert found["accepted"] == 5
    account = next(one for one in http.get("/api/v1/ledger").json["accounts"] if one["name"] == flow.name)
    assert {part: count for part, count in account["parts"].items() if count} == parts
    assert f"{flow.name}" in audit(server).stdout
    http.close()


def test_a_counter_of_parcels_that_is_wrong_is_a_difference(server: RunningServer) -> None:
    http = Http(server.url)
    flow = parcels_of(http)
    server.stop()
    change = "UPDATE {} SET queued = queued + 1 WHERE flow = '" + flow.name + "'"
    if server.store == "embedded":
        with closing(sqlite3.connect(server.data_dir / "store.sqlite")) as connection, connection:
            assert connection.execute(change.format("action_queues")).rowcount == 1
    else:
        with psycopg.connect(server.store, autocommit=True) as database:
            assert database.execute(change.format("forebay.action_queues").encode()).rowcount == 1
    server.start()
    told = audited(server, code=1)
    assert told["balanced"] is False
    [difference] = stage(told, flow.name)["differences"]
    assert "; the server counts " in difference
    assert f"difference: flow '{flow.name}': " in audit(server).stdout
    http.close()


def test_parcels_of_a_queue_that_was_made_again_are_not_taken_for_those_of_the_new_one(server: RunningServer) -> None:
    http = Http(server.url)
    flow = parcels_of(http)
    assert http.send("DELETE", f"/api/v1/resources/queues/{flow.queue}").status == 200
    assert audited(server)["balanced"] is True
    flow.push(30)
    wait_until(lambda: flow.show()["state"] == "STOPPED")
    assert "was deleted and made again" in flow.show()["reason"]
    assert http.post(f"/dispatch/flows/{flow.name}/resume", {}).status == 200
    wait_until(lambda: flow.show()["nextSeq"] == 31)
    assert stage(audited(server), flow.name)["differences"] == []
    http.close()


def test_message_that_is_in_no_parcel_is_a_difference(server: RunningServer) -> None:
    http = Http(server.url)
    flow = parcels_of(http)
    lost = next(one for one in http.get(f"/api/v1/parcels?flow={flow.name}&state=IN_FLIGHT").json["parcels"])
    server.stop()
    change = f"DELETE FROM {{}} WHERE did = '{lost['did']}'"
    if server.store == "embedded":
        with closing(sqlite3.connect(server.data_dir / "store.sqlite")) as connection, connection:
            for table in ("parcel_flows", "parcels"):
                connection.execute(change.format(table))
    else:
        with psycopg.connect(server.store, autocommit=True) as database:
            for table in ("forebay.parcel_flows", "forebay.parcels"):
                database.execute(change.format(table).encode())
    server.start()
    told = audited(server, code=1)
    assert stage(told, flow.name)["differences"] == [
        f"10 messages of queue '{flow.queue}', {lost['firstSeq']} to {lost['lastSeq']}, are in no parcel"
    ]
    http.close()
