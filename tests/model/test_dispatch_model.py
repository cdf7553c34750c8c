"""Dispatch in lockstep with a plain model: parcels in a dictionary, and what each may become.

Workers lease, also steps only, complete, fail, freeze and come back late; results wait for a group that passes them now
and then; flows are paused; the warm tier loses entries; time passes.
After every action the tables say what the model says, counts equal a recount, and no class holds more warm parcels
than it may. In the end everything is drained, and every parcel has ended exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fixtures.arrow_steps import stage
from fixtures.dispatch_steps import ROWS, Dispatching, flow
from forebay.broker.bulk import StagesOf
from forebay.broker.overview import SeekTarget
from forebay.dispatch.definition import Retry
from forebay.dispatch.export_watch import ExportWatch
from forebay.dispatch.values import Await, CompleteRequest, Lease, LeaseRequest, Outcome, OutcomeState
from forebay.dispatch.warms.embedded import EmbeddedWarm
from forebay.errors import LeaseLost
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore

T = TypeVar("T")
SECOND_US = 1_000_000
CAPACITY = 10
OUTBOX = ".export.sink"
RETRY = Retry(max_attempts=2, delay_seconds=10, jitter=0)
"""Few attempts, so that they are used up now and then."""
FLOWS = {
    "a": flow("a", "shared", "second", retry=RETRY),
    "b": flow("b", "shared", retry=RETRY),
    "c": flow("c", "own", retry=RETRY),
}


@dataclass
class Parcel:
    """What the model knows of one: the step it is at, and how that stands."""

    flow: str
    place: int
    step: int = 0
    state: str = "WAITING"
    attempts: int = 0
    due_us: int | None = None
    endings: int = 0

    def end(self, state: str) -> None:
        self.state = state
        self.endings += 1


@dataclass
class Held:
    lease: Lease
    until_us: int
    outcomes: list[Outcome] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)

    def request(self) -> CompleteRequest:
        wanted = StagesOf("spark", self.lease.lease_id) if self.stages else None
        return CompleteRequest(self.lease.lease_id, self.outcomes, wanted, self.stages)


class DispatchModel(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.parcels: dict[str, Parcel] = {}
        self.live: list[Held] = []
        self.over: list[Held] = []
        """Completed: the same completion again is known."""
        self.lost: list[Held] = []
        self.disturbed: set[str] = set()
        """Flows in which something failed: their order is not promised any more."""
        self.last_leased: dict[str, int] = {}
        self.run(self._begin())

    async def _begin(self) -> None:
        await self.store.open(lambda queue, count: None)
        self.dispatch = Dispatching(self.store, EmbeddedWarm(), self.clock, in_memory_queue_size=CAPACITY)
        self.exports = ExportWatch(self.store, self.dispatch.limits, self.clock)
        await self.dispatch.define(*FLOWS.values())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        try:
            self._drain()
        finally:
            self.run(self.store.close())
            self.loop.close()

    # what workers and the world do

    @rule(name=st.sampled_from(sorted(FLOWS)), count=st.integers(1, 8))
    def parcels_arrive(self, name: str, count: int) -> None:
        self.run(self.dispatch.arrive(FLOWS[name], count))
        for did, _, of_flow, _, _, place, *_ in self.run(self.dispatch.ask(ROWS)):
            self.parcels.setdefault(did, Parcel(of_flow, place))

    @rule(pattern=st.sampled_from(["*", "s*", "own"]), count=st.integers(1, 6), same_step=st.booleans())
    def worker_leases(self, pattern: str, count: int, same_step: bool) -> None:
        self._lease(pattern, count, same_step)

    def _lease(self, pattern: str, count: int, same_step: bool = False) -> Lease | None:
        lease = self.run(self.dispatch.leasing.lease(LeaseRequest("w", [pattern], count, same_step=same_step)))
        if lease is None:
            return None
        assert not same_step or len({(leased.flow, leased.version, leased.step) for leased in lease.parcels}) == 1
        assert 0 < len(lease.parcels) <= count
        for leased in lease.parcels:
            parcel = self.parcels[leased.did]
            assert (parcel.state, parcel.step) == ("WAITING", leased.step)
            parcel.state, parcel.attempts = "LEASED", parcel.attempts + 1
            assert leased.attempt == parcel.attempts
            if leased.step == 0 and parcel.flow not in self.disturbed:
                assert parcel.place > self.last_leased.get(parcel.flow, 0)
                self.last_leased[parcel.flow] = parcel.place
        self.live.append(Held(lease, lease.until_us))
        return lease

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def worker_completes(self, data: st.DataObject) -> None:
        held = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        states: st.SearchStrategy[OutcomeState | None] = st.sampled_from(
            ["COMPLETE", "COMPLETE", "FILTERED", "ERROR", None]
        )
        for leased in held.lease.parcels:
            state = data.draw(states)
            if state is not None:
                held.outcomes.append(Outcome(leased.did, state, error="failed" if state == "ERROR" else ""))
        if data.draw(st.booleans()):
            self._export(held)
        self._complete(held)

    def _export(self, held: Held) -> None:
        """Last steps that are complete give a row each to an outbox, and wait for its group."""
        last = {one.did: one.flow for one in held.lease.parcels if one.step + 1 == len(FLOWS[one.flow].steps)}
        waiting = [one.did for one in held.outcomes if one.state == "COMPLETE" and one.did in last]
        if not waiting:
            return
        flows = [last[did] for did in waiting]
        rows = [b"{}"] * len(flows)
        staged = self.run(stage(self.store, *rows, queue=OUTBOX, epoch=held.lease.lease_id, partition=flows))
        held.stages = [staged.stage_id]
        held.outcomes = [
            one._replace(awaits=[Await(OUTBOX, "export", last[one.did], 1)]) if one.did in waiting else one
            for one in held.outcomes
        ]

    def _complete(self, held: Held) -> None:
        self.run(self.dispatch.leasing.complete(held.request()))
        told = {outcome.did: outcome.state for outcome in held.outcomes}
        awaiting = {outcome.did for outcome in held.outcomes if outcome.awaits}
        for leased in held.lease.parcels:
            parcel = self.parcels[leased.did]
            state = told.get(leased.did)
            if state is None:
                self._attempt_came_to_nothing(parcel)
            elif state == "ERROR":
                self._fails(parcel)
            elif state == "COMPLETE" and parcel.step + 1 < len(FLOWS[parcel.flow].steps):
                parcel.step, parcel.state, parcel.attempts = parcel.step + 1, "WAITING", 0
            elif leased.did in awaiting:
                parcel.state = "EXPORTING"
            else:
                parcel.end(state)
        self.over.append(held)

    def _fails(self, parcel: Parcel) -> None:
        self.disturbed.add(parcel.flow)
        if parcel.attempts < RETRY.max_attempts:
            parcel.state = "ERROR"
            parcel.due_us = self.clock.now_us() + 10 * SECOND_US * 2 ** (parcel.attempts - 1)
        else:
            parcel.end("ERROR")

    def _attempt_came_to_nothing(self, parcel: Parcel) -> None:
        self.disturbed.add(parcel.flow)
        if parcel.attempts < RETRY.max_attempts:
            parcel.state = "WAITING"
        else:
            parcel.end("ERROR")

    @precondition(lambda self: self.over)
    @rule(data=st.data())
    def worker_completes_again(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.over))
        try:
            done = self.run(self.dispatch.leasing.complete(held.request()))
        except LeaseLost:
            # Unknown: all that was told of was queued again since.
            assert all(outcome.state == "ERROR" for outcome in held.outcomes)
        else:
            assert done.is_repeated

    @precondition(lambda self: self.lost)
    @rule(data=st.data())
    def frozen_worker_completes_late(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.lost))
        outcomes = [Outcome(leased.did, "COMPLETE") for leased in held.lease.parcels]
        try:
            self.run(self.dispatch.leasing.complete(CompleteRequest(held.lease.lease_id, outcomes)))
        except LeaseLost:
            return
        raise AssertionError("a lost lease was completed")

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def worker_gives_back(self, data: st.DataObject) -> None:
        held = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        assert self.run(self.dispatch.leasing.release(held.lease.lease_id)) == len(held.lease.parcels)
        for leased in held.lease.parcels:
            parcel = self.parcels[leased.did]
            parcel.state, parcel.attempts = "WAITING", parcel.attempts - 1
            self.disturbed.add(parcel.flow)
        self.lost.append(held)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def worker_sends_a_heartbeat(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.live))
        held.until_us = self.run(self.dispatch.leasing.heartbeat(held.lease.lease_id))
        assert held.until_us == self.clock.now_us() + 60 * SECOND_US

    @rule(seconds=st.sampled_from([1, 10, 25, 61]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self._expire()

    def _expire(self) -> None:
        self.run(self.dispatch.upkeep.expiry_turn())
        now_us = self.clock.now_us()
        for held in [held for held in self.live if held.until_us <= now_us]:
            self.live.remove(held)
            self.lost.append(held)
            for leased in held.lease.parcels:
                self._attempt_came_to_nothing(self.parcels[leased.did])
        for parcel in self.parcels.values():
            if parcel.due_us is not None and parcel.due_us <= now_us:
                parcel.state, parcel.due_us = "WAITING", None

    @rule()
    def cold_parcels_become_warm(self) -> None:
        self.run(self.dispatch.upkeep.refill_turn())

    @rule(name=st.sampled_from(sorted(FLOWS)))
    def group_passes_what_a_flow_gave_to_the_outbox(self, name: str) -> None:
        if all(parcel.state != "EXPORTING" for parcel in self.parcels.values()):
            return
        self.run(self.store.seek("export", OUTBOX, name, SeekTarget(to_end=True)))
        self.run(self.exports.turn())
        for parcel in self.parcels.values():
            if (parcel.flow, parcel.state) == (name, "EXPORTING"):
                parcel.end("COMPLETE")

    @rule(name=st.sampled_from(sorted(FLOWS)), state=st.sampled_from(["PAUSED", "RUNNING"]))
    def flow_is_paused_or_goes_on(self, name: str, state: Any) -> None:
        self.run(self.dispatch.set_state(name, state))
        self.dispatch.leasing.look_again()

    @rule(count=st.integers(1, 12))
    def warm_tier_loses_entries(self, count: int) -> None:
        self.run(self.dispatch.warm.take("shared", count))
        self.disturbed.update(FLOWS)

    @rule()
    def warm_tier_is_compared(self) -> None:
        self.run(self.dispatch.upkeep.sizes_turn())

    # what holds after each of these

    @invariant()
    def tables_say_what_the_model_says(self) -> None:
        self.run(self.dispatch.check())
        newest = {row[0]: row for row in self.run(self.dispatch.ask(ROWS))}  # by did, the last step counts
        assert newest.keys() == self.parcels.keys()
        for did, row in newest.items():
            parcel = self.parcels[did]
            state = "WAITING" if row[4] in ("QUEUED", "COLD_QUEUED") else row[4]
            assert (row[1], state, row[6], row[9]) == (parcel.step, parcel.state, parcel.attempts, parcel.due_us)
            is_over = parcel.endings == 1
            assert row[11] == (parcel.state if is_over or parcel.state == "ERROR" else "IN_FLIGHT")

    def _drain(self) -> None:
        """Everything goes on until nothing is left, and then every parcel has ended exactly once."""
        for name in FLOWS:
            self.run(self.dispatch.set_state(name, "RUNNING"))
        self.dispatch.leasing.look_again()
        for _ in range(1000):
            if all(parcel.endings for parcel in self.parcels.values()):
                break
            self.cold_parcels_become_warm()
            for name in FLOWS:
                self.group_passes_what_a_flow_gave_to_the_outbox(name)
            lease = self._lease("*", 100)
            if lease is None:
                self.time_passes(61)
            for held in [*self.live]:
                self.live.remove(held)
                held.outcomes = [Outcome(leased.did, "COMPLETE") for leased in held.lease.parcels]
                self._complete(held)
        self.tables_say_what_the_model_says()
        assert {parcel.endings for parcel in self.parcels.values()} <= {1}


TestDispatchModel = DispatchModel.TestCase
