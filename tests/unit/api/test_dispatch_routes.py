"""Routes of dispatch: what they ask the dispatcher for, and what they answer; without a store or a socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fixtures.dispatch_faults import FLOW, RECORDS, bad_requests
from fixtures.intakes import intake_of
from fixtures.scripted_dispatcher import DEFINITION, PARCEL, STATUS, ScriptedDispatcher
from fixtures.waiting import until
from forebay.api.app import App
from forebay.api.exchange import Request, Response
from forebay.api.service import Service
from forebay.broker.bulk import StagesOf
from forebay.broker.waiting import WaitingRoom
from forebay.dispatch.faults import (
    AnnotationKept,
    FieldFault,
    FlowRefused,
    FlowUnfinished,
    RecordsRefused,
    UnknownFlow,
    UnknownParcel,
)
from forebay.dispatch.health import SAMPLES
from forebay.dispatch.retries import ResumePolicy
from forebay.dispatch.values import (
    ActionRun,
    Await,
    Child,
    Lease,
    LeasedParcel,
    LeaseRequest,
    Missing,
    Outcome,
    Range,
    StartRecords,
    StepRecord,
)
from forebay.dispatch.views import (
    ClassFigures,
    ColdQueue,
    DispatchFigures,
    HeldQueue,
    ParcelFilter,
    QueueDetails,
    RunningTask,
    WarmQueue,
)
from forebay.errors import LeaseLost, StoreUnavailable
from forebay.testing.fake_clock import START_US, FakeClock
from forebay.testing.memory_store import MemoryStore

SECOND_US = 1_000_000
RANGE = Range("in", 1, 10, "7-1767225600000000", 3)
LEASE = Lease(
    "lease-1",
    START_US + 60 * SECOND_US,
    [
        LeasedParcel(
            "d1", 0, "orders", 1, "geo", "geo.Code", 1, [Range("in", 1, 10, "7-1767225600000000", 3)], 10, 0, ("j",)
        )
    ],
    {"orders@1": DEFINITION},
)


class Api:
    def __init__(self) -> None:
        self.dispatcher = ScriptedDispatcher()
        self.clock = FakeClock()
        room = WaitingRoom(asyncio.get_running_loop())
        store = MemoryStore(self.clock)
        intake = intake_of(store, self.clock)
        self.service = Service(store, room, self.clock, intake, is_started=True, dispatcher=self.dispatcher)
        self.app = App(self.service)

    async def started(self) -> Api:
        await self.service.store.open(lambda queue, count: None)
        return self

    def request(self, method: str, path: str, body: object = None) -> Request:
        raw_path, _, query = path.encode().partition(b"?")
        request = Request(method, raw_path, query)
        request.stream.feed(b"" if body is None else json.dumps(body).encode())
        request.stream.end()
        return request

    async def send(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        answer = await self.app.answer(self.request(method, path, body))
        assert isinstance(answer, Response)
        is_json = answer.content_type.endswith(b"json")
        return answer.status, json.loads(answer.body) if answer.body and is_json else answer.body.decode()

    def last(self) -> tuple[str, Any]:
        return self.dispatcher.asked[-1]


@pytest.fixture
async def api() -> Api:
    return await Api().started()


@pytest.mark.parametrize(("method", "path", "body", "field"), bad_requests())
async def test_bad_input_is_refused_by_its_field_and_nothing_is_asked(
    api: Api, method: str, path: str, body: Any, field: str
) -> None:
    status, told = await api.send(method, path, body)
    assert (status, told.get("field")) == (400, field), told
    assert told["error"].startswith(field)
    assert api.dispatcher.asked == []


async def test_a_lease_is_answered_with_ranges_times_and_definitions(api: Api) -> None:
    api.dispatcher.leases = [LEASE]
    body = {"worker": "w1", "classes": ["geo.*", "geo.*"], "parcels": 5, "messages": 9, "plugin": "shop:1"}
    status, told = await api.send("POST", "/api/v1/dispatch/lease", body)
    assert status == 200
    assert api.last() == ("lease", LeaseRequest("w1", ("geo.*",), 5, 9, 0.0, "shop:1"))
    assert told["leaseId"] == "lease-1"
    assert (told["until"], told["leaseSeconds"], told["heartbeatSeconds"]) == (
        "2026-01-01T00:01:00.000000Z",
        60.0,
        10.0,
    )
    (parcel,) = told["parcels"]
    of_queue = {"identity": "7-1767225600000000", "removedUpTo": 3}
    assert parcel["ranges"] == [{"queue": "in", "firstSeq": 1, "lastSeq": 10, **of_queue}]
    assert (parcel["did"], parcel["actionClass"], parcel["attempt"], parcel["joined"]) == ("d1", "geo.Code", 1, ["j"])
    assert told["definitions"]["orders@1"]["steps"][0]["actionClass"] == "geo.Code"


async def test_nothing_to_lease_is_204(api: Api) -> None:
    assert await api.send("POST", "/api/v1/dispatch/lease", {"worker": "w", "classes": ["*"]}) == (204, "")
    body = {"worker": "w", "classes": ["*"], "wait": 10}
    assert await api.send("POST", "/api/v1/dispatch/lease", body) == (204, "")
    assert api.last()[1].wait_seconds == 0.01


async def test_a_lease_that_waits_is_answered_when_there_is_one(api: Api) -> None:
    waiting = asyncio.create_task(
        api.send("POST", "/api/v1/dispatch/lease", {"worker": "w", "classes": ["*"], "wait": 60_000})
    )
    await until(lambda: api.dispatcher.asked)
    assert not waiting.done()
    api.dispatcher.leases = [LEASE]
    api.dispatcher.leased.set()
    assert (await waiting)[0] == 200


async def test_a_worker_that_vanishes_while_it_waits_is_waited_for_no_longer(api: Api) -> None:
    request = api.request("POST", "/api/v1/dispatch/lease", {"worker": "w", "classes": ["*"], "wait": 60_000})
    waiting = asyncio.create_task(api.app.answer(request))
    await until(lambda: api.dispatcher.asked)
    request.stream.lose()
    assert await asyncio.wait_for(waiting, 60) is None
    assert [name for name, _ in api.dispatcher.asked] == ["lease"]


async def test_what_was_leased_for_a_worker_that_vanished_is_given_back(api: Api) -> None:
    request = api.request("POST", "/api/v1/dispatch/lease", {"worker": "w", "classes": ["*"], "wait": 60_000})
    waiting = asyncio.create_task(api.app.answer(request))
    await until(lambda: api.dispatcher.asked)
    api.dispatcher.leases = [LEASE]
    api.dispatcher.leased.set()
    request.stream.lose()
    assert await asyncio.wait_for(waiting, 60) is None
    assert api.dispatcher.leases or api.last() == ("release", "lease-1")


async def test_heartbeat_and_release(api: Api) -> None:
    told = await api.send("POST", "/api/v1/dispatch/leases/l%2F1/heartbeat")
    assert told == (200, {"leaseId": "l/1", "until": "2026-01-01T00:01:00.000000Z"})
    assert await api.send("POST", "/api/v1/dispatch/leases/l/release") == (200, {"leaseId": "l", "parcels": 1})


async def test_a_completion_reaches_the_dispatcher_as_it_was_sent(api: Api) -> None:
    run = {"action": "geo", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z", "rowsIn": 10}
    outcomes = [
        {"did": "a", "state": "COMPLETE", "rowsIn": 10, "rowsOut": 9, "filtered": 1, "actions": [run],
         "annotations": {"k": "v"}, "output": {"queue": "out", "rows": 9}},
        {"did": "b", "state": "ERROR", "error": "x" * 20_000, "bad": 2},
        {"did": "d", "state": "COMPLETE", "awaits": [
            {"queue": ".export.w", "group": "export", "partition": "shop", "rows": 9}],
         "missing": [{"queue": "in", "firstSeq": 3, "lastSeq": 7, "messages": 2, "cause": "damaged"}]},
        {"did": "c", "state": "COMPLETE", "children": [{"ranges": [
            {"queue": "in", "firstSeq": 1, "lastSeq": 5},
            {"queue": "in", "firstSeq": 6, "lastSeq": 9, "identity": "7-12", "removedUpTo": 4}]}]},
    ]  # fmt: skip
    body = {"outcomes": outcomes, "producer": "p", "epoch": "7", "stages": ["s1", "s2"]}
    status, told = await api.send("POST", "/api/v1/dispatch/leases/l/complete", body)
    assert (status, told) == (200, {"leaseId": "l", "repeated": False, "parcels": 4, "messages": 0})
    request = api.last()[1]
    assert (request.lease_id, request.wanted, request.stage_ids) == ("l", StagesOf("p", "7"), ("s1", "s2"))
    complete, error, exported, split = request.outcomes
    ran = ActionRun("geo", START_US, START_US + SECOND_US, 10)
    assert complete == Outcome("a", "COMPLETE", "", 10, 9, 1, None, [ran], {"k": "v"}, [], ("out", 9), missing=[])
    assert (len(error.error), error.bad) == (10_000, 2)
    assert exported.awaits == (Await(".export.w", "export", "shop", 9),)
    assert exported.missing == [Missing("in", 3, 7, 2, "damaged")]
    assert split.children == [Child([Range("in", 1, 5), Range("in", 6, 9, "7-12", 4)], 9, {})]


@pytest.mark.parametrize(
    ("method", "path", "error", "status", "code"),
    [
        ("POST", "/api/v1/dispatch/leases/l/heartbeat", LeaseLost("l", "it has ended"), 409, "lease_lost"),
        ("POST", "/api/v1/dispatch/flows/f/pause", UnknownFlow("f"), 404, "unknown_flow"),
        ("DELETE", "/api/v1/dispatch/flows/f", FlowUnfinished("f", 3), 409, "flow_unfinished"),
        ("POST", "/api/v1/parcels/d/replay", UnknownParcel("d"), 404, "unknown_parcel"),
        ("GET", "/api/v1/parcels", StoreUnavailable("away"), 503, "store_unavailable"),
        ("GET", "/api/v2/metrics/queues/detailed", StoreUnavailable("away"), 503, "store_unavailable"),
    ],
)
async def test_errors_have_their_status(
    api: Api, method: str, path: str, error: Exception, status: int, code: str
) -> None:
    api.dispatcher.error = error
    found, told = await api.send(method, path)
    assert (found, told["code"]) == (status, code)


async def test_a_kept_annotation_is_409(api: Api) -> None:
    api.dispatcher.error = AnnotationKept("d", "k")
    status, told = await api.send("POST", "/api/v1/parcels/d/annotate", {"annotations": {"k": "v"}})
    assert (status, told["code"]) == (409, "annotation_kept")


async def test_a_refused_flow_lists_all_faults(api: Api) -> None:
    faults = [FieldFault("steps[0].action", "is empty"), FieldFault("source.queue", "is empty")]
    api.dispatcher.error = FlowRefused("orders", faults)
    status, told = await api.send("PUT", "/api/v1/dispatch/flows/orders", FLOW)
    assert (status, told["field"]) == (400, "steps[0].action")
    assert [fault["field"] for fault in told["faults"]] == ["steps[0].action", "source.queue"]


async def test_flows_are_defined_shown_and_changed(api: Api) -> None:
    status, told = await api.send("PUT", "/api/v1/dispatch/flows/orders", FLOW)
    assert (status, told["definition"]["steps"][0]["action"], told["state"]) == (200, "geo", "RUNNING")
    assert api.last() == ("define", DEFINITION)
    assert (await api.send("GET", "/api/v1/dispatch/flows"))[1]["flows"][0]["name"] == STATUS.name
    assert (await api.send("GET", "/api/v1/dispatch/flows/orders"))[0] == 200
    assert (await api.send("GET", "/api/v1/dispatch/flows/none"))[0] == 404
    for word, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("stop", "STOPPED")):
        assert (await api.send("POST", f"/api/v1/dispatch/flows/orders/{word}"))[1]["state"] == state
        assert api.last() == ("set_state", ("orders", state))
    assert (await api.send("DELETE", "/api/v1/dispatch/flows/orders"))[0] == 200
    assert (await api.send("DELETE", "/api/v1/dispatch/flows/none"))[0] == 404


async def test_policies_are_listed_as_they_are_asked(api: Api) -> None:
    await api.send("PUT", "/api/v1/dispatch/policies/low", {"flow": "orders", "delaySeconds": 5})
    await api.send("PUT", "/api/v1/dispatch/policies/high", {"flow": "orders", "action": "geo"})
    assert api.dispatcher.known_policies["low"] == ResumePolicy(name="low", flow="orders", delay_seconds=5)
    _, told = await api.send("GET", "/api/v1/dispatch/policies")
    assert [(one["name"], one["priority"]) for one in told["policies"]] == [("high", 150), ("low", 50)]
    assert (await api.send("DELETE", "/api/v1/dispatch/policies/low"))[0] == 200
    assert (await api.send("DELETE", "/api/v1/dispatch/policies/low"))[0] == 404


async def test_parcels_are_listed_page_by_page(api: Api) -> None:
    api.dispatcher.page = [PARCEL, PARCEL._replace(did="d2", place=8)]
    query = "flow=orders&state=ERROR&error=boom&since=2026-01-01T00:00:00Z&limit=2&after=7:d0"
    _, told = await api.send("GET", f"/api/v1/parcels?{query}")
    wanted = ParcelFilter(flow="orders", state="ERROR", error="boom", since_us=START_US)
    assert api.last() == ("parcels", (wanted, 2, (7, "d0")))
    assert [one["did"] for one in told["parcels"]] == ["d1", "d2"]
    assert told["next"] == "8:d2"
    _, told = await api.send("GET", "/api/v1/parcels")
    assert told["next"] is None


async def test_a_parcel_is_shown_with_its_history(api: Api) -> None:
    status, told = await api.send("GET", "/api/v1/parcels/d1")
    assert (status, told["parcel"]["annotations"], told["events"]) == (200, {"a": "b"}, [])
    assert (await api.send("GET", "/api/v1/parcels/none"))[0] == 404


async def test_parcels_are_resumed_and_cancelled_by_filter_or_by_did(api: Api) -> None:
    assert (await api.send("POST", "/api/v1/parcels/resume", {"flow": "orders"}))[1] == {"success": True, "resumed": 1}
    assert api.last() == ("resume", ParcelFilter(flow="orders"))
    told = await api.send("POST", "/api/v1/parcels/cancel", {"dids": ["d1", "d2", "d1"], "state": "ERROR"})
    assert told[1] == {"success": True, "cancelled": 2}
    assert api.last() == ("cancel", ParcelFilter(did="d2", state="ERROR"))
    assert (await api.send("POST", "/api/v1/parcels/resume", {"all": True}))[0] == 200


async def test_a_parcel_is_replayed_and_annotated(api: Api) -> None:
    assert await api.send("POST", "/api/v1/parcels/d1/replay") == (201, {"success": True, "did": "d2"})
    body = {"annotations": {"x": "y"}, "overwrite": True}
    status, told = await api.send("POST", "/api/v1/parcels/d1/annotate", body)
    assert (status, told["annotations"]) == (200, {"x": "y"})
    assert api.last() == ("annotate", ("d1", {"x": "y"}, True))


async def test_records_reach_the_dispatcher_byte_for_byte(api: Api) -> None:
    rows = [{"did": "d1", "key": "q:1", "payload": {"n": 1}}, {"did": "d1", "key": "q:2", "payload": {"at": "NaN"}}]
    body = {"step": "geo", "records": rows}
    status, told = await api.send("POST", "/api/v1/dispatch/flows/orders/records", body)
    assert (status, told) == (201, {"success": True, "parcels": ["d3"], "records": 2, "repeated": 0})
    sent = [StepRecord("d1", "q:1", b'{"n": 1}'), StepRecord("d1", "q:2", b'{"at": "NaN"}')]
    assert api.last() == ("start_records", StartRecords("orders", "geo", sent))


async def test_record_that_is_too_large_is_413_with_its_field(api: Api) -> None:
    large = {"did": "d1", "key": "k2", "payload": {"text": "x" * (11 << 20)}}
    body = {"step": "geo", "records": [{"did": "d1", "key": "k", "payload": {}}, large]}
    status, told = await api.send("POST", "/api/v1/dispatch/flows/orders/records", body)
    assert (status, told["code"], told["field"]) == (413, "too_large", "records[1].payload")
    assert api.dispatcher.asked == []


async def test_records_that_cannot_start_are_400_with_the_field(api: Api) -> None:
    api.dispatcher.error = RecordsRefused("step", "flow 'orders' has no step 'geo'")
    status, told = await api.send("POST", "/api/v1/dispatch/flows/orders/records", RECORDS)
    assert (status, told["code"], told["field"]) == (400, "records_refused", "step")
    assert told["error"] == "step: flow 'orders' has no step 'geo'"


async def test_records_are_not_taken_while_pushes_are_not(api: Api) -> None:
    await api.send("POST", "/api/v1/system/maintenance", {"enabled": True})
    status, told = await api.send("POST", "/api/v1/dispatch/flows/orders/records", RECORDS)
    assert (status, told["code"]) == (503, "maintenance")
    assert api.dispatcher.asked == []


async def test_queue_metrics_are_exactly_deltafis(api: Api) -> None:
    at_us = START_US + 250_000
    api.dispatcher.details = QueueDetails(
        [WarmQueue("org.example.MyTransform", "my-flow", "TRANSFORM", "transform-step", 150, START_US, "d")],
        [ColdQueue("org.example.SlowAction", "slow-flow", "DATA_SINK", "slow-step", 12_500, at_us)],
        START_US,
    )
    assert await api.send("GET", "/api/v2/metrics/queues/detailed") == (
        200,
        {
            "warmQueues": [
                {
                    "actionClass": "org.example.MyTransform",
                    "flowName": "my-flow",
                    "flowType": "TRANSFORM",
                    "actionName": "transform-step",
                    "count": 150,
                    "oldestQueuedAt": "2026-01-01T00:00:00Z",
                }
            ],
            "coldQueues": [
                {
                    "flowName": "slow-flow",
                    "flowType": "DATA_SINK",
                    "actionName": "slow-step",
                    "actionClass": "org.example.SlowAction",
                    "count": 12_500,
                    "oldestQueuedAt": "2026-01-01T00:00:00.250000Z",
                }
            ],
            "timestamp": "2026-01-01T00:00:00Z",
        },
    )
    assert await api.send("GET", "/api/v2/metrics/queues/action-plugins") == (200, {"geo.Code": "shop:1.2.0"})


async def test_tasks_of_a_silent_worker_are_not_shown_as_running(api: Api) -> None:
    task = RunningTask("geo.Code", "orders", "geo", "d1", START_US, 330 * SECOND_US, "w1", START_US + 310 * SECOND_US)
    api.dispatcher.tasks = [task, task._replace(did="d2", beat_us=START_US + 299 * SECOND_US)]
    assert await api.send("GET", "/api/v2/metrics/queues/running") == (
        200,
        {
            "tasks": [
                {
                    "actionClass": "geo.Code",
                    "actionName": "geo",
                    "did": "d1",
                    "startTime": "2026-01-01T00:00:00Z",
                    "runningForMs": 330_000,
                    "appName": "w1",
                }
            ],
            "heartbeatThresholdMs": 30_000,
        },
    )


FIGURES = DispatchFigures(
    [
        ClassFigures("geo", 11, 4, 2, 7.5, True, True, 3, 2),
        ClassFigures("lost", 1, 0, 0, 1.0, False, False, 0, 0),
    ],
    queued=12, cold=4, leased=2, joining=1, errors=5, requeues=6, expiries=8, holds=[HeldQueue(9, "orders", 77)],
)  # fmt: skip


async def test_metrics_of_dispatch(api: Api) -> None:
    api.dispatcher.counted = FIGURES
    _, page = await api.send("GET", "/metrics")
    lines = set(page.splitlines())
    assert {
        'forebay_action_queue_size{action_class="geo"} 11',
        'forebay_warm_queued_count{action_class="geo"} 11',
        'forebay_cold_queued_count{action_class="geo"} 4',
        'forebay_action_queue_leased{action_class="geo"} 2',
        'forebay_action_queue_oldest_seconds{action_class="geo"} 7.5',
        'forebay_action_queue_cold{action_class="geo"} 1',
        'forebay_action_queue_served{action_class="lost"} 0',
        'forebay_action_queue_transitions_total{action_class="geo",to="cold"} 3',
        'forebay_action_queue_transitions_total{action_class="geo",to="warm"} 2',
        "forebay_action_classes_without_worker 1",
        'forebay_parcels{state="ERROR"} 5',
        'forebay_parcels{state="JOINING"} 1',
        "forebay_parcel_requeues_total 6",
        "forebay_parcel_lease_expiries_total 8",
        'forebay_parcel_hold_seq{flow="orders",queue_id="9"} 77',
        'forebay_dispatch_warnings{check="warm"} 1',
        'forebay_dispatch_warnings{check="cold"} 0',
        'forebay_dispatch_warnings{check="no-worker"} 1',
    } <= lines


async def test_metrics_are_there_while_the_store_is_away(api: Api) -> None:
    api.dispatcher.error = StoreUnavailable("away")
    status, page = await api.send("GET", "/metrics")
    assert status == 200
    assert "forebay_messages_pushed_total" in page
    assert "forebay_action_queue_size" not in page


async def test_status_tells_what_ought_to_be_looked_at(api: Api) -> None:
    growing = FIGURES._replace(cold=20_000, classes=[FIGURES.classes[0]._replace(cold=20_000)])
    for sample in range(SAMPLES):
        api.dispatcher.counted = growing._replace(cold=20_000 + sample)
        await api.service.dispatch_watch.look()
    _, told = await api.send("GET", "/api/v1/status")
    dispatch = told["dispatch"]
    assert (dispatch["queued"], dispatch["cold"], dispatch["errors"]) == (12, 20_011, 5)
    assert [(one["check"], one["actionClass"]) for one in dispatch["warnings"]] == [
        ("warm", "geo"),
        ("cold-growth", None),
    ]
