"""Every metric is declared once, its page is right, and the reference says what the table says."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from forebay.errors import InvariantBroken
from forebay.telemetry import metrics
from forebay.telemetry.metrics import METRICS
from forebay.telemetry.own_process import own_process
from forebay.telemetry.page import Page
from forebay.telemetry.reference import reference

ROOT = Path(__file__).parents[3]
ALL = [metric for section in METRICS.values() for metric in section]


def test_the_reference_is_what_the_table_says() -> None:
    assert (ROOT / "docs/reference/metrics.md").read_text() == reference(), "run `make docs`"


def test_every_metric_is_declared_once_and_listed() -> None:
    names = [metric.name for metric in ALL]
    assert len(set(names)) == len(names)
    declared = {value.name for value in vars(metrics).values() if isinstance(value, metrics.Metric)}
    assert declared == set(names)


def test_every_metric_is_told_somewhere() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src/forebay/api").rglob("*.py"))
    unused = [name for name, value in vars(metrics).items() if isinstance(value, metrics.Metric) and name not in source]
    assert unused == []


@pytest.mark.parametrize(
    "suffix",
    [
        "queue_size queue_bytes queue_max_size queue_max_bytes queue_utilization_ratio queue_disk_available_bytes",
        "queue_push_total queue_dropped_total queue_retry_total queue_retry_success_total queue_retry_failure_total",
        "queue_disk_full_total fastqueue_inmemory_blocks fastqueue_disk_bytes fastqueue_meta_sync_total",
        "fastqueue_chunk_rotations fastqueue_inmemory_flushes queue_workers_active queue_workers_total",
        "queue_preparers_active queue_senders_active queue_sends_inflight queue_export_latency_ewma_seconds",
        "circuit_breaker_state circuit_breaker_open_total circuit_breaker_rejected_total queue_backoff_seconds",
        "queue_memory_bytes queue_memory_utilization queue_spillover_total",
    ],
)
def test_the_names_of_the_seeds_are_there(suffix: str) -> None:
    known = {metric.suffix for metric in ALL if metric.is_governed}
    assert set(suffix.split()) <= known


def test_counts_of_what_there_is_now_are_gauges_whatever_their_names_end_with() -> None:
    now = {"queue_workers_total", "queue_preparers_total", "queue_senders_total"}
    assert {metric.type for metric in ALL if metric.suffix in now} == {"gauge"}
    ends_like_a_counter = {metric.suffix for metric in ALL if metric.suffix.endswith("_total")} - now
    assert {metric.type for metric in ALL if metric.suffix in ends_like_a_counter} == {"counter"}


def test_a_page_has_the_samples_of_a_metric_together_with_labels_escaped() -> None:
    page = Page()
    page.declare(metrics.QUEUE_DROPPED)
    page.add(metrics.QUEUE_SIZE, 1, "a")
    page.add(metrics.QUEUE_BYTES, 2.5, "a")
    page.add(metrics.QUEUE_SIZE, 3, 'b"\\\n')
    assert page.lines() == [
        f"# HELP forebay_queue_dropped_total {metrics.QUEUE_DROPPED.help}",
        "# TYPE forebay_queue_dropped_total counter",
        f"# HELP forebay_queue_size {metrics.QUEUE_SIZE.help}",
        "# TYPE forebay_queue_size gauge",
        'forebay_queue_size{destination="a"} 1',
        'forebay_queue_size{destination="b\\"\\\\\\n"} 3',
        f"# HELP forebay_queue_bytes {metrics.QUEUE_BYTES.help}",
        "# TYPE forebay_queue_bytes gauge",
        'forebay_queue_bytes{destination="a"} 2.5',
    ]


def test_the_namespace_changes_the_names_of_the_way_out_alone() -> None:
    page = Page("metrics_governor")
    page.add(metrics.QUEUE_SIZE, 1, "a")
    page.add(metrics.PUSHED, 1)
    assert page.lines()[2] == 'metrics_governor_queue_size{destination="a"} 1'
    assert page.lines()[-1] == "forebay_messages_pushed_total 1"


def test_a_sample_with_the_wrong_labels_is_a_bug() -> None:
    with pytest.raises(InvariantBroken, match="has labels"):
        Page().add(metrics.QUEUE_SIZE, 1)


def test_the_process_is_told_in_true_numbers() -> None:
    before, cpu = time.time(), time.process_time()
    with contextlib.ExitStack() as opened:
        for _ in range(20):
            opened.enter_context(Path("/proc/self/stat").open())
        found = own_process()
    assert own_process().open_files == found.open_files - 20
    assert cpu <= found.cpu_seconds <= cpu + 60
    assert 0 < found.resident_bytes <= found.virtual_bytes
    assert before - 86_400 < found.start_seconds < before
    assert abs(found.start_seconds - _started()) < 2
    assert 1 <= found.threads < found.open_files_max


def _started() -> float:
    """As `ps` tells it."""
    shown = subprocess.run(["ps", "-o", "etimes=", "-p", str(os.getpid())], capture_output=True, text=True, check=True)
    return time.time() - int(shown.stdout)
