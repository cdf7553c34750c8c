"""Unit tests of actions and flows: rows in, rows out, on a local Spark without any server.

    from forebay.testing import run_action

    def test_only_europe_is_kept() -> None:
        found = run_action(Enrich(Enrich.Params(region="eu")), [{"user": "ann", "region": "eu"}, {"region": "us"}])
        assert found.rows == [{"user": "ann", "region": "eu"}]

The first call starts Spark, which takes some seconds; all tests of a process share it. A session that runs already is
used as it is. Actions that keep state (`deduplicate`, `rollup`, windows) see all rows as one batch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from forebay.flows.action import ActionContext, DataFrameAction
from forebay.flows.definition import Flow, QueueSink, Source, SqlAction
from forebay.flows.record_action import MESSAGE_COLUMNS, RecordAction
from forebay.spark.flow_plan import FlowOnTable
from forebay.spark.masters import session_there
from forebay.spark.record_frames import SIDE_COLUMN, record_frame
from forebay.spark.session import spark_session

Row = Mapping[str, Any]
MESSAGE = (
    "seq BIGINT, partition STRING, transaction_id STRING, trace_id STRING, headers STRING, created_at TIMESTAMP, "
    "payload BINARY"
)
_CREATED_AT = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What came out."""

    rows: list[dict[str, Any]]
    rejected: list[dict[str, Any]]
    """Bad records, each with its `cause`. Of a `DataFrameAction`: what `rejected` gives. Of a `RecordAction`: `payload`
    (without such a column, the record as JSON) and the message's own columns. Of a flow: what would be in its error
    queue."""
    filtered: dict[str, int] = field(default_factory=dict)
    """Of a `RecordAction`: how many records were filtered, by reason."""
    annotations: list[dict[str, str]] = field(default_factory=list)
    """Of a `RecordAction`: those of all results that have some."""


def run_action(
    action: DataFrameAction | RecordAction | str,
    rows: Sequence[Row],
    schema: str | None = None,
    *,
    tables: Mapping[str, Sequence[Row]] | None = None,
) -> ActionResult:
    """Run an action of either kind, or SQL over `input`, on rows.

    `schema` is the columns as DDL (`"user STRING, ms INT"`), wanted where Spark cannot tell them from the values.
    `tables` are the flow's static tables. What the action raises is raised here, as Spark tells it; but a record on
    which a `RecordAction` fails is in `rejected`, after one attempt, as `on_error: queue` has it.
    """
    spark = _session()
    frame = _frame(rows, schema)
    frames = {name: _frame(table, None) for name, table in (tables or {}).items()}
    if isinstance(action, str):
        return ActionResult(_sql_rows(action, frame, frames), [])
    if isinstance(action, RecordAction):
        return _of_records(action, frame)
    flow = _a_flow()
    context = ActionContext(flow, spark, frames)
    rejected = _collected(action.rejected(frame, context)) if action.may_reject else []
    return ActionResult(_collected(action.transform(frame, context)), rejected)


def run_flow(flow: Flow, payloads: Sequence[bytes | str], **columns: Sequence[Any]) -> ActionResult:
    """Run all actions of a flow on messages with these payloads; the rows are what its sink would get.

    `columns` gives other columns of the messages, such as `partition=["a", "b"]`. Seqs begin at 1.
    """
    given = {name: list(values) for name, values in columns.items()}
    messages = [
        {
            "seq": index + 1,
            "partition": "Default",
            "created_at": _CREATED_AT,
            "payload": payload.encode() if isinstance(payload, str) else payload,
            **{name: values[index] for name, values in given.items()},
        }
        for index, payload in enumerate(payloads)
    ]
    with FlowOnTable(_session(), flow, _frame(messages, MESSAGE)) as plan:
        return ActionResult(_collected(plan.output), _collected(plan.bad) if plan.bad is not None else [])


def _of_records(action: RecordAction, frame: Any) -> ActionResult:
    found = ActionResult([], [])
    for row in _collected(record_frame(frame, action)):
        side = row.pop(SIDE_COLUMN)
        if side is None:
            found.rows.append(row)
        elif side["kind"] == "bad":
            own = {name: value for name, value in row.items() if name in MESSAGE_COLUMNS and name in frame.columns}
            found.rejected.append({**own, "payload": bytes(side["payload"]), "cause": side["text"]})
        elif side["kind"] == "filtered":
            found.filtered[side["text"]] = found.filtered.get(side["text"], 0) + side["count"]
        elif side["kind"] == "note":
            found.annotations.extend(json.loads(side["text"]) for _ in range(side["count"]))
    return found


@cache
def _session() -> Any:
    """The session that runs in this process, or a new one."""
    # Spark's Python processes find modules where this one does: the actions, and what they import.
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, [*sys.path, *known])))
    if session_there() is not None:
        return spark_session()
    return spark_session("local[1]", config={"spark.log.level": "ERROR"})


def _frame(rows: Sequence[Row], schema: str | None) -> Any:
    spark = _session()
    if schema is None:
        return spark.createDataFrame([dict(row) for row in rows])
    # Through a frame without rows: it knows the types of the columns that the rows may leave out.
    columns = spark.createDataFrame([], schema).schema
    values = [tuple(_value(row.get(field.name), field.dataType.typeName()) for field in columns) for row in rows]
    return spark.createDataFrame(values, columns)


def _value(value: Any, kind: str) -> Any:
    """Times may be written as text."""
    return datetime.fromisoformat(value) if kind == "timestamp" and isinstance(value, str) else value


def _sql_rows(sql: str, frame: Any, tables: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = {name: f"forebay_testing_{name}" for name in ("input", *tables)}
    for name, below in {"input": frame, **tables}.items():
        below.createOrReplaceTempView(names[name])
    views = ", ".join(f"`{name}` AS (TABLE `{view}`)" for name, view in names.items())
    return _collected(_session().sql(f"WITH {views} (\n{sql.strip().rstrip(';')}\n)"))


def _collected(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def _a_flow() -> Flow:
    return Flow(
        name="tested",
        mode="stream",
        source=Source(queue="tested"),
        actions=(SqlAction(name="nothing", sql="SELECT * FROM input"),),
        sink=QueueSink(queue="tested-out"),
    )
