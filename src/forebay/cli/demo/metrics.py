"""The shop's metrics: OTLP requests as a function of their number, and the samples that are to come of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

from forebay.cli.demo.clicks import REGIONS, START
from forebay.otlp.protobufs import WriteRequest

PODS = ("a", "b", "c")
SERIES = "demo_clicks_total"
"""What `demo.clicks`, a counter, is called in Prometheus."""
INTERVAL_MS = 1000
_NAME = "__name__"


class Sample(NamedTuple):
    labels: str
    at_ms: int


def otlp_request(number: int) -> bytes:
    """The counters of all pods and regions at one moment, as an SDK would push them."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    metric = resource.scope_metrics.add().metrics.add(name="demo.clicks")
    metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    metric.sum.is_monotonic = True
    for pod in PODS:
        for place, region in enumerate(REGIONS):
            point = metric.sum.data_points.add(time_unix_nano=_at_ms(number) * 1_000_000, as_int=_count(number, place))
            point.attributes.add(key="region").value.string_value = region
            point.attributes.add(key="pod").value.string_value = pod
    body: bytes = request.SerializeToString()
    return body


def expected_samples(requests: int) -> dict[Sample, float]:
    """One sample per request and region: the sum over the pods, which no label tells apart any more."""
    return {
        Sample(_labels({_NAME: SERIES, "job": "shop", "region": region}), _at_ms(number)): float(
            len(PODS) * _count(number, place)
        )
        for number in range(requests)
        for place, region in enumerate(REGIONS)
    }


def samples_of(body: bytes) -> Iterator[tuple[Sample, float]]:
    """The samples of our counter in a remote write request, decompressed."""
    request = WriteRequest()
    request.ParseFromString(body)
    for series in request.timeseries:
        labels = {label.name: label.value for label in series.labels}
        if labels[_NAME] == SERIES:
            for sample in series.samples:
                yield Sample(_labels(labels), sample.timestamp), sample.value


def _at_ms(number: int) -> int:
    return int(START.timestamp() * 1000) + number * INTERVAL_MS


def _count(number: int, place: int) -> int:
    return (number + 1) * (10 + place)


def _labels(labels: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
