"""Bad input gets 4xx with the field named; nothing changes, and the server lives."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest

from fixtures.running_stores import Http, any_server, fresh, http, shared_postgres_database

__all__ = ["any_server", "http", "shared_postgres_database"]

OK: dict[str, Any] = {"queue": "untouched", "payload": 1}
TOO_MANY_QUEUES = [{"queue": f"untouched{n}", "payload": 1} for n in range(65)]
DEEP = 100_000


def body_of(*items: Any) -> bytes:
    return json.dumps({"items": list(items)}).encode()


BAD_BODIES: list[tuple[str, bytes, str]] = [
    ("nothing", b"", ""),
    ("half", b'{"items":[', ""),
    ("no JSON", b"items=1", ""),
    ("something behind", b'{"items":[]} {}', ""),
    ("a list", b"[]", ""),
    ("no items", b"{}", "items"),
    ("items null", b'{"items":null}', "items"),
    ("items a word", b'{"items":"x"}', "items"),
    ("item a number", body_of(OK, 7), "items[1]"),
    ("no queue", body_of(OK, {"payload": 1}), "items[1].queue"),
    ("no payload", body_of(OK, {"queue": "untouched"}), "items[1].payload"),
    ("queue a number", body_of({"queue": 1, "payload": 1}), "items[0].queue"),
    ("queue null", body_of({"queue": None, "payload": 1}), "items[0].queue"),
    ("queue empty", body_of({**OK, "queue": ""}), "items[0].queue"),
    ("queue of 256", body_of({**OK, "queue": "x" * 256}), "items[0].queue"),
    ("queue with NUL", body_of({**OK, "queue": "a\0b"}), "items[0].queue"),
    ("queue climbs", body_of(OK, {**OK, "queue": "../etc/passwd"}), "items[1].queue"),
    ("queue is ..", body_of({**OK, "queue": ".."}), "items[0].queue"),
    ("queue half surrogate", b'{"items":[{"queue":"\\ud800","payload":1}]}', ""),
    ("queue not UTF-8", b'{"items":[{"queue":"\xff","payload":1}]}', ""),
    ("payload not UTF-8", b'{"items":[{"queue":"untouched","payload":"\xff\xfe"}]}', ""),
    ("payload half surrogate", b'{"items":[{"queue":"untouched","payload":"\\udc00"}]}', ""),
    ("payload deep", b'{"items":[{"queue":"untouched","payload":' + b"[" * DEEP + b"]" * DEEP + b"}]}", ""),
    ("deep", b"[" * DEEP, ""),
    ("unknown and deep", b'{"items":[],"x":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}", ""),
    ("payload NaN", b'{"items":[{"queue":"untouched","payload":NaN}]}', ""),
    ("partition empty", body_of({**OK, "partition": ""}), "items[0].partition"),
    ("partition a list", body_of({**OK, "partition": []}), "items[0].partition"),
    ("transactionId a number", body_of({**OK, "transactionId": 5}), "items[0].transactionId"),
    ("transactionId long", body_of({**OK, "transactionId": "x" * 300}), "items[0].transactionId"),
    ("transactionId NUL", body_of({**OK, "transactionId": "\0"}), "items[0].transactionId"),
    ("traceId NUL", body_of({**OK, "traceId": "\0"}), "items[0].traceId"),
    ("bufferMs negative", json.dumps({"items": [OK], "bufferMs": -1}).encode(), "bufferMs"),
    ("bufferMs huge", b'{"items":[],"bufferMs":1e300}', "bufferMs"),
    ("10,001 items", body_of(*[OK] * 10_001), "items"),
]


@pytest.mark.parametrize(("body", "field"), [pytest.param(b, f, id=name) for name, b, f in BAD_BODIES])
def test_bad_push_is_refused_with_its_field_and_stores_nothing(http: Http, body: bytes, field: str) -> None:
    told = http.send("POST", "/api/v1/push", body)
    assert told.status == 400
    assert told.headers["content-type"] == "application/problem+json"
    assert told.json.get("field", "") == field
    assert told.json["error"].startswith(field)
    assert http.get("/api/v1/pop/queue/untouched?batch=100&autoAck=true").status == 204


BAD_REQUESTS: list[tuple[str, str, Any, str]] = [
    ("GET", "/pop/queue/q?batch=0", None, "batch"),
    ("GET", "/pop/queue/q?batch=-5", None, "batch"),
    ("GET", "/pop/queue/q?batch=99999999999999999999999", None, "batch"),
    ("GET", "/pop/queue/q?batch=1.5", None, "batch"),
    ("GET", "/pop/queue/q?batch=%D9%A1", None, "batch"),
    ("GET", "/pop/queue/q?batch=", None, "batch"),
    ("GET", "/pop/queue/q?wait=perhaps", None, "wait"),
    ("GET", "/pop/queue/q?timeout=1e3", None, "timeout"),
    ("GET", "/pop/queue/q?timeout=99999999999", None, "timeout"),
    ("GET", "/pop/queue/q?partitions=0", None, "partitions"),
    ("GET", f"/pop/queue/q?subscriptionMode={'m' * 256}", None, "subscriptionMode"),
    ("GET", "/pop/queue/q?subscriptionFrom=yesterday", None, "subscriptionFrom"),
    ("GET", "/pop/queue/q?subscriptionFrom=0001-01-01T00:00:00%2B14:00", None, "subscriptionFrom"),
    ("GET", f"/pop/queue/q?consumerGroup={'g' * 256}", None, "consumerGroup"),
    ("GET", "/pop/queue/q?consumerGroup=%00", None, "consumerGroup"),
    ("GET", f"/pop/queue/{'q' * 300}", None, "queue"),
    ("GET", "/pop/queue/%00", None, "queue"),
    ("GET", "/pop/queue/%2e%2e%2fetc", None, "queue"),
    ("GET", "/pop/queue/%ff", None, "queue"),
    ("GET", "/pop/queue/q/partition/", None, "partition"),
    ("GET", "/pop?batch=1", None, "namespace"),
    ("POST", "/ack", {"partitionId": "p"}, "transactionId"),
    ("POST", "/ack", {"transactionId": "t"}, "partitionId"),
    ("POST", "/ack", {"transactionId": "t", "partitionId": "p", "status": "maybe"}, "status"),
    ("POST", "/ack", {"transactionId": "t\0", "partitionId": "p"}, "transactionId"),
    ("POST", "/ack/batch", {"acknowledgments": {}}, "acknowledgments"),
    ("POST", "/ack/batch", {"acknowledgments": [{"transactionId": 1}]}, "acknowledgments[0].transactionId"),
    ("POST", "/lease/x/extend", {"seconds": 0}, "seconds"),
    ("POST", "/lease/x/extend", {"seconds": 1 << 70}, "seconds"),
    ("POST", "/transaction", {"operations": []}, "operations"),
    ("POST", "/transaction", {"operations": [{"type": "push", "items": TOO_MANY_QUEUES}]}, "operations"),
    ("POST", "/transaction", {"operations": [{"type": "dance"}]}, "operations[0].type"),
    ("POST", "/transaction", {"operations": [{"type": "push", "items": [{}]}]}, "operations[0].items[0].queue"),
    (
        "POST",
        "/transaction",
        {"operations": [{"type": "push", "items": [OK, {**OK, "queue": "../x"}]}]},
        "operations[0].items[1].queue",
    ),
    ("POST", "/push", {"items": [{**OK, "encoding": "base64", "payload": "no base64!"}]}, "items[0].payload"),
    ("POST", "/push", {"items": [OK, {**OK, "encoding": "base64", "payload": 7}]}, "items[1].payload"),
    ("POST", "/push", {"items": [{**OK, "encoding": "hex"}]}, "items[0].encoding"),
    ("POST", "/configure", {"queue": "q", "options": {"leaseTme": 3}}, "options.leaseTme"),
    ("POST", "/configure", {"queue": "q", "options": {"leaseTime": -1}}, "options.leaseTime"),
    ("POST", "/configure", {"queue": "q", "options": {"leaseTime": "long"}}, "options.leaseTime"),
    ("POST", "/configure", {"queue": "q", "options": {"maxSize": 1e300}}, "options.maxSize"),
    ("POST", "/configure", {"queue": "q", "options": {"retentionEnabled": 1}}, "options.retentionEnabled"),
    ("POST", "/configure", {"queue": "q", "options": []}, "options"),
    ("POST", "/configure", {"queue": "", "options": {}}, "queue"),
    ("POST", "/consumer-groups/g/queues/q/seek", {}, "toEnd"),
    ("POST", "/consumer-groups/g/queues/q/seek", {"toEnd": True, "seq": 4}, "toEnd"),
    ("POST", "/consumer-groups/g/queues/q/seek", {"timestamp": "noon"}, "timestamp"),
    ("POST", "/consumer-groups/g/queues/q/seek", {"seq": -1}, "seq"),
    ("GET", "/consumer-groups/g/queues/q/seek", None, "toEnd"),
    ("GET", "/consumer-groups/g/queues/q/seek?toEnd=false", None, "toEnd"),
    ("GET", "/consumer-groups/g/queues/q/seek?toEnd=true&seq=0", None, "toEnd"),
    ("GET", "/consumer-groups/g/queues/q/seek?seq=-1", None, "seq"),
    ("GET", "/consumer-groups/g/queues/q/seek?timestamp=noon", None, "timestamp"),
    ("POST", "/consumer-groups/g/subscription", {}, "subscriptionTimestamp"),
    ("GET", "/consumer-groups/lagging?minLagSeconds=long", None, "minLagSeconds"),
    ("GET", "/dlq?limit=0", None, "limit"),
    ("GET", "/dlq?offset=-1", None, "offset"),
    ("GET", "/dlq?from=noon", None, "from"),
    ("POST", "/dlq/replay", {}, "queue"),
    ("POST", "/dlq/replay", {"queue": "\0"}, "queue"),
    ("POST", "/dlq/purge", {}, "queue"),
    ("DELETE", "/dlq", None, "queue"),
    ("POST", "/traces", {"transactionId": "t", "partitionId": "p"}, "data"),
    ("POST", "/traces", {"transactionId": "t", "partitionId": "p", "data": 1, "traceNames": [""]}, "traceNames[0]"),
    ("GET", "/messages", None, "queue"),
    ("GET", "/messages?queue=q&fromSeq=-1", None, "fromSeq"),
    ("POST", "/system/maintenance", {}, "enabled"),
    ("POST", "/system/maintenance/pop", {"enabled": "yes"}, "enabled"),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "field"), [pytest.param(*row, id=f"{row[1][:40]}-{row[3]}") for row in BAD_REQUESTS]
)
def test_bad_request_is_refused_with_its_field(http: Http, method: str, path: str, body: Any, field: str) -> None:
    told = http.send(method, f"/api/v1{path}", body)
    assert told.status == 400
    assert told.json["field"] == field
    assert told.json["status"] == 400


UNKNOWN: list[tuple[str, str, Any]] = [
    ("GET", "/resources/queues/{0}", None),
    ("GET", "/resources/queues/{0}/depth", None),
    ("GET", "/resources/partitions?queue={0}", None),
    ("GET", "/status/queues/{0}", None),
    ("GET", "/status/queues/{0}/messages", None),
    ("GET", "/messages?queue={0}", None),
    ("GET", "/messages/{0}/t", None),
    ("GET", "/consumer-groups/{0}", None),
    ("POST", "/consumer-groups/g/queues/{0}/seek", {"toEnd": True}),
    ("GET", "/consumer-groups/g/queues/{0}/seek?toEnd=true", None),
    ("GET", "/consumer-groups/g/queues/{0}/partitions/p/seek?seq=1", None),
    ("POST", "/consumer-groups/g/queues/{0}/partitions/p/seek", None),
    ("POST", "/consumer-groups/{0}/subscription", {"subscriptionTimestamp": "2026-01-01T00:00:00Z"}),
    ("GET", "/nothing/here/{0}", None),
    ("GET", "/kvs/{0}", None),
    ("DELETE", "/queues/{0}/clear", None),
    ("POST", "/messages/{0}/t/retry", None),
    ("POST", "/messages/{0}/t/dlq", None),
]


@pytest.mark.parametrize(("method", "path", "body"), UNKNOWN)
def test_what_does_not_exist_is_404(http: Http, method: str, path: str, body: Any) -> None:
    assert http.send(method, f"/api/v1{path.format(fresh())}", body).status == 404


PUSH = {"type": "push", "items": [OK]}
NOT_HERE: list[tuple[str, str, Any]] = [
    ("POST", "/api/v1/kv", {"operations": []}),
    ("GET", "/api/v1/kv/ns/key", None),
    ("POST", "/api/v1/locks", {}),
    ("POST", "/api/v1/timers", {}),
    ("DELETE", "/api/v1/timers/q/a/b", None),
    ("POST", "/api/v1/ephemeral/push", {}),
    ("POST", "/api/v1/fetch", {}),
    ("POST", "/api/v1/partitions/changed", {}),
    ("POST", "/streams/v1/queries", {}),
    ("GET", "/api/v1/migration/status", None),
    ("GET", "/api/v1/pop/queue/q?conflation=true", None),
    ("POST", "/api/v1/push", b"QPB1\0\0\0\0\0"),
    ("POST", "/api/v1/transaction", b"QTB1\0\0\0\0\0"),
    ("POST", "/api/v1/transaction", {"operations": [PUSH], "kv": [{"op": "check"}]}),
    ("POST", "/api/v1/transaction", {"operations": [PUSH], "timers": [{"op": "set"}]}),
]


@pytest.mark.parametrize(("method", "path", "body"), NOT_HERE)
def test_what_queen_has_and_forebay_has_not_is_501_with_a_way_to_go(
    http: Http, method: str, path: str, body: Any
) -> None:
    told = http.send(method, path, body)
    assert (told.status, told.json["code"]) == (501, "not_here")
    assert len(told.json["error"]) > 20
    assert http.get("/api/v1/pop/queue/untouched").status == 204


def test_pop_without_conflation_and_with_frames_is_answered_as_json(http: Http) -> None:
    queue = fresh()
    http.push(queue, 1)
    told = http.get(f"/api/v1/pop/queue/{queue}?conflation=false&frames=true")
    assert [message["data"] for message in told.json["messages"]] == [1]


def test_payload_above_the_limit_is_413_and_names_it(http: Http) -> None:
    told = http.send("POST", "/api/v1/push", body_of(OK, {**OK, "payload": "x" * (11 * 1024 * 1024)}))
    assert (told.status, told.json["field"]) == (413, "items[1].payload")
    assert http.get("/api/v1/pop/queue/untouched").status == 204


def test_body_above_the_limit_is_413_however_it_is_sent(http: Http) -> None:
    size = 65 * 1024 * 1024
    assert http.send("POST", "/api/v1/push", b" " * size).status == 413
    bomb = gzip.compress(b" " * size)
    assert http.send("POST", "/api/v1/push", bomb, {"Content-Encoding": "gzip"}).status == 413
    assert http.get("/healthz").status == 200


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("gzip", b"no gzip", 400),
        ("gzip", gzip.compress(b'{"items":[]}', mtime=0)[:-3], 400),
        ("deflate", zlib.compress(b'{"items":[]}') + b"more", 400),
        ("br", b"{}", 415),
        ("zstd", b"{}", 415),
    ],
    ids=["no gzip", "cut off", "something behind", "brotli", "zstd"],
)
def test_bad_encoding_is_refused(http: Http, encoding: str, body: bytes, status: int) -> None:
    assert http.send("POST", "/api/v1/push", body, {"Content-Encoding": encoding}).status == status


def test_wrong_method_is_405_and_says_which_are_right(http: Http) -> None:
    told = http.send("PUT", "/api/v1/push", {})
    assert (told.status, told.headers["allow"]) == (405, "OPTIONS, POST")
    assert http.send("HEAD", "/api/v1/pop/queue/q").headers["allow"] == "GET, OPTIONS"
    assert http.send("OPTIONS", "/api/v1/resources/queues/q").headers["allow"] == "DELETE, GET, HEAD, OPTIONS"
    assert http.send("PATCH", "/api/v1/messages/p/t").status == 405


def test_head_is_a_get_without_a_body(http: Http) -> None:
    told = http.send("HEAD", "/healthz")
    assert (told.status, told.body) == (200, b"")


def test_unknown_query_parameters_are_ignored(http: Http) -> None:
    assert http.get(f"/api/v1/pop/queue/{fresh()}?frames=true&conflation=no&x").status == 204


def test_too_many_query_parameters_are_refused(http: Http) -> None:
    assert http.get("/api/v1/dlq?" + "&".join(f"a{n}=1" for n in range(200))).status == 400
