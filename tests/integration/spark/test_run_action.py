"""`run_action` runs SQL and actions of both kinds, and shows all that becomes of the rows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from forebay.flows import (
    ActionContext,
    ActionParams,
    DataFrameAction,
    Error,
    Filter,
    RecordAction,
    RecordContext,
    Result,
)
from forebay.flows.record_action import Outcome, Record
from forebay.testing import run_action

ROWS = [{"user": "ann", "ms": 5}, {"user": "", "ms": 1}, {"user": "bot", "ms": 2}, {"user": "bot", "ms": 3}]
SCHEMA = "user STRING, ms INT"


class Slow(DataFrameAction):
    may_reject = True

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        return frame.where("ms > 2")

    def rejected(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        return frame.where("ms <= 2").selectExpr("*", "'quick' AS cause")


class Greet(RecordAction):
    schema = "greeting STRING"

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        if not record["user"]:
            return Error("no user")
        if record["user"] == "bot":
            return Filter("bot")
        return Result({"greeting": f"hello {record['user']}"}, {"language": "en"})


@pytest.fixture(autouse=True)
def code_travels(spark: SparkSession) -> Iterator[None]:
    """The session of the other tests runs already, in whose processes this module cannot be imported."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    yield
    cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def test_sql_and_frame_actions_give_rows_and_bad_records() -> None:
    assert run_action("SELECT user FROM input WHERE ms = 5", ROWS, SCHEMA).rows == [{"user": "ann"}]
    found = run_action(Slow(ActionParams()), ROWS, SCHEMA)
    assert [row["ms"] for row in found.rows] == [5, 3]
    assert [(row["ms"], row["cause"]) for row in found.rejected] == [(1, "quick"), (2, "quick")]
    assert (found.filtered, found.annotations) == ({}, [])


def test_record_action_gives_rows_bad_records_counts_and_annotations() -> None:
    found = run_action(Greet(ActionParams()), ROWS, SCHEMA)
    assert found.rows == [{"greeting": "hello ann"}]
    [bad] = found.rejected
    assert (bad["cause"], json.loads(bad["payload"])) == ("no user", {"user": "", "ms": 1})
    assert found.filtered == {"bot": 2}
    assert found.annotations == [{"language": "en"}]


def test_columns_of_the_message_are_with_their_rows_and_bad_records() -> None:
    rows = [{"seq": 1, "payload": b"x", "user": "ann"}, {"seq": 2, "payload": b"y", "user": None}]
    found = run_action(Greet(ActionParams()), rows, "seq BIGINT, payload BINARY, user STRING")
    assert found.rows == [{"seq": 1, "greeting": "hello ann"}]
    assert found.rejected == [{"seq": 2, "payload": b"y", "cause": "no user"}]


def test_testing_is_imported_without_spark() -> None:
    program = "import sys, forebay.testing; print('pyspark' in sys.modules, sorted(forebay.testing.__all__))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False ['ActionResult', 'run_action', 'run_flow']\n"
