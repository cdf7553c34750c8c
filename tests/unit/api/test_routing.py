"""Which operation a path means."""

from __future__ import annotations

from collections import Counter
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.api.problems import Problem
from forebay.api.routes import ALL_ROUTES
from forebay.api.routing import Router, Scope

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


@pytest.mark.parametrize("path", ["/", "", "/api", "/api/v1", "/api/v1/push/", "//api/v1/push", "/api/v1/ack/batch/x"])
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
    assert is_open == {"/healthz", "/readyz", "/health", "/metrics", "/metrics/prometheus", "/openapi.json", "/docs"}


def test_what_changes_something_needs_more_than_reading() -> None:
    changing = [route for route in ALL_ROUTES if route.changes or route.method != "GET"]
    readable = {route.path for route in changing if route.scope < Scope.WRITE}
    assert readable == {"/api/v1/arrow/queues/{queue}/readers/{reader}"}, "a reader may say that it reads"
