"""Which operation a path means."""

from __future__ import annotations

from collections import Counter
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.api.problems import Problem
from forebay.api.routes import ALL_ROUTES
from forebay.api.routes.page import PAGES
from forebay.api.routing import Queues, Router, Scope

ROUTER = Router(ALL_ROUTES)

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=255).filter(
    lambda name: {".", ".."}.isdisjoint(name.replace("\\", "/").split("/"))
)


@given(names, names)
@example("a/b", "%2F")
@example("partition", "queue")
def test_any_name_survives_the_path(queue: str, partition: str) -> None:
    path = f"/api/v1/pop/queue/{quote(queue, safe='')}/partition/{quote(partition, safe='')}"
    route, found = ROUTER.find("GET", path.encode())
    assert (route.name, found) == ("pop_partition", (queue, partition))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/v1/consumer-groups/lagging", "list_lagging"),
        ("/api/v1/consumer-groups/laggin", "show_group"),
        ("/api/v1/traces/by-name/x", "traces_by_name"),
        ("/api/v1/traces/by-nam/x", "traces_of_message"),
        ("/api/v1/traces/names", "trace_names"),
        ("/api/v1/resources/queues/depth/depth", "queue_depth"),
    ],
)
def test_fixed_segment_is_preferred_to_a_parameter(path: str, name: str) -> None:
    assert ROUTER.find("GET", path.encode())[0].name == name


@pytest.mark.parametrize(
    "path", ["/nothing", "/api", "/api/v1", "/api/v1/push/", "//api/v1/push", "/api/v1/ack/batch/x"]
)
def test_path_that_is_not_there_is_404(path: str) -> None:
    with pytest.raises(Problem) as told:
        ROUTER.find("POST", path.encode())
    assert told.value.status == 404


def test_every_operation_stands_once_and_has_its_words() -> None:
    counted = Counter((route.method, route.path) for route in ALL_ROUTES)
    assert counted.most_common(1)[0][1] == 1
    assert all(route.summary.endswith(".") and route.answers for route in ALL_ROUTES)


def test_only_what_tells_nothing_is_open() -> None:
    is_open = {route.path for route in ALL_ROUTES if route.scope is Scope.OPEN}
    health = {"/healthz", "/readyz", "/health", "/metrics", "/metrics/prometheus", "/openapi.json", "/docs"}
    files = {"/page/{file}", *(path for path, _ in PAGES)}
    assert is_open == {*health, *files, "/api/v1/session"}


def test_what_changes_something_needs_more_than_reading() -> None:
    changing = [route for route in ALL_ROUTES if (route.changes or route.method != "GET") and route.needed]
    readable = {route.path for route in changing if route.needed & Scope.READ}
    assert readable == {"/api/v1/arrow/queues/{queue}/readers/{reader}"}, "a reader may say that it reads"


def test_what_destroys_or_resets_is_for_admin_keys_alone() -> None:
    told = {(route.method, route.path) for route in ALL_ROUTES if route.is_admin_action}
    assert told == {
        ("DELETE", "/api/v1/resources/queues/{queue}"),
        ("DELETE", "/api/v1/queues/{queue}/clear"),
        ("DELETE", "/api/v1/consumer-groups/{group}"),
        ("DELETE", "/api/v1/consumer-groups/{group}/queues/{queue}"),
        ("POST", "/api/v1/consumer-groups/{group}/subscription"),
        ("POST", "/api/v1/consumer-groups/{group}/queues/{queue}/seek"),
        ("POST", "/api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek"),
        ("DELETE", "/api/v1/dlq"),
        ("POST", "/api/v1/dlq/purge"),
        ("DELETE", "/api/v1/messages/{partitionId}/{transactionId}"),
        ("POST", "/api/v1/messages/{partitionId}/{transactionId}/dlq"),
        ("DELETE", "/api/v1/flows/{name}"),
        ("POST", "/api/v1/flows/{name}/pause"),
        ("POST", "/api/v1/flows/{name}/resume"),
        ("DELETE", "/api/v1/dispatch/flows/{name}"),
        ("POST", "/api/v1/dispatch/flows/{name}/pause"),
        ("POST", "/api/v1/dispatch/flows/{name}/resume"),
        ("POST", "/api/v1/dispatch/flows/{name}/stop"),
        ("DELETE", "/api/v1/dispatch/policies/{name}"),
        ("POST", "/api/v1/parcels/cancel"),
        ("POST", "/api/v1/exports/{name}/pause"),
        ("POST", "/api/v1/exports/{name}/resume"),
        ("POST", "/api/v1/exports/{name}/dead-letters/replay"),
        ("POST", "/api/v1/exports/{name}/dead-letters/purge"),
        ("POST", "/api/v1/system/maintenance"),
        ("POST", "/api/v1/system/maintenance/pop"),
        ("POST", "/api/v1/stats/refresh"),
        ("POST", "/api/v1/keys"),
        ("DELETE", "/api/v1/keys/{id}"),
        ("POST", "/api/v1/keys/{id}/rotate"),
    }


def test_route_that_says_nothing_of_queues_is_closed_to_restricted_keys() -> None:
    all_queues = {route.path for route in ALL_ROUTES if route.queues is Queues.ALL and route.needed}
    assert not [path for path in all_queues if "{queue}" in path]
    assert all_queues == {
        "/api/v1/consumer-groups/{group}",
        "/api/v1/traces/names",
        "/api/v1/traces/by-name/{name}",
        "/api/v1/dispatch/policies",
        "/api/v1/dispatch/policies/{name}",
        "/api/v2/metrics/queues/action-plugins",
        "/api/v1/journey",
        "/api/v1/journey/history",
        "/api/v1/journey/latency",
        "/api/v1/exports/{name}/dead-letters",
        "/api/v1/exports/{name}/dead-letters/{letter}",
        "/api/v1/exports/{name}/dead-letters/replay",
        "/api/v1/exports/{name}/dead-letters/purge",
        "/api/v1/stats/refresh",
        "/api/v1/system/maintenance",
        "/api/v1/system/maintenance/pop",
        "/api/v1/keys",
        "/api/v1/keys/{id}",
        "/api/v1/keys/{id}/rotate",
        "/api/v1/audit-log",
    }
