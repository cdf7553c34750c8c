"""`forebay demo` as a newcomer meets it: a writer killed half-way, nothing lost, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

MESSAGES = 20_000
TEMPORARY = ("TMPDIR", "TEMP", "TMP")


def demo(*words: str, temporary: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name not in TEMPORARY}
    return subprocess.run(
        [sys.executable, "-m", "forebay", "demo", *words],
        env=environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_demo_loses_nothing_that_was_acknowledged_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = demo("--messages", str(MESSAGES), "-o", "json", temporary=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["asked_for"] == told["acknowledged"] == told["read_back"] == MESSAGES
    assert (told["lost"], told["wrong"], told["damaged_ranges"]) == (0, 0, 0)
    assert MESSAGES // 2 <= told["acknowledged_before_kill"] <= told["kept_after_kill"]
    assert told.keys() >= {"write_messages_per_second", "read_messages_per_second", "reopen_milliseconds"}
    assert told["torn_bytes_set_aside"] >= 0
    assert "killed the writer with -9" in done.stderr
    assert f"{tmp_path}/forebay-demo-" in done.stderr, "it worked in the temporary directory that it was given"
    assert list(tmp_path.iterdir()) == []


def test_demo_tells_its_story_to_people(tmp_path: Path) -> None:
    done = demo("--messages", "2000", temporary=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = dict(line.rsplit("  ", 1) for line in done.stdout.splitlines() if "  " in line)
    figures = {name.strip(): value.strip() for name, value in rows.items()}
    assert figures["events asked for"] == figures["read back"] == "2,000"
    assert figures["lost"] == figures["damaged"] == "0"
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_demo_refuses_a_number_that_would_show_nothing(tmp_path: Path) -> None:
    done = demo("--messages", "0", temporary=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--messages" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
