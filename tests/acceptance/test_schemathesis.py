"""schemathesis reads the API's own description and tries to make the server break it.

No answer with 500, no status and no shape that the description does not announce.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fixtures.arrow_steps import ipc
from fixtures.running_stores import Http, running, shared_postgres_database
from forebay.api.openapi import description
from forebay.api.routes import API_ROUTES
from forebay.testing.running_server import RunningServer

__all__ = ["shared_postgres_database"]


def not_broken(context: schemathesis.CheckContext, response: schemathesis.Response, case: Any) -> bool | None:
    """501 is said on purpose, of what Queen has and Forebay has not."""
    return None if response.status_code == 501 else not_a_server_error(context, response, case)


CHECKS = [not_broken, status_code_conformance, content_type_conformance, response_schema_conformance]

ROWS = ipc({"payload": ["1", "no JSON"], "partition": ["a", None]})


@schemathesis.serializer("application/vnd.apache.arrow.stream")
def arrow_body(context: schemathesis.SerializationContext, value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


schemathesis.openapi.media_type("application/vnd.apache.arrow.stream", st.just(ROWS) | st.binary())


@pytest.fixture(scope="module")
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, str]]:
    """A server with keys, and one that may do everything."""
    folder = tmp_path_factory.mktemp("described")
    with RunningServer(folder / "forebay-data", store="memory://") as server, Http(server.url) as http:
        made = http.send("POST", "/api/v1/keys", {"name": "root", "scopes": ["admin"]})
        yield server, made.json["key"]


@pytest.fixture(scope="module", params=["embedded", "postgres"])
def durable_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(request.param, request, tmp_path_factory.mktemp("described")) as server:
        yield server


whole = schemathesis.openapi.from_dict(json.loads(description(API_ROUTES)))
keyed_schema = whole.exclude(path_regex="/system/maintenance")
"""Maintenance is left out: with it on, all others are answered 503."""
schema = whole.exclude(path_regex="/system/maintenance|/api/v1/keys")
"""Without keys those are left out too: with the first of them, all others are answered 401."""


def settings(examples: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


def tried(case: schemathesis.Case[Any], server: RunningServer, key: str = "") -> None:
    # A long poll that finds nothing would take its whole time.
    if isinstance(case.query, dict) and "/pop" in case.path:
        case.query.pop("wait", None)
    if isinstance(case.body, dict) and case.path.endswith("/dispatch/lease"):
        case.body.pop("wait", None)
    headers = {"Authorization": f"Bearer {key}"} if key else None
    case.call_and_validate(base_url=server.url, checks=CHECKS, timeout=30, headers=headers)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the libraries under schemathesis, not ours
@keyed_schema.parametrize()
@settings(40)
def test_server_with_keys_answers_as_described(
    case: schemathesis.Case[Any], keyed_server: tuple[RunningServer, str]
) -> None:
    tried(case, *keyed_server)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@schema.parametrize()
@settings(4)
def test_server_on_a_durable_store_answers_as_described(
    case: schemathesis.Case[Any], durable_server: RunningServer
) -> None:
    """Fewer examples: what is read and checked before the store is the same for all."""
    tried(case, durable_server)
