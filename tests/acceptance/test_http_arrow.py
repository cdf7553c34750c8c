"""Arrow over HTTP, on a started server: what a client sees of ranges, stages and commits."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from fixtures.arrow_steps import ipc
from fixtures.running_stores import Http, any_server, fresh, http, shared_postgres_database

__all__ = ["any_server", "http", "shared_postgres_database"]

END_MARKER = b"\xff\xff\xff\xff\0\0\0\0"


def stage(http: Http, queue: str, body: bytes, epoch: object = 1, **headers: str) -> Any:
    path = f"/api/v1/arrow/queues/{queue}?producer={queue}&epoch={epoch}&part=0"
    return http.send("POST", path, body, headers)


def commit(http: Http, queue: str, stages: list[str], epoch: object = 1) -> Any:
    return http.post("/arrow/commit", {"producer": queue, "epoch": epoch, "stages": stages})


def rows(http: Http, queue: str, query: str = "") -> list[dict[str, Any]]:
    told = http.get(f"/api/v1/arrow/queues/{queue}{query}")
    assert (told.status, told.headers["content-type"]) == (200, "application/vnd.apache.arrow.stream")
    assert told.body.endswith(END_MARKER)
    found: list[dict[str, Any]] = pa.ipc.open_stream(told.body).read_all().to_pylist()
    return found


def test_rows_go_in_and_come_out(http: Http) -> None:
    queue = fresh()
    told = stage(http, queue, ipc({"payload": ['{"a":1}', "[2]"], "partition": ["p1", "p2"]}))
    assert (told.status, told.json["messages"], told.json["bytes"]) == (201, 2, 10)
    assert http.get(f"/api/v1/arrow/queues/{queue}/range").status == 404
    done = commit(http, queue, [told.json["stage"]])
    assert done.status == 200
    assert done.json == {
        "committed": True,
        "already": False,
        "messages": 2,
        "duplicates": 0,
        "queues": {queue: {"firstSeq": 1, "lastSeq": 2}},
    }
    assert [(row["seq"], row["partition"], row["payload"]) for row in rows(http, queue)] == [
        (1, "p1", b'{"a":1}'),
        (2, "p2", b"[2]"),
    ]
    assert [message["data"] for message in http.pop(queue, batch=2, partitions=2)] == [{"a": 1}, [2]]
    told = http.get(f"/api/v1/arrow/queues/{queue}/range").json
    assert told == {
        "queue": queue,
        "identity": told["identity"],
        "firstSeq": 1,
        "nextSeq": 3,
        "bytes": 10,
    }


def test_epoch_is_a_number_or_a_text_and_is_committed_once(http: Http) -> None:
    queue = fresh()
    told = stage(http, queue, ipc({"payload": ["1"]}), epoch=7)
    assert commit(http, queue, [told.json["stage"]], epoch=7).json["already"] is False
    assert commit(http, queue, [told.json["stage"]], epoch="7").json["already"] is True
    other = stage(http, queue, ipc({"payload": ["other"]}), epoch=7).json["stage"]
    refused = commit(http, queue, [other], epoch=7)
    assert (refused.status, refused.json["code"]) == (409, "commit_differs")
    assert "writeName" in refused.json["error"]
    refused = commit(http, queue, ["whatever"], epoch=8)
    assert (refused.status, refused.json["code"]) == (409, "stage_unknown")


def test_payload_that_is_no_json_is_answered_as_base64(http: Http) -> None:
    queue = fresh()
    body = ipc({"payload": pa.array([b"1", b"\xff\0", b"", b"{", b"1\n2", b"[\n1]"], pa.binary())})
    commit(http, queue, [stage(http, queue, body).json["stage"]])
    told = http.get(f"/api/v1/messages?queue={queue}").json["messages"]
    assert [(m["encoding"], m["data"]) for m in told] == [
        ("json", 1),
        ("base64", "/wA="),
        ("base64", ""),
        ("base64", "ew=="),
        ("base64", "MQoy"),
        ("json", [1]),
    ]
    assert [row["payload"] for row in rows(http, queue)] == [b"1", b"\xff\0", b"", b"{", b"1\n2", b"[\n1]"]


def test_ranges_are_narrowed_by_the_query(http: Http) -> None:
    queue = fresh()
    for number in range(6):
        http.push(queue, number, partition=f"p{number % 3}")
    assert [row["seq"] for row in rows(http, queue, "?from=2&to=4")] == [2, 3, 4]
    assert [row["seq"] for row in rows(http, queue, "?partition=p0&partition=p2")] == [1, 3, 4, 6]
    assert [row["seq"] for row in rows(http, queue, "?limitBytes=2")] == [1, 2]
    assert rows(http, queue, "?createdFrom=2100-01-01T00:00:00Z") == []
    assert len(rows(http, queue, "?createdTo=2100-01-01T00:00:00Z")) == 6
    assert http.get(f"/api/v1/arrow/queues/{queue}/range?time=2100-01-01T00:00:00Z").json["seqAtTime"] == 7
    assert http.send("HEAD", f"/api/v1/arrow/queues/{queue}").body == b""
    assert http.get(f"/api/v1/arrow/queues/{queue}?from=-1").json["field"] == "from"
    assert http.get(f"/api/v1/arrow/queues/{fresh()}").status == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", None),
        (b"junk that is no Arrow", None),
        (ipc({"payload": ["1"]})[:-8], None),
        (ipc({"payload": ["1"] * 100})[:-300], None),
        (ipc({"other": ["1"]}), "other"),
        (ipc({"partition": ["1"]}), "payload"),
        (ipc({"payload": [1]}), "payload"),
        (ipc({"payload": ["1", None]}), "payload"),
        (ipc({"payload": ["1"], "partition": [""]}), "partition"),
        (ipc({"payload": ["1"], "partition": ["a/../b"]}), "partition"),
        (ipc({"payload": ["1"], "transaction_id": ["x" * 256]}), "transaction_id"),
        (ipc({"payload": ["1"], "trace_id": ["a\0b"]}), "trace_id"),
        (ipc({"payload": ["1"], "headers": ["[]"]}), "headers"),
    ],
)
def test_rows_that_cannot_be_messages_are_refused_by_name(http: Http, body: bytes, field: str | None) -> None:
    queue = fresh()
    told = stage(http, queue, body)
    assert (told.status, told.json.get("field")) == (400, field), told.body


def test_compressed_dictionary_and_large_columns_are_accepted(http: Http) -> None:
    queue = fresh()
    table = pa.table(
        {
            "payload": pa.array([b"1", b"2", b"3"], pa.large_binary()),
            "partition": pa.array(["a", "b", "a"]).dictionary_encode(),
            "trace_id": pa.array(["x", None, "y"], pa.large_string()),
        }
    )
    for compression in ("lz4", "zstd", None):
        body = ipc(table, options=pa.ipc.IpcWriteOptions(compression=compression))
        told = stage(http, queue, body, epoch=str(compression))
        assert told.status == 201, told.body
        commit(http, queue, [told.json["stage"]], epoch=str(compression))
    assert [(row["partition"], row["trace_id"]) for row in rows(http, queue)] == [
        ("a", "x"),
        ("b", None),
        ("a", "y"),
    ] * 3


def test_small_body_of_rows_that_become_too_large_is_413(http: Http) -> None:
    value = pa.array([b"1" * (1 << 20)])
    payloads = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), value)
    told = stage(http, fresh(), ipc({"payload": payloads}))
    assert (told.status, told.json["code"]) == (413, "too_large"), told.body


def test_missing_names_are_refused(http: Http) -> None:
    body = ipc({"payload": ["1"]})
    assert http.send("POST", "/api/v1/arrow/queues/q?epoch=1", body).json["field"] == "producer"
    assert http.send("POST", "/api/v1/arrow/queues/q?producer=p", body).json["field"] == "epoch"
    assert http.send("DELETE", "/api/v1/arrow/stages?producer=p").json["field"] == "epoch"
    assert http.post("/arrow/commit", {"producer": "p", "epoch": 1}).json["field"] == "stages"


def test_aborted_stages_cannot_be_committed(http: Http) -> None:
    queue = fresh()
    told = stage(http, queue, ipc({"payload": ["1"]}))
    assert http.send("DELETE", f"/api/v1/arrow/stages?producer={queue}&epoch=1").json == {"removed": 1}
    assert commit(http, queue, [told.json["stage"]]).status == 409


def test_full_queue_answers_429_and_keeps_the_stages(http: Http) -> None:
    queue = fresh()
    http.post("/configure", {"queue": queue, "options": {"maxSize": 1}})
    told = stage(http, queue, ipc({"payload": ["1", "2"]}))
    refused = commit(http, queue, [told.json["stage"]])
    assert (refused.status, refused.json["code"], refused.headers["retry-after"]) == (429, "queue_full", "1")
    http.post("/configure", {"queue": queue, "options": {"maxSize": 2}})
    assert commit(http, queue, [told.json["stage"]]).json["messages"] == 2


def test_client_that_goes_away_in_the_middle_leaves_the_server_well(http: Http) -> None:
    queue = fresh()
    body = ipc({"payload": pa.array([b'"%s"' % (b"x" * 1000)] * 30_000, pa.binary())})
    commit(http, queue, [stage(http, queue, body).json["stage"]])
    parts = urlsplit(http.url)
    for _ in range(3):
        with socket.create_connection((parts.hostname, parts.port)) as connection:
            connection.sendall(f"GET /api/v1/arrow/queues/{queue} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert len(rows(http, queue, "?from=29000")) == 1001


def test_stages_are_counted_in_the_metrics(http: Http) -> None:
    stage(http, fresh(), ipc({"payload": ["1"]}))
    lines = dict(line.rsplit(" ", 1) for line in http.get("/metrics").body.decode().splitlines())
    assert int(lines["forebay_stages"]) >= 1
    assert int(lines["forebay_stage_bytes"]) >= 1
    assert "forebay_stages_expired_total" in lines
