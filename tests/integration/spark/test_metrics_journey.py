"""Metrics through a flow: from a receiver to a queue, through Spark, and by exports in both protocols."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import cramjam
from pyspark.sql import SparkSession

from fixtures.http_sink import http_sink
from fixtures.metrics_requests import points
from fixtures.telemetry import QUICK_QUEUE, Proxy, gauges, remote_write
from fixtures.waiting import until
from forebay.flows import ClassAction, Flow, QueueSink, Source
from forebay.flows.flow_directory import FlowDirectory
from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import parsed
from forebay.spark.flow_runner import SparkRunner
from forebay.spark.options import Connection
from forebay.testing.servers.machine import free_port


def settings(url: str) -> dict[str, Any]:
    collector = {"name": "collector", "type": "otlp_http", "url": url, "queue": deepcopy(QUICK_QUEUE)}
    return {
        "destinations": [collector, remote_write(f"{url}/write")],
        "exports": [
            {"name": "to-collector", "from": "otlp-out@collector", "to": "collector", "format": "metrics"},
            {"name": "to-converted", "from": "otlp-out@converted", "to": "prometheus", "format": "metrics"},
            {"name": "to-prometheus", "from": "series-out@prometheus", "to": "prometheus", "format": "remote_write"},
        ],
    }


def a_flow(action: str, sink: str) -> Flow:
    fewer = ClassAction(name="fewer", class_name="drop_labels", params={"labels": ["pod"]})
    actions = (
        ClassAction(name="points", class_name="otlp_metrics"),
        fewer,
        ClassAction(name="back", class_name=action),
    )
    source = Source(queue="otlp-metrics")
    return Flow(name=f"by-{action}", mode="stream", source=source, actions=actions, sink=QueueSink(queue=sink))


def series(body: bytes) -> list[tuple[dict[str, str], int, float]]:
    request = parsed(Kind.REMOTE_WRITE, bytes(cramjam.snappy.decompress_raw(body)))
    return [
        ({label.name: label.value for label in one.labels}, sample.timestamp, sample.value)
        for one in request.timeseries
        for sample in one.samples
    ]


async def test_metrics_reach_destinations_of_both_protocols_without_the_label_that_was_dropped(
    spark: SparkSession, tmp_path: Path
) -> None:
    port = free_port()
    receivers = {"otlp_http": "queue:otlp-{signal}"}
    with Proxy(tmp_path, settings(f"http://127.0.0.1:{port}"), receivers=receivers) as proxy:
        proxy.push(gauges("load", {1000: 1.5, 2000: 2.5}, {"pod": "a", "region": "eu"}))
        runner = SparkRunner(spark, Connection((proxy.server.url,)), is_once=True)
        for flow in (a_flow("to_otlp", "otlp-out"), a_flow("to_remote_write", "series-out")):
            runner.start(flow, FlowDirectory(tmp_path / "flows", flow.name)).wait()
        async with http_sink(port=port) as sink:
            await until(lambda: len(sink.received) == 3)
    bodies = [one.body for one in sink.received if one.path == "/v1/metrics"]
    assert [points(body) for body in bodies] == [points(gauges("load", {1000: 1.5, 2000: 2.5}, {"region": "eu"}))]
    labels = {"__name__": "load", "region": "eu"}
    expected = [(labels, 1000, 1.5), (labels, 2000, 2.5)]
    assert [series(one.body) for one in sink.received if one.path == "/write"] == [expected, expected]
