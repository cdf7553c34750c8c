"""A list in lockstep with every kind of send queue, under random actions."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fixtures.sendqueues import LIMITS, MODES, open_queue
from forebay.errors import SendQueueFull
from forebay.sendqueue.entry import Entry
from forebay.sendqueue.queue import SendQueue
from forebay.testing.fake_clock import FakeClock
from forebay.testing.simulated_disk import SimulatedDisk


class SendQueueMachine(RuleBasedStateMachine):
    """`waiting` is what must still come out; a queue that is first in, first out has it in this order."""

    mode = "disk"

    @initialize()
    def begin(self) -> None:
        self.disk, self.clock = SimulatedDisk(), FakeClock()
        self.queue: SendQueue[bytes] = open_queue(self.mode, self.disk, self.clock)
        self.waiting: list[bytes] = []
        self.claims: list[Entry[bytes]] = []
        self.delayed: set[bytes] = set()
        self.number = 0

    @rule(size=st.integers(6, 400))
    def push(self, size: int) -> None:
        self.number += 1
        batch = (b"%05d" % self.number).ljust(size, b".")
        before = self.queue.figures()
        try:
            self.queue.push(batch)
        except SendQueueFull:
            # A hybrid queue is full when one of its parts is, the others when they are.
            assert before.batches >= LIMITS.batches_max or before.bytes + size > LIMITS.bytes_max
        else:
            self.waiting.append(batch)

    @rule()
    def push_until_it_spills(self) -> None:
        for _ in range(LIMITS.batches_max - 2):
            self.push(size=6)

    @rule()
    def claim(self) -> None:
        entry = self.queue.claim()
        free = [batch for batch in self.waiting if batch not in self.delayed]
        free = [batch for batch in free if batch not in [claimed.batch for claimed in self.claims]]
        if entry is None:
            assert free == []
            return
        assert entry.batch in free
        if self.mode != "hybrid":
            assert entry.batch == free[0]
        self.claims.append(entry)

    @precondition(lambda self: self.claims)
    @rule(choice=st.integers(0, 99))
    def confirm(self, choice: int) -> None:
        entry = self.claims.pop(choice % len(self.claims))
        self.queue.confirm(entry)
        self.waiting.remove(entry.batch)

    @precondition(lambda self: self.claims)
    @rule(choice=st.integers(0, 99), delay=st.sampled_from([0.0, 5.0]))
    def release(self, choice: int, delay: float) -> None:
        entry = self.claims.pop(choice % len(self.claims))
        self.queue.release(entry, delay)
        if delay:
            self.delayed.add(entry.batch)

    @rule()
    def wait(self) -> None:
        self.clock.advance(5)
        self.delayed.clear()

    @rule()
    def hasten(self) -> None:
        self.queue.hasten()
        self.delayed.clear()

    @rule()
    def drop(self) -> None:
        dropped = self.queue.drop_oldest()
        claimed = [entry.batch for entry in self.claims]
        free = [batch for batch in self.waiting if batch not in claimed]
        if dropped is None:
            assert free == []
            return
        assert dropped.batch in free
        if self.mode == "disk":
            assert dropped.batch == free[0]
        self.waiting.remove(dropped.batch)
        self.delayed.discard(dropped.batch)

    @rule()
    def sync(self) -> None:
        self.queue.sync()

    @rule()
    def reopen(self) -> None:
        self.queue.close()
        self.claims.clear()
        self.delayed.clear()
        self.queue = open_queue(self.mode, self.disk, self.clock)

    @invariant()
    def figures_agree(self) -> None:
        figures = self.queue.figures()
        assert figures.batches == len(self.waiting)
        assert figures.bytes == sum(map(len, self.waiting))
        assert figures.claimed >= len(self.claims)
        assert self.queue.recount() == (len(self.waiting), len(self.waiting), True)


@pytest.mark.parametrize("mode", MODES)
def test_a_send_queue_does_what_a_list_does(mode: str) -> None:
    machine = type(f"Machine_{mode}", (SendQueueMachine,), {"mode": mode})
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=50, deadline=None))
