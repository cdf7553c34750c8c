"""`forebay config` and the way out: metrics-governor's flags with one dash or two, destinations and exports shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.config.units import parse_size
from forebay.sendqueue.sizing import share_bytes

FLAGS = {
    "queue-enabled": ("true", "exporter.queue.enabled", True),
    "queue-type": ("disk", "exporter.queue.mode", "disk"),
    "queue-path": ("./queue", "exporter.queue.path", "./queue"),
    "queue-max-size": ("20000", "exporter.queue.max_size", 20_000),
    "queue-max-bytes": ("1Gi", "exporter.queue.max_bytes", "1Gi"),
    "queue-full-behavior": ("block", "exporter.queue.full_behavior", "block"),
    "queue-always-queue": ("false", "exporter.queue.always_queue", False),
    "queue-workers": ("16", "exporter.queue.workers", 16),
    "queue-inmemory-blocks": ("1024", "exporter.queue.inmemory_blocks", 1024),
    "queue-chunk-size": ("64Mi", "exporter.queue.chunk_size", "64Mi"),
    "queue-meta-sync": ("2s", "exporter.queue.meta_sync_interval", "2s"),
    "queue-stale-flush": ("20s", "exporter.queue.stale_flush_interval", "20s"),
    "queue-write-buffer-size": ("128Ki", "exporter.queue.write_buffer_size", "128Ki"),
    "queue-compression": ("none", "exporter.queue.compression", "none"),
    "queue-retry-interval": ("4s", "exporter.queue.retry_interval", "4s"),
    "queue-max-retry-delay": ("3m", "exporter.queue.max_retry_delay", "3m"),
    "queue-backoff-enabled": ("false", "exporter.queue.backoff.enabled", False),
    "queue-backoff-multiplier": ("3.0", "exporter.queue.backoff.multiplier", 3.0),
    "queue-circuit-breaker-enabled": ("false", "exporter.queue.circuit_breaker.enabled", False),
    "queue-circuit-breaker-threshold": ("7", "exporter.queue.circuit_breaker.threshold", 7),
    "queue-circuit-breaker-reset-timeout": ("15s", "exporter.queue.circuit_breaker.reset_timeout", "15s"),
    "queue-hybrid-spillover-pct": ("70", "exporter.queue.hybrid_spillover_pct", 70),
    "queue-memory-percent": ("0.10", "exporter.queue.memory_percent", 0.1),
    "memory-limit-ratio": ("0.8", "exporter.memory_limit_ratio", 0.8),
    "queue-adaptive-enabled": ("true", "exporter.queue.adaptive_enabled", True),
    "queue-target-utilization": ("0.75", "exporter.queue.target_utilization", 0.75),
}

FILE = """\
destinations:
  - name: warehouse
    type: http
    url: https://me:hunter2@warehouse.example/ingest?token=hunter3
    headers:
      X-Token: Bearer hunter4
      X-Key: env:WAREHOUSE_KEY
    queue:
      type: disk
      backoff: {multiplier: 4}
exports:
  - name: orders
    from: orders@warehouse
    to: warehouse
    batch: {max_messages: 100}
"""


def show(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    command = [sys.executable, "-m", "forebay", "config", "show", *words]
    return subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_every_flag_of_the_send_queue_is_taken_and_named_as_the_origin(dashes: str, tmp_path: Path) -> None:
    words = [word for name, (value, _, _) in FLAGS.items() for word in (dashes + name, value)]
    done = show(*words, "-o", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name, (_, key, value) in FLAGS.items():
        assert found[key] == {"value": value, "origin": f"flag --{name}"}


def test_destinations_and_exports_are_shown_with_their_lines_and_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "forebay.yaml").write_text(FILE)
    done = show("-c", "forebay.yaml", "-o", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    shown = {key: (one["value"], one["origin"]) for key, one in found.items() if key.startswith(("dest", "exports"))}
    line = "forebay.yaml line {}".format
    assert shown["destinations.warehouse.type"] == ("http", line(3))
    url = "https://me:***@warehouse.example/ingest?token=***"
    assert shown["destinations.warehouse.url"] == (url, line(4))
    assert shown["destinations.warehouse.headers.X-Token"] == ("***", line(6))
    assert shown["destinations.warehouse.headers.X-Key"] == ("env:WAREHOUSE_KEY", line(7))
    assert shown["destinations.warehouse.timeout"] == ("30s", "default")
    of_queue = {key for key in shown if key.startswith("destinations.warehouse.queue.")}
    assert of_queue == {f"destinations.warehouse.queue.{key}" for key in ("mode", "backoff.multiplier")}
    assert shown["destinations.warehouse.queue.mode"] == ("disk", line(9))
    assert shown["exports.orders.from"] == ("orders@warehouse", line(13))
    assert shown["exports.orders.batch.max_messages"] == (100, line(15))
    assert shown["exports.orders.batch.max_bytes"] == ("4Mi", "default")
    table = show("-c", "forebay.yaml", cwd=tmp_path).stdout
    assert "destinations.warehouse.url" in table
    assert "hunter" not in table + done.stdout


def test_the_limit_that_a_share_of_memory_comes_to_is_shown(tmp_path: Path) -> None:
    (tmp_path / "forebay.yaml").write_text(
        "exporter: {queue: {memory_percent: 0.1, mode: disk}}\n"
        "destinations:\n"
        "  - {name: a, type: http, url: 'http://a', queue: {mode: memory}}\n"
        "  - {name: b, type: http, url: 'http://b'}\n"
    )
    found = json.loads(show("-c", "forebay.yaml", "-o", "json", cwd=tmp_path).stdout)
    assert found["exporter.queue.max_bytes"] == {"value": "256Mi", "origin": "default"}
    assert parse_size(found["destinations.a.queue.max_bytes"]["value"]) == share_bytes(0.1)
    assert found["destinations.a.queue.max_bytes"]["origin"].startswith("memory_percent 0.1 of ")
    assert "destinations.b.queue.max_bytes" not in found
    flags = ("--queue-memory-percent", "0.1", "-o", "json")
    found = json.loads(show(*flags, cwd=tmp_path).stdout)
    assert parse_size(found["exporter.queue.max_bytes"]["value"]) == share_bytes(0.1)
    assert found["exporter.queue.memory_percent"] == {"value": 0.1, "origin": "flag --queue-memory-percent"}
