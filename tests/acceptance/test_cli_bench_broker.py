"""`forebay bench broker` runs against real peers and prints what it documents. No speed is tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.bench import broker

ROW = {"name", "value", "unit", "against", "against_value", "ratio", "goal", "holds", "rounds", "note"}
WITHOUT = ("--without", "rabbitmq")
"""RabbitMQ comes from the system's packages, which a test does not install; `make bench` does."""


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", "bench", "broker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.nightly
def test_quick_run_prints_every_figure_beside_its_peer_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = bench("--quick", *WITHOUT, "-o", "json", "--directory", str(tmp_path))
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads(done.stdout)
    assert told["suite"] == "broker"
    assert told["without"] == ["rabbitmq"]
    for row in told["results"]:
        assert set(row) >= ROW
        assert row["value"] > 0
        assert row["against_value"] > 0
        assert row["ratio"] > 0
        assert row["note"], "every figure says who drove which side"
    assert (done.returncode == 0) == all(row["holds"] for row in told["results"])
    assert all(row["holds"] for row in told["results"] if not row["goal"]), "what has no goal cannot miss it"
    assert_goals_are_those_of_the_essay([row["goal"] for row in told["results"] if row["goal"]])
    assert list(tmp_path.iterdir()) == []


def assert_goals_are_those_of_the_essay(goals: list[float]) -> None:
    """Without RabbitMQ, which is one of the figures whose goal is 1."""
    essay = broker.__doc__ or ""
    lines = [line.split("|")[3].strip() for line in essay.splitlines() if line.startswith("| ")][1:]
    assert {float(line.removeprefix("at most ")) for line in lines} == set(goals)
    assert sorted(goals) == [0.4, 0.6, 0.7, 0.9, 0.9, 1, 1, 1, 1, 1, 1, 1, 1.1, 1.5, 1.5, 1.5, 1.5, 4]


def test_bench_refuses_a_backlog_that_the_disk_has_no_room_for(tmp_path: Path) -> None:
    done = bench("--backlog", "10G", "--directory", str(tmp_path))
    assert done.returncode == 1
    assert "GiB are free, and a backlog of 10,000,000,000 messages" in done.stderr
    assert "--backlog" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_bench_refuses_to_leave_out_what_is_no_peer(tmp_path: Path) -> None:
    done = bench("--quick", "--without", "kafka", "--directory", str(tmp_path))
    assert done.returncode == 2
    assert "'kafka' is none of valkey, nats, rabbitmq" in done.stderr
