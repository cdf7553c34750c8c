"""Flows over HTTP: workers say how they stand, people say what they want, and both outlive the server's process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from fixtures.running_stores import module_server as server
from forebay.testing.running_server import RunningServer

__all__ = ["server"]

REPORT = {
    "name": "clicks",
    "state": "running",
    "restarts": 2,
    "batches": 3,
    "batch": 2,
    "rows": 120,
    "badRows": 4,
    "skippedRows": 1,
    "batchSeconds": 1.5,
    "queue": "clicks-in",
    "group": "clicks",
    "host": "h",
    "pid": 7,
}


def ask(server: RunningServer, method: str, path: str, body: object = None) -> Any:
    raw = None if body is None else json.dumps(body).encode()
    with urlopen(Request(f"{server.url}{path}", raw, method=method), timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if answer.headers["content-type"].startswith("application/json") else text.decode()


def report(server: RunningServer, worker: str, *flows: dict[str, Any], names: tuple[str, ...] = ("clicks",)) -> Any:
    body = {"worker": worker, "names": list(names), "flows": list(flows)}
    return {order["name"]: order for order in ask(server, "POST", "/api/v1/flows/reports", body)["flows"]}


def listed(server: RunningServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = ask(server, "GET", f"/api/v1/flows/{name}")
    return found


def test_flow_is_known_by_what_its_worker_said_last_also_after_the_server_was_killed(tmp_path: Path) -> None:
    server = RunningServer(tmp_path / "data")
    with server:
        assert report(server, "one")["clicks"]["known"] is None
        assert report(server, "one", REPORT)["clicks"]["known"]["rows"] == 120
        ask(server, "POST", "/api/v1/flows/clicks/pause", {})
        server.kill()
        server.start()
        (kept,) = ask(server, "GET", "/api/v1/flows")["flows"]
        assert kept["report"] | REPORT == kept["report"]
        assert kept["isPaused"]
        order = report(server, "one")["clicks"]
        assert (order["isPaused"], order["known"]["rows"], order["runsAt"]) == (True, 120, "")


def test_lag_is_that_of_the_group_and_null_as_long_as_there_is_none(server: RunningServer) -> None:
    lagging = {**REPORT, "name": "lagging", "queue": "lag-in", "group": "lagging", "lag": 0}
    report(server, "one", lagging, names=("lagging",))
    assert listed(server, "lagging")["report"]["lag"] is None
    metrics = ask(server, "GET", "/metrics")
    assert 'forebay_flow_lag_messages{flow="lagging"}' not in metrics
    items = [{"queue": "lag-in", "payload": n} for n in range(5)]
    ask(server, "POST", "/api/v1/push", {"items": items})
    assert listed(server, "lagging")["report"]["lag"] is None
    ask(server, "POST", "/api/v1/consumer-groups/lagging/queues/lag-in/seek", {"seq": 3})
    assert listed(server, "lagging")["report"]["lag"] == 3
    assert 'forebay_flow_lag_messages{flow="lagging"} 3' in ask(server, "GET", "/metrics")


def test_metrics_have_the_figures_of_each_flow(server: RunningServer) -> None:
    report(server, "one", {**REPORT, "name": "figures"}, names=("figures",))
    lines = ask(server, "GET", "/metrics").splitlines()
    for line in (
        'forebay_flow_state{flow="figures",state="running"} 1',
        'forebay_flow_state{flow="figures",state="failed"} 0',
        'forebay_flow_rows_total{flow="figures"} 120',
        'forebay_flow_bad_rows_total{flow="figures"} 4',
        'forebay_flow_skipped_rows_total{flow="figures"} 1',
        'forebay_flow_restarts_total{flow="figures"} 2',
        'forebay_flow_batch_seconds{flow="figures"} 1.5',
    ):
        assert line in lines


def test_flow_on_parcels_shows_what_all_its_workers_did_also_after_they_and_the_server_were_killed(
    tmp_path: Path,
) -> None:
    source = {"queue": "orders", "parcelMessages": 10, "parcelWaitSeconds": 0.01}
    step = {"action": "parse", "actionClass": "parse", "retry": {"maxAttempts": 1}}
    server = RunningServer(tmp_path / "data")
    with server:
        ask(server, "PUT", "/api/v1/dispatch/flows/shop", {"source": source, "steps": [step]})
        ask(server, "POST", "/api/v1/push", {"items": [{"queue": "orders", "payload": n} for n in range(30)]})
        outcomes = (
            {"state": "COMPLETE", "rowsIn": 10, "bad": 2},
            {"state": "COMPLETE", "rowsIn": 10, "filtered": 3, "skipped": 1},
            {"state": "ERROR", "rowsIn": 10, "error": "no such column: user\nTraceback"},
        )
        for number, outcome in enumerate(outcomes):
            # The third is a new worker, which begins to count anew.
            worker = f"w{number}"
            report(server, worker, {"name": "shop", "state": "running", "queue": "orders"}, names=("shop",))
            body = {"worker": worker, "classes": ["parse"], "parcels": 1, "wait": 10_000}
            lease = ask(server, "POST", "/api/v1/dispatch/lease", body)
            done = {"outcomes": [{**outcome, "did": lease["parcels"][0]["did"]}]}
            for _ in range(2):  # the answer was lost: counted once all the same
                ask(server, "POST", f"/api/v1/dispatch/leases/{lease['leaseId']}/complete", done)
        server.kill()
        server.start()
        shown = listed(server, "shop")["report"]
        names = ("rows", "badRows", "skippedRows", "batches")
        assert [shown[name] for name in names] == [20, 2, 1, 3]
        assert shown["cause"] == "1 parcel in ERROR, the newest: no such column: user"
        lines = ask(server, "GET", "/metrics").splitlines()
        assert 'forebay_flow_rows_total{flow="shop"} 20' in lines
        assert 'forebay_flow_skipped_rows_total{flow="shop"} 1' in lines


def test_second_worker_is_told_who_has_the_flow_until_that_one_lets_go(server: RunningServer) -> None:
    report(server, "one", {**REPORT, "name": "held"}, names=("held",))
    other = report(server, "two", {**REPORT, "name": "held", "rows": 0}, names=("held",))["held"]
    assert (other["runsAt"], other["known"]["rows"]) == ("one", 120)
    report(server, "one", {**REPORT, "name": "held", "state": "stopped"}, names=("held",))
    assert report(server, "two", names=("held",))["held"]["runsAt"] == ""


def test_pause_and_resume_reach_the_worker_and_a_name_that_nobody_told_of_is_refused(server: RunningServer) -> None:
    report(server, "one", {**REPORT, "name": "wanted"}, names=("wanted",))
    assert ask(server, "POST", "/api/v1/flows/wanted/pause", {})["isPaused"]
    assert report(server, "one", names=("wanted",))["wanted"]["isPaused"]
    ask(server, "POST", "/api/v1/flows/wanted/resume", {})
    order = report(server, "one", names=("wanted",))["wanted"]
    assert (order["isPaused"], order["resumes"]) == (False, 1)
    with pytest.raises(HTTPError) as refused:
        ask(server, "POST", "/api/v1/flows/nope/pause", {})
    with refused.value:
        assert refused.value.code == 404
    assert ask(server, "POST", "/api/v1/flows/planned/pause?new=true", {})["report"]["state"] == "paused"
    assert ask(server, "DELETE", "/api/v1/flows/planned")["success"]


def test_report_that_is_none_is_refused_by_its_field(server: RunningServer) -> None:
    with pytest.raises(HTTPError) as refused:
        report(server, "one", {**REPORT, "state": "dancing"})
    with refused.value:
        assert (refused.value.code, "state" in refused.value.read().decode()) == (400, True)
