"""Resuming on every store: by a person, and by policies for what fails later and for what has failed before."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from fixtures.flow_steps import Flowing, cutting
from forebay.dispatch.definition import Retry, Step
from forebay.dispatch.faults import PolicyRefused
from forebay.dispatch.ledger.resuming import next_due_of, policies, remove_policy, resume, set_policy
from forebay.dispatch.retries import Failure, ResumePolicy
from forebay.dispatch.views import ParcelFilter

pytestmark = pytest.mark.asyncio
ONE_TRY = Retry(max_attempts=1)


async def failed(flows: Flowing, count: int, error: str = "the disk is full") -> list[str]:
    """So many parcels in ERROR for good; their dids."""
    await flows.define(cutting(retry=ONE_TRY))
    await flows.push(10 * count)
    await flows.cut()
    lease = await flows.leased(parcels=count)
    await flows.complete(lease, "ERROR", error=error)
    return [parcel.did for parcel in lease.parcels]


async def test_resumed_parcels_are_queued_at_their_place_with_their_attempts_reset(flows: Flowing) -> None:
    dids = await failed(flows, 3)
    places = [(await flows.show(did)).parcel.place for did in dids]
    resumed = await flows.store.together(partial(resume, ParcelFilter(error="disk"), 100, 10))
    await flows.leasing.offer(resumed.enqueued)
    assert resumed.parcels == 3
    assert await flows.parcel_states() == {"IN_FLIGHT": 3}
    lease = await flows.leased()
    assert [parcel.attempt for parcel in lease.parcels] == [1, 1, 1]
    assert [(await flows.show(parcel.did)).parcel.place for parcel in lease.parcels] == places
    assert [event.event for event in (await flows.show(dids[0])).events] == ["ERROR", "RESUMED"]
    await flows.check()


async def test_resume_takes_only_errors_that_fit_up_to_the_limit(flows: Flowing) -> None:
    await failed(flows, 3)
    await failed(flows, 1, "no route")
    for wanted in (ParcelFilter(error="other"), ParcelFilter(state="COMPLETE"), ParcelFilter(flow="x")):
        assert (await flows.store.together(partial(resume, wanted, 100, 10))).parcels == 0
    piece = partial(resume, ParcelFilter(error="disk"), 2, 10)
    assert [(await flows.store.together(piece)).parcels for _ in range(3)] == [2, 1, 0]
    assert await flows.parcel_states() == {"IN_FLIGHT": 3, "ERROR": 1}


async def test_parcel_is_resumed_once_by_several_people(flows: Flowing) -> None:
    [did] = await failed(flows, 1)
    work = partial(resume, ParcelFilter(did=did), 10, 10)
    counts = [done.parcels for done in await asyncio.gather(*[flows.store.together(work) for _ in range(4)])]
    assert sorted(counts) == [0, 0, 0, 1]
    assert [event.event for event in (await flows.show(did)).events] == ["ERROR", "RESUMED"]


async def test_policy_resumes_what_has_failed_before(flows: Flowing) -> None:
    await failed(flows, 2)
    await failed(flows, 1, "no route")
    policy = ResumePolicy(name="disk", error_text="disk", delay_seconds=30)
    assert await flows.store.together(partial(set_policy, policy)) == 2
    assert await flows.store.together(partial(set_policy, policy)) == 0
    flows.clock.advance(29)
    await flows.upkeep.expiry_turn()
    assert await flows.parcel_states() == {"ERROR": 3}
    flows.clock.advance(1)
    await flows.upkeep.expiry_turn()
    assert await flows.parcel_states() == {"ERROR": 1, "IN_FLIGHT": 2}
    assert [parcel.attempt for parcel in (await flows.leased()).parcels] == [2, 2]


async def test_policies_are_asked_by_priority_and_kept_until_removed(flows: Flowing) -> None:
    low = ResumePolicy(name="all-of-shop", flow="shop", delay_seconds=5)
    high = ResumePolicy(name="disk", error_text="the disk is full", delay_seconds=7)
    for policy in (low, high):
        await flows.store.together(partial(set_policy, policy))
    known = await flows.store.look(policies)
    assert [policy.name for policy in known] == ["disk", "all-of-shop"]
    due = next_due_of(known)
    assert due(ONE_TRY, Failure("shop", "parse", "the disk is full", 1), 0) == 7_000_000
    assert due(ONE_TRY, Failure("shop", "parse", "other", 1), 0) == 5_000_000
    assert due(ONE_TRY, Failure("bakery", "parse", "other", 1), 0) is None
    assert await flows.store.together(partial(remove_policy, "disk"))
    assert not await flows.store.together(partial(remove_policy, "disk"))
    assert await flows.store.look(policies) == [low]


async def test_policy_gives_up_after_its_attempts(flows: Flowing) -> None:
    await failed(flows, 1)
    policy = ResumePolicy(name="shop", flow="shop", max_attempts=2, delay_seconds=1)
    await flows.store.together(partial(set_policy, policy))
    flows.clock.advance(1)
    await flows.upkeep.expiry_turn()
    lease = await flows.leased()
    assert next_due_of([policy])(ONE_TRY, Failure("shop", "parse", "", lease.parcels[0].attempt), 0) is None


async def test_policy_that_fits_nothing_is_refused_with_all_its_faults(flows: Flowing) -> None:
    wrong = ResumePolicy(name="", max_attempts=1, multiplier=0.5, delay_seconds=10, max_delay_seconds=1)
    with pytest.raises(PolicyRefused) as refused:
        await flows.store.together(partial(set_policy, wrong))
    assert {fault.field for fault in refused.value.faults} == {
        "name",
        "errorText",
        "maxAttempts",
        "maxDelaySeconds",
        "multiplier",
    }
    assert await flows.store.look(policies) == []


async def test_resumed_parcel_goes_on_under_the_newest_definition_of_its_flow(flows: Flowing) -> None:
    [did] = await failed(flows, 1, "the SQL is wrong")
    mended = msgspec.structs.replace(cutting(retry=ONE_TRY), spec={"sql": "SELECT 1"})
    await flows.define(mended)
    resumed = await flows.store.together(partial(resume, ParcelFilter(did=did), 10, 10))
    await flows.leasing.offer(resumed.enqueued)
    lease = await flows.leased()
    assert [parcel.version for parcel in lease.parcels] == [2]
    assert lease.definitions["shop@2"].spec == {"sql": "SELECT 1"}
    await flows.check()


async def test_resumed_parcel_keeps_its_definition_where_its_step_is_another_action_by_now(flows: Flowing) -> None:
    [did] = await failed(flows, 1)
    await flows.define(cutting("shop", Step(action="other", action_class="other", retry=ONE_TRY)))
    resumed = await flows.store.together(partial(resume, ParcelFilter(did=did), 10, 10))
    await flows.leasing.offer(resumed.enqueued)
    assert [parcel.version for parcel in (await flows.leased()).parcels] == [1]


# --- a clock that is set back -------------------------------------------------------------------------------------


async def test_retry_does_not_wait_for_as_long_as_the_clock_was_set_back(flows: Flowing) -> None:
    await flows.define(cutting(retry=Retry(max_attempts=2, delay_seconds=10, jitter=0)))
    await flows.push(10)
    await flows.cut()
    flows.clock.advance(60)
    await flows.complete(await flows.leased(), "ERROR", error="bad")
    flows.clock.advance(4)
    flows.clock.step(-86_400)
    await flows.upkeep.expiry_turn()
    flows.clock.advance(9)
    await flows.upkeep.expiry_turn()
    assert await flows.parcel_states() == {"ERROR": 1}
    flows.clock.advance(1)
    await flows.upkeep.expiry_turn()
    assert await flows.parcel_states() == {"IN_FLIGHT": 1}


async def test_policy_does_not_wait_for_as_long_as_the_clock_was_set_back(flows: Flowing) -> None:
    [did] = await failed(flows, 1)
    flows.clock.advance(60)
    await flows.store.together(partial(set_policy, ResumePolicy(name="disk", error_text="disk", delay_seconds=30)))
    flows.clock.step(-30)  # to a time behind that of the error itself
    await flows.upkeep.expiry_turn()
    flows.clock.advance(30)
    await flows.upkeep.expiry_turn()
    assert (await flows.show(did)).parcel.state == "IN_FLIGHT"


async def test_retry_that_was_due_when_the_clock_is_set_back_a_little_keeps_its_time(flows: Flowing) -> None:
    await flows.define(cutting(retry=Retry(max_attempts=2, delay_seconds=10, jitter=0)))
    await flows.push(10)
    await flows.cut()
    await flows.complete(await flows.leased(), "ERROR", error="bad")
    flows.clock.advance(9)
    flows.clock.step(-5)
    await flows.upkeep.expiry_turn()
    flows.clock.advance(6)
    await flows.upkeep.expiry_turn()
    assert await flows.parcel_states() == {"IN_FLIGHT": 1}
