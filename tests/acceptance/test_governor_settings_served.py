"""A server with the settings of metrics-governor's guide, as a file and as flags: a batch that is pushed to it arrives,
and the figures of it have the names that dashboards made for that ask for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fixtures.http_sink import http_sink
from fixtures.telemetry import Proxy, gauges, now_ms
from fixtures.waiting import until
from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import parsed
from forebay.testing.running_server import FOREBAY
from unit.config.test_governor_settings import DISK, HYBRID, MEMORY, REFERENCE

FILES = {"memory": MEMORY, "disk": DISK, "hybrid": HYBRID, "reference": REFERENCE}
FLAGS = {
    "memory": "--queue-mode memory --queue-max-size 10000 --queue-max-bytes 256Mi",
    "disk": "--queue-mode disk --queue-path ./queue --queue-max-size 50000 --queue-max-bytes 1Gi "
    "--queue-inmemory-blocks 2048 --queue-chunk-size 512Mi",
    "hybrid": "--queue-mode hybrid --queue-max-size 10000 --queue-max-bytes 512Mi --queue-hybrid-spillover-pct 80 "
    "--queue-path ./queue",
    "share": "-queue-memory-percent 0.10 -memory-limit-ratio 0.85",
}
CASES = [
    *(pytest.param(text, "", id=f"file-{name}") for name, text in FILES.items()),
    *(pytest.param("", flags, id=f"flags-{name}") for name, flags in FLAGS.items()),
]
NAMES = [
    "circuit_breaker_open_total",
    "circuit_breaker_rejected_total",
    "circuit_breaker_state",
    "fastqueue_chunk_rotations",
    "fastqueue_disk_bytes",
    "fastqueue_inmemory_blocks",
    "fastqueue_inmemory_flushes",
    "fastqueue_meta_sync_total",
    "queue_backoff_seconds",
    "queue_bytes",
    "queue_disk_available_bytes",
    "queue_disk_full_total",
    "queue_dropped_total",
    "queue_export_latency_ewma_seconds",
    "queue_max_bytes",
    "queue_max_size",
    "queue_memory_bytes",
    "queue_memory_utilization",
    "queue_preparers_active",
    "queue_push_total",
    "queue_retry_failure_total",
    "queue_retry_success_total",
    "queue_retry_total",
    "queue_senders_active",
    "queue_sends_inflight",
    "queue_size",
    "queue_spillover_total",
    "queue_utilization_ratio",
    "queue_workers_active",
    "queue_workers_total",
]
"""Of its table of metrics, all."""


@pytest.mark.parametrize(("text", "flags"), CASES)
async def test_a_batch_arrives_and_its_metrics_are_there(text: str, flags: str, tmp_path: Path) -> None:
    async with http_sink() as sink:
        to = {"name": "sink", "type": "otlp_http", "url": sink.url, "compression": "none"}
        rest = {"destinations": [to], "telemetry": {"namespace": "metrics_governor"}}
        proxy = Proxy(tmp_path, rest, receivers={"otlp_http": "destination:sink"})
        # The snippet as it is written, then what it leaves out: where batches come from, and where they go.
        proxy.file.write_text(text + proxy.file.read_text())
        proxy.server.arguments += tuple(flags.split())
        proxy.server.program = ("env", f"--chdir={tmp_path}", *FOREBAY)  # the path in them is relative
        await asyncio.to_thread(proxy.server.start)
        try:
            body = gauges("shop", {now_ms(): 7.0})
            assert await asyncio.to_thread(proxy.push, body) == "memory"
            await until(lambda: len(sink.received) == 1)
            assert parsed(Kind.METRICS, sink.received[0].body) == parsed(Kind.METRICS, body)
            await until(lambda: figure(proxy, "queue_size") == 0)
            shown = {name.partition("{")[0] for name in proxy.metrics()}
            absent = {name for name in NAMES if f"metrics_governor_{name}" not in shown}
            assert absent <= {
                "queue_retry_failure_total"
            }  # it has a series for each class of error, and there was none
            assert figure(proxy, "queue_push_total") == 1
            assert figure(proxy, "queue_max_size") == (50_000 if "50000" in text + flags else 10_000)
        finally:
            await asyncio.to_thread(proxy.server.stop)
    if "disk" in text + flags:
        assert (tmp_path / "queue" / "sink" / "fastqueue.meta").exists()


def figure(proxy: Proxy, name: str) -> float:
    return proxy.metrics()[f'metrics_governor_{name}{{destination="sink"}}']
