# ruff: noqa: T201 - an example prints
"""Counts orders by pod and route with the OpenTelemetry SDK, and pushes the counts to Forebay every second.

    python examples/metrics-governor/push_metrics.py [--endpoint http://127.0.0.1:4318] [--seconds 30]

Six series go in, and one that nobody outside wants; two reach Prometheus: the sums over the pods.
"""

from __future__ import annotations

import argparse
import time

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

PODS = ("a", "b", "c")
ROUTES = ("/cart", "/checkout")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", default="http://127.0.0.1:4318")
    parser.add_argument("--seconds", type=int, default=30)
    words = parser.parse_args()

    exporter = OTLPMetricExporter(f"{words.endpoint}/v1/metrics")
    # An interval that never comes: the loop below pushes when all pods have counted.
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
    resource = Resource.create({"service.name": "shop", "service.instance.id": "example"})
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    meter = provider.get_meter("shop")
    orders = meter.create_counter("orders")
    noise = meter.create_up_down_counter("debug.cache_entries")
    for second in range(words.seconds):
        if second:
            time.sleep(1)
        for pod in PODS:
            for route in ROUTES:
                orders.add(1, {"pod": pod, "route": route})
        noise.add(1)
        if not provider.force_flush():
            raise SystemExit("Forebay did not take the metrics: is it running?")
        print(f"{len(PODS) * (second + 1)} orders of each route pushed", flush=True)


if __name__ == "__main__":
    main()
