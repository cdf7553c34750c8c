"""`forebay bench sendqueue`, `export`, `dispatch`, `flows` and `page` print what they document. No speed is tested."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROW = {"name", "value", "unit", "against", "against_value", "ratio", "goal", "holds", "rounds", "note"}
GOALS: dict[str, list[float]] = {
    "sendqueue": [0.25, 1.2, 0.7, 0, 10, 10, 1.5],
    "export": [0.6, 1, 0.95, 0, 1, 1],
    "dispatch": [1, 0.9, 0.95, 1, 0.5, 1, 1, 1.5, 1.5],
    "flows": [0.6, 0.9, 0.67, 1, 1, 1.5, 1.5],
    "page": [1, 1, 1, 1, 1],
}


@pytest.mark.nightly
@pytest.mark.parametrize("suite", GOALS)
def test_quick_run_prints_every_figure_and_leaves_nothing_behind(suite: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "forebay", "bench", suite, "--quick", "-o", "json", "--directory", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads(done.stdout)
    assert told["suite"] == suite
    assert [row["goal"] for row in told["results"]] == GOALS[suite]
    for row in told["results"]:
        assert set(row) >= ROW
        assert row["value"] > 0
        assert row["against_value"] > 0
        assert row["note"], "every figure says what was measured"
    assert (done.returncode == 0) == all(row["holds"] for row in told["results"])
    assert list(tmp_path.iterdir()) == []
    essay = importlib.import_module(f"forebay.bench.{suite}").__doc__ or ""
    goals = {
        line.split("|")[3].strip().removeprefix("at most ") for line in essay.splitlines() if line.startswith("| ")
    }
    assert goals - {"goal"} == {f"{goal:g}" for goal in GOALS[suite] if goal}
