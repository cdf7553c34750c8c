"""The example of dispatch, run as its page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "dispatch" / "flood.py"


def test_flood_goes_cold_loses_valkey_and_is_drained() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    *steps, summary = done.stdout.splitlines()
    counts = [[int(number) for number in re.findall(r"(?:warm|cold) +(\d+)", step)] for step in steps]
    assert len(counts) == 5
    assert counts[0] == [1_000, 2_000]
    assert counts[-1] == [0, 0]
    assert all(warm <= 1_000 for warm, _ in counts)
    assert sorted((sum(one) for one in counts), reverse=True) == [sum(one) for one in counts]
    assert summary == "15,000 of 15,000 messages were worked on, 0 of them twice"
