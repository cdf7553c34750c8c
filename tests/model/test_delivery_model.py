"""The decisions of delivery in lockstep with a model of one partition and one group: a list of messages and a lease.

Consumers pop, answer, fail, extend, release, crash and come back too late, messages are deleted, and time goes on.
After every step both must say the same; at the end every message is finished, dead or deleted, and none is stuck.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.broker import delivery
from forebay.broker.delivery import COMPLETED, DEAD, FAILED, RETRY, Candidates, DeliveryState, Verdict
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import START_US

SECOND_US = 1_000_000


@dataclass
class Message:
    attempts: int = 0
    is_over: bool = False
    """Finished, dead or deleted."""
    not_before_us: int = 0


@dataclass
class Lease:
    name: str
    until_us: int
    unanswered: set[int] = field(default_factory=set)
    yielded_us: int | None = None

    def keeps_others_away(self, now_us: int) -> bool:
        return now_us < self.until_us and (self.yielded_us is None or now_us < self.yielded_us)


class DeliveryMachine(RuleBasedStateMachine):
    @initialize(retries=st.sampled_from([2, 1, 3, 0]), delay_ms=st.sampled_from([0, 1_000, 5_000, 20_000]))
    def start(self, retries: int, delay_ms: int) -> None:
        self.options = QueueOptions(lease_seconds=10, retry_limit=retries, retry_delay_ms=delay_ms)
        self.state = DeliveryState(0)
        self.now_us = START_US
        self.messages: dict[int, Message] = {}
        self.deleted: set[int] = set()
        self.lease: Lease | None = None
        self.names: list[str] = ["never given"]
        self.push(5)

    def fresh(self) -> Candidates:
        seen = self.state.last_seen_seq()
        seqs = [seq for seq in self.messages if seq > seen and seq not in self.deleted]
        return Candidates(seqs, [f"t{seq}" for seq in seqs], [START_US] * len(seqs))

    @rule(count=st.integers(1, 5))
    def push(self, count: int) -> None:
        for _ in range(count):
            self.messages[len(self.messages) + 1] = Message()

    @rule(seconds=st.sampled_from([1, 0.001, 5, 10, 25]))
    def wait(self, seconds: float) -> None:
        self.now_us += int(seconds * SECOND_US)

    @rule(batch=st.sampled_from([3, 4, 2, 6, 1]), auto_ack=st.sampled_from([False, False, False, True]))
    def pop(self, batch: int, auto_ack: bool) -> None:
        name = f"lease {len(self.names)}"
        found = delivery.claim(
            self.state,
            self.fresh(),
            self.options,
            group="g",
            now_us=self.now_us,
            batch=batch,
            lease_id=name,
            auto_ack=auto_ack,
        )
        delivered, dead = self.expected(batch)
        if found is None:
            assert not delivered
            assert not dead
            return
        self.end_lease()
        assert found.delivered == tuple((seq, self.messages[seq].attempts + 1) for seq in delivered)
        assert [letter.seq for letter in found.dead] == dead
        self.state = found.state
        for seq in dead:
            self.messages[seq].is_over = True
        for seq in delivered:
            self.messages[seq].attempts += 1
            self.messages[seq].is_over = auto_ack
        if delivered and not auto_ack:
            self.names.append(name)
            self.lease = Lease(name, self.now_us + 10 * SECOND_US, set(delivered))

    def expected(self, batch: int) -> tuple[list[int], list[int]]:
        """What a pop is to deliver, and what it finds dead."""
        delivered: list[int] = []
        dead: list[int] = []
        lease = self.lease
        if lease is not None and lease.keeps_others_away(self.now_us):
            return delivered, dead
        given_back = lease.unanswered if lease is not None and lease.yielded_us is not None else set()
        for seq, message in self.messages.items():
            if message.is_over:
                continue
            if message.not_before_us > self.now_us or len(delivered) >= batch:
                break
            if message.attempts - (seq in given_back) > self.options.retry_limit:
                dead.append(seq)
            else:
                delivered.append(seq)
        return delivered, dead

    def end_lease(self) -> None:
        """Somebody else claims: what a yielded lease has not answered gets its attempt back."""
        if self.lease is not None and self.lease.yielded_us is not None:
            for seq in self.lease.unanswered:
                self.messages[seq].attempts -= 1
        self.lease = None

    def held(self, name: str) -> Lease | None:
        lease = self.lease
        return lease if lease is not None and lease.name == name and self.now_us < lease.until_us else None

    @rule(data=st.data(), status=st.sampled_from([COMPLETED, COMPLETED, FAILED, RETRY, DEAD]))
    def answer(self, data: st.DataObject, status: str) -> None:
        """Any answer to anything, most of them refused."""
        name = data.draw(st.sampled_from(self.names[-3:]))
        self.judge(name, data.draw(st.integers(1, len(self.messages) + 1)), status)

    @precondition(lambda self: self.lease is not None)
    @rule(is_extended=st.booleans())
    def fail_the_first_and_pop_when_it_is_due(self, is_extended: bool) -> None:
        """As Queen's client does it: the rest is neither handled nor answered. Unless it says that it goes on."""
        assert self.lease is not None
        self.judge(self.lease.name, min(self.lease.unanswered), FAILED)
        if is_extended and self.lease is not None:
            self.renew(self.lease.name, 15)
        self.now_us += self.options.retry_delay_ms * 1000
        self.pop(5, auto_ack=False)

    @precondition(lambda self: self.lease is not None)
    @rule(data=st.data(), status=st.sampled_from([FAILED, COMPLETED, RETRY]))
    def answer_what_is_held(self, data: st.DataObject, status: str) -> None:
        assert self.lease is not None
        self.judge(self.lease.name, data.draw(st.sampled_from(sorted(self.lease.unanswered))), status)

    def judge(self, name: str, seq: int, status: str) -> None:
        [judged], dead, self.state = delivery.acknowledge(
            self.state, name, [Verdict(f"t{seq}", status)], self.options, now_us=self.now_us
        )
        lease = self.held(name)
        assert judged.is_accepted == (lease is not None and seq in lease.unanswered)
        if lease is None or not judged.is_accepted:
            return
        message = self.messages[seq]
        is_dead = status == DEAD or (status in (FAILED, RETRY) and message.attempts > self.options.retry_limit)
        assert judged.is_dead == bool(dead) == is_dead
        lease.unanswered.discard(seq)
        message.is_over = is_dead or status == COMPLETED
        if not message.is_over:
            message.not_before_us = self.now_us + self.options.retry_delay_ms * 1000
            if lease.yielded_us is None:
                lease.yielded_us = message.not_before_us
        assert judged.is_released == (not lease.unanswered)
        if judged.is_released:
            self.lease = None

    @rule(seconds=st.sampled_from([1, 15]), data=st.data())
    def extend(self, seconds: int, data: st.DataObject) -> None:
        self.renew(data.draw(st.sampled_from(self.names[-2:])), seconds)

    def renew(self, name: str, seconds: int) -> None:
        lease = self.held(name)
        if lease is not None:
            self.state = delivery.extended(self.state, now_us=self.now_us, seconds=seconds)
            lease.until_us = max(lease.until_us, self.now_us + seconds * SECOND_US)
            lease.yielded_us = None

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = self.held(data.draw(st.sampled_from(self.names[-2:])))
        if lease is not None:
            self.state = delivery.released(self.state)
            for seq in lease.unanswered:
                self.messages[seq].attempts -= 1
            self.lease = None

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        lease = self.held(data.draw(st.sampled_from(self.names[-2:])))
        if lease is not None:
            count, self.state = delivery.completed(self.state)
            assert count == len(lease.unanswered)
            for seq in lease.unanswered:
                self.messages[seq].is_over = True
            self.lease = None

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if not self.messages:
            return
        seq = data.draw(st.sampled_from(sorted(self.messages)))
        self.deleted.add(seq)
        self.messages[seq].is_over = True
        self.state = delivery.without_gone(self.state, lambda kept: kept not in self.deleted)
        if self.lease is not None:
            self.lease.unanswered.discard(seq)
            if not self.lease.unanswered:
                self.lease = None

    @invariant()
    def state_survives_storage(self) -> None:
        self.state = delivery.decode_state(delivery.encode_state(self.state))

    @invariant()
    def one_lease_at_a_time(self) -> None:
        assert self.state.lease_id == (self.lease.name if self.lease else "")
        leased = {pending.seq for pending in self.state.pending if pending.is_leased}
        assert leased == (self.lease.unanswered if self.lease else set())

    @invariant()
    def cursor_passes_nothing_that_is_open(self) -> None:
        assert all(message.is_over for seq, message in self.messages.items() if seq <= self.state.cursor_seq)
        assert list(self.state.pending) == sorted(self.state.pending, key=lambda pending: pending.seq)

    @invariant()
    def nothing_is_due_earlier_than_the_state_says(self) -> None:
        due_us = delivery.due_us(self.state, self.options, self.now_us)
        if due_us == self.now_us:
            return
        last_us = due_us - 1 if due_us is not None else self.now_us + 10**12
        early = delivery.claim(
            self.state, Candidates(), self.options, now_us=last_us, batch=1, lease_id="early", auto_ack=False, group="g"
        )
        assert early is None

    def teardown(self) -> None:
        """Whatever happened: patient consumers bring it to an end, in order."""
        if not hasattr(self, "state"):
            return
        for _ in range(5 * len(self.messages) + 5):
            if all(message.is_over for message in self.messages.values()):
                break
            self.now_us += 60 * SECOND_US
            self.pop(3, auto_ack=True)
        assert all(message.is_over for message in self.messages.values())
        assert not self.state.pending


TestDelivery = pytest.mark.slow(DeliveryMachine.TestCase)
# Cheap steps, and a yielded lease that is claimed again takes several of them in the right order.
TestDelivery.settings = settings(max_examples=4 * settings().max_examples)
