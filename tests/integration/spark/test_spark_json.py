"""JSON payloads as columns: one parser, Spark's from_json, for tables, streams and flows; and NOT NULL means it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

from fixtures.fix_spark import Queues, finished
from fixtures.running_stores import fresh
from forebay.errors import Permanent
from forebay.spark import json_columns
from forebay.spark.builtin.json_parsing import parsed, unparsed
from forebay.spark.json_frames import teach_readers
from forebay.testing.running_server import RunningServer

SCHEMA = (
    "b BOOLEAN, y TINYINT, i INT, l BIGINT, f FLOAT, d DOUBLE, s STRING, x BINARY, p DECIMAL(9,2), day DATE, "
    "at TIMESTAMP, local TIMESTAMP_NTZ, a ARRAY<INT>, m MAP<STRING, INT>, o STRUCT<n: INT, t: STRING>, v VARIANT"
)
EDGES = [
    *("", " ", "null", "true", "7", '"text"', "[]", "{}", "[1]", '[{"i":1},{"i":2}]', "{", "}", '{"i":', '{"i":1'),
    *('{"i":1}{"i":2}', '{"i":1} tail', '{"i":1},"l":2', '\ufeff{"i":1}', "{'i':1}", "{i:1}", '{"i":1,}', '{"i":01}'),
    *('{"i":1 /* no */}', '{"I":1}', '{"i":1,"i":2}', '{"i":1,"i":"x"}', '{"unknown":{"deep":[1,{"x":2}]},"i":3}'),
    *('{"i":"5"}', '{"i":5.0}', '{"i":5.5}', '{"i":1e2}', '{"i":3000000000}', '{"y":128}', '{"l":9223372036854775808}'),
    *('{"i":true}', '{"i":null}', '{"i":{}}', '{"i":[1]}', '{"i":"x","s":"kept"}', '{"s":"first","i":"x"}'),
    *('{"b":"true"}', '{"b":1}', '{"b":TRUE}', '{"f":"1.5"}', '{"f":1e40}', '{"d":1}', '{"d":"NaN"}', '{"d":NaN}'),
    *('{"d":"Infinity"}', '{"d":-INF}', '{"d":1e400}', '{"d":-0.0}', '{"d":0.1e-5}', '{"d":"1,5"}', '{"d":"x"}'),
    *(
        '{"s":1}',
        '{"s":1.10}',
        '{"s":true}',
        '{"s":{"b": 1,"a":[1, 2.50]}}',
        '{"s":[1,"x"]}',
        '{"s":"\\u00e9\\ud83d\\ude00"}',
    ),
    *(
        '{"s":"\\ud83d"}',
        '{"s":"line\nbreak"}',
        '{"s":"tab\\tq\\"uote"}',
        '{"s":""}',
        '{"x":"aGk="}',
        '{"x":"?"}',
        '{"x":5}',
    ),
    *('{"p":1.005}', '{"p":"1.5"}', '{"p":12345678.9}', '{"p":1e3}', '{"p":"x"}', '{"p":1}', '{"p":"1,000.5"}'),
    *('{"day":"2026-01-31"}', '{"day":"2026-1-1"}', '{"day":"2026"}', '{"day":"2026-02-30"}', '{"day":5}'),
    *('{"day":"2026-01-31T10:00:00Z"}', '{"at":"2026-01-31T10:00:00Z"}', '{"at":"2026-01-31 10:00:00.123456789"}'),
    *('{"at":"2026-01-31T10:00:00+02:00"}', '{"at":"2026-01-31T10:00:00 Europe/Berlin"}', '{"at":"2026-01-31"}'),
    *('{"at":"0001-01-01T00:00:00Z"}', '{"at":"9999-12-31T23:59:59.999999Z"}', '{"at":1767225600}', '{"at":"x"}'),
    *('{"at":1767225600.5}', '{"at":"2026-13-01T00:00:00Z"}', '{"local":"2026-01-31T10:00:00"}', '{"local":"T10:00"}'),
    *('{"local":"2026-01-31T10:00:00Z"}', '{"a":[1,null,3]}', '{"a":["1"]}', '{"a":1}', '{"a":[]}', '{"a":[[1]]}'),
    *('{"m":{"k":1,"k":2}}', '{"m":{"k":"x"}}', '{"m":{}}', '{"m":[1]}', '{"m":{"k":null}}', '{"o":{"n":1,"t":2}}'),
    *('{"o":{"n":"x","t":"kept"}}', '{"o":{}}', '{"o":[]}', '{"o":"x"}', '{"o":{"n":1}, "i":"x"}'),
    *('{"v":{"a":[1,2.5,"x",null,true],"b":{}}}', '{"v":1e30}', '{"v":null}', '{"v":"text"}', '{"v":[1,'),
    *('{"s":"' + "x" * 5000 + '"}', '{"a":[' + "1," * 500 + "1]}", '{"v":' + "[" * 300 + "]" * 300 + "}"),
]


def as_json(frame: DataFrame, names: list[str]) -> list[str]:
    """Each row's columns as text, so that NaN and variants can be compared."""
    columns = f.struct(*[f"`{name}`" for name in names])
    told = frame.orderBy("seq").select(f.to_json(columns, {"ignoreNullFields": "false"}).alias("told")).collect()
    return [row.told for row in told]


def test_columns_are_those_of_from_json_at_every_edge_for_tables_streams_and_flows(
    spark: SparkSession, spark_server: RunningServer, queues: Queues, tmp_path: Path
) -> None:
    queue = fresh()
    queues.put(queue, {"payload": [*(edge.encode() for edge in EDGES), b'{"s":"\xff"}', b"\xfe"]})
    named = {"url": spark_server.url, "queue": queue}
    raw = spark.read.format("forebay").options(**named).load().cache()
    text = raw.where(f"seq <= {len(EDGES)}").select("seq", f.from_json(raw.payload.cast("string"), SCHEMA).alias("j"))
    names = text.select("j.*").columns
    expected = as_json(text.select("seq", "j.*"), names)

    table = spark.read.format("forebay").options(**named, payloadAs="json", schema=SCHEMA).load()
    assert table.columns == [*raw.columns[:-1], *names, "_corrupt"]
    assert as_json(table.where(f"seq <= {len(EDGES)}"), names) == expected

    stream = spark.readStream.options(payloadAs="JSON", **named).option("startingOffsets", "earliest")
    loaded = stream.format("forebay").schema(SCHEMA).load()
    written = loaded.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    finished(written.trigger(availableNow=True).start(str(tmp_path / "table")))
    assert as_json(spark.read.parquet(str(tmp_path / "table")), names)[: len(EDGES)] == expected

    corrupt = {row.seq: row._corrupt for row in table.select("seq", "_corrupt").collect() if row._corrupt is not None}
    assert {edge: corrupt.get(seq) for seq, edge in enumerate(EDGES, 1)} == {
        edge: edge if seq in corrupt else None for seq, edge in enumerate(EDGES, 1)
    }
    assert [corrupt[len(EDGES) + 1], corrupt[len(EDGES) + 2]] == ['{"s":"\ufffd"}', "\ufffd"]
    assert {1, 2, 3, 4, 5, EDGES.index('{"i":"x","s":"kept"}') + 1} <= set(corrupt)
    assert {row.seq for row in unparsed(raw, "payload", SCHEMA).select("seq").collect()} == set(corrupt)
    good = parsed(raw, "payload", SCHEMA)
    assert as_json(good, names) == as_json(table.where("_corrupt IS NULL"), names)


NOT_NULL = "i INT NOT NULL, s STRING NOT NULL, o STRUCT<n: INT NOT NULL, t: STRING>, a ARRAY<STRUCT<k: INT NOT NULL>>"
WITHOUT_NULLS = [
    {"i": 0, "s": ""},
    {"i": 1, "s": "x", "o": {"n": 0}, "a": []},
    {"i": 2, "s": "x", "o": None, "a": [{"k": 1}, None]},
]
WITH_NULLS: list[tuple[dict[str, Any], str]] = [
    ({"s": "x"}, "i"),
    ({"i": 1}, "s"),
    ({"i": None, "s": None}, "i, s"),
    ({"i": 1, "s": "x", "o": {"t": "y"}}, "o"),
    ({"i": 1, "s": "x", "a": [{"k": 1}, {}]}, "a"),
]


def test_null_in_a_column_that_must_not_have_one_is_a_bad_record_and_never_a_zero(
    spark: SparkSession, spark_server: RunningServer, queues: Queues
) -> None:
    queue = fresh()
    given = [*WITHOUT_NULLS, *(document for document, _ in WITH_NULLS)]
    queues.put(queue, {"payload": [json.dumps(document).encode() for document in given]})
    named = {"url": spark_server.url, "queue": queue}
    table = spark.read.format("forebay").options(**named, payloadAs="json", schema=NOT_NULL).load()
    found = table.orderBy("seq").collect()
    assert [(row.i, row.s) for row in found] == [(document.get("i"), document.get("s")) for document in given]
    assert [row._corrupt for row in found] == [None] * 3 + [json.dumps(document) for document, _ in WITH_NULLS]
    assert table.groupBy("i").sum("i").count() == 4

    raw = spark.read.format("forebay").options(**named).load()
    assert [row.i for row in parsed(raw, "payload", NOT_NULL).orderBy("seq").collect()] == [0, 1, 2]
    causes = [row.cause for row in unparsed(raw, "payload", NOT_NULL).orderBy("seq").collect()]
    assert causes == [f"null in a column that is NOT NULL: {names}" for _, names in WITH_NULLS]

    strict = StructType(
        [StructField("a", ArrayType(IntegerType(), containsNull=False)), StructField("s", StringType())]
    )
    lists = spark.createDataFrame([("[1]",), ("[1,null]",), ("null",)], "payload STRING")
    lists = lists.select(f.format_string('{"a":%s}', "payload").alias("payload"))
    assert [row._corrupt for row in json_columns(lists, strict).collect()] == [None, '{"a":[1,null]}', None]


def test_output_of_an_action_that_breaks_its_own_not_null_stops_the_query(spark: SparkSession) -> None:
    def nothing(batches: Any) -> Any:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows, pa.int32())], names=["n"])

    broken = spark.range(3).mapInArrow(nothing, StructType([StructField("n", IntegerType(), nullable=False)]))
    with pytest.raises(Py4JJavaError, match="Value at index is null"):
        broken.select(f.col("n") + 1).collect()


def test_what_load_is_not_asked_for_is_as_it_was(spark: SparkSession, spark_server: RunningServer) -> None:
    teach_readers(spark)
    assert spark.read.load(format="text", path=__file__).columns == ["value"]
    named = {"url": spark_server.url, "queue": "q"}
    reader = spark.read.format("forebay").options(**named)
    with pytest.raises(Permanent, match="needs the columns of the payload"):
        reader.load(payloadAs="json")
    with pytest.raises(Permanent, match="the schema names seq, which a message has already"):
        reader.load(schema="seq INT")
    with pytest.raises(Permanent, match="both are given"):
        reader.option("schema", "a INT").load()


def test_source_that_nobody_prepared_refuses_json_with_the_remedy(
    spark: SparkSession, spark_server: RunningServer
) -> None:
    options = f"url '{spark_server.url}', queue 'q', payloadAs 'json', schema 'a INT'"
    with pytest.raises(PySparkException, match=r"forebay\.spark\.register\(spark\)"):
        spark.sql(f"CREATE TEMPORARY VIEW {fresh().replace('-', '_')} USING forebay OPTIONS ({options})")
