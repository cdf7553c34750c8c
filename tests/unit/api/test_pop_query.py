"""What a pop asks for, read from its query."""

from __future__ import annotations

import pytest

from forebay.api.exchange import Request
from forebay.api.pop_query import AUTOPILOT_BATCH, question_of
from forebay.api.problems import Problem


def asking(query: bytes) -> Request:
    return Request("GET", b"/api/v1/pop/queue/q", query)


def test_a_query_that_comes_again_means_the_same() -> None:
    query = b"batch=7&wait=true&timeout=250&consumerGroup=g&autoAck=true&partitions=3&again=1"
    first, again = question_of(asking(query)), question_of(asking(query))
    assert first == again
    assert (first.is_waiting, first.timeout_ms, first.is_autopilot) == (True, 250, False)
    asked = first.wanted
    assert (asked.batch, asked.group, asked.auto_ack, asked.partitions, asked.queue) == (7, "g", True, 3, "")


def test_queries_that_differ_are_not_taken_for_each_other() -> None:
    sizes = [question_of(asking(b"batch=%d" % size)).wanted.batch for size in range(1, 2_000)]
    assert sizes == list(range(1, 2_000))


def test_a_wrong_query_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(Problem):
            question_of(asking(b"batch=0"))


def test_columns_are_answered_to_who_asks_for_them() -> None:
    assert question_of(asking(b"batch=1")).shape == "messages"
    assert question_of(asking(b"batch=1&shape=messages")).shape == "messages"
    assert question_of(asking(b"batch=1&shape=columns")).shape == "columns"
    assert question_of(asking(b"batch=1&shape=columns&packed=true")).shape == "packed"
    assert question_of(asking(b"batch=1&packed=true")).shape == "messages", "packed says how columns are sent"
    with pytest.raises(Problem):
        question_of(asking(b"shape=rows"))


def test_the_server_chooses_only_what_was_left_out() -> None:
    assert question_of(asking(b"autopilot=true")).wanted.batch == AUTOPILOT_BATCH
    assert question_of(asking(b"autopilot=true&batch=5")).wanted.batch == 5


@pytest.mark.parametrize("mode", ["", "all", "from_beginning", "earliest", "from", "timestamp", "sometimes"])
def test_a_group_starts_at_the_beginning_unless_it_says_new_or_a_time(mode: str) -> None:
    asked = question_of(asking(b"subscriptionMode=" + mode.encode())).wanted
    assert (asked.subscription_mode, asked.subscription_from_us) == ("all", 0)
    timed = question_of(asking(b"subscriptionFrom=1970-01-01T00:00:02Z&subscriptionMode=" + mode.encode())).wanted
    assert (timed.subscription_mode, timed.subscription_from_us) == ("from", 2_000_000)
    now = question_of(asking(b"subscriptionFrom=now&subscriptionMode=" + mode.encode())).wanted
    assert now.subscription_mode == "new"


@pytest.mark.parametrize("mode", [b"new", b"new-only"])
def test_a_new_group_may_start_behind_what_is_there(mode: bytes) -> None:
    assert question_of(asking(b"subscriptionMode=" + mode)).wanted.subscription_mode == "new"
