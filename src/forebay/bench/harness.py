"""Rounds, ratios and the machine they were measured on."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

Measure = Callable[[], float]
"""Runs one round and returns its figure: more is better, unless the comparison says otherwise."""

Goal = float | Callable[[float], float]
"""The ratio to reach, or how it follows from the other side's value."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a benchmark: a value beside another one from the same run."""

    name: str
    value: float
    unit: str
    against: str
    against_value: float
    ratio: float
    goal: float
    holds: bool
    best: float
    against_best: float
    rounds: int
    note: str = ""

    def document(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


def at_least(
    goal: Goal, name: str, unit: str, ours: Measure, against: str, theirs: Measure, *, rounds: int, note: str = ""
) -> Figure:
    """Ours has to reach `goal` times theirs; both are rates."""
    return _compared(goal, name, unit, ours, against, theirs, rounds, note, more_is_better=True)


def at_most(
    goal: Goal, name: str, unit: str, ours: Measure, against: str, theirs: Measure, *, rounds: int, note: str = ""
) -> Figure:
    """Ours may cost up to `goal` times theirs; both are costs."""
    return _compared(goal, name, unit, ours, against, theirs, rounds, note, more_is_better=False)


def for_information(
    name: str,
    unit: str,
    ours: Measure,
    against: str,
    theirs: Measure,
    *,
    rounds: int,
    note: str = "",
    more_is_better: bool = True,
) -> Figure:
    """Beside something, without a goal: it stands as 0, and the figure always holds."""
    figure = _compared(0, name, unit, ours, against, theirs, rounds, note, more_is_better=more_is_better)
    return replace(figure, holds=True)


def _compared(
    goal: Goal,
    name: str,
    unit: str,
    ours: Measure,
    against: str,
    theirs: Measure,
    rounds: int,
    note: str,
    *,
    more_is_better: bool,
) -> Figure:
    own, other = alternate(ours, theirs, rounds)
    ratio = statistics.median(a / b for a, b in zip(own, other, strict=True))
    best = max if more_is_better else min
    wanted = goal if isinstance(goal, float | int) else goal(statistics.median(other))
    return Figure(
        name=name,
        value=round(statistics.median(own), 3),
        unit=unit,
        against=against,
        against_value=round(statistics.median(other), 3),
        ratio=round(ratio, 3),
        goal=round(wanted, 3),
        holds=ratio >= wanted if more_is_better else ratio <= wanted,
        best=round(best(own), 3),
        against_best=round(best(other), 3),
        rounds=rounds,
        note=note,
    )


def alternate(ours: Measure, theirs: Measure, rounds: int) -> tuple[list[float], list[float]]:
    """Round by round, one after the other, so that whatever else the machine does hits both alike."""
    own, other = [], []
    if rounds > 1:  # one round alone only shows that it works
        ours(), theirs()  # caches and imports are warm from here on
    for number in range(rounds):
        # The side that goes first changes, so that a disk which tires does not favour one side.
        if number % 2:
            other.append(theirs())
            own.append(ours())
        else:
            own.append(ours())
            other.append(theirs())
    return own, other


def rate(count: int, work: Callable[[], object]) -> float:
    """How many per second, for work that does `count`."""
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def in_process(code: str, *arguments: str) -> float:
    """Run Python code in a process of its own and return the number it prints: for figures of a whole process."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def machine() -> dict[str, object]:
    return {
        "cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }
