"""OTLP → Forebay → Prometheus, with a real Prometheus that is stopped, frozen, killed and started again, and with a
Forebay that is stopped and killed: every sample is asked for, and is there once."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from fixtures.http_sink import http_sink
from fixtures.telemetry import QUICK_QUEUE, Proxy, gauges, now_ms, remote_write
from fixtures.waiting import until, wait_until
from forebay.ingest.receivers.otlp_http import PROTOBUF
from forebay.testing.servers import PrometheusServer
from forebay.testing.servers.machine import free_port

META_SYNC_SECONDS = 1.0


class Pusher:
    """Pushes one sample at a time, each with its number as value, and knows what was accepted and when."""

    def __init__(self, proxy: Proxy, name: str) -> None:
        self.proxy = proxy
        self.name = name
        self.accepted: dict[int, float] = {}
        """By time in milliseconds."""
        self.answered: dict[int, float] = {}
        """When each was answered, by the monotonic clock."""
        self._next_ms = now_ms() - 60_000

    def push(self, count: int = 1) -> None:
        for _ in range(count):
            self._next_ms += 1
            value = float(len(self.accepted))
            self.proxy.push(gauges(self.name, {self._next_ms: value}))
            self.accepted[self._next_ms] = value
            self.answered[self._next_ms] = time.monotonic()

    def stored(self, prometheus: PrometheusServer) -> list[tuple[int, float]]:
        [*series] = prometheus.samples(self.name).values()
        assert len(series) < 2
        return series[0] if series else []

    def check_all_stored(self, prometheus: PrometheusServer) -> None:
        expected = sorted(self.accepted.items())
        wait_until(lambda: len(self.stored(prometheus)) >= len(expected))
        assert self.stored(prometheus) == expected


@pytest.mark.parametrize("mode", ["memory", "hybrid"])
def test_every_sample_arrives_once_though_prometheus_is_away_and_forebay_stops_meanwhile(
    mode: str, prometheus: PrometheusServer, tmp_path: Path
) -> None:
    # Small enough that what waits for Prometheus spills. Memory queues have nowhere to spill to.
    queue: dict[str, Any] = {"mode": mode, "max_size": 40, "hybrid_spillover_pct": 20, "drain_timeout": "200ms"}
    settings = {"destinations": [remote_write(prometheus.write_url, **queue)]}
    with Proxy(tmp_path, settings, receivers={"otlp_http": "destination:prometheus"}) as proxy:
        pusher = Pusher(proxy, f"away_{mode}")
        pusher.push(5)
        prometheus.pause()
        pusher.push(5)
        wait_until(lambda: failures(proxy, "timeout") > 0)
        prometheus.resume()
        pusher.push(5)
        prometheus.restart("kill")
        pusher.push(5)
        prometheus.stop()
        pusher.push(20)
        wait_until(lambda: failures(proxy, "network") > 0)
        spilled = proxy.metric("queue_spillover_total", destination="prometheus")
        assert spilled >= 12 if mode == "hybrid" else spilled == 0
        assert exported_from(proxy) == ("send queue (hybrid, fifo)" if mode == "hybrid" else "send queue (memory)")
        assert proxy.server.stop() == 0
        proxy.server.start()
        pusher.push(5)
        assert proxy.server.stop() == 0
        prometheus.start()
        proxy.server.start()
        pusher.push(5)
        pusher.check_all_stored(prometheus)
        assert proxy.metric("export_dead_letters", destination="prometheus") == 0
        wait_until(lambda: proxy.metric("queue_size", destination="prometheus") == 0)


@pytest.mark.parametrize("mode", ["memory", "disk"])
def test_kill_9_loses_what_is_in_memory_and_at_most_the_last_sync_interval_of_a_disk_queue(
    mode: str, prometheus: PrometheusServer, tmp_path: Path
) -> None:
    """The windows of `forebay.sendqueue`, measured: how long before the kill was answered what is lost."""
    queue = {"mode": mode, "meta_sync_interval": f"{META_SYNC_SECONDS:g}s"}
    settings = {"destinations": [remote_write(prometheus.write_url, timeout="30s", **queue)]}
    with Proxy(tmp_path, settings, receivers={"otlp_http": "destination:prometheus"}) as proxy:
        pusher = Pusher(proxy, f"killed_{mode}")
        # Some are stored already when the server is killed, and their confirmation may not be on disk yet.
        pusher.push(20)
        wait_until(lambda: len(pusher.stored(prometheus)) == 20)
        prometheus.pause()
        pusher.push(20)
        if mode != "memory":
            # Of two syncs from now on the first may have begun before the last push. A skipped one has nothing to do.
            done, skipped = syncs(proxy), skipped_syncs(proxy)
            wait_until(lambda: syncs(proxy) >= done + 2 or skipped_syncs(proxy) > skipped)
        pusher.push(20)
        killed = time.monotonic()
        proxy.server.kill()
        prometheus.resume()
        proxy.server.start()
        pusher.push(1)
        wait_until(lambda: max(pusher.accepted) in dict(pusher.stored(prometheus)))
        wait_until(lambda: proxy.metric("queue_size", destination="prometheus") == 0)
    stored = pusher.stored(prometheus)
    assert set(stored) <= set(pusher.accepted.items())
    lost = sorted(set(pusher.accepted) - dict(stored).keys())
    if mode == "memory":
        assert len(lost) >= 39  # one was under way, and may be stored when Prometheus thaws
    else:
        # A sync comes after each interval and takes a moment; what is older than two of them is durable.
        assert all(killed - pusher.answered[at] < 2 * META_SYNC_SECONDS for at in lost), lost
        assert set(lost) <= set(sorted(pusher.accepted)[40:])


class Shop:
    """Counts orders with the OpenTelemetry SDK, whose exporter tries again by itself while Forebay does not listen."""

    def __init__(self, url: str) -> None:
        # An interval that never comes: each order is pushed as it is counted.
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(url, timeout=60), float("inf"))
        resource = Resource.create({"service.name": "shop", "service.instance.id": "i1"})
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        self._orders = self._provider.get_meter("shop").create_counter("sdk.orders")
        self.pushed = 0

    def push(self, count: int) -> None:
        for _ in range(count):
            self._orders.add(1)
            assert self._provider.force_flush(60_000)
            self.pushed += 1

    def close(self) -> None:
        self._provider.shutdown()


def test_no_push_of_an_sdk_is_missing_after_an_outage_of_prometheus_with_a_kill_9_of_forebay_in_the_middle(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    """The SDK's counter has a value for each push, so that a push that is lost is a value that is missing."""
    settings = {"destinations": [remote_write(prometheus.write_url, mode="disk", meta_sync_interval="200ms")]}
    with (
        Proxy(tmp_path, settings, receivers={"otlp_http": "destination:prometheus"}) as proxy,
        closing(Shop(proxy.url())) as shop,
        ThreadPoolExecutor(1) as pool,
    ):
        shop.push(5)
        prometheus.stop()
        shop.push(10)
        wait_until(lambda: failures(proxy, "network") > 0)
        # Of two syncs from now on the first may have begun before the last push. A skipped one has nothing to do.
        done, skipped = syncs(proxy), skipped_syncs(proxy)
        wait_until(lambda: syncs(proxy) >= done + 2 or skipped_syncs(proxy) > skipped)
        proxy.server.kill()
        meanwhile = pool.submit(shop.push, 1)
        proxy.server.start()
        meanwhile.result(60)
        shop.push(5)
        assert proxy.metric("queue_size", destination="prometheus") >= 16
        prometheus.start()
        wait_until(lambda: sdk_orders(prometheus) == [float(number + 1) for number in range(shop.pushed)])
        assert shop.pushed == 21
        wait_until(lambda: proxy.metric("queue_size", destination="prometheus") == 0)


def sdk_orders(prometheus: PrometheusServer) -> list[float]:
    return [value for of in prometheus.samples("sdk_orders_total").values() for _, value in of]


def test_through_a_queue_and_an_export_nothing_is_lost_by_an_outage_with_a_kill_9_in_the_middle(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    """What the guide says to use where not even a second may be lost."""
    settings = {
        "destinations": [remote_write(prometheus.write_url)],
        "exports": [{"name": "metrics", "from": "otlp@prometheus", "to": "prometheus", "format": "metrics"}],
    }
    with Proxy(tmp_path, settings, receivers={"otlp_http": "queue:otlp"}) as proxy:
        pusher = Pusher(proxy, "durable")
        pusher.push(20)
        wait_until(lambda: len(pusher.stored(prometheus)) > 0)
        pusher.push(20)
        proxy.server.kill()  # some are under way, some are stored and not acknowledged
        proxy.server.start()
        prometheus.stop()
        pusher.push(20)
        wait_until(lambda: proxy.metric("queue_retry_failure_total", destination="metrics", error_type="network") > 0)
        pusher.push(1)
        proxy.server.kill()
        proxy.server.start()
        pusher.push(20)
        prometheus.start()
        pusher.check_all_stored(prometheus)
        assert proxy.metric("export_dead_total", destination="metrics") == 0
        command = [sys.executable, "-m", "forebay", "audit", "--url", proxy.server.url]
        audit = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert audit.returncode == 0, audit.stdout + audit.stderr


async def test_kill_9_of_a_hybrid_queue_loses_what_is_in_memory_and_keeps_what_has_spilled(tmp_path: Path) -> None:
    port = free_port()
    queue = {**QUICK_QUEUE, "mode": "hybrid", "max_size": 20}
    sent_to = {"name": "sink", "type": "otlp_http", "url": f"http://127.0.0.1:{port}", "queue": queue}
    proxy = Proxy(tmp_path, {"destinations": [sent_to]}, receivers={"otlp_http": "destination:sink"})
    with proxy:
        for number in range(30):
            proxy.push(gauges("spilled", {now_ms(): float(number)}))
        spilled = proxy.metric("queue_spillover_total", destination="sink")
        assert 10 <= spilled <= 14
        skipped = proxy.metric("fastqueue_meta_sync_skip_total", destination="sink")
        wait_until(lambda: proxy.metric("fastqueue_meta_sync_skip_total", destination="sink") > skipped)
        proxy.server.kill()
        async with http_sink(port=port) as sink:
            await asyncio.to_thread(proxy.server.start)
            await until(lambda: len(sink.received) >= spilled)
            await until(lambda: proxy.metric("queue_size", destination="sink") == 0)
            assert len(sink.received) == spilled


async def test_request_that_waits_in_the_buffer_is_answered_when_the_server_stops(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    settings = {
        "destinations": [remote_write(prometheus.write_url)],
        "receivers": {"buffer": {"flush_interval": "5m"}},
    }
    with Proxy(tmp_path, settings, receivers={"otlp_http": "destination:prometheus"}) as proxy:
        at_ms = now_ms()
        body = gauges("buffered", {at_ms: 1.0})
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.ports["otlp_http"])
        head = f"POST /v1/metrics HTTP/1.1\r\nHost: x\r\nContent-Type: {PROTOBUF}\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Expect: 100-continue\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(body)
        await writer.drain()
        assert await asyncio.to_thread(proxy.server.stop) == 0
        assert b"Forebay-Receipt: memory" in await reader.read()
        writer.close()
    assert list(prometheus.samples("buffered").values()) == [[(at_ms, 1.0)]]


def exported_from(proxy: Proxy) -> str:
    with urllib.request.urlopen(f"{proxy.server.url}/api/v1/exports", timeout=60) as answer:
        [source] = {one["source"] for one in json.load(answer)["exports"] if one["kind"] == "destination"}
    return str(source)


def failures(proxy: Proxy, error: str) -> float:
    return proxy.metric("queue_retry_failure_total", destination="prometheus", error_type=error)


def syncs(proxy: Proxy) -> float:
    return proxy.metric("fastqueue_meta_sync_total", destination="prometheus")


def skipped_syncs(proxy: Proxy) -> float:
    return proxy.metric("fastqueue_meta_sync_skip_total", destination="prometheus")
