"""Flows on parcels miss no message in silence: damaged records inside a parcel, and queues that are made again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fixtures.fix_spark import RETENTION, Queues
from fixtures.waiting import wait_until
from forebay.flows import Flow, QueueSink, Retry, Source, SqlAction
from forebay.flows.worker import FlowFailed
from forebay.spark.options import Connection
from forebay.spark.parcels.lanes import LaneOptions
from forebay.spark.parcels.once import run_once
from forebay.spark.parcels.worker import ParcelWorker, classes_of
from forebay.testing.running_server import RunningServer

FINISHED = {"COMPLETE", "FILTERED", "ERROR"}
QUEUE = "numbers"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path / "data", arguments=RETENTION) as running:
        yield running


@pytest.fixture
def queues(server: RunningServer) -> Queues:
    return Queues(server)


@pytest.fixture
def working(spark: SparkSession, server: RunningServer) -> Callable[..., Any]:
    @contextmanager
    def work(*flows: Flow) -> Iterator[ParcelWorker]:
        worker = ParcelWorker(spark, flows, Connection((server.url,)), options(*flows))
        worker.start()
        try:
            yield worker
        finally:
            worker.stop()

    return work


def options(*flows: Flow) -> LaneOptions:
    return LaneOptions("worker", classes_of(flows), lanes=2)


def a_flow(name: str, *, fail_on_data_loss: bool) -> Flow:
    source = Source(queue=QUEUE, parcel_messages=150, fail_on_data_loss=fail_on_data_loss)
    action = SqlAction(name="copy", sql="SELECT did, cast(payload AS string) AS n FROM input")
    retry = Retry(max_attempts=1, delay=timedelta(0))
    return Flow(name=name, source=source, actions=(action,), sink=QueueSink(queue=f"{name}-out"), retry=retry)


def written(server: RunningServer) -> int:
    """How far the first queue's segment is filled. A record may end with zeros; its length is a multiple of 8."""
    [path] = segments(server)
    return -(-len(path.read_bytes().rstrip(b"\0")) // 8) * 8


def segments(server: RunningServer) -> list[Path]:
    return [path for path in (server.data_dir / "queues" / "1").rglob("*.data") if path.stat().st_size]


def damage(server: RunningServer, position: int) -> None:
    """While the server is down."""
    [path] = segments(server)
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def parcels(queues: Queues, flow: Flow) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = queues.ask("GET", f"/api/v1/parcels?flow={flow.name}&limit=1000")["parcels"]
    return found[::-1]


def numbers(queues: Queues, flow: Flow) -> list[int]:
    return sorted(int(json.loads(payload)["n"]) for payload in queues.payloads(flow.output_queues[0]))


def test_damaged_record_and_a_queue_that_is_made_again_are_errors_or_left_out_and_reported(
    spark: SparkSession, server: RunningServer, queues: Queues, working: Callable[..., Any]
) -> None:
    strict, lenient = a_flow("strict", fail_on_data_loss=True), a_flow("lenient", fail_on_data_loss=False)
    queues.put_numbers(QUEUE, 0, 100)
    start = written(server)
    queues.put_numbers(QUEUE, 100, 130)
    queues.put_numbers(QUEUE, 130, 300)
    server.stop()
    damage(server, start + 60)
    server.start()

    with working(strict, lenient) as worker:

        def is_over() -> bool:
            worker.check()
            found = [*parcels(queues, strict), *parcels(queues, lenient)]
            return len(found) == 4 and all(parcel["state"] in FINISHED for parcel in found)

        wait_until(is_over)
    failed, whole = parcels(queues, strict)
    assert [failed["state"], whole["state"]] == ["ERROR", "COMPLETE"]
    assert f"messages of queue '{QUEUE}' between seq 101 and 130 are gone" in failed["error"]
    assert "failOnDataLoss=false" in failed["error"]
    assert numbers(queues, strict) == list(range(150, 300))
    lacking, whole = parcels(queues, lenient)
    assert [lacking["state"], whole["state"]] == ["COMPLETE", "COMPLETE"]
    assert numbers(queues, lenient) == [*range(100), *range(130, 300)]
    events = queues.ask("GET", f"/api/v1/parcels/{lacking['did']}")["events"]
    [lost] = [event["text"] for event in events if event["event"] == "LOST"]
    assert lost == f"queue '{QUEUE}': messages 101-130 are gone: they cannot be read any more"
    assert [event["rowsIn"] for event in events if event["event"] == "COMPLETE"] == [120]
    assert queues.ask("GET", "/api/v1/dispatch/flows/lenient")["lost"] == 30
    assert f"flow lenient: parcel {lacking['did']} went on without messages that are gone" in server.errors()

    queues.ask("DELETE", f"/api/v1/resources/queues/{QUEUE}")
    queues.put_numbers(QUEUE, 300, 600)
    with pytest.raises(FlowFailed, match=r"the flow's source is stopped: queue 'numbers' was deleted and made again"):
        run_once(spark, strict, Connection((server.url,)), options(strict))
    assert numbers(queues, strict) == list(range(150, 300))
    run_once(spark, lenient, Connection((server.url,)), options(lenient))
    assert numbers(queues, lenient) == [*range(100), *range(130, 600)]
