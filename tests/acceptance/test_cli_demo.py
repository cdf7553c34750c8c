"""`forebay demo` as a newcomer meets it: Spark at work, all of it killed once, nothing lost, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.waiting import wait_until

MESSAGES = 5000
MINUTES = 100
"""Twenty minutes, five regions."""
TEMPORARY = ("TMPDIR", "TEMP", "TMP")
END_SECONDS_MAX = 280.0


def started(*words: str, temporary: Path) -> subprocess.Popen[str]:
    environ = {name: value for name, value in os.environ.items() if name not in TEMPORARY}
    return subprocess.Popen(
        [sys.executable, "-m", "forebay", "demo", *words],
        env=environ | {"TMPDIR": str(temporary), "FOREBAY_SERVER_STORE": "memory://"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A run of tests in the background of a shell ignores Ctrl-C, and so would what it starts.
        preexec_fn=hear_interrupts,
    )


def hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.timeout(END_SECONDS_MAX + 20)
def test_demo_accounts_for_every_click_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process = started("--messages", str(MESSAGES), "-o", "json", temporary=tmp_path)
    stdout, stderr = process.communicate(timeout=END_SECONDS_MAX)
    assert process.returncode == 0, stderr
    told = json.loads(stdout)
    assert told["requested"] == told["pushing"]["accepted"] == told["joined"]["found"] == MESSAGES
    assert told["pushed"]["found"] == MESSAGES + 1, "the clicks, and the event that ends the last minute"
    assert told["per_minute"]["found"] == told["parquet"]["found"] == MINUTES
    assert (told["lost"], told["duplicated"], told["wrong"], told["complaints"]) == (0, 0, 0, [])
    assert MESSAGES // 2 <= told["pushing"]["accepted_before_kill"] < MESSAGES
    assert told["pushing"]["outage_seconds"] > 0
    assert told["latency"]["clicks"] == MESSAGES // 2
    assert 0 < told["latency"]["median_seconds"] <= told["latency"]["max_seconds"]
    assert {row["region"] for row in told["rows"]} == {"africa", "america", "asia", "europe", "oceania"}
    assert told["scored"]["found"] == told["delivery"]["clicks"]["found"] == MESSAGES + 1
    assert told["delivery"]["samples"]["found"] == told["delivery"]["samples"]["expected"] > 0
    assert told["delivery"]["away_seconds"] >= 10
    assert set(told["parcels"]) == {"COMPLETE"}
    assert (told["audit"]["is_balanced"], told["audit"]["differences"]) == (True, [])
    assert told["audit"]["messages"] > 5 * MESSAGES, "internal queues are counted too"
    moments = ["took the destination away", "killed the server with -9", "killed the worker with -9", "is back after"]
    places = [stderr.index(moment) for moment in moments]
    assert places == sorted(places), "both are killed while the destination is away"
    assert "Traceback" not in stderr
    assert f"{tmp_path}/forebay-demo-" in stderr, "it worked in the temporary directory that it was given"
    assert list(tmp_path.iterdir()) == []


def test_interrupt_stops_server_and_worker_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process = started(temporary=tmp_path)
    assert process.stderr is not None
    for line in process.stderr:
        if "Spark starts" in line:
            break
    children = children_of(process.pid)
    assert len(children) == 2
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=END_SECONDS_MAX)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    wait_until(lambda: not any(map(is_alive, children)), what="the end of its children")
    assert list(tmp_path.iterdir()) == []


def test_demo_refuses_a_number_that_would_show_nothing(tmp_path: Path) -> None:
    process = started("--messages", "0", temporary=tmp_path)
    stdout, stderr = process.communicate(timeout=END_SECONDS_MAX)
    assert (process.returncode, stdout) == (2, "")
    assert "--messages" in stderr
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []
