"""Dispatch over HTTP, on every store: from messages to parcels, through leases, to their end."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from fixtures.running_stores import Http, any_server, fresh, http, shared_postgres_database
from fixtures.waiting import wait_until

__all__ = ["any_server", "http", "shared_postgres_database"]

WAIT_MS = 10_000
DETAILED = "/api/v2/metrics/queues/detailed"


class Flow:
    """A flow of its own queue and action class, so that tests do not meet."""

    def __init__(self, http: Http, *, messages: int = 10, steps: int = 1, retries: int = 1, **more: Any) -> None:
        self.http = http
        self.name, self.queue = fresh("flow"), fresh("in")
        self.classes = [fresh(f"class{number}") for number in range(steps)]
        retry = {"maxAttempts": retries, "delaySeconds": 0.0}
        self.definition = {
            "source": {"queue": self.queue, "parcelMessages": messages, "parcelWaitSeconds": 0.05},
            "steps": [
                {"action": f"step{number}", "actionClass": name, "retry": retry}
                for number, name in enumerate(self.classes)
            ],
            **more,
        }
        self.defined = self.put()

    def put(self) -> dict[str, Any]:
        told = self.http.send("PUT", f"/api/v1/dispatch/flows/{self.name}", self.definition)
        assert told.status == 200, told
        return dict(told.json)

    def push(self, count: int) -> None:
        self.http.push(self.queue, *range(count))

    def lease(self, *, step: int = 0, parcels: int = 100, wait: int = WAIT_MS, worker: str = "w1") -> dict[str, Any]:
        """A lease, which has to come."""
        told = self.try_lease(step=step, parcels=parcels, wait=wait, worker=worker)
        assert told is not None, "no parcel came"
        return told

    def try_lease(
        self, *, step: int = 0, parcels: int = 100, wait: int = 0, worker: str = "w1"
    ) -> dict[str, Any] | None:
        body = {"worker": worker, "classes": [self.classes[step]], "parcels": parcels, "wait": wait, "plugin": "shop:1"}
        told = self.http.post("/dispatch/lease", body)
        assert told.status in (200, 204), told
        return dict(told.json) if told.status == 200 else None

    def complete(self, lease: dict[str, Any], state: str = "COMPLETE", **more: Any) -> Any:
        outcomes = [{"did": parcel["did"], "state": state, **more} for parcel in lease["parcels"]]
        return self.http.post(f"/dispatch/leases/{lease['leaseId']}/complete", {"outcomes": outcomes})

    def show(self) -> dict[str, Any]:
        return dict(self.http.get(f"/api/v1/dispatch/flows/{self.name}").json)

    def parcels(self, **query: object) -> list[dict[str, Any]]:
        words = "&".join(f"{name}={value}" for name, value in query.items())
        return list(self.http.get(f"/api/v1/parcels?flow={self.name}&{words}").json["parcels"])

    def states(self) -> list[str]:
        return [parcel["state"] for parcel in self.parcels()]


def history(http: Http, did: str) -> dict[str, Any]:
    return dict(http.get(f"/api/v1/parcels/{did}").json)


def test_messages_become_parcels_that_are_leased_in_order_and_completed(http: Http) -> None:
    flow = Flow(http)
    flow.push(30)
    wait_until(lambda: flow.show()["nextSeq"] == 31)
    lease = flow.lease()
    assert [(p["ranges"][0]["firstSeq"], p["ranges"][0]["lastSeq"]) for p in lease["parcels"]] == [
        (1, 10),
        (11, 20),
        (21, 30),
    ]
    assert {p["attempt"] for p in lease["parcels"]} == {1}
    assert lease["definitions"][f"{flow.name}@1"]["name"] == flow.name
    assert 0 < lease["heartbeatSeconds"] < lease["leaseSeconds"] <= 60
    assert flow.try_lease() is None
    assert flow.show()["leased"] == 3
    done = flow.complete(lease, rowsIn=10, rowsOut=9, bad=1)
    assert (done.status, done.json["parcels"], done.json["repeated"]) == (200, 3, False)
    assert flow.states() == ["COMPLETE"] * 3
    assert flow.show()["leased"] == 0


def test_a_completion_that_is_sent_again_is_known(http: Http) -> None:
    flow = Flow(http)
    flow.push(10)
    lease = flow.lease()
    assert flow.complete(lease).json["repeated"] is False
    again = flow.complete(lease)
    assert (again.status, again.json["repeated"]) == (200, True)
    otherwise = flow.complete(lease, "ERROR", error="no")
    assert (otherwise.status, otherwise.json["code"]) == (409, "lease_lost")
    assert flow.states() == ["COMPLETE"]


def test_a_lease_that_is_not_there_is_lost(http: Http) -> None:
    for word in ("heartbeat", "complete"):
        told = http.post(f"/dispatch/leases/none/{word}", {"outcomes": []} if word == "complete" else None)
        assert (told.status, told.json["code"]) == (409, "lease_lost")
    assert http.post("/dispatch/leases/none/release").json["parcels"] == 0


def test_a_heartbeat_prolongs_and_a_release_gives_back_without_counting(http: Http) -> None:
    flow = Flow(http)
    flow.push(10)
    lease = flow.lease()

    def is_prolonged() -> bool:
        beat = http.post(f"/dispatch/leases/{lease['leaseId']}/heartbeat")
        assert beat.status == 200
        return bool(beat.json["until"] > lease["until"])

    wait_until(is_prolonged)  # by no more than the time since it began, which may be less than a millisecond
    assert http.post(f"/dispatch/leases/{lease['leaseId']}/release").json["parcels"] == 1
    assert http.post(f"/dispatch/leases/{lease['leaseId']}/heartbeat").status == 409
    assert flow.lease()["parcels"][0]["attempt"] == 1


def test_parcels_go_from_step_to_step(http: Http) -> None:
    flow = Flow(http, steps=2)
    flow.push(10)
    assert flow.complete(flow.lease()).status == 200
    second = flow.lease(step=1)
    assert second["parcels"][0]["action"] == "step1"
    [reading] = second["parcels"][0]["ranges"]
    path = f"/api/v1/arrow/queues/{flow.queue}"
    identity = flow.http.get(f"{path}/range").json["identity"]
    assert reading == {"queue": flow.queue, "firstSeq": 1, "lastSeq": 10, "identity": identity, "removedUpTo": 0}
    words = "from={firstSeq}&to={lastSeq}&identity={identity}&removedUpTo={removedUpTo}".format_map(reading)
    assert flow.http.get(f"{path}?{words}").status == 200
    assert flow.http.get(f"{path}?{words.replace(identity, '1-1')}").status == 409
    assert flow.states() == ["IN_FLIGHT"]
    flow.complete(second)
    assert flow.states() == ["COMPLETE"]


def test_a_lease_of_the_same_step_has_parcels_of_one_flow_version_and_step(http: Http) -> None:
    one = Flow(http, messages=5)
    two = Flow(http, messages=5)
    two.definition["steps"][0]["actionClass"] = one.classes[0]
    two.classes = one.classes
    two.put()
    one.push(10)
    two.push(10)
    wait_until(lambda: [flow.show()["queued"] for flow in (one, two)] == [2, 2])
    leases = [
        http.post("/dispatch/lease", {"worker": "w", "classes": one.classes, "sameStep": True}).json for _ in range(2)
    ]
    assert [[parcel["flow"] for parcel in lease["parcels"]] for lease in leases] in (
        [[one.name] * 2, [two.name] * 2],
        [[two.name] * 2, [one.name] * 2],
    )


def test_a_filtered_parcel_ends_there(http: Http) -> None:
    flow = Flow(http, steps=2)
    flow.push(10)
    flow.complete(flow.lease(), "FILTERED")
    assert flow.states() == ["FILTERED"]
    assert flow.try_lease(step=1) is None


def test_an_error_waits_for_a_person_and_goes_on_when_resumed(http: Http) -> None:
    flow = Flow(http)
    flow.push(10)
    lease = flow.lease()
    flow.complete(lease, "ERROR", error="no such place")
    (parcel,) = flow.parcels(state="ERROR")
    assert (parcel["error"], parcel["attempts"], parcel["dueAt"]) == ("no such place", 1, None)
    assert flow.show()["errors"] == 1
    assert flow.parcels(error="such") != []
    assert flow.parcels(error="other") == []
    assert http.post("/parcels/resume", {"dids": [parcel["did"]]}).json["resumed"] == 1
    assert http.post("/parcels/resume", {"flow": flow.name}).json["resumed"] == 0
    again = flow.lease()
    assert (again["parcels"][0]["did"], again["parcels"][0]["attempt"]) == (parcel["did"], 1)
    flow.complete(again)
    assert flow.states() == ["COMPLETE"]


def test_an_error_is_retried_as_the_step_says(http: Http) -> None:
    flow = Flow(http, retries=2)
    flow.push(10)
    flow.complete(flow.lease(), "ERROR", error="first")
    second = flow.lease()
    assert second["parcels"][0]["attempt"] == 2
    flow.complete(second, "ERROR", error="second")
    wait_until(lambda: flow.parcels(state="ERROR") != [])
    assert flow.try_lease(wait=1500) is None


def test_a_policy_resumes_the_errors_that_it_names(http: Http) -> None:
    flow, policy = Flow(http), fresh("policy")
    body = {"flow": flow.name, "errorText": "refused", "maxAttempts": 3, "delaySeconds": 0.0, "maxDelaySeconds": 0.0}
    told = http.send("PUT", f"/api/v1/dispatch/policies/{policy}", body)
    assert (told.status, told.json["priority"]) == (200, 100)
    flow.push(10)
    flow.complete(flow.lease(), "ERROR", error="connection refused")
    again = flow.lease()
    assert again["parcels"][0]["attempt"] == 2
    flow.complete(again, "ERROR", error="another one")
    wait_until(lambda: flow.parcels(state="ERROR") != [])
    assert http.send("DELETE", f"/api/v1/dispatch/policies/{policy}").status == 200
    assert policy not in [one["name"] for one in http.get("/api/v1/dispatch/policies").json["policies"]]


def test_the_history_of_a_parcel_says_who_did_what_when(http: Http) -> None:
    flow = Flow(http)
    flow.push(10)
    lease = flow.lease(worker="worker-7")
    run = {
        "action": "step0",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:01Z",
        "rowsIn": 10,
        "rowsOut": 8,
        "bad": 2,
    }
    flow.complete(lease, actions=[run], rowsIn=10, rowsOut=8, bad=2, annotations={"city": "Bern"})
    found = history(http, lease["parcels"][0]["did"])
    assert found["parcel"]["annotations"] == {"city": "Bern"}
    assert found["parcel"]["finishedAt"] is not None
    assert [step["state"] for step in found["steps"]] == ["COMPLETE"]
    ran = [event for event in found["events"] if event["rowsOut"] == 8]
    assert ran, found["events"]
    assert (ran[0]["worker"], ran[0]["attempt"], ran[0]["bad"]) == ("worker-7", 1, 2)
    assert [event["number"] for event in found["events"]] == list(range(1, len(found["events"]) + 1))


def test_a_parcel_is_replayed_as_a_new_one(http: Http) -> None:
    flow = Flow(http)
    flow.push(10)
    flow.complete(flow.lease())
    (parcel,) = flow.parcels()
    told = http.post(f"/parcels/{parcel['did']}/replay")
    assert told.status == 201
    lease = flow.lease()
    assert lease["parcels"][0]["did"] == told.json["did"] != parcel["did"]
    assert lease["parcels"][0]["ranges"][0]["lastSeq"] == 10
    flow.complete(lease)
    assert flow.states() == ["COMPLETE", "COMPLETE"]


def test_cancelled_parcels_are_not_leased_and_not_completed(http: Http) -> None:
    flow = Flow(http)
    flow.push(20)
    wait_until(lambda: len(flow.parcels()) == 2)
    lease = flow.lease(parcels=1)
    assert http.post("/parcels/cancel", {"flow": flow.name}).json["cancelled"] == 2
    assert flow.complete(lease).status == 409
    assert flow.try_lease() is None
    assert flow.states() == ["CANCELLED"] * 2


def test_annotations_are_kept_unless_overwriting_is_asked_for(http: Http) -> None:
    flow = Flow(http)
    flow.push(10)
    wait_until(lambda: flow.parcels() != [])
    did = flow.parcels()[0]["did"]
    path = f"/parcels/{did}/annotate"
    assert http.post(path, {"annotations": {"a": "1"}}).json["annotations"] == {"a": "1"}
    assert http.post(path, {"annotations": {"a": "1", "b": "2"}}).status == 200
    refused = http.post(path, {"annotations": {"a": "3"}})
    assert (refused.status, refused.json["code"]) == (409, "annotation_kept")
    told = http.post(path, {"annotations": {"a": "3"}, "overwrite": True})
    assert told.json["annotations"] == {"a": "3", "b": "2"}


def test_a_paused_flow_keeps_its_parcels_and_a_stopped_one_is_not_cut(http: Http) -> None:
    flow = Flow(http)
    flow.push(10)
    wait_until(lambda: flow.show()["queued"] == 1)
    assert http.post(f"/dispatch/flows/{flow.name}/pause").json["state"] == "PAUSED"
    assert flow.try_lease() is None
    assert http.post(f"/dispatch/flows/{flow.name}/stop").json["state"] == "STOPPED"
    flow.complete(flow.lease())
    flow.push(10)
    assert flow.try_lease(wait=500) is None
    assert http.post(f"/dispatch/flows/{flow.name}/resume").json["state"] == "RUNNING"
    assert flow.lease()["parcels"][0]["ranges"][0]["firstSeq"] == 11


def test_a_flow_is_defined_again_and_forgotten_when_its_parcels_are_finished(http: Http) -> None:
    flow = Flow(http)
    assert flow.put()["version"] == flow.defined["version"]
    flow.definition["rateLimit"] = {"amount": 1_000_000}
    assert flow.put()["version"] == flow.defined["version"] + 1
    flow.push(10)
    wait_until(lambda: flow.parcels() != [])
    refused = http.send("DELETE", f"/api/v1/dispatch/flows/{flow.name}")
    assert (refused.status, refused.json["code"]) == (409, "flow_unfinished")
    flow.complete(flow.lease())
    assert http.send("DELETE", f"/api/v1/dispatch/flows/{flow.name}").status == 200
    assert http.get(f"/api/v1/dispatch/flows/{flow.name}").status == 404


def test_a_spec_is_given_out_with_every_lease_and_a_changed_one_is_a_new_version(http: Http) -> None:
    spec = {"actions": [{"name": "parse", "sql": "SELECT 1"}], "sink": {"queue": "out"}}
    flow = Flow(http, spec=spec)
    assert flow.defined["definition"]["spec"] == spec
    flow.push(10)
    lease = flow.lease()
    assert lease["definitions"][f"{flow.name}@1"]["spec"] == spec
    flow.complete(lease)
    flow.definition["spec"] = {**spec, "sink": {"queue": "elsewhere"}}
    assert flow.put()["version"] == 2
    flow.definition["spec"] = {"text": "x" * 256 * 1024}
    refused = http.send("PUT", f"/api/v1/dispatch/flows/{flow.name}", flow.definition)
    assert (refused.status, refused.json["field"]) == (400, "spec")


def test_the_group_that_a_source_names_shows_how_far_its_flow_is(http: Http) -> None:
    flow, group, other = Flow(http), fresh("group"), fresh("group")
    flow.definition["source"]["group"] = group
    flow.put()
    flow.push(20)
    flow.complete(flow.lease(parcels=1))

    def lags() -> dict[str, int]:
        found = http.get("/api/v1/consumer-groups").json
        return {each["name"]: each["totalLag"] for each in found if each["queueName"] == flow.queue}

    wait_until(lambda: lags() == {group: 10})
    flow.definition["source"]["group"] = other
    flow.put()
    wait_until(lambda: lags() == {other: 10})


def test_what_waits_and_what_runs_is_on_the_queue_metrics(http: Http) -> None:
    flow = Flow(http)
    flow.push(30)
    wait_until(lambda: flow.show()["queued"] == 3)

    def warm() -> list[dict[str, Any]]:
        return [one for one in http.get(DETAILED).json["warmQueues"] if one["flowName"] == flow.name]

    wait_until(lambda: bool(warm()))
    (row,) = warm()
    assert set(row) == {"actionClass", "flowName", "flowType", "actionName", "count", "oldestQueuedAt"}
    assert (row["actionClass"], row["actionName"], row["count"]) == (flow.classes[0], "step0", 3)
    lease = flow.lease(parcels=2, worker="worker-8")
    running = http.get("/api/v2/metrics/queues/running").json
    assert running["heartbeatThresholdMs"] == 30_000
    own = [task for task in running["tasks"] if task["actionClass"] == flow.classes[0]]
    assert sorted(task["did"] for task in own) == sorted(parcel["did"] for parcel in lease["parcels"])
    assert {(task["appName"], task["actionName"]) for task in own} == {("worker-8", "step0")}
    assert http.get("/api/v2/metrics/queues/action-plugins").json[flow.classes[0]] == "shop:1"
    name = flow.classes[0]
    wanted = {
        f'forebay_action_queue_size{{action_class="{name}"}} 1',
        f'forebay_action_queue_leased{{action_class="{name}"}} 2',
        f'forebay_action_queue_served{{action_class="{name}"}} 1',
    }
    # The figures may be some seconds old.
    wait_until(lambda: wanted <= set(http.get("/metrics").body.decode().splitlines()))
    assert http.get("/api/v1/status").json["dispatch"]["leased"] >= 2


def test_a_class_that_no_worker_asks_for_is_told(http: Http) -> None:
    flow = Flow(http)
    flow.push(10)
    wait_until(lambda: flow.show()["queued"] == 1)

    def warned() -> list[tuple[str, str]]:
        warnings = http.get("/api/v1/status").json["dispatch"]["warnings"]
        return [(one["check"], one["actionClass"]) for one in warnings]

    wait_until(lambda: ("no-worker", flow.classes[0]) in warned())


def test_parcels_are_listed_page_by_page(http: Http) -> None:
    flow = Flow(http, messages=1)
    flow.push(7)
    wait_until(lambda: len(flow.parcels()) == 7)
    found: list[str] = []
    after = ""
    while True:
        told = http.get(f"/api/v1/parcels?flow={flow.name}&limit=3&after={after}").json
        found += [parcel["did"] for parcel in told["parcels"]]
        if told["next"] is None:
            break
        after = told["next"]
    assert found == [parcel["did"] for parcel in flow.parcels(limit=100)]
    assert len(found) == 7


def test_a_lease_waits_until_there_is_a_parcel(http: Http) -> None:
    flow = Flow(http)
    other = Http(http.url)
    pushing = threading.Timer(0.3, lambda: other.push(flow.queue, *range(10)))
    pushing.start()
    began = time.monotonic()
    assert len(flow.lease(wait=30_000)["parcels"]) == 1
    assert time.monotonic() - began < 15
    pushing.join()
    other.close()


@pytest.mark.parametrize("wait", [0, 200])
def test_nothing_to_lease_is_204_in_time(http: Http, wait: int) -> None:
    began = time.monotonic()
    told = http.post("/dispatch/lease", {"worker": "w", "classes": [fresh("none")], "wait": wait})
    assert told.status == 204
    assert wait / 1000 <= time.monotonic() - began < 10


def test_how_long_workers_have_parcels_is_on_the_metrics(http: Http) -> None:
    flow = Flow(http)
    flow.push(20)
    wait_until(lambda: flow.show()["nextSeq"] == 21)
    flow.complete(flow.lease(parcels=1))
    counted = f'forebay_action_seconds_count{{action_class="{flow.classes[0]}"}} 1'
    assert counted in http.get("/metrics").body.decode().splitlines()
    lease = flow.lease(parcels=1)
    http.post(f"/dispatch/leases/{lease['leaseId']}/release", {})
    assert counted in http.get("/metrics").body.decode().splitlines()
