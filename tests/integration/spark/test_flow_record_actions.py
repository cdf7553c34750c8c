"""Record actions in a stream: a record that is bad or fails is set aside once, and the rest goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from fixtures.fix_spark import Queues, forget_last_commit
from fixtures.running_stores import fresh
from forebay.flows import (
    ActionParams,
    ClassAction,
    Error,
    Filter,
    Flow,
    QueueSink,
    Record,
    RecordAction,
    RecordContext,
    Result,
    Retry,
    Source,
    SqlAction,
)
from forebay.flows.flow_directory import FlowDirectory
from forebay.flows.record_action import Outcome
from forebay.flows.worker import FlowFailed, Progress
from forebay.spark.flow_runner import SparkRunner
from forebay.spark.options import Connection
from forebay.testing.running_server import RunningServer

RunOnce = Callable[[Flow], Progress]


class Judge(RecordAction):
    """Numbers of text; 3 is bad, 7 does not fit, 9 fails, 4 and 5 are not wanted."""

    class Params(ActionParams, frozen=True, kw_only=True):
        bad: int = 3
        failing: int = 9

    schema = "n INT"
    params: Params

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        n = int(record["payload"])
        if n == self.params.bad:
            return Error(f"{context.flow.partition('-')[0]} does not take {n}")
        if n == self.params.failing:
            raise ValueError(f"I do not like {n}")
        if n in (4, 5):
            return Filter("not wanted")
        return Result({"n": "seven" if n == 7 else n}, {"is": "judged"})


class Away(RecordAction):
    schema = "n INT"

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        raise TimeoutError("the price list does not answer")


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("shop_of_records")
    module.Judge, module.Away = Judge, Away  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_of_records", module)
    here = sys.modules[__name__]
    # Spark's Python processes cannot import this module.
    cloudpickle.register_pickle_by_value(here)  # type: ignore[no-untyped-call]
    yield
    cloudpickle.unregister_pickle_by_value(here)  # type: ignore[no-untyped-call]


@pytest.fixture
def run_once(spark: SparkSession, spark_server: RunningServer, tmp_path: Path) -> RunOnce:
    def run(flow: Flow) -> Progress:
        runner = SparkRunner(spark, Connection((spark_server.url,)), is_once=True)
        return runner.start(flow, FlowDirectory(tmp_path, flow.name)).wait()

    return run


def a_flow(*actions: SqlAction | ClassAction, **more: Any) -> Flow:
    name = fresh("judging")
    retry = Retry(max_attempts=2, delay=timedelta(milliseconds=1))
    source, sink = Source(queue=f"{name}-in"), QueueSink(queue=f"{name}-out")
    return Flow(name=name, mode="stream", actions=actions, source=source, sink=sink, retry=retry, **more)


def judge(**params: int) -> ClassAction:
    return ClassAction(name="judge", class_name="shop_of_records.Judge", params=params)


def numbers(queues: Queues, queue: str | None) -> list[int]:
    return sorted(json.loads(payload)["n"] for payload in queues.payloads(str(queue)))


def test_bad_and_failing_records_go_to_the_error_queue_once_and_the_rest_goes_on(
    queues: Queues, run_once: RunOnce, tmp_path: Path
) -> None:
    flow = a_flow(judge(), SqlAction(name="twice", sql="SELECT partition, n * 2 AS n FROM input"))
    queues.put_numbers(flow.source.queue, 0, 12)
    progress = run_once(flow)
    good = [2 * n for n in (0, 1, 2, 6, 8, 10, 11)]
    assert numbers(queues, flow.output_queues[0]) == good
    letters = {int(row["payload"]): json.loads(row["headers"]) for row in queues.rows(flow.errors_to)}
    assert {n: (header["action"], header["cause"], header["seq"]) for n, header in letters.items()} == {
        3: ("judge", "judging does not take 3", 4),
        7: ("judge", "'seven' does not fit column n (int32): got str", 8),
        9: ("judge", "ValueError: I do not like 9", 10),
    }
    assert letters[3]["traceback"] == "", "it did not fail: its action has called it bad"
    assert "in transform" in letters[9]["traceback"]
    assert (progress.bad_rows, progress.skipped_rows) == (3, 0)

    # As a worker leaves it that was killed behind the sink's commit.
    forget_last_commit(Path(FlowDirectory(tmp_path, flow.name).checkpoint(flow)))
    run_once(flow)
    assert numbers(queues, flow.output_queues[0]) == good
    assert queues.size(flow.errors_to) == 3


def test_on_error_is_for_records_that_fail_and_not_for_those_that_an_action_calls_bad(
    queues: Queues, run_once: RunOnce
) -> None:
    flow = a_flow(judge(failing=-1), on_error="fail")
    queues.put_numbers(flow.source.queue, 0, 4)
    assert run_once(flow).bad_rows == 1
    assert queues.payloads(flow.errors_to) == [b"3"]
    skipping = a_flow(judge(failing=1), on_error="skip")
    queues.put_numbers(skipping.source.queue, 0, 4)
    progress = run_once(skipping)
    assert (progress.bad_rows, progress.skipped_rows) == (1, 1)
    assert numbers(queues, skipping.output_queues[0]) == [0, 2]


def test_what_is_not_the_fault_of_a_record_restarts_the_flow_and_sets_nothing_aside(
    queues: Queues, run_once: RunOnce
) -> None:
    flow = a_flow(ClassAction(name="away", class_name="shop_of_records.Away"))
    queues.put_numbers(flow.source.queue, 0, 3)
    with pytest.raises(FlowFailed, match="TimeoutError: the price list does not answer"):
        run_once(flow)
    assert queues.size(flow.errors_to) == 0
