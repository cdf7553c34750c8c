# ruff: noqa: T201 - an example prints
"""Counts orders with the OpenTelemetry SDK, and pushes the count to Forebay every second.

    python examples/metrics-proxy/push_metrics.py [--endpoint http://127.0.0.1:4318] [--seconds 30]

Stop Prometheus meanwhile, and start it again: no second is missing in it. Nor is Forebay in the way while it is away:
every push is answered at once.
"""

from __future__ import annotations

import argparse
import time

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", default="http://127.0.0.1:4318")
    parser.add_argument("--seconds", type=int, default=30)
    words = parser.parse_args()

    exporter = OTLPMetricExporter(f"{words.endpoint}/v1/metrics")
    # An interval that never comes: the loop below pushes after each order.
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
    resource = Resource.create({"service.name": "shop", "service.instance.id": "example"})
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    orders = provider.get_meter("shop").create_counter("orders")
    for second in range(words.seconds):
        if second:
            time.sleep(1)
        orders.add(1)
        if not provider.force_flush():
            raise SystemExit("Forebay did not take the metrics: is it running?")
        print(f"{second + 1} orders pushed", flush=True)


if __name__ == "__main__":
    main()
