"""Run a command while every core is kept busy by somebody else: `keep_cores_busy.py COMMAND …`.

One process for each core counts for nothing, at the command's own priority, until the command ends. So a test that
passes only on an idle machine fails here, and not with whoever clones the repository.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys


def _spin(parent: int) -> None:
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


def main() -> int:
    busy = [multiprocessing.Process(target=_spin, args=(os.getpid(),), daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in busy:
        process.start()
    try:
        return subprocess.run(sys.argv[1:], check=False).returncode
    finally:
        for process in busy:
            process.terminate()
            process.join()


if __name__ == "__main__":
    raise SystemExit(main())
