"""Whole queues at once: source, sink and flow, each beside what Spark does with parquet files."""

from __future__ import annotations

import itertools
import shutil
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from forebay.bench.broker.systems.forebay_client import delete_queue
from forebay.bench.harness import Figure, Measure, at_least, for_information, rate
from forebay.bench.spark import rows
from forebay.bench.spark.plan import Plan
from forebay.bench.spark.tuple_source import NAME as TUPLES
from forebay.bench.spark.tuple_source import TupleSource
from forebay.flows.definition import Flow, QueueSink, Source, SqlAction
from forebay.flows.flow_directory import FlowDirectory
from forebay.spark.flow_runner import SparkRunner
from forebay.spark.options import Connection

QUEUE = "messages"
JSON_QUEUES = {"no bad row": 0, "1 % bad rows": 1, "10 % bad rows": 10}
ROWS_FLOOR = 300_000
"""Rows per second that the sink is to take."""
SOURCE = "a queue to noop"
JSON = "`payloadAs=json`"
SINK = "a frame into a queue, durable"
FLOW = "a SQL flow, queue to queue"
RATE = "rows/s"
_POLL_SECONDS = 0.02
_CORRUPT = {"columnNameOfCorruptRecord": "_corrupt"}


class Batches:
    """The session, the server, and the rows that both sides work on."""

    def __init__(self, spark: SparkSession, url: str, directory: Path, plan: Plan) -> None:
        self._spark = spark
        self._url = url
        self._plan = plan
        self._scratch = directory / "scratch"
        self._parquet = str(directory / "parquet")
        self._numbers = itertools.count(1)

    def prepare(self) -> None:
        rows.fill(self._url, QUEUE, self._plan.messages)
        for bad_percent in JSON_QUEUES.values():
            rows.fill(self._url, _json_queue(bad_percent), self._plan.json_messages, bad_percent)
        self._queue().write.parquet(self._parquet)
        # A class made here is sent to the workers as it is, and not by its name.
        cores = self._spark.sparkContext.defaultParallelism
        self._spark.dataSource.register(type("TupleSource", (TupleSource,), {"cores": cores}))

    def figures(self) -> Iterator[Figure]:
        rounds = self._plan.rounds
        source = self._to_noop(self._queue)
        beside, note = "Spark's parquet reader, the same rows", "one session, all columns"
        yield at_least(0.7, SOURCE, RATE, source, beside, self._to_noop(self._files), rounds=rounds, note=note)
        beside, note = "a Python source that yields tuples", "the same bytes from the same server"
        yield at_least(2.5, SOURCE, RATE, source, beside, self._to_noop(self._tuples), rounds=rounds, note=note)
        yield from self._json_figures()
        beside, note = "300,000 rows/s", "payloads from parquet, staged and committed at once; embedded store"
        yield at_least(1, SINK, RATE, self._sink, beside, lambda: ROWS_FLOOR, rounds=rounds, note=note)
        beside, note = "the same frame into parquet", "parquet is not synced to the disk"
        yield for_information(SINK, RATE, self._sink, beside, self._into_parquet, rounds=rounds, note=note)
        beside, note = "the same SQL, parquet to parquet", "a stream with checkpoint, from start to end; a batch job"
        yield at_least(0.6, FLOW, RATE, self._flow, beside, self._sql, rounds=rounds, note=note)

    def _json_figures(self) -> Iterator[Figure]:
        beside, note = "from_json in the query, the same rows", "a queue to noop, all columns"
        for name, bad_percent in JSON_QUEUES.items():
            queue, count = _json_queue(bad_percent), self._plan.json_messages
            ours = self._to_noop(partial(self._as_json, queue), count)
            theirs = self._to_noop(partial(self._from_json, queue), count)
            name = f"{JSON}, {name}"
            yield at_least(0.8, name, RATE, ours, beside, theirs, rounds=self._plan.rounds, note=note)

    def _as_json(self, queue: str) -> DataFrame:
        options = {"queue": queue, "url": self._url, "payloadAs": "json", "schema": rows.SCHEMA}
        return self._spark.read.format("forebay").options(**options).load()

    def _from_json(self, queue: str) -> DataFrame:
        raw = self._spark.read.format("forebay").options(queue=queue, url=self._url).load()
        text = f.from_json(raw.payload.cast("string"), f"{rows.SCHEMA}, _corrupt STRING", _CORRUPT)
        return raw.select("*", text.alias("document")).select(*raw.drop("payload").columns, "document.*")

    def _queue(self) -> DataFrame:
        return self._spark.read.format("forebay").options(queue=QUEUE, url=self._url).load()

    def _tuples(self) -> DataFrame:
        return self._spark.read.format(TUPLES).options(queue=QUEUE, url=self._url).load()

    def _files(self) -> DataFrame:
        return self._spark.read.parquet(self._parquet)

    def _to_noop(self, load: Callable[[], DataFrame], messages: int | None = None) -> Measure:
        def work() -> None:
            load().write.format("noop").mode("overwrite").save()

        return lambda: rate(messages or self._plan.messages, work)

    def _sink(self) -> float:
        queue = f"sink-{uuid.uuid4().hex}"
        writer = self._files().select("payload").write.format("forebay").mode("append")
        found = rate(self._plan.messages, writer.options(queue=queue, url=self._url).save)
        delete_queue(self._url, queue)
        return found

    def _into_parquet(self) -> float:
        return self._written(self._files().select("payload"))

    def _sql(self) -> float:
        self._files().createOrReplaceTempView("input")
        return self._written(self._spark.sql(rows.SQL))

    def _written(self, frame: DataFrame) -> float:
        found = rate(self._plan.messages, lambda: frame.write.parquet(str(self._scratch)))
        shutil.rmtree(self._scratch)
        return found

    def _flow(self) -> float:
        name = f"flow-{next(self._numbers)}"
        flow = Flow(
            name=name,
            mode="stream",
            source=Source(queue=QUEUE),
            actions=(SqlAction(name="slow", sql=rows.SQL),),
            sink=QueueSink(queue=name),
        )
        directory = FlowDirectory(self._scratch, name)
        runner = SparkRunner(self._spark, Connection((self._url,)), is_once=True)
        found = rate(self._plan.messages, lambda: runner.start(flow, directory).wait(_POLL_SECONDS))
        shutil.rmtree(self._scratch)
        delete_queue(self._url, name)
        return found


def _json_queue(bad_percent: int) -> str:
    return f"json-{bad_percent}"
