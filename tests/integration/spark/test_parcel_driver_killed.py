"""The driver is killed -9 at each point of a lease. Another worker goes on when the lease ends; each row is there once.

One driver has one worker per point, each with a flow and a way to the server of its own. In its second lease, when it
is at its point, it is held there. When all of them stand, the driver is killed: the points cost one Spark together.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from fixtures.fix_spark import Queues
from fixtures.running_stores import fresh
from fixtures.spark_processes import kill_when_held
from fixtures.waiting import wait_until
from fixtures.watched_way import Held, Kind, Moment, Point, WatchedWay
from forebay.flows import ClassAction, Flow, QueueSink, Source, Table, TableSink
from forebay.flows.chains import spec_of
from forebay.flows.definition import Sink
from forebay.spark.options import Connection
from forebay.spark.parcels.lanes import LaneOptions
from forebay.spark.parcels.worker import ParcelWorker, classes_of
from forebay.testing.running_server import RunningServer

PROGRAM = Path(__file__).with_name("parcels_job.py")
SECONDS_MAX = 150
MESSAGES = 60
PARCEL = 20
LEASE_SECONDS = 4
POINTS = {
    "before the lease is given": Point(Kind.LEASE, Moment.BEFORE),
    "after the lease was given": Point(Kind.LEASE, Moment.ANSWERED),
    "while executors read": Point(Kind.ROWS, Moment.MIDDLE),
    "while rows are staged": Point(Kind.STAGE, Moment.MIDDLE),
    "after all rows are staged": Point(Kind.COMPLETE, Moment.BEFORE),
    "after the completion": Point(Kind.COMPLETE, Moment.ANSWERED),
}
TABLES = {"table by did": ("did",), "table": ()}
"""Flows to a table, each with its `partitionBy`: held between the table's write and the completion."""
WRITTEN = Point(Kind.COMPLETE, Moment.BEFORE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """With leases that end soon."""
    words = ("--dispatch-lease-time", f"{LEASE_SECONDS}s", "--dispatch-heartbeat-time", "1s")
    with RunningServer(tmp_path_factory.mktemp("parcels") / "data", arguments=words) as running:
        yield running


@pytest.fixture(scope="module")
def flows(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Flow]:
    """One flow per point, as the killed driver left it."""
    folder = tmp_path_factory.mktemp("driver")
    queues = Queues(server)
    points = {**POINTS, **dict.fromkeys(TABLES, WRITTEN)}
    made = {name: _a_flow(number, name, folder) for number, name in enumerate(points)}
    with ExitStack() as open_ways:
        held = {name: Held() for name in points}
        given = []
        for name, flow in made.items():
            queues.put_numbers(flow.source.queue, 0, MESSAGES)
            way = open_ways.enter_context(WatchedWay(server, [points[name]], held[name], closes=True))
            given.append({"url": way.url, "spec": spec_of(flow)})
        (folder / "flows.json").write_text(json.dumps(given))
        kill_when_held(PROGRAM, folder / "flows.json", held, SECONDS_MAX, PYTHONPATH=str(Path(__file__).parent))
    return made


def _a_flow(number: int, point: str, folder: Path) -> Flow:
    name = fresh("killed")
    action = ClassAction(name="double", class_name=f"parcel_actions.Doubles{number}")
    source = Source(queue=f"{name}-in", parcel_messages=PARCEL)
    sink: Sink = QueueSink(queue=f"{name}-out")
    if point in TABLES:
        sink = TableSink(table=Table(path=str(folder / point), partition_by=TABLES[point]))
    return Flow(name=name, source=source, actions=(action,), sink=sink)


@pytest.mark.parametrize("point", POINTS)
def test_driver_killed_at_any_point_of_a_lease_leaves_each_row_once(
    point: str, flows: dict[str, Flow], spark: SparkSession, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    flow, queues = flows[point], Queues(server)
    _finish(flow, spark, server, queues)
    rows = [json.loads(payload)["n"] for payload in queues.payloads(flow.output_queues[0])]
    assert sorted(rows) == [2 * n for n in range(MESSAGES)]
    assert sum(one["messages"] for one in _parcels(queues, flow)) == MESSAGES


@pytest.mark.parametrize(("point", "repeated"), [("table by did", 0), ("table", PARCEL)])
def test_table_that_was_written_before_the_driver_was_killed_has_each_row_once_by_did(
    point: str,
    repeated: int,
    flows: dict[str, Flow],
    spark: SparkSession,
    server: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    flow, queues = flows[point], Queues(server)
    assert isinstance(flow.sink, TableSink)
    assert flow.sink.table.path is not None
    written = len(_table(flow.sink.table.path))
    assert written == 2 * PARCEL, "the killed driver had written a parcel that it had not completed"
    _finish(flow, spark, server, queues)
    rows = _table(flow.sink.table.path)
    assert len(rows) == MESSAGES + repeated
    assert sorted(n for _, n in set(rows)) == [2 * n for n in range(MESSAGES)]


def _table(path: str) -> list[tuple[str, int]]:
    found = pyarrow.dataset.dataset(path, partitioning="hive").to_table().to_pylist()
    return [(row["did"], row["n"]) for row in found]


def _finish(flow: Flow, spark: SparkSession, server: RunningServer, queues: Queues) -> None:
    """Another worker goes on with what the killed driver has left."""
    options = LaneOptions(fresh("heir"), classes_of([flow]), lanes=1)
    worker = ParcelWorker(spark, [flow], Connection((server.url,)), options)
    worker.start()
    began = time.monotonic()

    def is_over() -> bool:
        worker.check()
        return {one["state"] for one in _parcels(queues, flow)} == {"COMPLETE"}

    try:
        wait_until(is_over)
    finally:
        worker.stop()
    assert time.monotonic() - began < LEASE_SECONDS + 30, "no parcel waits much longer than its lease"


def _parcels(queues: Queues, flow: Flow) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = queues.ask("GET", f"/api/v1/parcels?flow={flow.name}&limit=1000")["parcels"]
    return found
