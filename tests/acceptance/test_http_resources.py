"""Queues, groups, dead letters, status and metrics over HTTP."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from fixtures.running_stores import Http, any_server, fresh, http, shared_postgres_database
from fixtures.waiting import wait_until

__all__ = ["any_server", "http", "shared_postgres_database"]


def dead(http: Http, queue: str, *payloads: object) -> None:
    http.push(queue, *payloads)
    for message in http.pop(queue, batch=len(payloads)):
        http.ack(message, "dlq", error=f"reason {message['data']}")


def test_queue_counts_its_messages(http: Http) -> None:
    queue = fresh()
    http.post("/configure", {"queue": queue, "namespace": "shop", "task": "orders", "options": {"priority": 4}})
    dead(http, queue, 0)
    http.push(queue, 1, 2, 3, 4, partition="p")
    message = http.pop(queue, batch=3)[0]
    http.ack(message)
    shown = http.get(f"/api/v1/resources/queues/{queue}").json
    assert (shown["namespace"], shown["task"], shown["priority"]) == ("shop", "orders", 4)
    assert shown["totals"] == {"total": 5, "pending": 1, "processing": 2, "completed": 1, "deadLetter": 1, "lost": 0}
    assert (shown["firstSeq"], shown["nextSeq"]) == (1, 6)
    assert {partition["name"]: partition["messages"] for partition in shown["partitions"]} == {"Default": 1, "p": 4}
    listed = http.get(f"/api/v1/resources/queues?search={queue}&namespace=shop").json
    assert [(entry["name"], entry["partitions"]) for entry in listed["queues"]] == [(queue, 2)]
    assert listed["pagination"]["total"] == 1


def test_deleted_queue_is_gone_with_all_that_belonged_to_it(http: Http) -> None:
    queue = fresh()
    dead(http, queue, 1)
    assert http.send("DELETE", f"/api/v1/resources/queues/{queue}").json == {"deleted": True, "queue": queue}
    assert http.send("DELETE", f"/api/v1/resources/queues/{queue}").json["deleted"] is False
    assert http.get(f"/api/v1/dlq?queue={queue}").json["total"] == 0
    assert http.get(f"/api/v1/resources/queues/{queue}").status == 404


def test_internal_queues_are_listed_only_when_asked_for(http: Http) -> None:
    for name in (f".flow.{fresh()}.parse", f".export.{fresh()}"):
        http.push(name, 1, 2)
        assert http.pop(name, batch=1, consumerGroup="readers")[0]["data"] == 1

        def names(path: str, key: str, member: str | None = None) -> list[str]:
            found = http.get(path).json
            return [each[key] for each in (found if member is None else found[member])]

        for internal, is_listed in (("", False), ("&internal=false", False), ("&internal=true", True)):
            assert (name in names(f"/api/v1/resources/queues?limit=1000{internal}", "name", "queues")) is is_listed
            assert (name in names(f"/api/v1/status/queues?limit=1000{internal}", "name", "queues")) is is_listed
            assert (name in names(f"/api/v1/status?x=1{internal}", "name", "queues")) is is_listed
            assert (name in names(f"/api/v1/consumer-groups?x=1{internal}", "queueName")) is is_listed
        both = [http.get(f"/api/v1/resources/overview?internal={word}").json["queues"] for word in ("true", "false")]
        assert both[0] > both[1]
        assert http.get(f"/api/v1/resources/queues/{name}").json["nextSeq"] == 3
        assert http.get(f"/api/v1/status/queues/{name}").status == 200
    assert http.get("/api/v1/resources/queues?internal=perhaps").json["field"] == "internal"


def test_group_tells_its_lag_and_moves(http: Http) -> None:
    queue, group = fresh(), fresh("group")
    http.push(queue, *range(5))
    for message in http.pop(queue, batch=2, consumerGroup=group):
        http.ack(message)
    (info,) = [entry for entry in http.get("/api/v1/consumer-groups").json if entry["name"] == group]
    assert (info["queueName"], info["totalLag"], info["partitionsWithLag"], info["state"]) == (queue, 3, 1, "Stable")
    seek = f"/consumer-groups/{group}/queues/{queue}/seek"
    assert http.post(seek, {"seq": 2}).json == {"success": True, "consumerGroup": group, "partitions": 1}
    assert [message["seq"] for message in http.pop(queue, batch=9, consumerGroup=group)] == [2, 3, 4, 5]
    assert http.post(seek, {"toEnd": True}).status == 200
    assert http.pop(queue, consumerGroup=group) == []
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert http.post(f"/consumer-groups/{group}/subscription", {"subscriptionTimestamp": hour_ago}).status == 200
    assert len(http.pop(queue, batch=9, consumerGroup=group)) == 5
    assert http.post(f"/consumer-groups/{group}/queues/{queue}/partitions/Default/seek").status == 200
    assert http.get(f"/api/v1/consumer-groups/{group}").json["totalLag"] == 0
    assert http.send("DELETE", f"/api/v1/consumer-groups/{group}/queues/{queue}").status == 200
    assert http.get(f"/api/v1/consumer-groups/{group}").status == 404


def test_seek_is_previewed_and_does_what_was_told(http: Http) -> None:
    queue, group = fresh(), fresh("group")
    http.push(queue, *range(5))
    for message in http.pop(queue, batch=2, consumerGroup=group):
        http.ack(message)
    place = f"/consumer-groups/{group}/queues/{queue}"
    told = http.get(f"/api/v1{place}/seek?seq=4").json
    assert told == {
        "queue": queue,
        "consumerGroup": group,
        "partition": None,
        "fromSeq": 4,
        "partitions": 1,
        "isNew": False,
        "waiting": 3,
        "waitingAfter": 2,
        "skipped": 1,
        "repeated": 0,
        "leased": 0,
    }
    back = http.get(f"/api/v1{place}/partitions/Default/seek?seq=1").json
    assert (back["partition"], back["skipped"], back["repeated"]) == ("Default", 0, 2)
    end = http.get(f"/api/v1{place}/seek?toEnd=true").json
    assert (end["fromSeq"], end["skipped"]) == (6, 3)
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    assert http.get(f"/api/v1{place}/seek?timestamp={hour_ago}").json["repeated"] == 2
    # Nothing has changed, and the seek skips what it was told to skip, not what came since.
    http.push(queue, 5)
    assert http.post(f"{place}/seek", {"seq": told["fromSeq"]}).status == 200
    assert [message["seq"] for message in http.pop(queue, batch=9, consumerGroup=group)] == [4, 5, 6]


def test_dead_letters_are_listed_replayed_and_purged_by_choice(http: Http) -> None:
    queue = fresh()
    dead(http, queue, "a", "b", "c")
    listed = http.get(f"/api/v1/dlq?queue={queue}&limit=2").json
    assert (listed["total"], len(listed["messages"])) == (3, 2)
    wanted = next(letter for letter in http.get(f"/api/v1/dlq?queue={queue}").json["messages"] if letter["data"] == "b")
    one = {"queue": queue, "transactionId": wanted["transactionId"]}
    assert http.post("/dlq/replay", one).json == {"success": True, "replayed": 1}
    assert [message["data"] for message in http.pop(queue, batch=9)] == ["b"]
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    assert http.get(f"/api/v1/dlq?queue={queue}&from={later}").json["total"] == 0
    assert http.get(f"/api/v1/dlq?queue={queue}&to={later}").json["total"] == 2
    assert http.post("/dlq/purge", {"queue": queue, "partition": "other"}).json["purged"] == 0
    assert http.send("DELETE", f"/api/v1/dlq?queue={queue}").json == {"success": True, "purged": 2}


def test_dead_letter_is_replayed_for_its_group_unless_for_all(http: Http) -> None:
    queue = fresh()
    http.push(queue, "a")
    for group in ("had-it", "lost-it"):
        (message,) = http.pop(queue, consumerGroup=group)
        status = "completed" if group == "had-it" else "dlq"
        http.post("/ack", {**message, "status": status, "consumerGroup": group})
    assert http.post("/dlq/replay", {"queue": queue, "consumerGroup": "lost-it"}).json["replayed"] == 1
    assert http.pop(queue, consumerGroup="had-it") == []
    (again,) = http.pop(queue, consumerGroup="lost-it")
    http.post("/ack", {**again, "status": "dlq", "consumerGroup": "lost-it"})
    assert http.post("/dlq/replay", {"queue": queue, "toAllGroups": True}).json["replayed"] == 1
    assert [len(http.pop(queue, consumerGroup=group)) for group in ("had-it", "lost-it")] == [1, 1]


@pytest.mark.parametrize("to_all_groups", [False, True])
def test_all_dead_letters_of_all_queues_are_replayed_at_once(http: Http, to_all_groups: bool) -> None:
    """More queues than are stored in one turn."""
    queues = [fresh() for _ in range(10)]
    http.post("/dlq/purge", {"all": True})
    for queue in queues:
        http.push(queue, "a", "b", "c")
        assert len(http.pop(queue, batch=3, consumerGroup="had-it", autoAck="true")) == 3
        for message in http.pop(queue, batch=2, consumerGroup="lost-it"):
            http.post("/ack", {**message, "status": "dlq", "consumerGroup": "lost-it"})
    assert http.get("/api/v1/dlq?limit=1").json["total"] == 20
    assert http.post("/dlq/replay", {"all": True, "toAllGroups": to_all_groups}).json["replayed"] == 20
    assert http.get("/api/v1/dlq?limit=1").json["total"] == 0
    for queue in queues:
        again = http.pop(queue, batch=9, consumerGroup="had-it")
        assert [message["data"] for message in again] == (["a", "b"] if to_all_groups else [])
        assert [message["data"] for message in http.pop(queue, batch=9, consumerGroup="lost-it")] == ["c", "a", "b"]
    assert http.post("/dlq/replay", {"all": True}).json["replayed"] == 0


def test_message_is_moved_to_the_dead_letters_and_retried(http: Http) -> None:
    queue = fresh()
    (pushed, *_) = http.push(queue, "a", "b")
    place = f"/messages/{pushed['partitionId']}/{pushed['transactionId']}"
    assert http.post(f"{place}/dlq", {"error": "poison"}).json["deadLetters"] == 1
    (letter,) = http.get(f"/api/v1/dlq?queue={queue}").json["messages"]
    assert (letter["errorMessage"], letter["data"]) == ("poison", "a")
    assert http.post(f"{place}/dlq").status == 404
    assert http.post(f"{place}/retry").json["replayed"] == 1
    assert http.post(f"{place}/retry").status == 404
    popped = http.pop(queue, batch=9)
    assert [message["data"] for message in popped] == ["b", "a"]
    http.post("/ack", popped[0])
    finished = f"/messages/{popped[0]['partitionId']}/{popped[0]['transactionId']}/dlq"
    assert (http.post(finished).status, http.post(finished).json["code"]) == (409, "finished")


def test_queue_that_keeps_no_dead_letters_takes_none(http: Http) -> None:
    queue = fresh()
    http.post("/configure", {"queue": queue, "options": {"deadLetterQueue": False, "ttl": 3600}})
    (pushed,) = http.push(queue, "a")
    told = http.post(f"/messages/{pushed['partitionId']}/{pushed['transactionId']}/dlq")
    assert (told.status, told.json["code"]) == (409, "no_letters")
    assert len(http.pop(queue)) == 1


def test_queue_is_cleared_whole_or_one_partition(http: Http) -> None:
    queue = fresh()
    items = [{"queue": queue, "partition": name, "payload": name} for name in ("a", "b", "a")]
    http.post("/push", {"items": items})
    assert http.send("DELETE", f"/api/v1/queues/{queue}/clear?partition=a").json["removed"] == 2
    assert http.send("DELETE", f"/api/v1/queues/{queue}/clear").json == {"success": True, "queue": queue, "removed": 1}
    assert http.pop(queue) == []


def test_messages_are_browsed_page_by_page_and_stay(http: Http) -> None:
    queue = fresh()
    (first, *_) = http.push(queue, *range(5))
    page = http.get(f"/api/v1/messages?queue={queue}&limit=3").json
    assert ([message["data"] for message in page["messages"]], page["nextSeq"]) == ([0, 1, 2], 4)
    rest = http.get(f"/api/v1/status/queues/{queue}/messages?fromSeq={page['nextSeq']}&limit=3").json
    assert ([message["data"] for message in rest["messages"]], rest["nextSeq"]) == ([3, 4], None)
    shown = http.get(f"/api/v1/messages/{first['partitionId']}/{first['transactionId']}").json
    assert (shown["id"], shown["data"]) == (first["messageId"], 0)
    assert len(http.pop(queue, batch=9)) == 5


def test_trace_text_comes_out_byte_for_byte(http: Http) -> None:
    queue, name = fresh(), fresh("trace")
    (pushed,) = http.push(queue, 1)
    ids = f'"transactionId":"{pushed["transactionId"]}","partitionId":"{pushed["partitionId"]}"'
    body = f'{{{ids},"traceNames":"{name}","data":{{"a" : 1.10}}}}'.encode()
    assert http.post("/traces", body).status == 201
    assert b'"data":{"a" : 1.10},' in http.get(f"/api/v1/traces/by-name/{name}").body
    assert name in [entry["traceName"] for entry in http.get("/api/v1/traces/names?limit=10000").json["traceNames"]]


def test_trace_that_notes_too_much_is_refused_and_leaves_nothing(http: Http) -> None:
    queue, name = fresh(), fresh("trace")
    (pushed,) = http.push(queue, 1)
    body = {
        "transactionId": pushed["transactionId"],
        "partitionId": pushed["partitionId"],
        "traceNames": name,
        "data": "x" * 64 * 1024,
    }
    told = http.post("/traces", body)
    assert (told.status, told.json["code"], told.json["field"]) == (413, "too_large", "data")
    assert http.get(f"/api/v1/traces/by-name/{name}").json["total"] == 0
    assert http.get(f"/api/v1/traces/by-name/{name}?limit=1001").status == 400


def test_maintenance_is_told_and_ends(http: Http) -> None:
    queue = fresh()
    http.push(queue, 1)
    assert http.post("/system/maintenance", {"enabled": True}).json["maintenanceMode"] is True
    try:
        [buffered] = http.post("/push", {"items": [{"queue": queue, "payload": 2}]}).json
        assert (buffered["status"], buffered["receipt"], buffered["seq"]) == ("buffered", "buffer", None)
        state = http.get("/api/v1/system/maintenance").json
        assert (state["maintenanceMode"], state["bufferedMessages"]) == (True, 1)
        assert http.get("/api/v1/status/buffers").json["queues"] == {queue: 1}
    finally:
        assert http.post("/system/maintenance", {"enabled": False}).json["maintenanceMode"] is False
    assert http.post("/system/maintenance/pop", {"enabled": True}).json["popMaintenanceMode"] is True
    try:
        assert http.get(f"/api/v1/pop/queue/{queue}").status == 204
        assert http.get(f"/api/v1/pop/queue/{queue}?wait=true&timeout=100").status == 204
    finally:
        http.post("/system/maintenance/pop", {"enabled": False})
    # What was pushed meanwhile is stored when the maintenance ends, behind what was there before.
    wait_until(lambda: http.get("/api/v1/status/buffers").json["pending"] == 0)
    assert [message["data"] for message in http.pop(queue, batch=9)] == [1, 2]


def test_buffers_are_empty_and_say_so(http: Http) -> None:
    told = http.get("/api/v1/status/buffers").json
    assert (told["pending"], told["failed"], told["dbHealthy"], told["bytes"], told["queues"]) == (0, 0, True, 0, {})


def test_metrics_count_what_happened(http: Http) -> None:
    def pushed() -> int:
        found = re.search(rb"^forebay_messages_pushed_total (\d+)$", http.get("/metrics").body, re.MULTILINE)
        assert found is not None
        return int(found[1])

    before = pushed()
    http.push(fresh(), 1, 2, 3)
    assert pushed() == before + 3
    told = http.send("GET", "/metrics", headers={"Accept": "application/json"})
    assert told.json["messages"]["pushed"] == before + 3
    assert b'path="/api/v1/push",status="201"' in http.get("/metrics/prometheus").body


def test_description_is_one_document_without_anything_from_elsewhere(http: Http) -> None:
    document = http.get("/openapi.json").json
    assert document["openapi"] == "3.1.0"
    page = http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert not re.findall(rb"<script|https?://|@import", page.body)
    for path in document["paths"]:
        assert path.encode() in page.body
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert references <= set(document["components"]["schemas"])


def test_dashboard_sees_retention_and_waiting_consumers(http: Http) -> None:
    queue = fresh()
    consumer = Http(http.url)

    def parked() -> list[tuple[str, int]]:
        series = http.get("/api/v1/analytics/queue-parked-replicas").json["series"]
        return [(point["queueName"], point["parkedCount"]) for point in series]

    with closing(consumer), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.get, f"/api/v1/pop/queue/{queue}?wait=true&timeout=30000")
        wait_until(lambda: parked() == [(queue, 1)])
        http.push(queue, 1)
        assert waiting.result(30).status == 200
    told = http.get("/api/v1/analytics/retention").json
    assert (told["bucketMinutes"], told["totals"]) == (1, {"totalMsgs": 0})
    assert told["timeRange"]["from"] < told["timeRange"]["to"]


def test_queue_says_how_long_it_keeps_what_is_finished(http: Http) -> None:
    queue = fresh()
    for options, kept in (
        ({}, (None, None)),
        ({"completedRetentionSeconds": 60}, (None, 60)),
        ({"completedRetentionSeconds": 60, "retentionSeconds": 90, "ttl": 30}, (30, 60)),
        ({"completedRetentionSeconds": 60, "retentionEnabled": False}, (None, None)),
    ):
        http.post("/configure", {"queue": queue, "options": options})
        (found,) = http.get(f"/api/v1/resources/queues?search={queue}").json["queues"]
        assert (found["keptSeconds"], found["completedKeptSeconds"]) == kept


def test_metrics_have_the_room_on_the_disk(http: Http) -> None:
    wait_until(lambda: 'forebay_disk_free_bytes{path="' in http.get("/metrics").body.decode())
    text = http.get("/metrics").body.decode()
    free = re.search(r'forebay_disk_free_bytes\{path="[^"]+"\} (\d+)', text)
    size = re.search(r'forebay_disk_size_bytes\{path="[^"]+"\} (\d+)', text)
    assert free is not None
    assert size is not None
    assert 0 < int(free[1]) <= int(size[1])


def test_metrics_tell_depth_lag_and_leases_of_queues_and_groups(http: Http) -> None:
    queue = fresh()
    dead(http, queue, 0)
    http.push(queue, 1, 2, 3, 4, partition="p")
    http.ack(http.pop(queue, batch=3)[0])
    wanted = {
        f'forebay_queue_depth{{queue="{queue}"}} 1',
        f'forebay_queue_messages{{queue="{queue}"}} 5',
        f'forebay_queue_dead_letters{{queue="{queue}"}} 1',
        f'forebay_queue_messages_accepted_total{{queue="{queue}"}} 5',
        f'forebay_group_lag_messages{{queue="{queue}",group="__QUEUE_MODE__"}} 3',
        f'forebay_group_leased_messages{{queue="{queue}",group="__QUEUE_MODE__"}} 2',
        f'forebay_group_dead_letters{{queue="{queue}",group="__QUEUE_MODE__"}} 1',
    }
    wait_until(lambda: wanted <= set(http.get("/metrics").body.decode().splitlines()))


def test_metrics_have_the_distribution_of_what_requests_took(http: Http, request: pytest.FixtureRequest) -> None:
    store = request.node.callspec.params["any_server"]

    def counts() -> dict[str, int]:
        found = re.findall(r"^forebay_(\w+)_seconds_count (\d+)$", http.get("/metrics").body.decode(), re.MULTILINE)
        return {name: int(count) for name, count in found}

    before, queue = counts(), fresh()
    http.push(queue, 1, 2, 3)
    assert len(http.pop(queue, batch=3)) == 3
    after = counts()
    # By request and by batch, not by message; others may use the server too.
    expected = {"push", "pop", "time_in_queue"}
    expected |= {"asgi": set(), "postgres": {"store_commit"}}.get(store, {"store_commit", "log_append", "log_sync"})
    assert {name for name, count in after.items() if count > before[name]} == expected
    assert b'forebay_push_seconds_bucket{le="+Inf"}' in http.get("/metrics").body
    assert b"\nprocess_cpu_seconds_total " in http.get("/metrics").body
