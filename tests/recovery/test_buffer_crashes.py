"""Every state that a crash may leave the buffer files in, at every point of a few lives of a server.

A life is run once on a disk that remembers every change. Then, for each number of changes, the next server starts on
each disk that a kill or a power cut may leave at that point, with the store as it was at that point, and drains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from fixtures.buffer_steps import AWAY, Shelf, drained, message, started, until
from forebay.ingest import Intake
from forebay.ingest.buffer_writes import BufferKind
from forebay.model.push_run import PushRun
from forebay.testing.simulated_disk import SimulatedDisk

BUFFERS = Path("/data/buffers")
STATES_MAX = 24


class Moment(NamedTuple):
    """How far a life has come: changes of the disk, and pushes to the store."""

    changes: int
    pushes: int

    def has_reached(self, other: Moment) -> bool:
        return self.changes >= other.changes and self.pushes >= other.pushes


@dataclass
class Witness:
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    store: Shelf = field(default_factory=Shelf)
    accepted: list[tuple[Moment, PushRun]] = field(default_factory=list)
    """Each with the moment when it was answered; in the order of the answers."""
    qos0: list[tuple[Moment, PushRun]] = field(default_factory=list)
    stored: list[tuple[int, int]] = field(default_factory=list)
    """The changes of the disk before a push to the store, and how many messages the store held after it."""

    def watch(self) -> None:
        def on_push(items: Sequence[PushRun]) -> None:
            self.stored.append((len(self.disk.journal), 0))
            asyncio.get_running_loop().call_soon(self._note, len(self.stored) - 1)

        self.store.on_push = on_push

    def _note(self, place: int) -> None:
        self.stored[place] = (self.stored[place][0], len(self.store.items))

    async def push(self, intake: Intake, *texts: str, partition: str = "p") -> None:
        items = [message(text, partition=partition) for text in texts]
        await intake.push(items)
        self.accepted += [(self.now(), item) for item in items]

    async def push_qos0(self, intake: Intake, *texts: str) -> None:
        items = [message(text, partition="quick") for text in texts]
        await intake.push_qos0(items, 1, 1)
        self.qos0 += [(self.now(), item) for item in items]

    def now(self) -> Moment:
        return Moment(len(self.disk.journal), len(self.stored))


async def outage(witness: Witness) -> None:
    """Away, back, and drained."""
    async with started(witness.store, BUFFERS, filesystem=witness.disk) as intake:
        witness.store.trouble = AWAY
        await witness.push(intake, "1", "2")
        await witness.push(intake, "3", partition="other")
        await witness.push(intake, "4")
        witness.store.trouble = None
        await drained(intake)
        await witness.push(intake, "5")


async def quick_ones(witness: Witness) -> None:
    async with started(witness.store, BUFFERS, filesystem=witness.disk) as intake:
        await witness.push_qos0(intake, "a")
        await drained(intake)
        await witness.push_qos0(intake, "b", "c")
        await drained(intake)


async def two_servers_one_after_the_other(witness: Witness) -> None:
    """The second recovers what the first was left with, while the first drain had begun."""
    async with started(witness.store, BUFFERS, filesystem=witness.disk) as intake:
        witness.store.trouble = AWAY
        await witness.push(intake, "1", "2")
        await witness.push_qos0(intake, "a")
    async with started(witness.store, BUFFERS, filesystem=witness.disk) as intake:
        await witness.push(intake, "3")
        witness.store.trouble = None
        await drained(intake)


async def a_queue_that_refuses(witness: Witness) -> None:
    async with started(witness.store, BUFFERS, filesystem=witness.disk) as intake:
        witness.store.trouble = AWAY
        await witness.push(intake, "1")
        witness.store.refuses = {"orders"}
        witness.store.trouble = None
        await until(lambda: bool(intake.drain_loop.drainers[BufferKind.FAILOVER].failed_events))
        await witness.push(intake, "2")
        witness.store.refuses = set()
        await drained(intake)


LIVES: list[Callable[[Witness], Awaitable[None]]] = [
    outage,
    quick_ones,
    two_servers_one_after_the_other,
    a_queue_that_refuses,
]


def moments(witness: Witness) -> Iterator[Moment]:
    """Each number of changes, with each number of pushes that may have happened then."""
    for changes in range(len(witness.disk.journal) + 1):
        fewest = sum(1 for at, _ in witness.stored if at < changes)
        most = sum(1 for at, _ in witness.stored if at <= changes)
        yield from (Moment(changes, pushes) for pushes in range(fewest, most + 1))


async def check(witness: Witness, moment: Moment, disk: SimulatedDisk, *, is_power_cut: bool) -> None:
    held = witness.stored[moment.pushes - 1][1] if moment.pushes else 0
    store = witness.store.copied(witness.store.items[:held])
    async with started(store, BUFFERS, filesystem=disk) as intake:
        await drained(intake)
    ids = [item.transaction_ids[0] for item in store.items]
    assert len(ids) == len(set(ids)), "stored twice"
    promised = [item for at, item in witness.accepted if moment.has_reached(at)]
    assert {item.transaction_ids[0] for item in promised} <= set(ids), f"lost at {moment}"
    for partition in ("p", "other"):
        pushed = [item.transaction_ids[0] for _, item in witness.accepted if item.partition == partition]
        found = [item.transaction_ids[0] for item in store.items if item.partition == partition]
        assert found == [one for one in pushed if one in found], f"reordered at {moment}"
    if not is_power_cut:
        quick = [item.transaction_ids[0] for at, item in witness.qos0 if moment.has_reached(at)]
        assert set(quick) <= set(ids), f"a killed process lost QoS 0 events at {moment}"


@pytest.mark.slow
@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_nothing_accepted_is_lost_or_stored_twice_or_reordered(life: Callable[[Witness], Awaitable[None]]) -> None:
    witness = Witness()
    witness.watch()

    async def visit() -> int:
        await life(witness)
        assert witness.store.items
        seen: set[object] = set()
        for moment in moments(witness):
            changes = moment.changes
            disks = [(witness.disk.killed(changes), False)]
            disks += [(disk, True) for disk in witness.disk.crash_states(changes, at_most=STATES_MAX, seed=changes)]
            for disk, is_power_cut in disks:
                promised = sum(1 for at, _ in [*witness.accepted, *witness.qos0] if moment.has_reached(at))
                key = (disk.fingerprint(), moment.pushes, promised, is_power_cut)
                if key not in seen:
                    seen.add(key)
                    await check(witness, moment, disk, is_power_cut=is_power_cut)
        return len(seen)

    assert asyncio.run(visit()) > 30
