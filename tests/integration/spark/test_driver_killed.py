"""The driver is killed -9 at each point of a batch. Started again from its checkpoint, each row is there once.

One driver runs one query per point. Each query copies three batches, and in the second one, when it is at its point, it
is held there. When all of them stand, the driver is killed: the points cost one Spark, not one each.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.fix_spark import Queues, finished
from fixtures.running_stores import fresh
from fixtures.spark_processes import kill_when_held
from fixtures.watched_way import Held, Kind, Moment, Point, WatchedWay
from forebay.testing.running_server import RunningServer

PROGRAM = Path(__file__).with_name("copies_job.py")
SECONDS_MAX = 150
ROWS = 60
BATCH_ROWS = 20

POINTS = {
    "before the batch is planned": Point(Kind.RANGE, Moment.BEFORE),
    "while executors read": Point(Kind.ROWS, Moment.MIDDLE, number=2),
    "while parts are staged": Point(Kind.STAGE, Moment.MIDDLE, number=2),
    "after all parts are staged": Point(Kind.COMMIT, Moment.BEFORE),
    "after the commit, before Spark wrote its file": Point(Kind.COMMIT, Moment.ANSWERED),
    "after the file, before the cursor moved": Point(Kind.SEEK, Moment.BEFORE, commits=2),
}
COMMITTED = {
    "after the commit, before Spark wrote its file": 2 * BATCH_ROWS,
    "after the file, before the cursor moved": 2 * BATCH_ROWS,
}
"""Rows that the target holds when the driver is killed, where it is not one batch."""


@dataclass(frozen=True, slots=True)
class Copy:
    source: str
    target: str
    group: str
    checkpoint: Path

    def spoken(self, url: str) -> dict[str, str]:
        words = {"url": url, "source": self.source, "target": self.target, "group": self.group}
        return {**words, "checkpoint": str(self.checkpoint)}

    def files(self, log: str) -> list[str]:
        """The batches that a log of the checkpoint has."""
        return sorted(path.name for path in (self.checkpoint / log).iterdir() if path.name.isdecimal())


@pytest.fixture(scope="module")
def copies(spark_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Copy]:
    """One copy per point, as the killed driver left it."""
    folder = tmp_path_factory.mktemp("driver")
    queues = Queues(spark_server)
    made = {
        name: Copy(fresh("source"), fresh("target"), fresh("group"), folder / f"checkpoint-{index}")
        for index, name in enumerate(POINTS)
    }
    with ExitStack() as open_ways:
        held = {name: Held() for name in POINTS}
        spoken = []
        for name, copy in made.items():
            queues.put_numbers(copy.source, 0, ROWS)
            way = open_ways.enter_context(WatchedWay(spark_server, [POINTS[name]], held[name], closes=True))
            spoken.append(copy.spoken(way.url))
        (folder / "copies.json").write_text(json.dumps(spoken))
        kill_when_held(PROGRAM, folder / "copies.json", held, SECONDS_MAX)
    return made


@pytest.mark.parametrize("point", POINTS)
def test_driver_killed_at_any_point_of_a_batch_leaves_each_row_once(
    point: str, copies: dict[str, Copy], spark: SparkSession, spark_server: RunningServer, queues: Queues
) -> None:
    copy = copies[point]
    at_the_kill = queues.payloads(copy.target)
    assert len(at_the_kill) == COMMITTED.get(point, BATCH_ROWS)
    assert copy.files("commits") == (["0", "1"] if POINTS[point].kind is Kind.SEEK else ["0"])
    assert copy.files("offsets") == (["0"] if POINTS[point].kind is Kind.RANGE else ["0", "1"])
    given = {"url": spark_server.url, "queue": copy.source, "group": copy.group, "minPartitions": "2"}
    frame = spark.readStream.format("forebay").options(**given).load().select("payload", "partition")
    writing = frame.writeStream.format("forebay").options(url=spark_server.url, queue=copy.target)
    finished(writing.option("checkpointLocation", str(copy.checkpoint)).trigger(availableNow=True).start())
    assert sorted(map(int, queues.payloads(copy.target))) == list(range(ROWS))
    assert queues.lag(copy.group, copy.source) == 0
