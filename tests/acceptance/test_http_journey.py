"""The journey over HTTP: on every store, and while the store is away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fixtures.running_stores import Http, any_server, fresh, http, shared_postgres_database
from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PostgresServer

__all__ = ["any_server", "http", "shared_postgres_database"]


def stage(http: Http, name: str) -> dict[str, Any]:
    stages = http.get("/api/v1/journey").json["stages"]
    return next(dict(each) for each in stages if each["name"] == name)


def texts(http: Http) -> list[str]:
    return [trouble["text"] for trouble in http.get("/api/v1/journey").json["troubles"]]


def test_what_is_pushed_and_not_finished_waits_in_the_queues(http: Http) -> None:
    queue = fresh()
    http.push(queue, 0)

    def is_shown(own: int) -> bool:
        """Whether the queue has so many, and the stage what all queues have together."""
        waiting = stage(http, "queues")["waiting"]
        queues = http.get("/api/v1/journey/queues?limit=1000&internal=true").json["queues"]
        assert len(queues) < 1000
        return {each["name"]: each["waiting"] for each in queues}.get(queue) == own and waiting == sum(
            each["waiting"] for each in queues
        )

    wait_until(lambda: is_shown(1))
    http.push(queue, *range(30))
    wait_until(lambda: is_shown(31))
    for message in http.pop(queue, batch=10):
        http.ack(message)
    wait_until(lambda: is_shown(21))


def test_history_of_a_queue_follows_what_waits(http: Http) -> None:
    queue = fresh()
    http.push(queue, 1, 2, 3)
    wait_until(lambda: http.get(f"/api/v1/journey/queues/{queue}").json["waiting"][-1:] == [3])
    told = http.get("/api/v1/journey/history").json
    assert {len(values) for values in told["series"].values()} == {len(told["times"])}
    assert http.get("/api/v1/journey/queues/never-made").json == {"times": [], "waiting": [], "pushedPerSecond": []}


def test_queues_are_listed_a_page_at_a_time_in_the_order_that_is_asked_for(http: Http) -> None:
    names = [f"{fresh('list')}-{number}" for number in range(3)]
    for number, name in enumerate(names):
        http.push(name, *range(number + 1))
    http.push(f".flow.{names[0]}.parse", 1)

    def listed(query: str) -> list[str]:
        told = http.get(f"/api/v1/journey/queues?search=list-{query}")
        assert told.status == 200, told
        return [queue["name"] for queue in told.json["queues"] if queue["name"] in names]

    wait_until(lambda: listed("&sort=-waiting&limit=1000") == names[::-1])
    assert listed("&sort=waiting&limit=1000") == names
    assert listed("&sort=name&limit=1000") == sorted(names)
    assert listed("&sort=-created&limit=1000") == names[::-1]
    both = http.get(f"/api/v1/journey/queues?search={names[0]}&internal=true").json
    assert {queue["name"] for queue in both["queues"]} == {names[0], f".flow.{names[0]}.parse"}
    assert http.get(f"/api/v1/journey/queues?search={names[0]}").json["pagination"]["total"] == 1
    assert http.get("/api/v1/journey/queues?sort=other").status == 400


def test_times_are_told_with_their_quantiles(http: Http) -> None:
    http.push(fresh(), 1)
    (push,) = [each for each in http.get("/api/v1/journey/latency").json["histograms"] if each["name"] == "push"]
    assert push["count"] >= 1
    assert 0 < push["p50"] <= push["p99"]
    assert sum(bucket["count"] for bucket in push["buckets"]) == push["count"]


def test_dead_letters_are_told_until_they_are_gone(http: Http) -> None:
    queue = fresh()
    http.push(queue, 1)
    http.ack(http.pop(queue)[0], "dlq")
    told = f"Queue {queue} has 1 dead letter."
    wait_until(lambda: told in texts(http))
    http.post("/dlq/purge", {"queue": queue})
    wait_until(lambda: told not in texts(http))


def test_message_is_found_by_its_id_in_one_partition_or_in_all(http: Http) -> None:
    queue = fresh()
    items = [{"queue": queue, "partition": name, "payload": name, "transactionId": "same"} for name in ("a", "b")]
    http.post("/push", {"items": items})
    path = f"/api/v1/messages?queue={queue}&transactionId=same"
    assert sorted(each["data"] for each in http.get(path).json["messages"]) == ["a", "b"]
    assert [each["data"] for each in http.get(f"{path}&partition=b").json["messages"]] == ["b"]
    assert http.get(f"{path}&partition=c").json["messages"] == []
    assert http.get(f"/api/v1/messages?queue={queue}&transactionId=other").json["messages"] == []


def test_store_that_is_away_is_told_and_the_last_figures_stay(postgres_server: PostgresServer, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", store=postgres_server.url) as server, Http(server.url) as http:
        http.push("orders", 1, 2)
        wait_until(lambda: stage(http, "queues")["waiting"] == 2)
        postgres_server.kill()
        http.push("orders", 3)
        wait_until(lambda: not http.get("/api/v1/journey").json["isStoreThere"])
        wait_until(lambda: stage(http, "ingest")["atRisk"] == 1)
        assert stage(http, "queues")["waiting"] == 2
        assert texts(http)[0].startswith("The store does not answer")
        postgres_server.start()
        wait_until(lambda: stage(http, "queues")["waiting"] == 3)
        wait_until(lambda: not any("store does not answer" in text for text in texts(http)))
