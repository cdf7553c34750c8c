"""Every metric of send queues and exporters is on the page, in every mode, before anything has happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.api.export_metrics import add_way_out
from forebay.clock import SystemClock
from forebay.telemetry.metrics import LEASES_LOST, METRICS, QUEUE_SIZE
from forebay.telemetry.page import Page
from unit.export.test_assembling import COLLECTOR, assembled

OF_EXPORTS = {LEASES_LOST.name}


@pytest.mark.parametrize("mode", ["memory", "disk", "hybrid"])
async def test_no_metric_is_missing_in_any_mode(mode: str, tmp_path: Path) -> None:
    made = assembled(tmp_path, COLLECTOR | {"queue": {"mode": mode}})
    page = Page()
    add_way_out(page, made, SystemClock())
    await made.outlets["d"].feed.close()
    told = {line.split()[2] for line in page.lines() if line.startswith("# TYPE ")}
    expected = {metric.name for metric in (*METRICS["Send queues"], *METRICS["Exporters"])}
    assert expected - told == OF_EXPORTS
    samples = [line for line in page.lines() if not line.startswith("#")]
    assert f'{QUEUE_SIZE.name}{{destination="d"}} 0' in samples
    [room] = [line for line in samples if line.startswith("forebay_queue_disk_available_bytes")]
    assert int(room.split()[-1]) > 0
