"""`forebay bench spark` runs both sides on a real Spark and prints what it documents. No speed is tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.bench import spark

ROW = {"name", "value", "unit", "against", "against_value", "ratio", "goal", "holds", "best", "against_best", "note"}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", "bench", "spark", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.nightly
def test_quick_run_prints_the_figures_of_the_essay_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = bench("--quick", "--messages", "2000", "-o", "json", "--directory", str(tmp_path))
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads(done.stdout)
    assert told["suite"] == "spark"
    assert [(row["name"], row["goal"]) for row in told["results"]] == essay()
    for row in told["results"]:
        assert set(row) >= ROW
        assert row["value"] > 0
        assert row["against_value"] > 0
        assert row["ratio"] > 0
        assert row["note"], "every figure says how it was measured"
    assert (done.returncode == 0) == all(row["holds"] for row in told["results"])
    assert list(tmp_path.iterdir()) == []


def essay() -> list[tuple[str, float]]:
    """Names and goals as the package's table has them; `none` stands as 0."""
    lines = [line.split("|") for line in (spark.__doc__ or "").splitlines() if line.startswith("| ")][1:]
    goals = [cells[3].strip().removeprefix("at most ").replace("none", "0") for cells in lines]
    return [(cells[1].strip(), float(goal)) for cells, goal in zip(lines, goals, strict=True)]


def test_bench_refuses_more_messages_than_the_disk_has_room_for(tmp_path: Path) -> None:
    done = bench("--messages", "10G", "--directory", str(tmp_path))
    assert done.returncode == 1
    assert "GiB are free, and 10,000,000,000 messages" in done.stderr
    assert "--messages" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_bench_refuses_a_number_of_messages_that_says_nothing(tmp_path: Path) -> None:
    done = bench("--messages", "10", "--directory", str(tmp_path))
    assert done.returncode == 2
    assert "10 is not between 1,000 and 10,000,000,000" in done.stderr
