"""Push, pop and acknowledge over HTTP, as `curl` would do it."""

from __future__ import annotations

import gzip
import itertools
import json
import socket
import statistics
import time
import uuid
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest

from fixtures.running_stores import Http, Told, any_server, fresh, http, shared_postgres_database, until_waiting
from forebay.client import Client
from forebay.testing.running_server import RunningServer

__all__ = ["any_server", "http", "shared_postgres_database"]

T = TypeVar("T")

ODD_PAYLOADS = [
    b'{"a" : 1.000000000000000000000000000001,  "a":2}',
    b"123456789012345678901234567890",
    b'"\\u00e9\xc3\xa9 \\ud83d\\ude00 \\u0000 </script>"',
    b"[ ]",
    b"null",
    b'""',
    b"-0.0",
    b"{}",
]


@pytest.mark.parametrize("payload", ODD_PAYLOADS)
def test_payload_comes_out_byte_for_byte(http: Http, payload: bytes) -> None:
    queue = fresh()
    body = b'{"items":[{"queue":"%s","payload":%s}]}' % (queue.encode(), payload)
    assert http.post("/push", body).status == 201
    assert b'"data":' + payload + b"," in http.get(f"/api/v1/pop/queue/{queue}").body


def test_push_answers_with_one_entry_per_message(http: Http) -> None:
    queue = fresh()
    items = [
        {"queue": queue, "payload": 1, "transactionId": "t-1", "traceId": "trace-1"},
        {"queue": queue, "payload": 2, "partition": "p"},
        {"queue": queue, "payload": 3, "transactionId": "t-1"},
    ]
    told = http.post("/push", {"items": items})
    assert told.status == 201
    first, second, third = told.json
    assert [entry["status"] for entry in told.json] == ["queued", "queued", "duplicate"]
    assert [entry["index"] for entry in told.json] == [0, 1, 2]
    assert (first["transactionId"], first["transaction_id"], first["traceId"]) == ("t-1", "t-1", "trace-1")
    assert (first["seq"], second["seq"], third["seq"]) == (1, 2, 1)
    assert first["messageId"] == first["message_id"] == third["messageId"] != second["messageId"]
    assert uuid.UUID(first["messageId"]).version == 8
    assert first["partitionId"] == first["partition_id"] != second["partitionId"]
    assert uuid.UUID(second["transactionId"])


def test_push_of_nothing_is_answered_with_nothing(http: Http) -> None:
    told = http.post("/push", {"items": []})
    assert (told.status, told.json) == (201, [])


@pytest.mark.parametrize(("query", "more"), [("?summary=true", {}), ("", {"bufferMs": 100}), ("", {"bufferMax": 10})])
def test_summary_says_whether_messages_are_buffered(http: Http, query: str, more: dict[str, int]) -> None:
    queue = fresh()
    told = http.post(f"/push{query}", {"items": [{"queue": queue, "payload": 1}], **more})
    assert told.status == 201
    receipt = told.json["receipt"]
    assert told.json == {"pushed": True, "qos0": bool(more), "dbHealthy": True, "messages": 1, "receipt": receipt}
    assert receipt == "os" if more else receipt in ("memory", "log", "postgres")
    assert len(http.get(f"/api/v1/pop/queue/{queue}?wait=true&timeout=10000").json["messages"]) == 1


def test_pop_tells_everything_about_a_message(http: Http) -> None:
    queue = fresh()
    (pushed,) = http.push(queue, {"n": 1}, partition="p")
    told = http.get(f"/api/v1/pop/queue/{queue}?consumerGroup=g").json
    (message,) = told["messages"]
    assert told["success"] is True
    assert (told["queue"], told["partition"], told["partitionId"]) == (queue, "p", pushed["partitionId"])
    assert (told["consumerGroup"], told["partitionsClaimed"]) == ("g", 1)
    assert told["leaseId"] == message["leaseId"] != ""
    assert message["id"] == pushed["messageId"]
    assert message["transactionId"] == pushed["transactionId"]
    assert (message["seq"], message["attempts"], message["data"]) == (1, 1, {"n": 1})
    assert message["createdAt"].endswith("Z")


def test_columns_say_the_same_as_messages(http: Http) -> None:
    namespace = fresh("ns")
    items = [
        {"queue": f"{namespace}.{queue}", "partition": partition, "payload": [queue, partition, n], "traceId": trace}
        for queue in "ab"
        for partition in ("p1", "p2")
        for n, trace in ((0, None), (1, "3f0e4a4e-0000-4000-8000-000000000001"))
    ]
    http.post("/push", {"items": items})
    path = f"/api/v1/pop?namespace={namespace}&batch=10&partitions=10"
    rows = http.get(f"{path}&consumerGroup=rows").json
    columns = http.get(f"{path}&consumerGroup=columns&shape=columns").json
    places = [run for run in columns["runs"] for _ in range(run["messages"])]
    assert len(rows["messages"]) == len(places) == 8
    assert columns["partitionsClaimed"] == rows["partitionsClaimed"] == 4
    assert columns["success"] is True
    assert columns["leaseId"] not in ("", rows["leaseId"])
    for n, (message, run) in enumerate(zip(rows["messages"], places, strict=True)):
        for name in ("queue", "partition", "partitionId"):
            assert run[name] == message[name]
        for name in ("transactionId", "traceId", "data", "createdAt", "seq", "attempts"):
            assert columns[name][n] == message[name]


def unpacked(told: Told) -> dict[str, Any]:
    """A packed answer, as one in columns would be."""
    assert told.headers["content-type"] == "application/vnd.forebay.packed"
    assert told.body[:4] == b"FBP1"
    payloads_at = 8 + int.from_bytes(told.body[4:8], "little")
    columns: dict[str, Any] = json.loads(told.body[8:payloads_at])
    ends = columns.pop("ends")
    assert columns["data"] == []
    assert payloads_at + ends[-1] == len(told.body)
    columns["data"] = [
        json.loads(told.body[payloads_at + a : payloads_at + b]) for a, b in itertools.pairwise([0, *ends])
    ]
    return columns


def test_packed_says_the_same_as_columns(http: Http) -> None:
    namespace = fresh("ns")
    for n in range(5):
        payloads: list[object] = [{"n": n, "text": "ä" * n}, "", [], n]
        items = [
            {"queue": f"{namespace}.{queue}", "partition": partition, "payload": payload}
            for queue in "ab"
            for partition in ("p1", "p2")
            for payload in payloads
        ]
        http.post("/push", {"items": items})
    path = f"/api/v1/pop?namespace={namespace}&batch=50&partitions=10&shape=columns"
    columns = http.get(f"{path}&consumerGroup=one").json
    packed = unpacked(http.get(f"{path}&consumerGroup=two&packed=true"))
    assert len(columns["data"]) == 50
    for found in (columns, packed):
        assert found.pop("leaseId")
        assert found.pop("consumerGroup") in ("one", "two")
    assert packed == columns
    assert http.get(f"{path}&consumerGroup=one&packed=perhaps").status == 400


def test_packed_payloads_that_are_no_json_come_as_base64(http: Http) -> None:
    queue = fresh()
    rows = pa.table({"payload": [b"\x00FBE\xff", b""]})
    with Client(http.url) as client:
        stages = client.stage(queue, rows, producer="p", epoch=1)
        client.commit(stages, producer="p", epoch=1)
    path = f"/api/v1/pop/queue/{queue}?batch=9&shape=columns"
    columns = http.get(f"{path}&consumerGroup=one").json
    packed = unpacked(http.get(f"{path}&consumerGroup=two&packed=true"))
    assert packed["encoding"] == columns["encoding"] == ["base64", "base64"]
    assert packed["data"] == columns["data"] == ["AEZCRf8=", ""]


def test_columns_leave_out_what_no_message_has(http: Http) -> None:
    queue = fresh()
    http.push(queue, 1, 2)
    told = http.get(f"/api/v1/pop/queue/{queue}?batch=2&shape=columns").json
    assert told["data"] == [1, 2]
    assert not {"traceId", "encoding", "autopilot"} & told.keys()
    assert http.get(f"/api/v1/pop/queue/{queue}?shape=rows").status == 400


def test_several_leases_are_completed_in_one_request(http: Http) -> None:
    queue = fresh()
    for partition in "ab":
        http.push(queue, 1, 2, partition=partition)
    first, second = (http.pop(queue, batch=2)[0]["leaseId"] for _ in range(2))
    told = http.post("/lease/complete", {"leaseIds": [first, "nobody's", second]})
    assert told.status == 200
    assert [(one["leaseId"], one["success"], one["messages"]) for one in told.json] == [
        (first, True, 2),
        ("nobody's", False, 0),
        (second, True, 2),
    ]
    assert http.post("/lease/complete", {"leaseIds": []}).json == []
    for wrong in ({}, {"leaseIds": "a"}, {"leaseIds": [1]}, {"leaseIds": [""]}, {"leaseIds": ["a"] * 10_001}):
        refused = http.post("/lease/complete", wrong)
        assert refused.status == 400
        assert "leaseIds" in refused.body.decode()


def test_lease_is_completed_as_a_whole(http: Http) -> None:
    queue = fresh()
    http.push(queue, 1, 2, 3)
    lease_id = http.pop(queue, batch=2)[0]["leaseId"]
    told = http.post(f"/lease/{lease_id}/complete", b"")
    assert (told.status, told.json) == (200, {"leaseId": lease_id, "success": True, "messages": 2})
    told = http.post(f"/lease/{lease_id}/complete", b"")
    refused = {"leaseId": lease_id, "success": False, "messages": 0, "error": "Lease not found"}
    assert (told.status, told.json) == (200, refused)
    assert [message["data"] for message in http.pop(queue, batch=9)] == [3]


def test_pop_of_nothing_is_204_without_a_body(http: Http) -> None:
    told = http.get(f"/api/v1/pop/queue/{fresh()}")
    assert (told.status, told.body) == (204, b"")


@pytest.mark.parametrize("name", ["a/b", "a b+c%", "ünïcödé", "a?b&c=d#e", "%2f", "-", "x" * 255, "a.b.c", "*"])
def test_any_name_can_be_addressed(http: Http, name: str) -> None:
    name = name if len(name) == 255 else f"{name}{fresh()}"
    http.push(name, "found", partition=name)
    path = f"/api/v1/pop/queue/{quote(name, safe='')}"
    (message,) = http.get(f"{path}/partition/{quote(name, safe='')}").json["messages"]
    assert (message["queue"], message["partition"], message["data"]) == (name, name, "found")
    assert http.get(f"/api/v1/resources/queues/{quote(name, safe='')}").json["name"] == name


def test_pop_by_namespace_and_task_takes_from_all_their_queues(http: Http) -> None:
    namespace = fresh("ns")
    http.push(f"{namespace}.a", 1)
    http.push(f"{namespace}.b", 2)
    told = http.get(f"/api/v1/pop?namespace={namespace}&batch=10&partitions=10").json
    assert sorted(message["data"] for message in told["messages"]) == [1, 2]
    assert http.get(f"/api/v1/pop?namespace={namespace}&task=c").status == 204


def test_ack_is_judged_message_by_message(http: Http) -> None:
    queue = fresh()
    http.push(queue, 1, 2, 3)
    first, second, third = http.pop(queue, batch=3)
    entries = [
        {"transactionId": first["transactionId"], "partitionId": first["partitionId"], "leaseId": first["leaseId"]},
        {"transactionId": second["transactionId"], "partitionId": second["partitionId"], "leaseId": "foreign"},
        {"transactionId": "unheard-of", "partitionId": third["partitionId"], "leaseId": third["leaseId"]},
        {"transactionId": "unheard-of", "partitionId": "unheard-of", "leaseId": third["leaseId"]},
        {"transactionId": third["transactionId"], "partitionId": third["partitionId"]},
    ]
    told = http.post("/ack/batch", {"acknowledgments": entries, "consumerGroup": None})
    assert told.status == 200
    # The last one names no lease: it counts for the lease that is alive.
    assert [entry["success"] for entry in told.json] == [True, False, False, False, True]
    assert told.json[0]["queueName"] == queue
    assert told.json[1]["error"] == "Invalid or expired lease"
    assert [http.ack(second)["success"], http.ack(third)["success"]] == [True, False]
    assert http.pop(queue) == []


def test_dead_letter_by_word_is_dead_at_once(http: Http) -> None:
    queue = fresh()
    http.push(queue, 1)
    (message,) = http.pop(queue)
    assert http.ack(message, "dlq", error="poison")["dlq"] is True
    (letter,) = http.get(f"/api/v1/dlq?queue={queue}").json["messages"]
    assert (letter["errorMessage"], letter["retryCount"], letter["data"]) == ("poison", 0, 1)


WAKES = 5


def _woken(http: Http, waits: Callable[[], T], wakes: Callable[[], object]) -> tuple[T, float]:
    """What a consumer gets that waits, and how long after the answer to what woke it."""
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(waits)
        until_waiting(http, 1)
        wakes()
        answered = time.monotonic()
        return waiting.result(30), time.monotonic() - answered


def _check_at_once(seconds: list[float]) -> None:
    """The net, which catches what was not woken, takes a quarter of a second more, in the middle."""
    assert statistics.median(seconds) < 0.15, seconds


def test_long_poll_gets_a_push_of_another_connection_at_once(http: Http, any_server: RunningServer) -> None:
    consumer, late = Http(any_server.url), []
    for _ in range(WAKES):
        queue = fresh()
        (message,), seconds = _woken(
            http,
            partial(consumer.pop, queue, wait="true", timeout=30_000),
            partial(http.push, queue, "hello"),
        )
        assert message["data"] == "hello"
        late.append(seconds)
    consumer.close()
    _check_at_once(late)


def test_long_poll_without_a_message_ends_with_204_in_time(http: Http) -> None:
    began = time.monotonic()
    assert http.get(f"/api/v1/pop/queue/{fresh()}?wait=true&timeout=200").status == 204
    # The event loop's timers count whole milliseconds from the start of its turn, so they may fire that much early.
    assert 0.19 <= time.monotonic() - began < 5


def test_ack_that_frees_a_partition_wakes_who_waits_for_it(http: Http, any_server: RunningServer) -> None:
    consumer, late = Http(any_server.url), []
    for _ in range(WAKES):
        queue = fresh()
        http.push(queue, 1, 2)
        (first,) = http.pop(queue)
        (second,), seconds = _woken(
            http,
            partial(consumer.pop, queue, wait="true", timeout=30_000),
            partial(http.ack, first),
        )
        assert second["data"] == 2
        late.append(seconds)
    consumer.close()
    _check_at_once(late)


def test_nothing_is_popped_for_a_consumer_that_went_away(http: Http, any_server: RunningServer) -> None:
    queue = fresh()
    parts = urlsplit(any_server.url)
    with socket.create_connection((str(parts.hostname), parts.port or 0)) as gone:
        head = f"GET /api/v1/pop/queue/{queue}?wait=true&timeout=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        gone.sendall(head.encode())
        until_waiting(http, 1)
    until_waiting(http, 0)
    http.push(queue, "for the living")
    (message,) = http.pop(queue)
    assert message["attempts"] == 1


@pytest.mark.parametrize("more", ["", "&autoAck=true"])
def test_claim_for_a_consumer_that_goes_away_in_that_moment_is_given_back(
    http: Http, any_server: RunningServer, more: str
) -> None:
    """A client closes while it waits, and a push comes at the same time: whoever asks next gets it, for the first time.

    Either the server knew before the push that nobody waits, or it claimed for nobody and gives that back.
    """
    parts = urlsplit(any_server.url)
    for _ in range(20):
        queue = fresh()
        gone = socket.create_connection((str(parts.hostname), parts.port or 0))
        gone.sendall(f"GET /api/v1/pop/queue/{queue}?wait=true{more} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until_waiting(http, 1)
        gone.close()
        http.push(queue, "for the living")
        began = time.monotonic()
        (message,) = http.pop(queue, wait="true", timeout=20_000)
        assert message["attempts"] == 1
        assert time.monotonic() - began < 5, "it waited for the lease to end"
        until_waiting(http, 0)


@pytest.mark.parametrize(("option", "status"), [({"leaseTime": 1}, None), ({"retryDelay": 600}, "failed")])
def test_who_waits_is_woken_when_a_lease_or_a_retry_is_due(
    http: Http, any_server: RunningServer, option: dict[str, int], status: str | None
) -> None:
    """Not by the net, which would take up to half a second more."""
    queue, late = fresh(), []
    http.post("/configure", {"queue": queue, "options": {"retryLimit": 100, **option}})
    http.push(queue, 1)
    due_seconds = option.get("leaseTime") or option["retryDelay"] / 1000
    for _ in range(3):
        (message,) = http.pop(queue, wait="true")
        if status is not None:
            http.ack(message, status)
        began = time.monotonic()
        (again,) = http.pop(queue, wait="true", timeout=20_000)
        late.append(time.monotonic() - began - due_seconds)
        http.ack(again, "retry")
    assert min(late) < 0.15, late


def test_failure_of_a_message_wakes_who_waits_for_its_partition(http: Http, any_server: RunningServer) -> None:
    consumer, late = Http(any_server.url), []
    for _ in range(WAKES):
        queue = fresh()
        http.post("/configure", {"queue": queue, "options": {"retryDelay": 0}})
        http.push(queue, 1, 2)
        first, _second = http.pop(queue, batch=2)
        path = f"/api/v1/pop/queue/{queue}/partition/Default?wait=true&batch=9"
        answer, seconds = _woken(http, partial(consumer.get, path), partial(http.ack, first, "failed"))
        messages = answer.json["messages"]
        assert [(message["data"], message["attempts"]) for message in messages] == [(1, 2), (2, 1)]
        late.append(seconds)
    consumer.close()
    _check_at_once(late)


def test_message_is_deleted_for_everybody(http: Http) -> None:
    queue = fresh()
    first, _ = http.push(queue, 1, 2)
    path = f"/api/v1/messages/{first['partitionId']}/{first['transactionId']}"
    assert http.send("DELETE", path).json["success"] is True
    assert http.get(path).status == 404
    assert http.send("DELETE", path).json["success"] is False
    assert [message["data"] for message in http.pop(queue, batch=9)] == [2]
    assert "DELETE" in http.send("OPTIONS", path).headers["allow"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw deflate"])
def test_compressed_body_is_understood(http: Http, encoding: str) -> None:
    queue = fresh()
    body = json.dumps({"items": [{"queue": queue, "payload": "x" * 100_000}]}).encode()
    machine = zlib.compressobj(wbits=-15)
    packed = {
        "gzip": gzip.compress(body),
        "deflate": zlib.compress(body),
        "raw deflate": machine.compress(body) + machine.flush(),
    }[encoding]
    told = http.send("POST", "/api/v1/push", packed, {"Content-Encoding": encoding.split()[-1]})
    assert told.status == 201
    assert len(http.pop(queue)[0]["data"]) == 100_000


def test_transaction_is_all_or_nothing(http: Http) -> None:
    source, target = fresh("source"), fresh("target")
    http.push(source, 1)
    (message,) = http.pop(source)
    names = ("transactionId", "partitionId", "leaseId")
    ack = {"type": "ack", **{name: message[name] for name in names}}
    push = {"type": "push", "items": [{"queue": target, "payload": n, "transactionId": f"t{n}"} for n in range(2)]}
    foreign = http.post("/transaction", {"operations": [push, {**ack, "leaseId": "foreign"}]})
    assert (foreign.status, foreign.json["success"]) == (200, False)
    assert foreign.json["error"] == "Invalid or expired lease"
    assert http.get(f"/api/v1/pop/queue/{target}").status == 204
    whole = http.post("/transaction", {"operations": [push, ack]})
    assert whole.json["success"] is True
    assert [entry["type"] for entry in whole.json["results"]] == ["push", "push", "ack"]
    again = http.post("/transaction", {"operations": [push]})
    assert (again.status, again.json["success"]) == (200, False)
    assert len(http.pop(target, batch=10)) == 2


def test_full_queue_answers_429_and_takes_nothing(http: Http) -> None:
    queue = fresh()
    http.post("/configure", {"queue": queue, "options": {"maxSize": 2}})
    http.push(queue, 1)
    told = http.post("/push", {"items": [{"queue": queue, "payload": n} for n in range(2)]})
    assert (told.status, told.headers["retry-after"]) == (429, "1")
    assert told.json["code"] == "queue_full"
    assert len(http.pop(queue, batch=10)) == 1


@pytest.mark.parametrize("size", [10 * 1024 * 1024, 0])
def test_payload_of_ten_mebibytes_is_taken(http: Http, size: int) -> None:
    queue = fresh()
    http.push(queue, "x" * size)
    assert len(http.pop(queue)[0]["data"]) == size


def test_ten_thousand_items_are_taken_in_one_request(http: Http) -> None:
    queue = fresh()
    assert [entry["seq"] for entry in http.push(queue, *range(10_000))] == list(range(1, 10_001))
    assert [message["data"] for message in http.pop(queue, batch=10_000)] == list(range(10_000))
