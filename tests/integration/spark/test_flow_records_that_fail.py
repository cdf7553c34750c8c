"""A record on which an action fails is set aside, the rest goes on, and each message ends in one place once."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from fixtures.fix_spark import Queues, forget_last_commit
from fixtures.running_stores import fresh
from forebay.flows import (
    ActionContext,
    ClassAction,
    DataFrameAction,
    Flow,
    QueueSink,
    Retry,
    Source,
    SqlAction,
)
from forebay.flows.flow_directory import FlowDirectory, SetAsides
from forebay.flows.worker import FlowFailed, Progress
from forebay.spark.flow_runner import SparkRunner
from forebay.spark.options import Connection
from forebay.spark.record_search import RecordSearch
from forebay.testing.running_server import RunningServer

RunOnce = Callable[[Flow], Progress]
NUMBER = SqlAction(name="number", sql="SELECT *, int(string(payload)) AS n FROM input")
QUICKLY = Retry(max_attempts=2, delay=timedelta(milliseconds=1))
TOO_LARGE = 11 * 2**20


class Picky(DataFrameAction):
    """Does not like 3 and 13."""

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        # Without type hints: Spark would warn of those that are text.
        def like(n):  # type: ignore[no-untyped-def]
            if n in (3, 13):
                raise ValueError(f"I do not like {n}")
            return n

        return frame.withColumn("liked", f.udf(like, "int")("n"))


class Sulking(DataFrameAction):
    """Does not like 3 until there is the file."""

    file = ""

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        file = self.file

        def like(n):  # type: ignore[no-untyped-def]
            if n == 3 and not os.path.exists(file):  # noqa: PTH110 - in Spark's own Python process
                raise ValueError("I do not like 3 yet")
            return n

        return frame.withColumn("liked", f.udf(like, "int")("n"))


class Unreachable(DataFrameAction):
    """Asks something that does not answer."""

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        def ask(n):  # type: ignore[no-untyped-def]
            raise ConnectionRefusedError("the price list does not answer")

        return frame.withColumn("price", f.udf(ask, "int")("n"))


@pytest.fixture
def run_once(spark: SparkSession, spark_server: RunningServer, tmp_path: Path) -> RunOnce:
    def run(flow: Flow) -> Progress:
        runner = SparkRunner(spark, Connection((spark_server.url,)), is_once=True)
        return runner.start(flow, FlowDirectory(tmp_path, flow.name)).wait()

    return run


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shop_that_fails")
    module.Picky = Picky  # type: ignore[attr-defined]
    module.Unreachable = Unreachable  # type: ignore[attr-defined]
    module.Sulking = Sulking  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_that_fails", module)


def a_flow(*actions: SqlAction | ClassAction, **more: Any) -> Flow:
    name = fresh("failing")
    source = Source(queue=f"{name}-in", max_offsets_per_trigger=60)
    given: dict[str, Any] = {"source": source, "sink": QueueSink(queue=f"{name}-out"), "retry": QUICKLY, **more}
    return Flow(name=name, mode="stream", actions=actions, **given)


def numbers(queues: Queues, queue: str | None) -> list[int]:
    return sorted(json.loads(payload)["n"] for payload in queues.payloads(str(queue)))


def test_records_that_fail_go_to_the_error_queue_with_their_traceback_and_nothing_is_lost_or_doubled(
    queues: Queues, run_once: RunOnce, tmp_path: Path
) -> None:
    text = f"repeat(string(n), IF(n = 14, {TOO_LARGE // 2}, 0)) AS text"
    grow = f"SELECT liked AS n, 1 / (n - 9) AS part, {text} FROM input"
    flow = a_flow(
        NUMBER, ClassAction(name="picky", class_name="shop_that_fails.Picky"), SqlAction(name="divide", sql=grow)
    )
    queues.put_numbers(flow.source.queue, 0, 16)
    progress = run_once(flow)
    bad = {3: "picky", 9: "divide", 13: "picky", 14: "sink"}
    good = [n for n in range(16) if n not in bad]
    assert numbers(queues, flow.output_queues[0]) == good
    letters = {int(row["payload"]): row for row in queues.rows(flow.errors_to)}
    assert sorted(letters) == sorted(bad)
    headers = {n: json.loads(row["headers"]) for n, row in letters.items()}
    assert {n: header["action"] for n, header in headers.items()} == bad
    assert {n: header["seq"] for n, header in headers.items()} == {n: n + 1 for n in bad}
    assert {header["holds"] for header in headers.values()} == {"input"}
    assert headers[3]["cause"] == "ValueError: I do not like 3"
    assert headers[3]["traceback"].startswith("Traceback (most recent call last):")
    assert "in like" in headers[3]["traceback"]
    assert headers[9]["cause"].startswith("[DIVIDE_BY_ZERO]")
    assert "refused (413)" in headers[14]["cause"]
    assert letters[13]["partition"] == "p1"
    assert (progress.rows, progress.bad_rows, progress.skipped_rows) == (16, 4, 0)

    # As a worker leaves it that was killed behind the sink's commit, and before it had noted whom it told.
    directory = FlowDirectory(tmp_path, flow.name)
    forget_last_commit(Path(directory.checkpoint(flow)))
    known = directory.set_asides()
    unreported = tuple(msgspec.structs.replace(one, is_reported=False) for one in known.records)
    directory.save_set_asides(SetAsides(query=known.query, records=unreported))
    run_once(flow)
    # And as one leaves it that has lost its directory, but not the checkpoint: the records are searched for again.
    forget_last_commit(Path(directory.checkpoint(flow)))
    (directory.path / "set-aside.json").unlink()
    assert run_once(flow).bad_rows == 4
    assert numbers(queues, flow.output_queues[0]) == good
    assert sorted(int(payload) for payload in queues.payloads(flow.errors_to)) == sorted(bad)


def test_record_that_passes_when_it_is_tried_again_is_not_set_aside(
    queues: Queues, run_once: RunOnce, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Sulking, "file", str(tmp_path / "liked"))
    pauses: list[float] = []

    def pause(_: RecordSearch, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            Path(Sulking.file).touch()

    monkeypatch.setattr(RecordSearch, "_wait", pause)
    retry = Retry(max_attempts=4, delay=timedelta(seconds=1), multiplier=2)
    sulking = ClassAction(name="sulking", class_name="shop_that_fails.Sulking", retry=retry)
    flow = a_flow(NUMBER, sulking, SqlAction(name="only", sql="SELECT liked AS n FROM input"))
    queues.put_numbers(flow.source.queue, 0, 5)
    assert run_once(flow).bad_rows == 0
    assert pauses == [1.0, 2.0]
    assert numbers(queues, flow.output_queues[0]) == list(range(5))
    assert queues.size(flow.errors_to) == 0


def test_action_decides_whether_its_records_are_skipped_or_stop_the_flow(
    queues: Queues, run_once: RunOnce, caplog: pytest.LogCaptureFixture
) -> None:
    picky = ClassAction(name="picky", class_name="shop_that_fails.Picky", on_error="skip")
    divide = SqlAction(name="divide", sql="SELECT liked AS n, 1 / (n - 20) AS part FROM input", on_error="fail")
    flow = a_flow(NUMBER, picky, divide)
    queues.put_numbers(flow.source.queue, 0, 8)
    assert run_once(flow).skipped_rows == 1
    assert numbers(queues, flow.output_queues[0]) == [n for n in range(8) if n != 3]
    assert any("skips seq 4: picky: ValueError: I do not like 3" in line for line in caplog.messages)
    queues.put_numbers(flow.source.queue, 16, 24)
    with pytest.raises(FlowFailed, match=r"action 'divide' fails on seq 13: \[DIVIDE_BY_ZERO\]"):
        run_once(flow)
    assert len(numbers(queues, flow.output_queues[0])) == 7
    assert queues.size(flow.errors_to) == 0


def test_what_is_not_the_fault_of_a_record_is_not_searched_for_in_records(queues: Queues, run_once: RunOnce) -> None:
    ask = ClassAction(name="ask", class_name="shop_that_fails.Unreachable")
    away = a_flow(NUMBER, ask, SqlAction(name="priced", sql="SELECT n, price FROM input"))
    queues.put_numbers(away.source.queue, 0, 5)
    with pytest.raises(FlowFailed, match="ConnectionRefusedError: the price list does not answer"):
        run_once(away)
    assert queues.size(away.errors_to) == 0
    rollup = {"window": "1m", "aggregates": {"parts": "sum(1 / (n - 3))"}}
    summing = a_flow(NUMBER, ClassAction(name="sums", class_name="rollup", params=rollup))
    queues.put_numbers(summing.source.queue, 0, 5)
    with pytest.raises(FlowFailed, match=r"DIVIDE_BY_ZERO(?s:.)*action 'sums' is not row by row \(it keeps state\)"):
        run_once(summing)
    assert queues.size(summing.errors_to) == 0


def test_record_that_fails_before_an_action_with_state_is_set_aside(queues: Queues, run_once: RunOnce) -> None:
    picky = ClassAction(name="picky", class_name="shop_that_fails.Picky")
    once = ClassAction(name="once", class_name="deduplicate", params={"keys": ["n"], "within": "1h"})
    flow = a_flow(NUMBER, picky, once, SqlAction(name="only", sql="SELECT liked AS n FROM input"))
    queues.put_numbers(flow.source.queue, 0, 8)
    queues.put_numbers(flow.source.queue, 0, 8)
    run_once(flow)
    assert numbers(queues, flow.output_queues[0]) == [n for n in range(8) if n != 3]
    assert queues.payloads(flow.errors_to) == [b"3", b"3"]
