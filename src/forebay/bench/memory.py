"""How much memory processes have while something is measured."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

LOOK_SECONDS = 0.1


class PeakMemory:
    """Looks now and then at the resident memory of groups of processes: `mib` is the most that each group had."""

    def __init__(self, **groups: Callable[[], Sequence[int]]) -> None:
        self._groups = groups
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.mib = dict.fromkeys(groups, 0.0)

    def __enter__(self) -> PeakMemory:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        for name, pids in self._groups.items():
            self.mib[name] = max(self.mib[name], resident_mib(pids()))


def resident_mib(pids: Sequence[int]) -> float:
    """Of all of them together. Pages that forked processes share are counted once each, as `Pss` has them."""
    found = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            found += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return found / 1024
