"""Every state that a crash may leave a FastQueue in, for every point of many small lives; and disks that refuse."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field

import pytest

from fixtures.sendqueues import DIRECTORY, drained, open_fastqueue
from forebay.errors import SendQueueLocked, SendQueueWriteFailed
from forebay.sendqueue.entry import Entry
from forebay.sendqueue.queues.fastqueue import FastQueue
from forebay.testing.faulty_filesystem import Fail, Fault, FaultyFilesystem, Operation
from forebay.testing.simulated_disk import SimulatedDisk

LIVES = 60
OPERATIONS = (
    "push",
    "push",
    "push",
    "push",
    "claim",
    "confirm",
    "confirm",
    "release",
    "drop",
    "sync",
    "sync",
    "reopen",
)


@dataclass
class Witness:
    """What a queue's user knows, each with the number of changes of the disk at that moment."""

    pushed: dict[bytes, int] = field(default_factory=dict)
    confirmed: dict[bytes, int] = field(default_factory=dict)
    """Also those that were dropped: when that was asked for."""
    kept: dict[bytes, int] = field(default_factory=dict)
    """When the first sync after its push had returned."""
    settled: dict[bytes, int] = field(default_factory=dict)
    """When the first sync after its confirmation had returned."""

    def synced(self, changes: int) -> None:
        for batch in self.pushed:
            self.kept.setdefault(batch, changes)
        for batch in self.confirmed:
            self.settled.setdefault(batch, changes)


def live(seed: int) -> tuple[SimulatedDisk, Witness]:
    chance = random.Random(seed)
    disk, witness = SimulatedDisk(), Witness()
    queue = open_fastqueue(disk)
    claims: list[Entry[bytes]] = []
    for number in range(chance.randint(4, 22)):
        operation = chance.choice(OPERATIONS)
        if operation == "push":
            batch = b"%02d." % number + chance.randbytes(chance.choice((3, 30, 90)))
            queue.push(batch)
            witness.pushed[batch] = len(disk.journal)
        elif operation == "claim" and (entry := queue.claim()):
            claims.append(entry)
        elif operation in ("confirm", "release") and claims:
            entry = claims.pop(chance.randrange(len(claims)))
            if operation == "confirm":
                witness.confirmed[entry.batch] = len(disk.journal)
                queue.confirm(entry)
            else:
                queue.release(entry)
        elif operation == "drop":
            asked = len(disk.journal)
            if dropped := queue.drop_oldest():
                witness.confirmed[dropped.batch] = asked
        elif operation in ("sync", "reopen"):
            _settle(queue, disk, witness, is_closed=operation == "reopen")
            if operation == "reopen":
                claims.clear()
                queue = open_fastqueue(disk)
    return disk, witness


def _settle(queue: FastQueue[bytes], disk: SimulatedDisk, witness: Witness, *, is_closed: bool) -> None:
    if is_closed:
        queue.close()
    else:
        queue.sync()
    witness.synced(len(disk.journal))


def check(found: list[bytes], witness: Witness, changes: int) -> None:
    """What a queue may hold that was opened after a crash at this change."""
    assert len(set(found)) == len(found), "a batch is there twice"
    order = list(witness.pushed)
    assert set(found) <= {batch for batch, when in witness.pushed.items() if when <= changes}
    assert found == sorted(found, key=order.index), "batches have changed places"
    for batch, when in witness.kept.items():
        if when <= changes and witness.confirmed.get(batch, changes + 1) > changes:
            assert batch in found, f"{batch[:3]!r} is lost"
    for batch, when in witness.settled.items():
        assert when > changes or batch not in found, f"{batch[:3]!r} was confirmed"


@pytest.mark.parametrize("seed", range(LIVES))
def test_whatever_a_crash_leaves_nothing_durable_is_lost_doubled_or_reordered(seed: int) -> None:
    disk, witness = live(seed)
    seen = set()
    for changes in range(len(disk.journal) + 1):
        for state in [disk.killed(changes), *disk.crash_states(changes, at_most=24, seed=changes)]:
            state.make_directory(DIRECTORY)
            mark = (changes, state.fingerprint())
            if mark in seen:
                continue
            seen.add(mark)
            queue = open_fastqueue(state)
            before = queue.figures().batches
            found = drained(queue)
            assert before == len(found)
            check(found, witness, changes)


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_while_recovering_from_a_crash_loses_nothing(seed: int) -> None:
    disk, witness = live(seed)
    chance = random.Random(seed)
    changes = len(disk.journal)
    for state in disk.crash_states(changes, at_most=6, seed=seed):
        state.make_directory(DIRECTORY)
        queue = open_fastqueue(state)
        queue.sync()
        for later in range(len(state.journal) + 1):
            for second in state.crash_states(later, at_most=3, seed=chance.randrange(99)):
                second.make_directory(DIRECTORY)
                check(drained(open_fastqueue(second)), witness, changes)


def failing(disk: SimulatedDisk, name: str, *numbers: int, error: int = errno.EIO, on: str = "") -> FaultyFilesystem:
    """The same disk, but the calls of this name with these numbers fail, counted from now on."""
    count = 0

    def plan(operation: Operation) -> Fault | None:
        nonlocal count
        if operation.name != name or on not in operation.path.name:
            return None
        count += 1
        return Fail(error) if count in numbers else None

    return FaultyFilesystem(disk, plan)


@pytest.mark.parametrize("failure", range(1, 6))
def test_what_a_failed_sync_may_have_lost_is_written_again_elsewhere(failure: int) -> None:
    disk = SimulatedDisk()
    queue = open_fastqueue(failing(disk, "sync", failure))
    batches = [b"%02d" % number + b"x" * 50 for number in range(12)]
    for batch in batches:
        queue.push(batch)
        try:
            queue.sync()
        except SendQueueWriteFailed:
            queue.sync()
    for state in disk.crash_states(len(disk.journal), at_most=64):
        assert drained(open_fastqueue(state)) == batches


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_refuses_keeps_what_was_accepted_and_goes_on_when_it_writes_again(error: int) -> None:
    queue = open_fastqueue(failing(SimulatedDisk(), "write", 1, 2, 3, error=error, on="0000"))
    batches = [b"%02d" % number + b"x" * 50 for number in range(20)]
    for batch in batches[:4]:
        queue.push(batch)
    for _ in range(3):
        with pytest.raises(SendQueueWriteFailed) as failed:
            queue.push(b"refused")
        assert failed.value.is_disk_full == (error == errno.ENOSPC)
    for batch in batches[4:]:
        queue.push(batch)
    queue.sync()
    assert drained(queue) == batches


def test_one_process_owns_a_directory() -> None:
    disk = SimulatedDisk()
    queue = open_fastqueue(disk)
    with pytest.raises(SendQueueLocked, match="the send queue is open in a test"):
        open_fastqueue(disk)
    queue.close()
    open_fastqueue(disk)


def test_consumed_chunks_are_removed_although_one_batch_is_never_taken() -> None:
    disk = SimulatedDisk()
    queue = open_fastqueue(disk)
    queue.push(b"never taken")
    stuck = queue.claim()
    assert stuck is not None
    for number in range(60):
        queue.push(b"%02d" % number + b"x" * 80)
        queue.sync()
        entry = queue.claim()
        assert entry is not None
        queue.confirm(entry)
    queue.sync()
    queue.sync()
    chunks = [name for name in disk.list_directory(DIRECTORY) if len(name) == 16]
    assert len(chunks) <= 2
    assert drained(open_fastqueue(disk.killed())) == [b"never taken"]
