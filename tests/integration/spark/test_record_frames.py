"""Record actions on a real Spark: the columns, the side rows, types of all kinds, and the way of an action's code."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from forebay.errors import Permanent
from forebay.flows import ActionParams, Error, Filter, Record, RecordAction, RecordContext, Result, Results, Retry
from forebay.flows.record_action import Outcome
from forebay.spark.record_attempts import RecordStep
from forebay.spark.record_frames import SIDE_COLUMN, RecordFrameOptions, good_rows, record_frame, side_rows

MESSAGES = "did STRING, seq BIGINT, partition STRING, created_at TIMESTAMP, payload BINARY"
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
SIDE = (
    "struct<kind:string,text:string,payload:binary,count:bigint,action:string,traceback:string,"
    "input_seq:bigint,split:boolean>"
)


@pytest.fixture(autouse=True)
def code_travels() -> Any:
    """Spark's Python processes cannot import this module: its classes travel as those of a cluster's users do."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    yield
    cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


class Parse(RecordAction):
    """JSON to user and ms."""

    class Params(ActionParams, frozen=True, kw_only=True):
        ms_max: int = 100

        @property
        def text(self) -> str:
            return f"more than {self.ms_max} ms"

    schema = "user STRING NOT NULL, ms INT"
    params: Params

    def open(self) -> None:
        self.decoder = json.JSONDecoder()

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        found = self.decoder.decode(record["payload"].decode())
        if isinstance(found, list):
            return Results([Result(one, {"from": "list"}) for one in found])
        if found.get("ms") == -1:
            return Error("no time")
        if isinstance(found.get("ms"), int) and self.params.ms_max < found["ms"] < 2**20:
            return Filter(self.params.text)
        return found  # type: ignore[no-any-return]


class Shout(RecordAction):
    schema = "word STRING, seen_at TIMESTAMP, ms INT"

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        return {
            "word": f"{record['user'].upper()} {context.flow} {context.did} {context.attempt}",
            "seen_at": record["created_at"] + timedelta(milliseconds=record["ms"] or 0),
            "ms": record["ms"],
        }


def messages(spark: SparkSession, *payloads: str) -> DataFrame:
    rows = [(f"d{n % 2}", n, f"p{n}", AT, bytearray(text.encode())) for n, text in enumerate(payloads, 1)]
    return spark.createDataFrame(rows, MESSAGES).coalesce(1)


def parse(ms_max: int = 100) -> Parse:
    return Parse(Parse.Params(ms_max=ms_max))


PAYLOADS = (
    '{"user": "ann", "ms": 5}',
    "no JSON",
    '{"user": "bob", "ms": -1}',
    '{"user": "eve", "ms": 3000000000}',
    '[{"user": "cat"}, {"user": "dan", "ms": 2}]',
    '{"user": null}',
    '{"user": "fay", "ms": 101}',
    '{"user": "gus", "ms": 102}',
    '{"user": "hal", "ms": 103}',
)


def test_frame_has_the_messages_own_columns_the_schemas_and_the_side_column_all_nullable(spark: SparkSession) -> None:
    frame = record_frame(messages(spark), parse())
    kinds = {field.name: (field.dataType.simpleString(), field.nullable) for field in frame.schema}
    assert kinds == {
        "did": ("string", True),
        "seq": ("bigint", True),
        "partition": ("string", True),
        "created_at": ("timestamp", True),
        "user": ("string", True),
        "ms": ("int", True),
        SIDE_COLUMN: (SIDE, True),
    }
    assert good_rows(frame).columns == list(kinds)[:-1]
    assert frame.collect() == []


def test_good_and_side_rows_are_told_apart_and_nothing_is_lost(spark: SparkSession) -> None:
    frame = record_frame(messages(spark, *PAYLOADS), RecordStep(parse(), "parse")).persist()
    try:
        good = [(row.seq, row.user, row.ms, row.partition) for row in good_rows(frame).collect()]
        assert good == [(1, "ann", 5, "p1"), (5, "cat", None, "p5"), (5, "dan", 2, "p5")]
        sides = side_rows(frame).collect()
    finally:
        frame.unpersist()
    bad = {row.seq: row for row in sides if row.kind == "bad"}
    assert {seq: row.text for seq, row in bad.items()} == {
        2: "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        3: "no time",
        4: "3000000000 does not fit column ms (int32): Value 3000000000 too large to fit in C integer type",
        6: "None does not fit column user (string): null, and user is NOT NULL",
    }
    assert bytes(bad[2].payload) == b"no JSON"
    assert (bad[2].did, bad[2].partition, bad[2].created_at is not None, bad[2].action) == ("d0", "p2", True, "parse")
    assert "Traceback" in bad[2].traceback
    counts = {(row.kind, row.did, row.text): row["count"] for row in sides if row.kind != "bad"}
    assert counts == {
        ("filtered", "d1", "more than 100 ms"): 2,
        ("filtered", "d0", "more than 100 ms"): 1,
        ("note", "d1", '{"from": "list"}'): 2,
    }


def test_several_actions_run_in_one_python_process(spark: SparkSession) -> None:
    steps = [RecordStep(parse(), "parse", on_error="skip"), RecordStep(Shout(ActionParams()), "shout")]
    frame = record_frame(messages(spark, *PAYLOADS[:3]), steps, RecordFrameOptions("clicks", attempts={"d1": 3}))
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert plan.count("MapInArrow") == 1
    rows = frame.collect()
    assert [(row.word, row.ms) for row in rows if row[SIDE_COLUMN] is None] == [("ANN clicks d1 3", 5)]
    [seen] = good_rows(frame).selectExpr("seen_at = created_at + INTERVAL 5 MILLISECOND AS is_so").collect()
    assert seen.is_so
    assert [(row.seq, row[SIDE_COLUMN].kind, row[SIDE_COLUMN].action) for row in rows if row[SIDE_COLUMN]] == [
        (2, "skipped", "parse"),
        (3, "bad", "parse"),
    ]


class EveryType(RecordAction):
    schema = (
        "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(10,2), i STRING, j BINARY, "
        "k DATE, l TIMESTAMP, m TIMESTAMP_NTZ, n ARRAY<INT>, o MAP<STRING,ARRAY<INT>>, "
        "p STRUCT<x: INT, y: MAP<STRING,INT>>"
    )

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        return dict(record)


def test_values_of_every_type_come_through_unchanged(spark: SparkSession) -> None:
    row = {
        "a": True, "b": 1, "c": 2, "d": 3, "e": 4, "f": 0.5, "g": 1.5, "h": Decimal("1.25"), "i": "ä", "j": b"\x00",
        "k": date(2026, 1, 1), "l": datetime(2026, 1, 1), "m": datetime(2026, 1, 1), "n": [1, None],  # noqa: DTZ001
        "o": {"k": [1]}, "p": {"x": 1, "y": {"z": 2}},
    }  # fmt: skip
    frame = spark.createDataFrame([tuple(row.values()), (None,) * len(row)], EveryType.schema).coalesce(1)
    found = record_frame(frame, EveryType(ActionParams()))
    assert side_rows(found).collect() == []
    assert good_rows(found).collect() == frame.collect()


class Careful(RecordAction):
    """Fails twice on each record, and can tell how often it was called in this process."""

    schema = "tries INT"

    def open(self) -> None:
        self.tries = 0

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        self.tries += 1
        if self.tries < 3:
            raise ValueError("not yet")
        return {"tries": self.tries}


class Slow(RecordAction):
    schema = "seq BIGINT"
    time_limit_seconds = 0.05

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        while record["seq"] == 2:
            pass
        return {}


def test_record_is_tried_again_in_place_and_one_that_takes_too_long_is_bad(spark: SparkSession) -> None:
    retry = Retry(max_attempts=3, delay=timedelta(milliseconds=1))
    found = record_frame(messages(spark, "a"), RecordStep(Careful(ActionParams()), "careful", retry=retry))
    assert [row.tries for row in good_rows(found).collect()] == [3]
    slow = record_frame(messages(spark, "a", "b", "c"), Slow(ActionParams())).collect()
    assert [row.seq for row in slow if row[SIDE_COLUMN] is None] == [1, 3]
    [bad] = [row for row in slow if row[SIDE_COLUMN]]
    assert (bad.seq, bytes(bad[SIDE_COLUMN].payload)) == (2, b"b")
    assert bad[SIDE_COLUMN].text.endswith("transform took longer than 0.05 s")


class Away(RecordAction):
    schema = "n INT"
    needs = ("payload",)

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        raise ConnectionRefusedError("the price list does not answer")


def test_fault_of_the_world_fails_the_job(spark: SparkSession) -> None:
    step = RecordStep(Away(ActionParams()), "away", on_error="skip")
    with pytest.raises(Exception, match="ConnectionRefusedError: the price list does not answer"):
        record_frame(messages(spark, "a"), step).collect()


class WithoutSchema(RecordAction):
    pass


class Doubled(RecordAction):
    schema = "SEQ BIGINT"


def test_action_that_cannot_stand_there_is_refused_before_anything_runs(spark: SparkSession) -> None:
    with pytest.raises(Permanent, match="WithoutSchema has no schema"):
        record_frame(messages(spark), WithoutSchema(ActionParams()))
    with pytest.raises(Permanent, match="'away' needs payload, and the columns before it are seq"):
        record_frame(messages(spark).select("seq"), RecordStep(Away(ActionParams()), "away"))
    with pytest.raises(Permanent, match="the schema of 'Doubled' names seq, which is there already"):
        record_frame(messages(spark), Doubled(ActionParams()))
    with pytest.raises(Permanent, match="one action at least"):
        record_frame(messages(spark), [])


def test_watermark_on_a_column_of_the_message_holds_behind_an_action(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    source = (
        spark.readStream.schema(MESSAGES).parquet(str(tmp_path / "input")).withWatermark("created_at", "10 seconds")
    )
    found = good_rows(record_frame(source, parse(), RecordFrameOptions(is_stream=True)))
    counted = found.groupBy("created_at").count()
    query = counted.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination(60)


def test_parameters_reach_a_process_that_does_not_have_their_module(tmp_path: Path) -> None:
    source = (
        "from forebay.flows import ActionParams, RecordAction\n"
        "class Enrich(RecordAction):\n"
        "    schema = 'region STRING'\n"
        "    class Params(ActionParams, frozen=True, kw_only=True):\n"
        "        region: str\n"
        "        factor: int = 2\n"
        "        def text(self): return self.region * self.factor\n"
        "    def transform(self, record, context): return {'region': self.params.text()}\n"
    )
    from forebay.spark.record_frames import _shipped

    module = ModuleType("shop_elsewhere")
    exec(source, module.__dict__)
    sys.modules["shop_elsewhere"] = module
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        step = _shipped(RecordStep(module.Enrich(module.Enrich.Params(region="eu")), "enrich"))
        (tmp_path / "step").write_bytes(cloudpickle.dumps(step))  # type: ignore[no-untyped-call]
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
        del sys.modules["shop_elsewhere"]
    program = (
        "import pickle, sys; step = pickle.load(open(sys.argv[1], 'rb')); action = step.action\n"
        "print(action.transform(None, None), isinstance(action.params, type(action).Params))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "step")], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "{'region': 'eueu'} True\n", done.stderr


class Told(RecordAction):
    """Both maps, as text."""

    schema = "told STRING"

    def transform(self, record: Record, context: RecordContext) -> Outcome:
        return {"told": f"{record['labels']} {record['resource']} {record['value']}"}


def test_rows_that_are_grouped_by_two_maps_keep_their_columns(spark: SparkSession) -> None:
    rows = [({"route": "/"}, {"job": "shop"}, 1.0), ({"route": "/"}, {"job": "shop"}, 2.0)]
    maps = "labels MAP<STRING, STRING>, resource MAP<STRING, STRING>, value DOUBLE"
    grouped = spark.createDataFrame(rows, maps).groupBy("labels", "resource").sum("value")
    frame = grouped.withColumnRenamed("sum(value)", "value")
    found = good_rows(record_frame(frame, Told(ActionParams()))).collect()
    assert [row.told for row in found] == ["{'route': '/'} {'job': 'shop'} 3.0"]
