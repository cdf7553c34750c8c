"""A server with a damaged record: it starts, serves all else, and says exactly what is lost. So after salvage."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fixtures.command_line import typed
from fixtures.running_stores import Http
from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer

PLACES = [0, 8, 40, 70, -1]
"""Bytes of the second record that are broken: its length, its seq, its body, its payload, its CRC."""


def forebay(*words: str | Path, code: int = 0) -> Any:
    done = typed(*words, "-o", "json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def segment(server: RunningServer) -> Path:
    [path] = [path for path in (server.data_dir / "queues" / "1").rglob("*.data") if path.stat().st_size]
    return path


def fill(server: RunningServer) -> tuple[int, int]:
    """Three records of the queue `orders`, and another queue; returns where the second record begins and ends."""
    ends = []
    with closing(Http(server.url)) as http:
        for payloads in (["a"], ["b", "c"], ["d"]):
            http.push("orders", *payloads, partition="p")
            written = len(segment(server).read_bytes().rstrip(b"\0"))
            ends.append(-(-written // 8) * 8)  # a record may end with zeros; its length is a multiple of 8
        http.push("payments", 1)
        http.push("payments", 2)
        http.pop("orders", batch=1, consumerGroup="billing")
    server.stop()
    return ends[0], ends[1]


def damage(server: RunningServer, start: int, end: int, place: int) -> None:
    path = segment(server)
    data = bytearray(path.read_bytes())
    data[(end if place < 0 else start) + place] ^= 0xFF
    path.write_bytes(data)


def assert_only_the_record_is_lost(server: RunningServer) -> None:
    with closing(Http(server.url)) as http:
        assert [message["data"] for message in http.pop("orders", batch=10)] == ["a", "d"]
        assert [message["data"] for message in http.pop("payments", batch=10)] == [1, 2]
        shown = http.get("/api/v1/status/queues/orders/messages").json["messages"]
        assert [message["data"] for message in shown] == ["a", "d"]
        statuses = {queue["name"]: queue["messages"] for queue in http.get("/api/v1/status/queues").json["queues"]}
        assert (statuses["orders"]["total"], statuses["orders"]["lost"]) == (2, 2)
        assert (statuses["payments"]["total"], statuses["payments"]["lost"]) == (2, 0)
        assert http.get("/api/v1/consumer-groups").status == 200
        [lost] = http.get("/api/v1/status/lost").json["lost"]
        told = [lost[name] for name in ("queue", "partition", "firstSeq", "lastSeq", "messages")]
        assert told == ["orders", "p", 2, 3, 2]
        wait_until(lambda: 'forebay_messages_lost{queue="orders"} 2' in http.get("/metrics").body.decode())
        ready = http.get("/readyz")
        assert (ready.status, ready.json["status"]) == (200, "ready")
        assert "queue 'orders': 2 messages cannot be read any more" in ready.json["reasons"][0]
        http.push("orders", "e", partition="p")
    audited = forebay("audit", "--url", server.url)
    [orders] = [queue for queue in audited["queues"] if queue["queue"] == "orders"]
    figures = [orders[name] for name in ("accepted", "stored", "removed", "lost", "differences")]
    assert (audited["balanced"], figures) == (True, [5, 3, 0, 2, []])
    assert [(lost["firstSeq"], lost["lastSeq"]) for lost in audited["lost"]] == [(2, 3)]


@pytest.mark.parametrize("place", PLACES)
def test_damaged_record_costs_its_messages_and_nothing_else(server: RunningServer, place: int) -> None:
    damage(server, *fill(server), place)
    server.start()
    assert_only_the_record_is_lost(server)
    server.stop()
    assert server.errors().count("2 messages are lost, seqs 2-3") == 1


@pytest.mark.parametrize("place", PLACES[::2])
def test_log_and_store_agree_after_salvage(server: RunningServer, place: int) -> None:
    start, end = fill(server)
    damage(server, start, end, place)
    [orders, payments] = forebay("log", "verify", "--data-dir", server.data_dir, code=1)
    assert (orders["queue"], orders["ok"], payments["queue"], payments["ok"]) == ("orders", False, "payments", True)
    [mended] = forebay("log", "salvage", "orders", "--data-dir", server.data_dir)
    assert [(found["first_seq"], found["last_seq"]) for found in mended["damage"]] == [(2, 3)]
    assert [found["ok"] for found in forebay("log", "verify", server.data_dir)] == [True, True]
    server.start()
    assert_only_the_record_is_lost(server)


def test_salvage_names_the_server_that_has_the_store_open(server: RunningServer) -> None:
    with closing(Http(server.url)) as http:
        http.push("orders", 1)
    for words in (("orders", "--data-dir", server.data_dir), (server.data_dir,), (server.data_dir / "queues" / "1",)):
        done = subprocess.run(
            [sys.executable, "-m", "forebay", "log", "salvage", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 1
        assert f"is open in process {server.pid} " in " ".join((done.stdout + done.stderr).split())
    [found] = forebay("log", "verify", "orders", "--data-dir", server.data_dir)
    assert (found["messages"], found["ok"]) == (1, True)
    [found] = forebay("log", "inspect", "orders", "--data-dir", server.data_dir)
    assert found["owner"].startswith(f"process {server.pid} ")
