"""Whole queues at once: a flow on parcels beside files and streams, and many flows beside one."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from forebay.bench.flows.plan import FlowsPlan
from forebay.bench.flows.working import Working
from forebay.bench.harness import Figure, at_least, at_most, rate
from forebay.bench.spark import rows
from forebay.flows.definition import ClassAction, Flow, QueueSink, Source, SqlAction
from forebay.flows.flow_directory import FlowDirectory
from forebay.spark.flow_runner import SparkRunner
from forebay.spark.options import Connection
from forebay.testing.servers.machine import descendants

QUEUE = "messages"
RATE = "rows/s"
_POLL_SECONDS = 0.02
_LOOK_SECONDS = 0.2
_PARSE = f"SELECT did, m.* FROM (SELECT did, from_json(cast(payload AS string), '{rows.SCHEMA}') AS m FROM input)"


class Throughput:
    """The session, the server, and the rows that all sides work on."""

    def __init__(self, spark: SparkSession, url: str, directory: Path, plan: FlowsPlan, working: Working) -> None:
        self._spark = spark
        self._url = url
        self._plan = plan
        self._working = working
        self._scratch = directory / "scratch"
        self._parquet = str(directory / "parquet")
        self._numbers = itertools.count(1)

    def prepare(self) -> None:
        rows.fill(self._url, QUEUE, self._plan.messages)
        for number in range(self._plan.flows):
            rows.fill(self._url, _part(number), self._plan.messages // self._plan.flows)
        self._spark.read.format("forebay").options(queue=QUEUE, url=self._url).load().write.parquet(self._parquet)

    def figures(self) -> Iterator[Figure]:
        rounds = self._plan.rounds
        name = "a SQL flow on parcels, queue to queue"
        note = "parse JSON, filter, project; from the definition of the flow to its last result"
        beside = "the same SQL, parquet to parquet"
        yield at_least(0.6, name, RATE, self._on_parcels, beside, self._on_files, rounds=rounds, note=note)
        beside = "the same flow as a stream"
        yield at_least(0.9, name, RATE, self._on_parcels, beside, self._as_stream, rounds=rounds, note=note)
        yield from self._many_beside_one()

    def _many_beside_one(self) -> Iterator[Figure]:
        count = self._plan.flows
        # One flow first: Spark keeps processes that it has, so that later counts tell of earlier flows.
        processes = [self._most_processes(1), self._most_processes(count)]
        yield at_least(
            0.67,
            f"{count} flows of 3 actions on one worker",
            RATE,
            lambda: self._chained(count),
            "one flow with all of their messages",
            lambda: self._chained(1),
            rounds=self._plan.rounds,
            note="SQL, a Python action, SQL; 4 lanes",
        )
        yield at_most(
            1,
            f"Python processes of Spark with {count} flows",
            "processes",
            lambda: processes[1],
            "with one flow, and 2 more",
            lambda: processes[0] + 2,
            rounds=1,
            note="the most that were seen at once, the one flow first",
        )

    def _most_processes(self, count: int) -> float:
        with _Counting() as counting:
            self._chained(count)
        return counting.most

    def _on_parcels(self) -> float:
        flow = self._sql_flow("parcels")
        return self._plan.messages / self._working.seconds_for([flow], _kept(self._plan.messages))

    def _on_files(self) -> float:
        self._spark.read.parquet(self._parquet).createOrReplaceTempView("input")
        frame = self._spark.sql(rows.SQL)
        found = rate(self._plan.messages, lambda: frame.write.parquet(str(self._scratch)))
        shutil.rmtree(self._scratch)
        return found

    def _as_stream(self) -> float:
        flow = self._sql_flow("stream")
        runner = SparkRunner(self._spark, Connection((self._url,)), is_once=True)
        directory = FlowDirectory(self._scratch, flow.name)
        found = rate(self._plan.messages, lambda: runner.start(flow, directory).wait(_POLL_SECONDS))
        shutil.rmtree(self._scratch)
        return found

    def _sql_flow(self, mode: str) -> Flow:
        name = f"{mode}-{next(self._numbers)}"
        return Flow(
            name=name,
            mode="stream" if mode == "stream" else "parcels",
            source=Source(queue=QUEUE),
            actions=(SqlAction(name="slow", sql=rows.SQL),),
            sink=QueueSink(queue=name),
        )

    def _chained(self, count: int) -> float:
        """Rows per second of so many flows, which have all messages together."""
        each = self._plan.messages // self._plan.flows
        results = _kept(self._plan.messages) if count == 1 else count * _kept(each)
        queues = [QUEUE] if count == 1 else [_part(number) for number in range(count)]
        flows = [self._chain(queue) for queue in queues]
        return self._plan.messages / self._working.seconds_for(flows, results)

    def _chain(self, queue: str) -> Flow:
        name = f"chain-{next(self._numbers)}"
        return Flow(
            name=name,
            source=Source(queue=queue),
            actions=(
                SqlAction(name="parse", sql=_PARSE),
                ClassAction(name="shorten", class_name="forebay.bench.flows.actions.Shorten"),
                SqlAction(name="slow", sql="SELECT did, user, page, ms FROM input WHERE ms >= 1000"),
            ),
            sink=QueueSink(queue=name),
        )


class _Counting:
    """Looks now and then how many Python processes Spark has."""

    def __init__(self) -> None:
        self.most = 1
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Counting:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            found = sum(map(_is_of_spark, descendants(os.getpid())))
            self.most = max(self.most, found)


def _is_of_spark(pid: int) -> bool:
    try:
        return b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"-m")[2]
    except OSError:
        return False


def _part(number: int) -> str:
    return f"part-{number}"


def _kept(messages: int) -> int:
    """How many of so many messages pass the filter."""
    return sum(number * 7919 % rows.SLOWEST_MS >= 1000 for number in range(messages))
