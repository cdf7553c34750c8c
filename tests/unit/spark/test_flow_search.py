"""A running flow whose query fails: when it searches for a record, when it fails, and that a stop ends a search."""

from __future__ import annotations

import threading
import time
from typing import Any, cast

import pytest

from forebay.flows import Flow, QueueSink, Source
from forebay.flows.flow_directory import SetAside
from forebay.flows.worker import FlowFailed
from forebay.spark.flow_narrowing import FlowNarrowing
from forebay.spark.flow_runner import SparkFlow
from forebay.spark.record_search import Interrupted

VALUE = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"
SECONDS_MAX = 30.0


class ScriptedQuery:
    name = "flow"
    lastProgress = None  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self.isActive = True
        self.fault: Exception | None = None

    def fail(self, text: str) -> None:
        self.isActive, self.fault = False, Exception(text)

    def exception(self) -> Exception | None:
        return self.fault

    def stop(self) -> None:
        self.isActive = False


class ScriptedSearch:
    """A search that goes on until the test, or a stop, ends it."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.is_stopped = False
        self.searched: list[tuple[str, bool]] = []

    def search(self, failure: str, *, of_errors: bool) -> list[SetAside]:
        self.searched.append((failure, of_errors))
        assert self.ended.wait(SECONDS_MAX)
        if self.is_stopped:
            raise Interrupted
        return [SetAside(seq=1, action="a", cause="x"), SetAside(seq=2, action="b", cause="y", is_queued=False)]

    def stop(self) -> None:
        self.is_stopped = True
        self.ended.set()


class Running:
    """A flow with two queries, the second for bad records."""

    def __init__(self, **more: Any) -> None:
        self.started: list[list[ScriptedQuery]] = []
        self.search = ScriptedSearch()
        flow = Flow(name="flow", mode="stream", source=Source(queue="in"), sink=QueueSink(queue="out"), **more)
        self.flow = SparkFlow(self.start, flow, cast("FlowNarrowing", self.search))
        self.flow.begin()

    def start(self) -> Any:
        self.started.append([ScriptedQuery(), ScriptedQuery()])
        return self.started[-1]


def test_record_that_fails_is_searched_for_and_both_queries_go_on_without_it() -> None:
    running = Running()
    running.started[0][1].fail(VALUE)
    assert running.flow.check().note == "looking for records that fail"
    assert running.search.searched == [(VALUE, True)]
    assert not any(query.isActive for query in running.started[0])
    running.search.ended.set()
    deadline = time.monotonic() + SECONDS_MAX
    while len(running.started) == 1:
        assert time.monotonic() < deadline
        running.flow.check()
    progress = running.flow.check()
    assert (progress.bad_rows, progress.skipped_rows, progress.note) == (1, 1, "")


@pytest.mark.parametrize(
    ("failure", "more"), [("ExecutorLostFailure (executor 1 exited)", {}), (VALUE, {"on_error": "fail"})]
)
def test_what_is_no_records_fault_and_what_is_to_stop_the_flow_fails_it(failure: str, more: dict[str, Any]) -> None:
    running = Running(**more)
    running.started[0][0].fail(failure)
    with pytest.raises(FlowFailed):
        running.flow.check()
    assert running.search.searched == []


def test_stop_ends_a_search() -> None:
    running = Running()
    running.started[0][0].fail(VALUE)
    running.flow.check()
    running.flow.stop()
    assert running.search.is_stopped
    assert len(running.started) == 1
