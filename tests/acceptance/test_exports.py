"""A queue that is drained into an HTTP destination which is away, refuses, and outlives a killed server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import defaultdict
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures.command_line import typed
from fixtures.http_sink import HttpSink, Received, http_sink
from fixtures.running_stores import Http
from fixtures.waiting import until, wait_until
from forebay.testing.running_server import RunningServer

SETTINGS = """
destinations:
  - name: warehouse
    type: http
    url: http://127.0.0.1:{port}/ingest
    format: {format}
    headers: {{Authorization: env:WAREHOUSE_TOKEN}}
    queue: {{retry_interval: 100ms, max_retry_delay: 500ms, circuit_breaker: {{reset_timeout: 300ms}}}}
  - {{name: copies, type: queue, queue_name: copies}}
  - {{name: lines, type: file, path: "{folder}/lines.ndjson", format: envelopes}}
exports:
  - {{name: orders, from: orders@warehouse, to: warehouse, batch: {{max_messages: 50, max_wait: 10ms}}}}
  - {{name: copies, from: orders@copies, to: copies, batch: {{max_wait: 10ms}}}}
  - {{name: lines, from: orders@lines, to: lines, batch: {{max_wait: 10ms}}}}
"""


def server(folder: Path, store: str, port: int, body_format: str = "envelopes") -> RunningServer:
    file = folder / "forebay.yaml"
    file.write_text(SETTINGS.format(port=port, folder=folder, format=body_format))
    environment = {"WAREHOUSE_TOKEN": "Bearer secret"}
    return RunningServer(folder / "data", store=store, arguments=("-c", str(file)), environment=environment)


@pytest.fixture(params=["embedded", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    if request.param == "embedded":
        return "embedded"
    return str(request.getfixturevalue("postgres_database"))


def push(running: RunningServer, numbers: range, partitions: int = 7) -> None:
    items = [
        {
            "queue": "orders",
            "partition": f"p{number % partitions}",
            "payload": {"n": number},
            "transactionId": f"t{number}",
        }
        for number in numbers
    ]
    with closing(Http(running.url)) as http:
        assert http.post("/push", {"items": items}).status == 201


def envelopes(sink: HttpSink) -> list[dict[str, Any]]:
    return [envelope for request in sink.received for envelope in json.loads(request.body)]


def first_seen(found: list[dict[str, Any]]) -> dict[str, list[int]]:
    """The numbers of each partition, in the order in which they came first."""
    lanes: dict[str, list[int]] = defaultdict(list)
    for envelope in found:
        number = envelope["data"]["n"]
        if number not in lanes[envelope["partition"]]:
            lanes[envelope["partition"]].append(number)
    return lanes


def exports(running: RunningServer) -> dict[str, dict[str, Any]]:
    with closing(Http(running.url)) as http:
        return {one["name"]: one for one in http.get("/api/v1/exports").json["exports"]}


def forebay(running: RunningServer, *words: str, code: int = 0) -> str:
    done = typed(*words, "--url", running.url)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


async def test_every_message_reaches_every_destination_through_outages_and_a_kill(tmp_path: Path, store: str) -> None:
    async with http_sink() as sink:
        port = sink.port
    running = server(tmp_path, store, port)
    await asyncio.to_thread(running.start)
    try:
        await asyncio.to_thread(push, running, range(300))
        async with http_sink(sink, port=port):
            await until(lambda: len(sink.received) >= 3)
        await asyncio.to_thread(push, running, range(300, 600))
        await asyncio.to_thread(running.kill)
        await asyncio.to_thread(running.start)
        sink.answers += [500, (429, "", {"Retry-After": "1"}), 503]
        async with http_sink(sink, port=port):
            await until(lambda: len({one["seq"] for one in envelopes(sink)}) == 600, 120)

            def is_drained() -> bool:
                return all(one["waiting"] == 0 for one in exports(running).values())

            await asyncio.to_thread(wait_until, is_drained)
            found = envelopes(sink)
        assert all(request.headers["Authorization"] == "Bearer secret" for request in sink.received)
        assert "secret" not in forebay_config(tmp_path)
        expected = {f"p{lane}": list(range(lane, 600, 7)) for lane in range(7)}
        assert first_seen(found) == expected
        lines = [json.loads(line) for line in (tmp_path / "lines.ndjson").read_text().splitlines()]
        assert first_seen(lines) == expected
        with closing(Http(running.url)) as http:
            copied = http.pop("copies", batch=1000, partitions=100)
            assert sorted(message["data"]["n"] for message in copied) == list(range(600))
        told = json.loads(await asyncio.to_thread(forebay, running, "audit", "-o", "json"))
        assert told["balanced"] is True or told.get("ok") is True, told
    finally:
        await asyncio.to_thread(running.stop)


async def test_message_is_sent_again_in_the_same_request_with_the_same_key_whatever_ends_the_server(
    tmp_path: Path, store: str
) -> None:
    async with http_sink(HttpSink(answers=[503] * 10_000)) as sink:
        running = server(tmp_path, store, sink.port)
        await asyncio.to_thread(running.start)
        try:
            for turn, end in enumerate((running.kill, running.stop, running.kill), 1):
                before = len(seqs_of(sink.attempts))
                # Some of it is sent at once, some waits in partitions that are under way: it fits into theirs.
                await asyncio.to_thread(push, running, range(100 * turn, 100 * turn + 40), 7 * turn)
                await until(partial(has_sent_more_than, sink, before), 120)
                await asyncio.to_thread(end)
                seen, began = seqs_of(sink.attempts), len(sink.attempts)
                await asyncio.to_thread(running.start)
                await asyncio.to_thread(push, running, range(1000 * turn, 1000 * turn + 20), 7 * turn)
                await until(partial(has_sent_again, sink, began, seen), 120)
            sink.answers.clear()
            await until(lambda: len(seqs_of(sink.received)) == 3 * 60, 120)
        finally:
            await asyncio.to_thread(running.stop)
        bodies: dict[str, set[bytes]] = defaultdict(set)
        keys: dict[int, set[str]] = defaultdict(set)
        for request in sink.attempts:
            key = request.headers["Idempotency-Key"]
            bodies[key].add(request.body)
            for envelope in json.loads(request.body):
                keys[envelope["seq"]].add(key)
        assert {len(found) for found in bodies.values()} == {1}
        assert {len(found) for found in keys.values()} == {1}


def has_sent_more_than(sink: HttpSink, count: int) -> bool:
    return len(seqs_of(sink.attempts)) > count


def has_sent_again(sink: HttpSink, began: int, seqs: set[int]) -> bool:
    return seqs <= seqs_of(sink.attempts[began:])


def seqs_of(requests: list[Received]) -> set[int]:
    return {envelope["seq"] for request in requests for envelope in json.loads(request.body)}


def forebay_config(folder: Path) -> str:
    command = [sys.executable, "-m", "forebay", "config", "show", "-c", str(folder / "forebay.yaml")]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


async def test_what_a_destination_refuses_is_a_dead_letter_of_the_group_and_the_rest_arrives(
    tmp_path: Path, store: str
) -> None:
    async with http_sink(HttpSink(refused=b'"n": 13')) as sink:
        running = server(tmp_path, store, sink.port)
        await asyncio.to_thread(running.start)
        try:
            await asyncio.to_thread(push, running, range(20), 1)
            await until(lambda: len({one["seq"] for one in envelopes(sink)}) == 19, 60)
            with closing(Http(running.url)) as http:
                await asyncio.to_thread(_wait_for_letter, http)
                [letter] = http.get("/api/v1/dlq?queue=orders&consumerGroup=warehouse").json["messages"]
            assert letter["data"] == {"n": 13}
            assert "client_error" in letter["errorMessage"]
            assert [one["data"]["n"] for one in envelopes(sink)] == [n for n in range(20) if n != 13]
        finally:
            await asyncio.to_thread(running.stop)


def _wait_for_letter(http: Http) -> None:
    wait_until(lambda: len(http.get("/api/v1/dlq?queue=orders").json["messages"]) == 1)


async def test_an_export_is_listed_paused_and_resumed_from_the_command_line(tmp_path: Path) -> None:
    async with http_sink() as sink:
        running = server(tmp_path, "embedded", sink.port, "json")
        await asyncio.to_thread(running.start)
        try:
            await asyncio.to_thread(forebay, running, "exports", "pause", "orders")
            await asyncio.to_thread(push, running, range(10))
            listed = json.loads(await asyncio.to_thread(forebay, running, "exports", "list", "-o", "json"))
            states = {one["name"]: one["paused"] for one in listed}
            assert states == {"orders": True, "copies": False, "lines": False}
            await asyncio.to_thread(running.stop)
            await asyncio.to_thread(running.start)
            assert exports(running)["orders"]["paused"]
            assert sink.received == []
            await asyncio.to_thread(forebay, running, "exports", "resume", "orders")
            await until(lambda: sum(len(json.loads(one.body)) for one in sink.received) == 10)
            table = await asyncio.to_thread(forebay, running, "exports", "list")
            assert "orders@warehouse" in table
            assert "running" in table
            missing = await asyncio.to_thread(forebay, running, "exports", "pause", "nobody", code=1)
            assert missing == ""
        finally:
            await asyncio.to_thread(running.stop)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("to: warehouse,", "to: nowhere,"), "one of destinations: copies, lines, warehouse"),
        (("from: orders@warehouse", "from: orders"), "queue@group"),
        (("type: http", "type: ftp"), "destinations.0.type"),
        (("url: http://", "url: gopher://"), "a url that begins with http://"),
        (("max_messages: 50", "max_messages: 0"), "exports.0.batch.max_messages"),
        (("retry_interval: 100ms", "retry_intervall: 100ms"), "destinations.0.queue.retry_intervall"),
        (("name: copies, from", "name: orders, from"), "each name once"),
    ],
)
def test_faults_of_the_lists_are_told_with_their_key(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    text = SETTINGS.format(port=1, folder=tmp_path, format="json")
    assert change[0] in text
    file = tmp_path / "forebay.yaml"
    file.write_text(text.replace(*change, 1))
    command = [sys.executable, "-m", "forebay", "config", "check", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert told in done.stdout


@pytest.mark.parametrize(
    ("receiver", "told"),
    [
        (
            "otlp_http: {listen: '127.0.0.1:PORT', to: 'destination:warehouse'}",
            "a destination that takes logs, metrics",
        ),
        (
            "otlp_http: {listen: '127.0.0.1:PORT', to: 'destination:nowhere'}",
            "queue:NAME or destination:copies, destination:lines",
        ),
        ("otlp_grpc: {listen: '127.0.0.1:some', to: 'queue:raw'}", "host:port"),
        (
            "remote_write: {listen: '127.0.0.1:PORT', to: 'queue:raw'}",
            "receiver remote_write cannot listen on port PORT",
        ),
        ("otlp_grpc: {listen: '127.0.0.1:PORT', to: 'queue:raw'}", "receiver otlp_grpc cannot listen on port PORT"),
    ],
)
async def test_receivers_that_cannot_be_are_refused_in_words(tmp_path: Path, receiver: str, told: str) -> None:
    async with http_sink() as taken:
        file = tmp_path / "forebay.yaml"
        destinations = SETTINGS.format(port=1, folder=tmp_path, format="json").partition("exports:")[0]
        port = str(taken.port)
        file.write_text(f"receivers:\n  {receiver.replace('PORT', port)}\n{destinations}")
        command = [sys.executable, "-m", "forebay", "serve", "-c", str(file), "--data-dir", str(tmp_path / "data")]
        environment = {**os.environ, "WAREHOUSE_TOKEN": "x"}
        done = await asyncio.to_thread(
            subprocess.run,
            [*command, "--port", "0"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=environment,
        )
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert told.replace("PORT", port) in done.stderr
