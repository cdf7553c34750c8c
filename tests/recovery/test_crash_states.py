"""Every state that a crash may leave, for every point of many small lives of a log."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from fixtures.logs import BASE, TINY, content, open_on
from forebay.commitlog import CommitLog
from forebay.errors import LogUnopenable
from forebay.model.message import MessageBatch
from forebay.testing.fake_clock import START_US, FakeClock
from forebay.testing.simulated_disk import SimulatedDisk

WORKLOADS = 240
OPERATIONS = ("append_one", "append_many", "append_large", "roll", "truncate", "next_day", "reopen")


@dataclass
class Witness:
    """What the log's user knows: what was asked for, and what was answered after how many changes of the disk."""

    appended: list[tuple[int, int, list[bytes]]]
    """(changes when asked, changes when answered, payloads), in order."""
    truncated: list[tuple[int, int]]
    """(changes when asked, messages before this seq were given up)."""


def live(seed: int) -> tuple[SimulatedDisk, Witness]:
    """A life of up to four operations on a fresh log."""
    chance = random.Random(seed)
    disk, clock = SimulatedDisk(), FakeClock()
    witness = Witness([], [])
    log = open_on(disk, clock=clock)
    for number in range(chance.randint(1, 4)):
        operation = chance.choice(OPERATIONS)
        if operation.startswith("append"):
            count = {"append_one": 1, "append_many": chance.randint(2, 5), "append_large": 2}[operation]
            size = 400 if operation == "append_large" else chance.randint(0, 60)
            payloads = [b"%d.%d." % (number, index) + chance.randbytes(size) for index in range(count)]
            asked = len(disk.journal)
            log.append(MessageBatch(payloads, [START_US] * count))
            witness.appended.append((asked, len(disk.journal), payloads))
        elif operation == "truncate":
            before = chance.randint(1, log.next_seq + 1)
            witness.truncated.append((len(disk.journal), before))
            log.truncate_before(before)
        elif operation == "roll":
            log.roll()
        elif operation == "next_day":
            clock.advance(86_400)
        else:
            log.close()
            log = open_on(disk, clock=clock)
    if chance.random() < 0.5:
        log.close()
    return disk, witness


def check(log: CommitLog, changes: int, witness: Witness) -> None:
    """All that was answered is there, in order, once; what was only asked for is there whole or not at all."""
    answered = [payloads for _, at, payloads in witness.appended if at <= changes]
    asked = [payloads for at, _, payloads in witness.appended if at <= changes]
    given_up = max((before for at, before in witness.truncated if at <= changes), default=1)
    found = content(log)
    assert [seq for seq, _ in found] == list(range(log.first_seq, log.next_seq)), "numbers have gaps or repeat"
    least = [payload for payloads in answered for payload in payloads]
    most = [payload for payloads in asked for payload in payloads]
    assert log.first_seq <= max(given_up, 1), "retention took more than it was asked to"
    assert log.next_seq - 1 in (len(least), len(most)), "an append is there in part"
    assert [payload for _, payload in found] == most[log.first_seq - 1 : log.next_seq - 1]


def seeds(start: int, count: int) -> list[object]:
    """A quarter of the lives in every run, all of them in the full one."""
    return [pytest.param(start + n, marks=[pytest.mark.slow] if n % 4 else []) for n in range(count)]


@pytest.mark.parametrize("seed", seeds(0, WORKLOADS))
def test_everything_acknowledged_survives_every_crash_in_order_and_once(seed: int) -> None:
    disk, witness = live(seed)
    seen = set()
    for changes in range(len(disk.journal) + 1):
        for crashed in [*disk.crash_states(changes, at_most=96, seed=seed), disk.killed(changes)]:
            fingerprint = crashed.fingerprint()
            if (changes, fingerprint) in seen:
                continue
            seen.add((changes, fingerprint))
            log = open_on(crashed)
            check(log, changes, witness)
            first = log.append(MessageBatch([b"after"], [START_US])).first_seq
            log.close()
            again = open_on(crashed)
            assert content(again)[-1] == (first, b"after")
            assert again.recovery.is_clean


@pytest.mark.parametrize("seed", seeds(1000, 30))
def test_a_power_cut_after_a_kill_takes_nothing_that_either_process_acknowledged(seed: int) -> None:
    """The second process sees bytes and names that the first never synced, and builds on them."""
    disk, witness = live(seed)
    for changes in range(len(disk.journal) + 1):
        killed = disk.killed(changes)
        log = open_on(killed)
        check(log, changes, witness)
        seen = content(log)
        opened = len(killed.journal)
        log.roll()
        log.append(MessageBatch([b"second"], [START_US]))
        answered = len(killed.journal)
        log.close()
        for point in range(opened, len(killed.journal) + 1):
            for crashed in killed.crash_states(point, at_most=6, seed=seed):
                found = content(open_on(crashed))
                assert found[: len(seen)] == seen
                assert [payload for _, payload in found[len(seen) :]] == [b"second"] or point < answered


@pytest.mark.parametrize("seed", seeds(2000, 12))
def test_a_crash_during_recovery_is_no_worse_than_the_first(seed: int) -> None:
    disk, witness = live(seed)
    chance = random.Random(seed)
    for changes in range(0, len(disk.journal) + 1, 3):
        for crashed in disk.crash_states(changes, at_most=12, seed=seed):
            log = open_on(crashed)
            check(log, changes, witness)
            again_at = range(len(crashed.journal) + 1)
            for point in chance.sample(again_at, min(4, len(again_at))):
                for twice in crashed.crash_states(point, at_most=8, seed=seed):
                    check(open_on(twice), changes, witness)


def test_a_disk_that_lost_a_synced_manifest_is_refused() -> None:
    """The states above all open. This one, which no crash leaves, does not: so opening would have told."""
    disk = SimulatedDisk()
    log = open_on(disk)
    log.append(MessageBatch([b"kept"], [START_US]))
    crashed = disk.killed()
    crashed.remove(BASE / "manifest.current")
    with pytest.raises(LogUnopenable, match="forebay log salvage"):
        open_on(crashed, TINY)
