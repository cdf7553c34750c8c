"""Bad input to dispatch gets 4xx with the field named, on every route and store; nothing changes."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.dispatch_faults import CHECKED_FLOWS, RECORDS, bad_requests
from fixtures.running_stores import Http, any_server, fresh, http, shared_postgres_database
from forebay.api.routes import dispatch_flows, dispatch_work, parcels, queue_metrics
from forebay.api.routing import Route

__all__ = ["any_server", "http", "shared_postgres_database"]


@pytest.mark.parametrize(("method", "path", "body", "field"), bad_requests())
def test_bad_request_is_refused_by_its_field(http: Http, method: str, path: str, body: Any, field: str) -> None:
    told = http.send(method, path, body)
    assert (told.status, told.json.get("field")) == (400, field)
    assert told.headers["content-type"] == "application/problem+json"
    assert told.json["error"].startswith(field)


@pytest.mark.parametrize(("body", "field"), CHECKED_FLOWS)
def test_flow_that_cannot_run_is_refused_and_not_kept(http: Http, body: Any, field: str) -> None:
    name = fresh("flow")
    told = http.send("PUT", f"/api/v1/dispatch/flows/{name}", body)
    assert (told.status, told.json["field"]) == (400, field)
    assert field in [fault["field"] for fault in told.json["faults"]]
    assert http.get(f"/api/v1/dispatch/flows/{name}").status == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/v1/dispatch/flows/none", None),
        ("POST", "/api/v1/dispatch/flows/none/pause", None),
        ("POST", "/api/v1/dispatch/flows/none/resume", None),
        ("POST", "/api/v1/dispatch/flows/none/stop", None),
        ("POST", "/api/v1/dispatch/flows/none/records", RECORDS),
        ("DELETE", "/api/v1/dispatch/flows/none", None),
        ("DELETE", "/api/v1/dispatch/policies/none", None),
        ("GET", "/api/v1/parcels/none", None),
        ("POST", "/api/v1/parcels/none/replay", None),
        ("POST", "/api/v1/parcels/none/annotate", {"annotations": {"a": "b"}}),
    ],
)
def test_what_is_not_there_is_404(http: Http, method: str, path: str, body: Any) -> None:
    told = http.send(method, path, body)
    assert told.status == 404
    assert "none" in told.json["error"]


ROUTES = [
    *dispatch_work.ROUTES,
    *dispatch_flows.ROUTES,
    *parcels.ROUTES,
    *queue_metrics.ROUTES,
]


@pytest.mark.parametrize("route", [route for route in ROUTES if route.body is not None], ids=lambda r: r.path)
def test_a_body_that_is_no_json_is_refused(http: Http, route: Route) -> None:
    path = route.path.replace("{lease}", "l").replace("{name}", "n").replace("{did}", "d")
    for body in (b"", b"{", b"[]", b'"x"', b"\xff", b"[" * 100_000, b"{} {}"):
        told = http.send(route.method, path, body)
        assert told.status == 400, body[:10]


def test_every_route_that_takes_input_is_tried() -> None:
    def shape(path: str) -> list[str]:
        return path.partition("?")[0].split("/")

    def is_of(route: Route, method: str, path: str) -> bool:
        parts = list(zip(shape(route.path), shape(path), strict=False))
        return (
            route.method == method
            and len(shape(route.path)) == len(shape(path))
            and all(wanted == given or wanted.startswith("{") for wanted, given in parts)
        )

    untried = [
        f"{route.method} {route.path}"
        for route in ROUTES
        if (route.body is not None or route.query or "{" in route.path)
        and not any(is_of(route, method, path) for method, path, _, _ in bad_requests())
    ]
    assert untried == []
