"""`kill -9` of a process with a send queue of each mode, again and again: what is lost is what the essay says, no more.

FOREBAY_TEST_KILLS says how often (100 by default: five for each mode). Each queue is one and the same from the first
kill to the last. What was lost is measured too: with `pytest -s` the tests print the figures that the guide has.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from forebay.assemble_export import send_queue
from forebay.clock import SystemClock
from forebay.config.export_model import SendQueueSettings

KILLS = max(int(os.environ.get("FOREBAY_TEST_KILLS", "100")) // 20, 2)


@dataclass
class Life:
    """What one process said before it was killed: batches by number, and when."""

    pushed: dict[int, int] = field(default_factory=dict)
    spilled: dict[int, int] = field(default_factory=dict)
    confirmed: dict[int, int] = field(default_factory=dict)
    last_sync: int = 0
    """When the last sync began that came to its end."""
    killed: int = 0
    """When it was killed."""

    def hear(self, line: str) -> None:
        what, *rest = line.split()
        if what == "synced":
            self.last_sync = int(rest[0])
        else:
            of: dict[int, int] = getattr(self, what)
            of[int(rest[0])] = int(rest[1])

    def waiting(self, *, since: int = 1 << 62) -> set[int]:
        """What was accepted before that time and not confirmed at any time."""
        accepted = {number for number, at in {**self.pushed, **self.spilled}.items() if at < since}
        return accepted - self.confirmed.keys()

    def age_seconds(self, number: int) -> float:
        """How long before the kill this batch was accepted."""
        return (self.killed - (self.pushed | self.spilled)[number]) / 1e9


@dataclass
class Losses:
    """What all kills together have cost."""

    kills: int = 0
    accepted: int = 0
    lost: int = 0
    oldest_seconds: list[float] = field(default_factory=list)
    """Of each kill that cost something: how long before it the oldest lost batch was accepted."""

    def add(self, life: Life, found: list[int]) -> None:
        lost = life.waiting() - set(found)
        self.kills += 1
        self.accepted += len(life.pushed) + len(life.spilled)
        self.lost += len(lost)
        if lost:
            self.oldest_seconds.append(max(map(life.age_seconds, lost)))

    def tell(self, mode: str, sync_seconds: float) -> None:
        ages = sorted(self.oldest_seconds) or [0.0]
        lost = f"{self.kills} kills, {self.lost} of {self.accepted} batches lost"
        oldest = f"the oldest lost {ages[len(ages) // 2]:.2f} s before the kill (median), {ages[-1]:.2f} s (most)"
        print(f"{mode}, a sync every {sync_seconds:g} s: {lost}; {oldest}")  # noqa: T201


def killed_life(
    directory: Path, mode: str, first: int, answers: int, *, sync_seconds: float = 0.05, pace_seconds: float = 0.0
) -> Life:
    program = Path(__file__).with_name("sendqueue_process.py")
    command = [sys.executable, str(program), str(directory), mode, str(first), str(sync_seconds), str(pace_seconds)]
    life = Life()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        lines = [process.stdout.readline() for _ in range(answers)]
        life.killed = time.monotonic_ns()
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    for line in lines:
        if line.endswith(b"\n"):
            life.hear(line.decode())
    return life


def left_over(directory: Path, mode: str) -> list[int]:
    """What the next process finds. It confirms all of it."""
    queue = send_queue(SendQueueSettings.model_validate({"mode": mode}), directory, SystemClock())
    found = []
    while (entry := queue.claim()) is not None:
        found.append(int(entry.batch.key))
        assert entry.batch.body.startswith(b"%d " % found[-1])
        queue.confirm(entry)
    queue.close()
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["memory", "disk", "hybrid"])
def test_a_kill_costs_what_the_mode_says_and_no_more(mode: str, tmp_path: Path) -> None:
    chance = random.Random(mode)
    first = kept = 0
    losses = Losses()
    for _ in range(KILLS):
        life = killed_life(tmp_path / "q", mode, first, chance.randint(50, 3000))
        found = left_over(tmp_path / "q", mode)
        check(mode, life, found)
        first = max([first, *life.pushed, *life.spilled]) + 1
        kept += len(found)
        losses.add(life, found)
    losses.tell(mode, 0.05)
    assert losses.lost or kept, "nothing was under way at any kill: the test has shown nothing"
    assert (kept == 0) is (mode == "memory")


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["memory", "disk", "hybrid"])
def test_what_a_kill_costs_at_the_intervals_that_are_the_default(mode: str, tmp_path: Path) -> None:
    """The figures of the guide: some 200 batches a second, of which two of three are confirmed."""
    settings = SendQueueSettings()
    sync_seconds = settings.meta_sync_interval.total_seconds()
    chance = random.Random(mode)
    losses, first = Losses(), 0
    for kill in range(2 * KILLS):
        # Each kill meets a queue of its own: what an earlier one has left would be claimed first.
        directory = tmp_path / str(kill)
        life = killed_life(
            directory, mode, first, chance.randint(500, 1500), sync_seconds=sync_seconds, pace_seconds=0.005
        )
        found = left_over(directory, mode)
        check(mode, life, found)
        losses.add(life, found)
    losses.tell(mode, sync_seconds)
    if mode == "disk":
        assert max(losses.oldest_seconds, default=0.0) < 2 * sync_seconds


def check(mode: str, life: Life, found: list[int]) -> None:
    assert len(set(found)) == len(found)
    # The last one may have been accepted, or confirmed, without a word of it.
    last = max([0, *life.pushed, *life.spilled])
    assert set(found) <= {*life.pushed, *life.spilled, last + 1}
    durable = life.waiting(since=life.last_sync)
    if mode == "memory":
        assert found == []
    elif mode == "disk":
        assert found == sorted(found)
        assert len(durable - set(found)) <= 1  # it was confirmed, and that was not told any more
    else:
        assert len((durable & life.spilled.keys()) - set(found)) <= 1
        assert set(found) <= {*life.spilled, last + 1}
    again = {number for number in found if number in life.confirmed}
    assert all(life.confirmed[number] >= life.last_sync for number in again)
