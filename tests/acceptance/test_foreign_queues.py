"""A key that is for other queues, on every route and every store: nothing of a queue gets out to it, or in from it.

The routes are those of the description: one that is added has to say here how it is asked about a queue.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from fixtures.arrow_steps import ipc
from fixtures.running_stores import STORES, Http, Told, fresh, running, shared_postgres_database
from fixtures.waiting import wait_until
from forebay.api.routes import ALL_ROUTES
from forebay.api.routing import Queues, Route
from forebay.testing.running_server import RunningServer

__all__ = ["shared_postgres_database"]

ROWS = ipc({"payload": ["1"]})


class Keyed:
    """A connection that sends a key."""

    def __init__(self, url: str, key: str) -> None:
        self._http = Http(url)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def send(self, method: str, path: str, body: object = None) -> Told:
        return self._http.send(method, path, body, self._headers)

    def close(self) -> None:
        self._http.close()

    def ok(self, method: str, path: str, body: object = None) -> Any:
        told = self.send(method, path, body)
        assert told.status in (200, 201), (method, path, told)
        return told.json


class Secret(NamedTuple):
    """A queue with something of everything in it, and a key that is for other queues."""

    queue: str
    admin: Keyed
    foreign: Keyed
    known: dict[str, str]
    """By the names of parameters of paths."""
    bodies: dict[str, Any]
    """By the names of handlers."""
    queries: dict[str, str]

    def request(self, route: Route) -> tuple[str, object]:
        def value(found: re.Match[str]) -> str:
            name = found[1]
            own = self.known.get(f"{route.tag}.{name}", self.known.get(name))
            assert own is not None, f"say what {{{name}}} of {route.path} is"
            return quote(own, safe="")

        path = re.sub(r"\{(\w+)\}", value, route.path)
        query = self.queries.get(f"{route.tag}.{route.name}", "")
        body = None
        if route.body is bytes:
            body = ROWS
        elif route.body is not None:
            body = self.bodies[f"{route.tag}.{route.name}"]
        return f"{path}{query}", body

    def state(self) -> Any:
        """What there is, as far as it must not change."""
        admin, queue = self.admin, quote(self.queue)
        shown = admin.ok("GET", f"/api/v1/resources/queues/{queue}")
        lags = [one for one in admin.ok("GET", "/api/v1/consumer-groups") if one["queueName"] == self.queue]
        for lag in lags:
            lag.pop("maxTimeLag"), lag.pop("lastActiveAt"), lag.pop("state")
        letters = admin.ok("GET", f"/api/v1/dlq?queue={queue}")["messages"]
        messages = admin.ok("GET", f"/api/v1/messages?queue={queue}")["messages"]
        parcel = admin.ok("GET", f"/api/v1/parcels/{self.known['did']}")
        flows = [
            admin.ok("GET", f"/api/v1/dispatch/flows/{self.known['name']}"),
            admin.ok("GET", f"/api/v1/flows/{self.known['name']}"),
        ]
        flows[1].pop("updatedAt")
        traces = admin.ok("GET", f"/api/v1/traces/{self.known['partitionId']}/{self.known['transactionId']}")
        return json.dumps([shown, sorted(lags, key=str), letters, messages, parcel, flows, traces], indent=1)


@pytest.fixture(scope="module", params=STORES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    # Nothing is to end by itself while a test looks at what a key has changed.
    more = ("--dispatch-lease-time", "1h")
    with running(request.param, request, tmp_path_factory.mktemp("foreign"), *more) as started:
        yield started
    if request.param == "postgres":
        # Tests share the database, and most of them have no key.
        words = ["keys", "disable", "--store", started.store]
        subprocess.run([sys.executable, "-m", "forebay", *words], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def root(server: RunningServer) -> str:
    """The first key."""
    with closing(Keyed(server.url, "")) as nobody:
        return str(nobody.ok("POST", "/api/v1/keys", {"name": "root", "scopes": ["admin"]})["key"])


@pytest.fixture
def secret(server: RunningServer, root: str) -> Iterator[Secret]:
    with closing(Keyed(server.url, root)) as admin:
        found = _secret(server, admin)
        with closing(found.foreign):
            yield found


def _secret(server: RunningServer, admin: Keyed) -> Secret:
    made = admin.ok(
        "POST", "/api/v1/keys", {"name": fresh("foreign"), "scopes": ["admin"], "queues": ["other.*", "another"]}
    )
    queue = fresh("secret")
    admin.ok(
        "POST",
        "/api/v1/configure",
        {"queue": queue, "namespace": queue, "options": {"retryLimit": 0, "leaseTime": 3600}},
    )
    items = [{"queue": queue, "payload": f"{queue} {n}", "transactionId": f"t{n}"} for n in range(6)]
    pushed = admin.ok("POST", "/api/v1/push", {"items": items})
    partition_id = pushed[0]["partitionId"]
    dead = admin.ok("GET", f"/api/v1/pop/queue/{queue}?consumerGroup={queue}-group")["messages"][0]
    ack = {"transactionId": dead["transactionId"], "partitionId": partition_id, "consumerGroup": f"{queue}-group"}
    admin.ok("POST", "/api/v1/ack", {**ack, "status": "dlq"})
    leased = admin.ok("GET", f"/api/v1/pop/queue/{queue}?consumerGroup={queue}-group&batch=2")
    stage = admin.ok("POST", f"/api/v1/arrow/queues/{queue}?producer={queue}&epoch=1", ROWS)["stage"]
    trace = {"transactionId": "t1", "partitionId": partition_id, "data": {"of": queue}, "traceNames": [queue]}
    admin.ok("POST", "/api/v1/traces", trace)
    parcels = _parcels(admin, queue)
    lease_id, did = parcels["leaseId"], parcels["parcels"][0]["did"]
    report = {"name": queue, "state": "running", "queue": queue, "group": queue}
    reports = {"worker": queue, "names": [queue], "flows": [report]}
    admin.ok("POST", "/api/v1/flows/reports", reports)
    # The flow's group is made beside the requests.
    wait_until(lambda: admin.ok("GET", f"/api/v1/flows/{queue}")["report"]["lag"] is not None)
    known = {
        "queue": queue,
        "partition": "Default",
        "group": f"{queue}-group",
        "leaseId": leased["leaseId"],
        "partitionId": partition_id,
        "transactionId": "t1",
        "reader": "someone",
        "name": queue,
        "did": did,
        "lease": lease_id,
        "letter": "1",
        "id": made["info"]["id"],
    }
    acks = {"transactionId": leased["messages"][0]["transactionId"], "partitionId": partition_id}
    acks["consumerGroup"] = f"{queue}-group"
    bodies = _bodies(queue, known, acks, stage)
    return Secret(queue, admin, Keyed(server.url, made["key"]), known, bodies, _queries(queue))


def _bodies(queue: str, known: dict[str, str], acks: dict[str, str], stage: str) -> dict[str, Any]:
    """What each request says about the queue."""
    did, lease_id = known["did"], known["leaseId"]
    report = {"name": queue, "state": "running", "queue": queue, "group": queue}
    trace = {"transactionId": "t1", "partitionId": known["partitionId"], "data": {"by": "thief"}, "traceNames": [queue]}
    return {
        "configure.configure": {"queue": queue, "options": {"leaseTime": 7}},
        "push.push": {"items": [{"queue": "other.1", "payload": 1}, {"queue": queue, "payload": 1}]},
        "acknowledge.ack": acks,
        "acknowledge.ack_batch": {"acknowledgments": [acks]},
        "acknowledge.complete_leases": {"leaseIds": [lease_id]},
        "acknowledge.extend_lease": {"seconds": 3600},
        "transaction.transact": {
            "operations": [
                {"type": "push", "items": [{"queue": "other.1", "payload": 1}]},
                {"type": "ack", **acks},
            ]
        },
        "seeks.set_subscription": {"subscriptionTimestamp": "2020-01-01T00:00:00Z"},
        "seeks.seek": {"toEnd": True},
        "seeks.seek_partition": {"toEnd": True},
        "dead_letters.replay": {"queue": queue},
        "dead_letters.purge": {"queue": queue},
        "messages.bury_message": {"error": "x"},
        "arrow.hold": {"seq": 1, "seconds": 1000},
        "arrow.commit_stages": {"producer": queue, "epoch": "1", "stages": [stage], "queue": "other.1"},
        "traces.add_trace": trace,
        "flows.report_flows": {"worker": "thief", "names": [queue], "flows": [{**report, "queue": "other.1"}]},
        "dispatch_flows.define_flow": {
            "source": {"queue": "other.1"},
            "steps": [{"action": "a", "actionClass": f"{queue}.class"}],
        },
        "dispatch_flows.start_flow_records": {"step": "b", "records": [{"did": did, "key": "k", "payload": {}}]},
        "dispatch_flows.set_policy": {"flow": queue},
        "dispatch_work.lease": {"worker": "thief", "classes": [f"{queue}.*"]},
        "dispatch_work.complete": {"outcomes": [{"did": did, "state": "COMPLETE"}]},
        "parcels.resume_parcels": {"dids": [did]},
        "parcels.cancel_parcels": {"dids": [did]},
        "parcels.annotate_parcel": {"annotations": {"by": "thief"}},
        "system.set_push_maintenance": {"enabled": True},
        "system.set_pop_maintenance": {"enabled": True},
        "keys.create_key": {"name": "thief", "scopes": ["admin"]},
        "keys.rotate_key": {},
        "session.sign_in": {"key": "no such key"},
    }


def _queries(queue: str) -> dict[str, str]:
    return {
        "pop.pop_selected": f"?namespace={queue}",
        "dead_letters.list_dead_letters": f"?queue={queue}",
        "dead_letters.delete_dead_letters": f"?queue={queue}",
        "resources.list_partitions": f"?queue={queue}",
        "messages.list_messages": f"?queue={queue}",
        "seeks.preview_seek": "?toEnd=true",
        "seeks.preview_partition_seek": "?seq=1",
        "arrow.stage_rows": "?producer=thief&epoch=1",
        "arrow.abort_stages": f"?producer={queue}&epoch=1",
        "parcels.list_parcels": f"?flow={queue}",
    }


def _parcels(admin: Keyed, queue: str) -> dict[str, Any]:
    """A lease of dispatch on parcels of the queue."""
    definition = {
        "source": {"queue": queue, "parcelMessages": 3, "parcelWaitSeconds": 0.05},
        "steps": [{"action": "a", "actionClass": f"{queue}.class"}],
    }
    admin.ok("PUT", f"/api/v1/dispatch/flows/{queue}", definition)
    body = {"worker": "w", "classes": [f"{queue}.class"], "parcels": 1, "wait": 30_000}
    return dict(admin.ok("POST", "/api/v1/dispatch/lease", body))


def test_key_for_other_queues_sees_and_changes_nothing(secret: Secret) -> None:
    before = secret.state()
    leaks = []
    for route in ALL_ROUTES:
        if not route.needed:
            continue
        path, body = secret.request(route)
        told = secret.foreign.send(route.method, path, body)
        is_refused = told.status in (403, 404, 409)
        if route.queues is Queues.SHOWN:
            is_fine = told.status == 200 and secret.queue.encode() not in told.body
        else:
            is_fine = is_refused
        if not is_fine:
            leaks.append((route.method, path, told.status, told.body[:300]))
    assert leaks == []
    assert secret.state() == before


def test_what_is_refused_is_named(secret: Secret) -> None:
    named = {
        "push.push": "items[1].queue",
        "configure.configure": "queue",
        "pop.pop_queue": None,
        "pop.pop_selected": None,
        "acknowledge.ack": None,
        "acknowledge.complete_lease": None,
        "arrow.stage_rows": None,
        "arrow.commit_stages": None,
        "dispatch_work.lease": None,
        "transaction.transact": None,
        "messages.show_message": None,
    }
    by_name = {f"{route.tag}.{route.name}": route for route in ALL_ROUTES}
    for name, field in named.items():
        route = by_name[name]
        told = secret.foreign.send(route.method, *secret.request(route))
        assert (told.status, told.json["code"], told.json.get("field")) == (403, "queue_forbidden", field), (name, told)
        assert repr(secret.queue) in told.json["error"], name


def test_key_works_on_its_own_queues_and_on_no_others_through_the_same_routes(secret: Secret) -> None:
    queue = f"other.{fresh()}"
    own = secret.foreign
    assert own.ok("POST", "/api/v1/configure", {"queue": queue, "namespace": queue})["configured"]
    own.ok("POST", "/api/v1/push", {"items": [{"queue": queue, "payload": n} for n in range(4)]})
    popped = own.ok("GET", f"/api/v1/pop?namespace={queue}&batch=1")
    (message,) = popped["messages"]
    ack = {"transactionId": message["transactionId"], "partitionId": message["partitionId"]}
    assert own.ok("POST", "/api/v1/ack", {**ack, "leaseId": popped["leaseId"]})[0]["success"]
    popped = own.ok("GET", f"/api/v1/pop/queue/{queue}?batch=2")
    assert own.ok("POST", f"/api/v1/lease/{popped['leaseId']}/extend", {"seconds": 60})[0]["success"]
    assert own.ok("POST", f"/api/v1/lease/{popped['leaseId']}/complete")["success"]
    stage = own.ok("POST", f"/api/v1/arrow/queues/{queue}?producer={queue}&epoch=1", ROWS)["stage"]
    commit = {"producer": queue, "epoch": "1", "stages": [stage], "queue": queue}
    assert own.ok("POST", "/api/v1/arrow/commit", commit)["messages"] == 1
    names = [found["name"] for found in own.ok("GET", "/api/v1/resources/queues")["queues"]]
    assert queue in names
    assert secret.queue not in names
    lease = _parcels(own, queue)
    did = lease["parcels"][0]["did"]
    assert own.ok("POST", f"/api/v1/dispatch/leases/{lease['leaseId']}/heartbeat")["until"]
    outcomes = [{"did": did, "state": "COMPLETE"}]
    assert (
        own.ok("POST", f"/api/v1/dispatch/leases/{lease['leaseId']}/complete", {"outcomes": outcomes})["parcels"] == 1
    )
    assert own.ok("GET", f"/api/v1/parcels/{did}")["parcel"]["queue"] == queue
    assert did in [parcel["did"] for parcel in own.ok("GET", "/api/v1/parcels")["parcels"]]
    assert own.send("POST", "/api/v1/parcels/cancel", {"flow": queue}).status == 403
    assert own.ok("DELETE", f"/api/v1/resources/queues/{queue}")["deleted"]


def test_queue_that_joins_a_namespace_later_is_not_popped(secret: Secret, server: RunningServer) -> None:
    namespace = f"other.{fresh()}"
    secret.foreign.ok("POST", "/api/v1/configure", {"queue": namespace, "namespace": namespace})
    assert secret.foreign.send("GET", f"/api/v1/pop?namespace={namespace}").status == 204
    item = {"queue": f"{secret.queue}-joins", "payload": 1, "namespace": namespace}
    secret.admin.ok("POST", "/api/v1/push", {"items": [item]})
    told = secret.foreign.send("GET", f"/api/v1/pop?namespace={namespace}&autoAck=true")
    assert told.status == 403
    wait_until(lambda: secret.admin.send("GET", f"/api/v1/pop?namespace={namespace}").status == 200)
