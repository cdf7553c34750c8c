"""Many large messages asked for at once: as many as fit are given, and the rest when they are asked for."""

from __future__ import annotations

import pytest

from fixtures.running_stores import Http, any_server, fresh, http, shared_postgres_database

__all__ = ["any_server", "http", "shared_postgres_database"]
LARGE = 10 * 1024 * 1024
"""Bytes that a payload may have."""
GIVEN_AT_ONCE = 7
"""With the seventh, payloads reach 64 MiB."""
MESSAGES = 9


@pytest.fixture
def queue(http: Http) -> str:
    name = fresh()
    payload = b'"' + b"x" * (LARGE - 2) + b'"'
    for number in range(MESSAGES):
        body = b'{"items":[{"queue":"%s","transactionId":"%d","payload":%s}]}' % (name.encode(), number, payload)
        assert http.post("/push", body).status == 201
    return name


def test_pop_of_large_messages_gives_as_many_as_fit_and_then_the_others(http: Http, queue: str) -> None:
    found = []
    for expected in (GIVEN_AT_ONCE, MESSAGES - GIVEN_AT_ONCE):
        popped = http.get(f"/api/v1/pop/queue/{queue}?batch=10000").json
        assert len(popped["messages"]) == expected
        found += [message["transactionId"] for message in popped["messages"]]
        assert http.post(f"/lease/{popped['messages'][0]['leaseId']}/complete", {}).status == 200
    assert found == [str(number) for number in range(MESSAGES)]
    assert http.get(f"/api/v1/pop/queue/{queue}?batch=10000").status == 204


def test_page_of_large_messages_says_where_to_go_on(http: Http, queue: str) -> None:
    path = f"/api/v1/messages?queue={queue}&limit=1000"
    page = http.get(path).json
    assert (len(page["messages"]), page["nextSeq"]) == (GIVEN_AT_ONCE, GIVEN_AT_ONCE + 1)
    page = http.get(f"{path}&fromSeq={page['nextSeq']}").json
    assert ([message["transactionId"] for message in page["messages"]], page["nextSeq"]) == (["7", "8"], None)
