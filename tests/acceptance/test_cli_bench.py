"""`forebay bench` prints what it documents. How fast this machine is, is no law: no ratio and no goal is tested."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import forebay.bench

ROW = {
    "name": str,
    "value": float,
    "unit": str,
    "against": str,
    "against_value": float,
    "ratio": float,
    "goal": float,
    "holds": bool,
    "best": float,
    "against_best": float,
    "rounds": int,
    "note": str,
}
MACHINE = {"cpus": int, "memory_bytes": int, "system": str, "python": str, "load_before": float}


@pytest.mark.slow
def test_bench_prints_the_documented_document_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "forebay", "bench", "commitlog", "--rounds", "3", "--scale", "0.02", "-o", "json"]
    done = subprocess.run(
        [*command, "--directory", str(tmp_path)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads(done.stdout)
    assert set(told) == {"suite", "machine", "results"}
    assert told["suite"] == "commitlog"
    has_kinds(told["machine"], MACHINE)
    assert len(told["results"]) >= 7
    for row in told["results"]:
        has_kinds(row, ROW)
        assert row["rounds"] >= 2
        assert row["ratio"] > 0
    assert (done.returncode == 0) == all(row["holds"] for row in told["results"])
    assert len(done.stderr.splitlines()) == len(told["results"]), "one line per figure as it is measured"
    assert list(tmp_path.iterdir()) == []
    for name in [*told, *list(ROW)[:8]]:
        assert f'"{name}"' in (forebay.bench.__doc__ or ""), "the shape is documented"


def has_kinds(found: dict[str, object], kinds: dict[str, type]) -> None:
    assert set(found) >= set(kinds)
    for name, kind in kinds.items():
        value = found[name]
        allowed = (int, float) if kind is float else kind
        assert isinstance(value, allowed), name
        assert not isinstance(value, bool) or kind is bool, name
        assert not isinstance(value, float) or math.isfinite(value), name
