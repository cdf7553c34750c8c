"""`forebay bench ingest` takes a real PostgreSQL away and prints what it documents. No speed is tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROW = {"name", "value", "unit", "against", "against_value", "ratio", "goal", "holds", "best", "against_best", "note"}
GOALS = [10, 0, 0, 0.01, 1, 3, 1, 1, 1, 1, 1.25]
"""QoS 0: rate, writes, visibility. Outage: latency, beginning, drain. Recovery: few events, many, memory."""


@pytest.mark.nightly
def test_quick_run_prints_every_figure_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "forebay",
        "bench",
        "ingest",
        "--quick",
        "-o",
        "json",
        "--directory",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    assert told["suite"] == "ingest"
    assert [row["goal"] for row in told["results"]] == GOALS
    for row in told["results"]:
        assert set(row) >= ROW
        assert row["value"] >= 0
        assert row["against_value"] > 0
    assert (done.returncode == 0) == all(row["holds"] for row in told["results"])
    assert list(tmp_path.iterdir()) == []
