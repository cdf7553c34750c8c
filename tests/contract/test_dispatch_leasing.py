"""Leasing on every store and warm tier: order, fairness, fencing, and what becomes of attempts that come to nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from fixtures.arrow_steps import stage
from fixtures.dispatch_steps import CLASSES, PARCELS, ROWS, Dispatching, dids, drained, first_seqs, flow
from forebay.broker.bulk import StagesOf
from forebay.broker.store import Store
from forebay.dispatch.definition import RateLimit, Retry
from forebay.dispatch.values import ActionRun, Child, CompleteRequest, LeaseRequest, Outcome, Range
from forebay.dispatch.warm import WarmEntry, WarmTier
from forebay.dispatch.warms.embedded import EmbeddedWarm
from forebay.errors import LeaseLost, StageUnknown, UnknownQueue
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio

SHOP = flow("shop", "parse")
TWO_STEPS = flow("shop", "parse", "enrich")
OF = StagesOf("spark", "1")


class NothingWarm(EmbeddedWarm):
    """A tier that loses what it is given, as one that evicts at once."""

    async def add(self, entries: Sequence[WarmEntry]) -> None:
        return


@pytest.fixture
def dispatch(store: Store, warm: WarmTier, clock: FakeClock) -> Dispatching:
    return Dispatching(store, warm, clock)


# --- one parcel's way ---------------------------------------------------------------------------------------------


async def test_parcel_is_leased_completed_and_finished(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 3)
    lease = await dispatch.leased("parse")
    assert first_seqs([lease]) == [1, 11, 21]
    assert [parcel.attempt for parcel in lease.parcels] == [1, 1, 1]
    assert lease.definitions == {"shop@1": SHOP}
    assert (await dispatch.states()) == {"LEASED": 3}
    done = await dispatch.complete(lease)
    assert (done.is_repeated, done.parcels) == (False, 3)
    assert (await dispatch.states()) == {"COMPLETE": 3}
    assert (await dispatch.parcel_states()) == {"COMPLETE": 3}
    assert await dispatch.lease("parse") is None
    await dispatch.check()


async def test_history_tells_every_action_with_worker_attempt_and_rows(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 1)
    lease = await dispatch.leased(worker="w7")
    runs = [ActionRun("parse", 1, 2, 10, 9, 1, 0), ActionRun("clean", 2, 3, 9, 9, 0, 0)]
    outcome = Outcome(dids(lease)[0], "COMPLETE", actions=runs, rows_in=10, rows_out=9)
    await dispatch.leasing.complete(CompleteRequest(lease.lease_id, [outcome]))
    assert await dispatch.events(dids(lease)[0]) == [
        (1, "ACTION", "w7", 1, ""),
        (2, "ACTION", "w7", 1, ""),
        (3, "COMPLETE", "w7", 1, ""),
    ]


async def test_parcel_goes_on_to_the_next_step_at_its_place(dispatch: Dispatching) -> None:
    await dispatch.define(TWO_STEPS)
    await dispatch.arrive(TWO_STEPS, 3)
    await dispatch.complete(await dispatch.leased("parse"))
    assert (await dispatch.states()) == {"COMPLETE": 3, "QUEUED": 3}
    assert (await dispatch.parcel_states()) == {"IN_FLIGHT": 3}
    lease = await dispatch.leased("enrich")
    assert [(parcel.step, parcel.ranges[0].first_seq) for parcel in lease.parcels] == [(1, 1), (1, 11), (1, 21)]
    await dispatch.complete(lease)
    assert (await dispatch.parcel_states()) == {"COMPLETE": 3}
    await dispatch.check()


async def test_filtered_parcel_does_not_go_on(dispatch: Dispatching) -> None:
    await dispatch.define(TWO_STEPS)
    await dispatch.arrive(TWO_STEPS, 2)
    await dispatch.complete(await dispatch.leased("parse"), "FILTERED", error="not for us")
    assert (await dispatch.states()) == {"FILTERED": 2}
    assert (await dispatch.parcel_states()) == {"FILTERED": 2}


async def test_next_step_reads_what_was_committed_with_the_lease(dispatch: Dispatching) -> None:
    await dispatch.define(TWO_STEPS)
    await dispatch.arrive(TWO_STEPS, 3)
    lease = await dispatch.leased("parse")
    staged = await stage(dispatch.store, b"a", b"b", b"c", queue="between")
    rows = [2, 0, 1]
    outcomes = [Outcome(did, "COMPLETE", output=("between", n)) for did, n in zip(dids(lease), rows, strict=True)]
    done = await dispatch.leasing.complete(CompleteRequest(lease.lease_id, outcomes, OF, [staged.stage_id]))
    assert done.messages == 3
    following = await dispatch.leased("enrich")
    identity = (await dispatch.store.bounds("between")).identity
    assert [(parcel.did, parcel.ranges, parcel.messages) for parcel in following.parcels] == [
        (dids(lease)[0], [Range("between", 1, 2, identity, 0)], 2),
        (dids(lease)[2], [Range("between", 3, 3, identity, 0)], 1),
    ]
    assert (await dispatch.parcel_states()) == {"IN_FLIGHT": 2, "FILTERED": 1}


async def test_split_parcel_is_complete_and_its_children_go_on_in_its_place(dispatch: Dispatching) -> None:
    await dispatch.define(TWO_STEPS)
    await dispatch.arrive(TWO_STEPS, 2)
    lease = await dispatch.leased("parse")
    first, second = dids(lease)
    children = [Child([Range("orders", 1, 4)], 4, {"part": "1"}), Child([Range("orders", 5, 10)], 6)]
    outcomes = [Outcome(first, "COMPLETE", children=children), Outcome(second, "COMPLETE")]
    await dispatch.leasing.complete(CompleteRequest(lease.lease_id, outcomes))
    parcels = await dispatch.ask(PARCELS)
    assert Counter((parent == first, state, place) for _, parent, state, place, _, _ in parcels) == {
        (False, "COMPLETE", 1): 1,
        (True, "IN_FLIGHT", 1): 2,
        (False, "IN_FLIGHT", 2): 1,
    }
    following = await dispatch.leased("enrich")
    assert sorted(first_seqs([following])) == [1, 5, 11]
    assert following.parcels[-1].did == second
    assert (await dispatch.events(first))[-1][1] == "SPLIT"
    await dispatch.check()


async def test_annotations_of_an_outcome_are_kept(dispatch: Dispatching) -> None:
    await dispatch.define(TWO_STEPS)
    await dispatch.arrive(TWO_STEPS, 1)
    await dispatch.complete(await dispatch.leased("parse"), annotations={"a": "1", "b": "1"})
    await dispatch.complete(await dispatch.leased("enrich"), annotations={"b": "2"})
    [(*_, annotations, _)] = await dispatch.ask(PARCELS)
    assert annotations in ('{"a":"1","b":"2"}', '{"b":"2","a":"1"}')


# --- whose turn it is ---------------------------------------------------------------------------------------------


async def test_oldest_of_a_flow_is_leased_first(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 7)
    leases = [await dispatch.leased(parcels=2) for _ in range(3)]
    assert first_seqs(leases) == [1, 11, 21, 31, 41, 51]


async def test_flows_of_a_class_take_turns(dispatch: Dispatching) -> None:
    busy, quiet = flow("busy", "parse"), flow("quiet", "parse")
    await dispatch.define(busy, quiet)
    await dispatch.arrive(busy, 8)
    await dispatch.arrive(quiet, 2)
    lease = await dispatch.leased(parcels=4)
    assert Counter(parcel.flow for parcel in lease.parcels) == {"busy": 2, "quiet": 2}


async def test_classes_take_turns(dispatch: Dispatching) -> None:
    busy, quiet = flow("busy", "geo.a"), flow("quiet", "geo.b")
    await dispatch.define(busy, quiet)
    await dispatch.arrive(busy, 9)
    await dispatch.arrive(quiet, 3)
    leases = [await dispatch.leased("geo.*", parcels=1) for _ in range(6)]
    assert Counter(parcel.flow for lease in leases for parcel in lease.parcels) == {"busy": 3, "quiet": 3}
    assert Counter(parcel.flow for parcel in (await dispatch.leased("geo.*")).parcels) == {"busy": 6}


# --- one step at a time -------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(params=["warm", "database"])
async def one_step(request: pytest.FixtureRequest, dispatch: Dispatching) -> Dispatching:
    """Also where the warm tier has nothing: the database is asked."""
    if request.param == "warm":
        return dispatch
    return Dispatching(dispatch.store, NothingWarm(), dispatch.clock)


async def test_lease_of_one_step_has_all_that_wait_of_it_and_nothing_else(one_step: Dispatching) -> None:
    busy, quiet = flow("busy", "sql", "sql"), flow("quiet", "sql")
    await one_step.define(busy, quiet)
    await one_step.arrive(busy, 3)
    await one_step.complete(await one_step.leased("sql", parcels=2))
    await one_step.arrive(busy, 2)
    await one_step.arrive(quiet, 2)
    leases = [await one_step.leased("sql", same_step=True) for _ in range(3)]
    got = [sorted({(parcel.flow, parcel.step) for parcel in lease.parcels}) for lease in leases]
    assert sorted(got) == [[("busy", 0)], [("busy", 1)], [("quiet", 0)]]
    assert sorted(len(lease.parcels) for lease in leases) == [2, 2, 3]
    assert await one_step.lease("sql", same_step=True) is None
    for lease in leases:
        await one_step.complete(lease)
    await one_step.check()


async def test_lease_of_one_step_keeps_versions_apart_and_the_others_keep_their_places(one_step: Dispatching) -> None:
    changed = flow("shop", "parse", rate_limit=RateLimit(amount=1000))
    await one_step.define(SHOP)
    await one_step.arrive(SHOP, 2)
    await one_step.define(changed)
    await one_step.arrive(changed, 2, version=2)
    leases = [await one_step.leased(same_step=True) for _ in range(2)]
    assert [sorted({parcel.version for parcel in lease.parcels}) for lease in leases] == [[1], [2]]
    assert [sorted(lease.definitions) for lease in leases] == [["shop@1"], ["shop@2"]]
    assert first_seqs(leases) == [1, 11, 21, 31]


async def test_classes_take_turns_when_a_lease_is_of_one_step(one_step: Dispatching) -> None:
    flows = [flow("a", "geo.a"), flow("b", "geo.b"), flow("c", "geo.b")]
    await one_step.define(*flows)
    for each in flows:
        await one_step.arrive(each, 4)
    turns = []
    for _ in range(6):
        # A worker of another class asks in between: that must not take a class its turn.
        assert await one_step.lease("other", same_step=True) is None
        turns += [(await one_step.leased("geo.*", parcels=2, same_step=True)).parcels[0]]
    assert [parcel.action_class for parcel in turns] == ["geo.a", "geo.b"] * 2 + ["geo.b", "geo.b"]
    assert Counter(parcel.flow for parcel in turns) == {"a": 2, "b": 2, "c": 2}
    assert [parcel.flow for parcel in turns if parcel.flow != "a"][:2] in (["b", "c"], ["c", "b"])


async def test_lease_of_one_step_passes_over_paused_flows_and_heeds_its_limits(one_step: Dispatching) -> None:
    paused, running = flow("paused", "parse"), flow("running", "parse")
    await one_step.define(paused, running)
    await one_step.arrive(paused, 2)
    await one_step.arrive(running, 4, messages=10)
    await one_step.set_state("paused", "PAUSED")
    assert first_seqs([await one_step.leased(same_step=True, messages_max=25)]) == [21, 31]
    assert first_seqs([await one_step.leased(same_step=True, messages_max=1)]) == [41]
    assert first_seqs([await one_step.leased(same_step=True)]) == [51]
    assert await one_step.lease(same_step=True) is None
    await one_step.set_state("paused", "RUNNING")
    one_step.leasing.look_again()
    assert first_seqs([await one_step.leased(same_step=True)]) == [1, 11]


async def test_workers_that_lease_steps_at_once_get_every_parcel_once(one_step: Dispatching) -> None:
    flows = [flow(name, "sql", "sql") for name in ("a", "b")]
    await one_step.define(*flows)
    for each in flows:
        await one_step.arrive(each, 5)
    seen: Counter[tuple[str, int]] = Counter()
    while leases := [
        lease
        for lease in await asyncio.gather(*[one_step.lease(parcels=3, same_step=True) for _ in range(4)])
        if lease is not None
    ]:
        for lease in leases:
            assert len({(parcel.flow, parcel.step) for parcel in lease.parcels}) == 1
            seen.update((parcel.did, parcel.step) for parcel in lease.parcels)
            await one_step.complete(lease)
    assert len(seen) == 20
    assert set(seen.values()) == {1}
    assert (await one_step.parcel_states()) == {"COMPLETE": 10}


async def test_worker_gets_only_what_it_serves(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 1)
    assert await dispatch.lease("geo.*", "shop.*") is None
    assert await dispatch.lease("pars?") is not None


async def test_lease_has_no_more_messages_than_wanted_and_at_least_one_parcel(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 5, messages=10)
    assert len((await dispatch.leased(messages_max=25)).parcels) == 2
    assert len((await dispatch.leased(messages_max=3)).parcels) == 1
    assert len((await dispatch.leased()).parcels) == 2


async def test_paused_flow_is_left_out_until_it_goes_on(dispatch: Dispatching) -> None:
    paused, running = flow("paused", "parse"), flow("running", "parse")
    await dispatch.define(paused, running)
    await dispatch.arrive(paused, 2)
    await dispatch.arrive(running, 2)
    await dispatch.set_state("paused", "PAUSED")
    lease = await dispatch.leased()
    assert Counter(parcel.flow for parcel in lease.parcels) == {"running": 2}
    assert await dispatch.lease() is None
    await dispatch.set_state("paused", "RUNNING")
    dispatch.leasing.look_again()
    assert Counter(parcel.flow for parcel in (await dispatch.leased()).parcels) == {"paused": 2}
    await dispatch.check()


async def test_stopped_flow_is_still_leased_from(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 2)
    await dispatch.set_state("shop", "STOPPED")
    assert len((await dispatch.leased()).parcels) == 2


async def test_rate_limit_of_a_flow_holds_its_parcels_back(dispatch: Dispatching, clock: FakeClock) -> None:
    limited = flow("limited", "parse", rate_limit=RateLimit(amount=20, seconds=10))
    await dispatch.define(limited, SHOP)
    await dispatch.arrive(limited, 5, messages=10)
    await dispatch.arrive(SHOP, 1)
    lease = await dispatch.leased()
    assert Counter(parcel.flow for parcel in lease.parcels) == {"limited": 2, "shop": 1}
    assert await dispatch.lease() is None
    clock.advance(4.9)
    assert len((await dispatch.leased()).parcels) == 1
    assert await dispatch.lease() is None


async def test_rate_limit_of_a_flow_in_bytes_goes_by_the_size_of_its_parcels(
    dispatch: Dispatching, clock: FakeClock
) -> None:
    limited = flow("limited", "parse", rate_limit=RateLimit(unit="bytes", amount=1000, seconds=10))
    await dispatch.define(limited)
    await dispatch.arrive(limited, 1, messages=1, message_bytes=900)
    await dispatch.arrive(limited, 4, messages=10, message_bytes=30)
    assert first_seqs([await dispatch.leased()]) == [1, 2]
    assert await dispatch.lease() is None
    clock.advance(1.9)
    assert await dispatch.lease() is None
    clock.advance(0.2)
    assert first_seqs([await dispatch.leased()]) == [12]


@pytest_asyncio.fixture
async def servers(emptied_store_database: str, clock: FakeClock) -> AsyncIterator[list[Dispatching]]:
    """Two servers on one PostgreSQL, with a store and a warm tier of their own each."""
    from forebay.broker.stores.postgres import PostgresStore

    stores = [PostgresStore(emptied_store_database, clock=clock) for _ in range(2)]
    for store in stores:
        await store.open(lambda queue, count: None)
    yield [Dispatching(store, EmbeddedWarm(), clock, in_memory_queue_size=100) for store in stores]
    for store in stores:
        await store.close()


async def test_servers_on_one_database_share_the_rate_limit_of_a_flow_from_its_first_use_on(
    servers: list[Dispatching], clock: FakeClock
) -> None:
    one, other = servers
    limit = RateLimit(unit="bytes", amount=100, seconds=10)
    for number in range(4):
        name, first, second = f"limited{number}", f"first{number}", f"second{number}"
        two_steps = flow(name, first, second)
        await one.define(two_steps)
        await one.arrive(two_steps, 10, messages=1, message_bytes=100)
        await one.complete(await one.leased(first, parcels=5))
        await one.define(flow(name, first, second, rate_limit=limit))
        for _ in range(2):
            await other.upkeep.watch.turn()
        for _ in range(4):  # of two classes: their leases do not wait for each other
            leases = await asyncio.gather(one.lease(first, parcels=1), other.lease(second, parcels=1))
            assert len([lease for lease in leases if lease]) == 1
            clock.advance(11)


# --- warm and cold ------------------------------------------------------------------------------------------------


async def test_class_goes_cold_when_it_is_full(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    enqueued = await dispatch.arrive(SHOP, 25)
    assert len(enqueued.warm) == 10
    assert enqueued.went_cold == ["parse"]
    assert (await dispatch.states()) == {"QUEUED": 10, "COLD_QUEUED": 15}
    assert max(await dispatch.places(state="QUEUED")) < min(await dispatch.places(state="COLD_QUEUED"))
    await dispatch.check()


async def test_cold_parcel_is_not_overtaken_by_a_newer_warm_one(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 12)
    await dispatch.complete(await dispatch.leased(parcels=9))
    newer = await dispatch.arrive(SHOP, 1)
    assert newer.warm == []
    leases = await drained(dispatch, parcels=3)
    assert first_seqs(leases) == [91, 101, 111, 121]


async def test_refill_begins_below_ninety_percent_and_goes_up_to_the_capacity(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 30)
    await dispatch.leased(parcels=1)
    assert await dispatch.upkeep.refill_turn() == 0
    await dispatch.leased(parcels=1)
    assert await dispatch.upkeep.refill_turn() == 2
    assert (await dispatch.states()) == {"LEASED": 2, "QUEUED": 10, "COLD_QUEUED": 18}
    await dispatch.check()


async def test_class_is_warm_again_at_eighty_percent_without_cold_parcels(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 11)
    await dispatch.leased(parcels=2)
    await dispatch.upkeep.refill_turn()
    assert (await dispatch.states()) == {"LEASED": 2, "QUEUED": 9}
    assert (await dispatch.arrive(SHOP, 1)).warm == []  # nine of ten, and no room is made
    await dispatch.leased(parcels=3)
    await dispatch.upkeep.refill_turn()
    assert await dispatch.ask(CLASSES) == [("parse", 0, 1, 1)]
    assert len((await dispatch.arrive(SHOP, 1)).warm) == 1
    await dispatch.check()


async def test_paused_flow_makes_room_for_others_of_its_class(dispatch: Dispatching) -> None:
    paused, running = flow("paused", "parse"), flow("running", "parse")
    await dispatch.define(paused, running)
    await dispatch.arrive(paused, 15)
    await dispatch.set_state("paused", "PAUSED")
    await dispatch.arrive(running, 5)
    assert await dispatch.lease() is None
    await dispatch.upkeep.refill_turn()
    await dispatch.check()
    lease = await dispatch.leased()
    assert Counter(parcel.flow for parcel in lease.parcels) == {"running": 5}
    # Cold parcels of the paused flow do not keep others cold, but its own ones behind them.
    await dispatch.upkeep.refill_turn()
    assert len((await dispatch.arrive(running, 2)).warm) == 2
    assert (await dispatch.arrive(paused, 1)).warm == []
    await dispatch.leased()
    await dispatch.set_state("paused", "RUNNING")
    dispatch.leasing.look_again()
    leases = await drained(dispatch, parcels=4)
    assert first_seqs(leases) == sorted(first_seqs(leases))
    assert len(first_seqs(leases)) == 16
    await dispatch.check()


# --- attempts that come to nothing --------------------------------------------------------------------------------


async def test_expired_lease_is_queued_again_at_the_old_place(dispatch: Dispatching, clock: FakeClock) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 4)
    lost = await dispatch.leased(parcels=2)
    clock.advance(59)
    await dispatch.upkeep.expiry_turn()
    assert (await dispatch.states()) == {"LEASED": 2, "QUEUED": 2}
    clock.advance(2)
    await dispatch.upkeep.expiry_turn()
    again = await dispatch.leased(worker="w2")
    assert dids(again)[:2] == dids(lost)
    assert [parcel.attempt for parcel in again.parcels] == [2, 2, 1, 1]
    assert (await dispatch.number("requeues"), await dispatch.number("lease_expiries")) == (2, 1)
    await dispatch.check()


async def test_heartbeat_keeps_a_lease(dispatch: Dispatching, clock: FakeClock) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 1)
    lease = await dispatch.leased()
    for _ in range(5):
        clock.advance(50)
        assert await dispatch.leasing.heartbeat(lease.lease_id) == clock.now_us() + 60_000_000
        await dispatch.upkeep.expiry_turn()
    await dispatch.complete(lease)
    with pytest.raises(LeaseLost):
        await dispatch.leasing.heartbeat(lease.lease_id)


async def test_frozen_worker_that_completes_late_is_refused_and_its_stages_dropped(
    dispatch: Dispatching, clock: FakeClock
) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 2)
    frozen = await dispatch.leased(worker="frozen")
    staged = await stage(dispatch.store, b"late", queue="results")
    clock.advance(61)
    await dispatch.upkeep.expiry_turn()
    other = await dispatch.leased(worker="other")
    outcomes = [Outcome(did, "COMPLETE") for did in dids(frozen)]
    with pytest.raises(LeaseLost):
        await dispatch.leasing.complete(CompleteRequest(frozen.lease_id, outcomes, OF, [staged.stage_id]))
    assert (await dispatch.store.stage_figures()).stages == 0
    with pytest.raises(UnknownQueue):
        await dispatch.store.read("results", 1, 10)
    assert {row[7] for row in await dispatch.ask(ROWS)} == {other.lease_id}
    await dispatch.complete(other)
    assert (await dispatch.parcel_states()) == {"COMPLETE": 2}


async def test_completion_after_the_lease_ended_is_refused_before_anything_noticed(
    dispatch: Dispatching, clock: FakeClock
) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 1)
    lease = await dispatch.leased()
    clock.advance(60)
    with pytest.raises(LeaseLost):
        await dispatch.complete(lease)
    await dispatch.upkeep.expiry_turn()
    assert (await dispatch.leased()).parcels[0].attempt == 2


async def test_poison_goes_into_error_with_its_history(dispatch: Dispatching, clock: FakeClock) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 1)
    for attempt in (1, 2, 3):
        lease = await dispatch.leased(worker=f"w{attempt}")
        assert lease.parcels[0].attempt == attempt
        clock.advance(61)
        await dispatch.upkeep.expiry_turn()
    assert await dispatch.lease() is None
    assert (await dispatch.states()) == {"ERROR": 1}
    assert (await dispatch.parcel_states()) == {"ERROR": 1}
    events = await dispatch.events(dids(lease)[0])
    assert [event[:4] for event in events] == [
        (1, "EXPIRED", "w1", 1),
        (2, "EXPIRED", "w2", 2),
        (3, "EXPIRED", "w3", 3),
        (4, "ERROR", "", 3),
    ]
    assert "all 3 attempts are used up" in events[-1][4]
    await dispatch.check()


async def test_error_is_queued_again_when_it_is_due(dispatch: Dispatching, clock: FakeClock) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 2)
    await dispatch.complete(await dispatch.leased(parcels=1), "ERROR", error="no route")
    assert (await dispatch.parcel_states()) == {"ERROR": 1, "IN_FLIGHT": 1}
    clock.advance(9)
    await dispatch.upkeep.expiry_turn()
    assert (await dispatch.states()) == {"ERROR": 1, "QUEUED": 1}
    clock.advance(2)
    await dispatch.upkeep.expiry_turn()
    lease = await dispatch.leased()
    assert [(parcel.attempt, parcel.ranges[0].first_seq) for parcel in lease.parcels] == [(2, 1), (1, 11)]
    assert (await dispatch.parcel_states()) == {"IN_FLIGHT": 2}


async def test_error_stays_when_its_attempts_are_used_up(dispatch: Dispatching, clock: FakeClock) -> None:
    once = flow("shop", "parse", retry=Retry(max_attempts=1))
    await dispatch.define(once)
    await dispatch.arrive(once, 1)
    await dispatch.complete(await dispatch.leased(), "ERROR", error="no route")
    clock.advance(3600)
    await dispatch.upkeep.expiry_turn()
    [row] = await dispatch.ask(ROWS)
    assert (row[4], row[9], row[10]) == ("ERROR", None, "no route")


async def test_released_parcels_are_queued_again_and_the_attempt_does_not_count(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 3)
    lease = await dispatch.leased(parcels=2)
    assert await dispatch.leasing.release(lease.lease_id) == 2
    assert await dispatch.leasing.release(lease.lease_id) == 0
    again = await dispatch.leased()
    assert dids(again)[:2] == dids(lease)
    assert [parcel.attempt for parcel in again.parcels] == [1, 1, 1]
    with pytest.raises(LeaseLost):
        await dispatch.complete(lease)
    await dispatch.check()


async def test_parcel_that_a_completion_leaves_out_is_queued_again_and_its_attempt_counts(
    dispatch: Dispatching,
) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 2)
    lease = await dispatch.leased()
    done, left_out = dids(lease)
    await dispatch.leasing.complete(CompleteRequest(lease.lease_id, [Outcome(done, "COMPLETE")]))
    again = await dispatch.leased()
    assert [(parcel.did, parcel.attempt) for parcel in again.parcels] == [(left_out, 2)]
    assert [event[1] for event in await dispatch.events(left_out)] == ["LEFT_OUT"]


# --- once, or not at all ------------------------------------------------------------------------------------------


async def test_same_completion_again_changes_nothing(dispatch: Dispatching) -> None:
    await dispatch.define(TWO_STEPS)
    await dispatch.arrive(TWO_STEPS, 2)
    lease = await dispatch.leased("parse")
    staged = await stage(dispatch.store, b"a", queue="results")
    outcomes = [Outcome(dids(lease)[0], "COMPLETE"), Outcome(dids(lease)[1], "FILTERED")]
    request = CompleteRequest(lease.lease_id, outcomes, OF, [staged.stage_id])
    assert not (await dispatch.leasing.complete(request)).is_repeated
    before = await dispatch.ask(ROWS)
    assert (await dispatch.leasing.complete(request)).is_repeated
    assert await dispatch.ask(ROWS) == before
    assert len(await dispatch.store.read("results", 1, 10)) == 1


async def test_completion_with_other_outcomes_is_refused(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 1)
    lease = await dispatch.leased()
    await dispatch.complete(lease)
    with pytest.raises(LeaseLost, match="completed otherwise"):
        await dispatch.complete(lease, "ERROR", error="changed my mind")


async def test_completion_whose_stages_are_unknown_leaves_the_lease(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 1)
    lease = await dispatch.leased()
    outcomes = [Outcome(dids(lease)[0], "COMPLETE")]
    with pytest.raises(StageUnknown):
        await dispatch.leasing.complete(CompleteRequest(lease.lease_id, outcomes, OF, ["nowhere"]))
    assert (await dispatch.states()) == {"LEASED": 1}
    await dispatch.complete(lease)


async def test_parcel_of_another_lease_is_refused_and_the_lease_ends(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 2)
    mine, other = await dispatch.leased(parcels=1), await dispatch.leased(parcels=1)
    outcomes = [Outcome(dids(mine)[0], "COMPLETE"), Outcome(dids(other)[0], "COMPLETE")]
    with pytest.raises(LeaseLost, match="is not one of its 1"):
        await dispatch.leasing.complete(CompleteRequest(mine.lease_id, outcomes))
    await dispatch.upkeep.expiry_turn()
    assert (await dispatch.states()) == {"LEASED": 1, "QUEUED": 1}
    await dispatch.complete(other)


async def test_two_completions_at_once_are_done_once(dispatch: Dispatching) -> None:
    await dispatch.define(TWO_STEPS)
    await dispatch.arrive(TWO_STEPS, 5)
    lease = await dispatch.leased()
    done = await asyncio.gather(*(dispatch.complete(lease) for _ in range(4)))
    assert sorted(completion.is_repeated for completion in done) == [False, True, True, True]
    assert (await dispatch.states()) == {"COMPLETE": 5, "QUEUED": 5}


async def test_many_workers_at_once_never_get_the_same_parcel(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 10)
    leases = await asyncio.gather(*(dispatch.lease(parcels=2, worker=f"w{n}") for n in range(8)))
    given = [did for lease in leases if lease is not None for did in dids(lease)]
    assert len(given) == len(set(given)) == 10
    await dispatch.check()


# --- waiting ------------------------------------------------------------------------------------------------------


async def test_waiting_worker_is_woken_by_a_parcel_of_its_class(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    request = LeaseRequest("w1", ["parse"], wait_seconds=30)
    waiting = asyncio.create_task(dispatch.leasing.lease(request))
    await asyncio.sleep(0)
    await dispatch.arrive(SHOP, 1)
    lease = await waiting
    assert lease is not None
    assert len(lease.parcels) == 1


async def test_lease_of_a_worker_that_went_away_is_given_back(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.arrive(SHOP, 3)
    waiting = asyncio.create_task(dispatch.leasing.lease(LeaseRequest("w1", ["*"], wait_seconds=30)))
    for _ in range(3):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await dispatch.leasing.close()
    assert (await dispatch.states()) == {"QUEUED": 3}
    assert [parcel.attempt for parcel in (await dispatch.leased()).parcels] == [1, 1, 1]


# --- the warm tier is a hint --------------------------------------------------------------------------------------


async def test_parcels_that_the_warm_tier_lost_are_leased_from_the_database(dispatch: Dispatching) -> None:
    busy, quiet = flow("busy", "parse"), flow("quiet", "parse")
    await dispatch.define(busy, quiet)
    enqueued = [await dispatch.arrive(busy, 6), await dispatch.arrive(quiet, 3)]
    for one in enqueued:
        await dispatch.warm.remove(one.warm)
    lease = await dispatch.leased(parcels=4)
    assert Counter(parcel.flow for parcel in lease.parcels) == {"busy": 2, "quiet": 2}
    rest = await dispatch.leased()
    assert Counter(parcel.flow for parcel in rest.parcels) == {"busy": 4, "quiet": 1}
    of_busy = [parcel.ranges[0].first_seq for one in (lease, rest) for parcel in one.parcels if parcel.flow == "busy"]
    assert of_busy == [1, 11, 21, 31, 41, 51]
    await dispatch.check()


async def test_warm_tier_that_lost_entries_is_rebuilt(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    await dispatch.upkeep.sizes_turn()
    enqueued = await dispatch.arrive(SHOP, 8)
    await dispatch.upkeep.sizes_turn()
    await dispatch.warm.remove(enqueued.warm[2:4])
    assert await dispatch.upkeep.watch.turn() == []
    assert await dispatch.upkeep.watch.turn() == ["parse"]
    assert dict(await dispatch.warm.sizes()) == {"parse": 8}
    assert first_seqs([await dispatch.leased()]) == [1, 11, 21, 31, 41, 51, 61, 71]


async def test_warm_tier_without_its_marker_is_rebuilt_at_once(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    enqueued = await dispatch.arrive(SHOP, 8)
    await dispatch.warm.remove(enqueued.warm)
    assert await dispatch.warm.marker() == ""
    assert await dispatch.upkeep.watch.turn() == ["parse"]
    assert dict(await dispatch.warm.sizes()) == {"parse": 8}


async def test_entry_whose_row_moved_on_is_dropped(dispatch: Dispatching) -> None:
    await dispatch.define(SHOP)
    enqueued = await dispatch.arrive(SHOP, 4)
    await dispatch.complete(await dispatch.leased(parcels=2))
    await dispatch.warm.add(enqueued.warm)
    lease = await dispatch.leased()
    assert first_seqs([lease]) == [21, 31]
    assert dict(await dispatch.warm.sizes()) in ({}, {"parse": 0})
