"""The real log in lockstep with the simplest thing that behaves the same: a list.

Hypothesis drives both through appends, reads, rolls, truncations, days, kills, power cuts and reopenings on a
simulated disk with tiny segments, and compares them after every step.
"""

from __future__ import annotations

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fixtures.logs import BASE, TINY, content, rows
from forebay.commitlog import CommitLog
from forebay.commitlog.inspection import verify
from forebay.errors import RangeGone
from forebay.model.message import MessageBatch
from forebay.testing.fake_clock import START_US, FakeClock
from forebay.testing.simulated_disk import SimulatedDisk


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.disk = SimulatedDisk()
        self.clock = FakeClock()
        self.messages: list[tuple[bytes, int]] = []
        """Payload and creation time of every message ever appended; seq is the index plus one."""
        self.first_seq_max = 1
        """Retention may have removed everything before this seq, and nothing else."""
        self.log = self.reopened()

    def reopened(self) -> CommitLog:
        return CommitLog.open(BASE, TINY, filesystem=self.disk, clock=self.clock)

    @rule(payloads=st.lists(st.binary(max_size=120), min_size=1, max_size=6), created=st.integers(-50, 50))
    def append(self, payloads: list[bytes], created: int) -> None:
        created_us = START_US + created
        found = self.log.append(MessageBatch(payloads, [created_us] * len(payloads)))
        assert found == (len(self.messages) + 1, len(self.messages) + len(payloads))
        self.messages += [(payload, created_us) for payload in payloads]

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(days=st.integers(-2, 2))
    def change_the_clock(self, days: int) -> None:
        self.clock.step(days * 86_400)

    @rule(share=st.floats(0, 1.2))
    def truncate(self, share: float) -> None:
        before = round(share * len(self.messages)) + 1
        first_seq = self.log.truncate_before(before)
        self.first_seq_max = max(self.first_seq_max, min(before, len(self.messages) + 1))
        assert first_seq == self.log.first_seq <= self.first_seq_max

    @rule(start=st.floats(0, 1), length=st.integers(0, 12), limited=st.booleans())
    def read_a_range(self, start: float, length: int, limited: bool) -> None:
        from_seq = round(start * len(self.messages)) + 1
        try:
            if limited:
                found = list(rows(self.log.read(from_seq, limit=length)))
            else:
                found = list(rows(self.log.read(from_seq, from_seq + length - 1)))
        except RangeGone:
            assert from_seq < self.log.first_seq
            return
        assert found == self.expected(from_seq, from_seq + length)

    @rule(low=st.integers(-60, 60), span=st.integers(0, 60))
    def read_a_time(self, low: int, span: int) -> None:
        start, stop = START_US + low, START_US + low + span
        found = list(rows(self.log.read_created_between(start, stop)))
        kept = range(self.log.first_seq, len(self.messages) + 1)
        wanted = [(seq, self.messages[seq - 1][0]) for seq in kept if start <= self.messages[seq - 1][1] < stop]
        assert found == wanted

    @rule()
    def close_and_reopen(self) -> None:
        self.log.close()
        self.log = self.reopened()
        assert self.log.recovery.is_clean

    @rule()
    def kill_and_reopen(self) -> None:
        self.disk = self.disk.killed()
        self.log = self.reopened()

    @rule(seed=st.integers(0, 1 << 16))
    def power_cut_and_reopen(self, seed: int) -> None:
        states = list(self.disk.crash_states(len(self.disk.journal), at_most=16, seed=seed))
        self.disk = random.Random(seed).choice(states)
        self.log = self.reopened()

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def the_log_is_the_list(self) -> None:
        assert self.log.next_seq == len(self.messages) + 1
        assert self.log.first_seq <= self.first_seq_max
        assert content(self.log) == self.expected(self.log.first_seq, self.log.next_seq)

    def expected(self, from_seq: int, stop_seq: int) -> list[tuple[int, bytes]]:
        stop = min(stop_seq, len(self.messages) + 1)
        return [(seq, self.messages[seq - 1][0]) for seq in range(from_seq, stop)]

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            assert verify(self.disk, BASE).is_good


TestCommitLogModel = LogMachine.TestCase
