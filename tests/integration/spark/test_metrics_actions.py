"""The built-in actions for metrics on a real Spark: requests to rows and back, and SQL between them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fixtures.metrics_requests import points, sdk_request
from fixtures.telemetry import gauges
from forebay.errors import Permanent
from forebay.flows import ClassAction, Flow, QueueSink, Source, SqlAction
from forebay.flows.checks import check_flow
from forebay.flows.located import Located
from forebay.otlp.kinds import Kind
from forebay.otlp.prometheus import Converter
from forebay.otlp.protobufs import parsed
from forebay.spark.builtin.drop_labels import DropLabels
from forebay.spark.builtin.otlp_metrics import OtlpMetrics
from forebay.spark.builtin.to_otlp import ToOtlp
from forebay.spark.builtin.to_remote_write import ToRemoteWrite
from forebay.spark.flow_plan import DoesNotCompile
from forebay.spark.record_frames import SIDE_COLUMN, good_rows, record_frame, side_rows
from forebay.testing import run_action, run_flow

MESSAGES = "did STRING, seq BIGINT, partition STRING, transaction_id STRING, payload BINARY"
otlp_metrics = OtlpMetrics(OtlpMetrics.Params())


@pytest.fixture(autouse=True)
def session(spark: SparkSession) -> SparkSession:
    return spark


def samples(body: bytes) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for series in parsed(Kind.REMOTE_WRITE, body).timeseries:
        labels = tuple((label.name, label.value) for label in series.labels)
        found.update((labels, sample.timestamp, sample.value) for sample in series.samples)
    return found


def test_rows_have_the_declared_types_and_the_columns_of_their_message(spark: SparkSession) -> None:
    rows = [("d1", 7, "metrics", "t7", bytearray(sdk_request()))]
    found = good_rows(record_frame(spark.createDataFrame(rows, MESSAGES), otlp_metrics))
    assert found.columns[:6] == ["did", "seq", "partition", "transaction_id", "time", "start_time"]
    by_metric = {
        row.metric: row for row in found.where("labels['region'] IS NULL OR labels['region'] = 'eu'").collect()
    }
    assert set(by_metric) == {"orders", "open.carts", "load", "latency", "sizes"}
    orders = by_metric["orders"]
    assert (orders.did, orders.seq, orders.value, orders.labels["is_new"]) == ("d1", 7, 5.0, "true")
    assert orders.resource["service.name"] == "shop"
    assert sum(by_metric["latency"].buckets) == 3
    assert sum(by_metric["sizes"].exponential.positive) == 3


@pytest.mark.parametrize("max_points", [500, 2, 1])
def test_requests_are_the_same_behind_rows_whatever_their_size(spark: SparkSession, max_points: int) -> None:
    body = sdk_request()
    frame = spark.createDataFrame([(None, 1, "p", "t1", bytearray(body))], MESSAGES).coalesce(1)
    found = record_frame(frame, [otlp_metrics, ToOtlp(ToOtlp.Params(max_points=max_points))]).collect()
    assert all(row[SIDE_COLUMN] is None for row in found)
    assert {(row.partition, row.seq, row.transaction_id) for row in found} == {("metrics", None, None)}
    bodies = [bytes(row.payload) for row in found]
    assert max(points(one).total() for one in bodies) == min(max_points, 6)
    # As an export joins the messages of a batch.
    assert points(b"".join(bodies)) == points(body)


def test_payload_that_is_no_request_is_a_bad_record_and_the_rest_goes_on(spark: SparkSession) -> None:
    bodies = [gauges("load", {1000: 1.0}), b"no request", gauges("load", {2000: 2.0}), b'{"resourceMetrics": []}']
    rows = [("d1", seq, "p", "t", bytearray(body)) for seq, body in enumerate(bodies)]
    found = record_frame(spark.createDataFrame(rows, MESSAGES).coalesce(1), otlp_metrics)
    assert [(row.seq, row.value) for row in good_rows(found).collect()] == [(0, 1.0), (2, 2.0)]
    [bad] = side_rows(found).collect()
    assert (bad.kind, bad.did, bad.seq, bytes(bad.payload)) == ("bad", "d1", 1, b"no request")
    assert bad.text.startswith("no metrics request")


def test_rows_of_different_parcels_are_never_in_one_request(spark: SparkSession) -> None:
    rows = [(f"d{n % 2}", n, "p", "t", bytearray(gauges(f"m{n}", {1000: 1.0}))) for n in range(4)]
    frame = spark.createDataFrame(rows, MESSAGES).coalesce(1)
    found = good_rows(record_frame(frame, [otlp_metrics, ToOtlp(ToOtlp.Params())])).collect()
    names = {row.did: {point[2] for point in points(bytes(row.payload))} for row in found}
    assert names == {"d0": {"m0", "m2"}, "d1": {"m1", "m3"}}


def test_remote_write_has_the_samples_that_a_destination_would_make() -> None:
    body = sdk_request()
    rows = run_action(otlp_metrics, [{"payload": body}], "payload BINARY").rows
    found = run_action(ToRemoteWrite(ToRemoteWrite.Params()), rows, OtlpMetrics.schema)
    assert {row["partition"] for row in found.rows} == {"remote_write"}
    together = b"".join(bytes(row["payload"]) for row in found.rows)
    # A sample of target_info is in each request.
    assert set(samples(together)) == set(samples(Converter().convert(body).body))
    assert [row["cause"] for row in found.rejected] == ["exponential histograms have no form in remote write 1.0"]
    deltas = run_action(otlp_metrics, [{"payload": sdk_request(is_delta=True)}], "payload BINARY").rows
    refused = run_action(ToRemoteWrite(ToRemoteWrite.Params()), deltas, OtlpMetrics.schema).rejected
    assert {row["cause"] for row in refused} == {
        "sums have to be cumulative",
        "histograms have to be cumulative",
        "exponential histograms have no form in remote write 1.0",
    }


def test_row_that_is_no_point_is_a_bad_record() -> None:
    rows = [{"time": "2026-01-01T00:00:00Z", "metric": "m", "value": 1.0}, {"metric": "m", "value": 2.0}]
    found = run_action(ToOtlp(ToOtlp.Params()), rows, "time TIMESTAMP, metric STRING, value DOUBLE")
    assert [points(bytes(row["payload"])).total() for row in found.rows] == [1]
    assert [row["cause"] for row in found.rejected] == ["time is null"]


def test_columns_that_do_not_do_are_refused_when_the_action_is_compiled(spark: SparkSession) -> None:
    to_otlp = ToOtlp(ToOtlp.Params())
    with pytest.raises(Permanent, match="needs time, metric"):
        record_frame(spark.createDataFrame([], "value DOUBLE"), to_otlp)
    with pytest.raises(Permanent, match="time is string, and not TIMESTAMP"):
        record_frame(spark.createDataFrame([], "time STRING, metric STRING"), to_otlp)
    with pytest.raises(Permanent, match="payload is int32, and not BINARY or STRING"):
        record_frame(spark.createDataFrame([], "payload INT"), otlp_metrics)


def test_labels_are_dropped_or_kept() -> None:
    rows: list[dict[str, Any]] = [{"labels": {"pod": "a", "region": "eu", "zone": "1"}}, {"labels": None}]
    schema = "labels MAP<STRING, STRING>"
    dropped = run_action(DropLabels(DropLabels.Params(labels=("pod", "none"))), rows, schema)
    assert dropped.rows == [{"labels": {"region": "eu", "zone": "1"}}, {"labels": None}]
    kept = run_action(DropLabels(DropLabels.Params(keep=("region",))), rows, schema)
    assert kept.rows == [{"labels": {"region": "eu"}}, {"labels": None}]


def a_flow(*actions: SqlAction | ClassAction) -> Flow:
    return Flow(
        name="metrics", mode="stream", source=Source(queue="otlp"), actions=actions, sink=QueueSink(queue="fewer")
    )


PARSE = ClassAction(name="parse", class_name="otlp_metrics")
BACK = ClassAction(name="back", class_name="to_otlp")


def test_flow_drops_a_label_adds_up_and_writes_requests_again() -> None:
    fewer = ClassAction(name="fewer", class_name="drop_labels", params={"labels": ["pod"]})
    sums = SqlAction(
        name="sums",
        sql="SELECT max(time) AS time, metric, labels, sum(value) AS value FROM input GROUP BY metric, labels",
    )
    bodies = [gauges("load", {1000: n}, {"pod": f"p{n}", "region": "eu" if n < 3 else "us"}) for n in range(1, 5)]
    found = run_flow(a_flow(PARSE, fewer, sums, BACK), bodies)
    together: Counter[Any] = Counter()
    for row in found.rows:
        together += points(bytes(row["payload"]))
        assert row["partition"] == "metrics"
    expected = gauges("load", {1000: 3.0}, {"region": "eu"}) + gauges("load", {1000: 7.0}, {"region": "us"})
    assert together == points(expected)


def test_parameters_that_do_not_go_together_are_refused_with_their_place() -> None:
    wrong = ClassAction(name="fewer", class_name="drop_labels")
    assert "give either labels" in str(next(iter(check_flow(Located(a_flow(wrong), "here")))))
    with pytest.raises(DoesNotCompile, match="'back' needs time, metric, and the columns before it are seq"):
        run_flow(a_flow(BACK), [b""])
