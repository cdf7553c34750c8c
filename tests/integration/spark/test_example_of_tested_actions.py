"""The example of how actions are tested, run as its page says: by pytest, in a process and a session of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fixtures.spark_processes import short_lived

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "testing-actions"


def test_example_of_tested_actions_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--rootdir", "."]
    done = subprocess.run(
        [*command, "-c", "/dev/null", str(EXAMPLE)],
        cwd=EXAMPLE,
        env={**os.environ, **short_lived(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout
