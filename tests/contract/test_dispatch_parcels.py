"""Parcels on every store: found by filter, shown with their history, annotated, cancelled, replayed, and removed."""

from __future__ import annotations

from functools import partial

import pytest

from fixtures.dispatch_steps import spans
from fixtures.flow_steps import Flowing, cutting
from fixtures.store_steps import configure
from forebay.dispatch.definition import Retry, Step
from forebay.dispatch.faults import AnnotationKept, AnnotationsRefused, UnknownFlow, UnknownParcel
from forebay.dispatch.ledger.ageing import remove_finished
from forebay.dispatch.ledger.ending import cancel
from forebay.dispatch.ledger.flow_work import flow_work
from forebay.dispatch.ledger.flows import forget
from forebay.dispatch.ledger.parcels import Replayed, annotate, replay, show
from forebay.dispatch.values import Child, CompleteRequest, Outcome, Range
from forebay.dispatch.views import FlowWork, ParcelFilter
from forebay.errors import LeaseLost, QueueReplaced, RangeIncomplete, UnknownQueue
from forebay.model.queue import QueueOptions

pytestmark = pytest.mark.asyncio
ONE_TRY = Retry(max_attempts=1)
TWO_STEPS = (
    Step(action="parse", action_class="parse", retry=ONE_TRY),
    Step(action="enrich", action_class="enrich", retry=ONE_TRY),
)


async def cut_parcels(flows: Flowing, count: int) -> list[str]:
    """Their dids, in the order of places."""
    await flows.push(10 * count)
    await flows.cut()
    return [parcel.did for parcel in reversed(await flows.find(limit=count))]


async def test_work_is_counted_by_flow_until_the_flow_is_forgotten(flows: Flowing) -> None:
    await flows.define(cutting("shop", *TWO_STEPS), cutting("other"))
    await cut_parcels(flows, 2)
    for action_class, bad in (("parse", 1), ("enrich", 2)):
        lease = await flows.leased(action_class, parcels=2)
        outcomes = [Outcome(one.did, "COMPLETE", rows_in=10, bad=bad, skipped=3) for one in lease.parcels]
        await flows.leasing.complete(CompleteRequest(lease.lease_id, outcomes))
        await flows.leasing.complete(CompleteRequest(lease.lease_id, outcomes))  # its answer was lost
    assert await flows.store.look(flow_work) == {"shop": FlowWork(2, 20, 6, 12, 0, "")}
    await flows.store.together(partial(forget, "shop"))
    assert await flows.store.look(flow_work) == {}


# --- finding ------------------------------------------------------------------------------------------------------


async def test_pages_together_are_the_whole_list_newest_first(flows: Flowing) -> None:
    await flows.define(cutting())
    dids = await cut_parcels(flows, 7)
    pages, after = [], None
    while page := await flows.find(3, after):
        pages += page
        after = (page[-1].place, page[-1].did)
    assert [parcel.did for parcel in pages] == dids[::-1]


async def test_pages_do_not_lose_parts_that_share_a_place(flows: Flowing) -> None:
    await flows.define(cutting("shop", *TWO_STEPS))
    await cut_parcels(flows, 1)
    lease = await flows.leased("parse")
    children = [Child([Range("orders", seq, seq)], 1) for seq in range(1, 6)]
    outcome = Outcome(lease.parcels[0].did, "COMPLETE", children=children)
    await flows.leasing.complete(CompleteRequest(lease.lease_id, [outcome]))
    pages, after = [], None
    while page := await flows.find(2, after):
        pages += page
        after = (page[-1].place, page[-1].did)
    assert len({parcel.did for parcel in pages}) == len(pages) == 6
    assert len((await flows.show(lease.parcels[0].did)).children) == 5


async def test_every_filter_narrows(flows: Flowing) -> None:
    await flows.define(cutting("shop", *TWO_STEPS), cutting("other"))
    dids = await cut_parcels(flows, 3)
    flows.clock.advance(60)
    later_us = flows.clock.now_us()
    await flows.cut("other")
    lease = await flows.leased("parse", parcels=1, worker="w7")
    of_shop = [did for did in dids if did != lease.parcels[0].did]
    assert {parcel.did for parcel in await flows.find(flow="shop")} == set(dids)
    assert {parcel.flow for parcel in await flows.find(since_us=later_us)} == {"other"}
    assert {parcel.flow for parcel in await flows.find(before_us=later_us)} == {"shop"}
    [leased] = await flows.find(state="LEASED")
    assert (leased.did, leased.worker, leased.attempts) == (lease.parcels[0].did, "w7", 1)
    await flows.complete(lease, "ERROR", error="100% of disk_1 is full")
    for text, found in (("disk_1", 1), ("100% of", 1), ("diskX1", 0), ("FULL", 0)):
        assert len(await flows.find(error=text)) == found
    assert [parcel.did for parcel in await flows.find(state="ERROR")] == [leased.did]
    assert len(await flows.find(state="QUEUED", action_class="parse", flow="shop")) == len(of_shop)
    assert await flows.find(action="enrich") == []
    assert [parcel.did for parcel in await flows.find(did=dids[0])] == [dids[0]]
    assert len(await flows.find(did=dids[0][:13])) >= 3


# --- showing and annotating ---------------------------------------------------------------------------------------


async def test_history_has_steps_and_events_in_order(flows: Flowing) -> None:
    await flows.define(cutting("shop", *TWO_STEPS))
    [did] = await cut_parcels(flows, 1)
    await flows.complete(await flows.leased("parse"))
    await flows.complete(await flows.leased("enrich"), "FILTERED")
    history = await flows.show(did)
    assert (history.parcel.state, history.parcel.step) == ("FILTERED", 1)
    assert [(step.action, step.state, spans(step.ranges)) for step in history.steps] == [
        ("parse", "COMPLETE", [("orders", 1, 10)]),
        ("enrich", "FILTERED", [("orders", 1, 10)]),
    ]
    assert [(event.number, event.event, event.action) for event in history.events] == [
        (1, "COMPLETE", "parse"),
        (2, "FILTERED", "enrich"),
    ]
    assert await flows.store.look(partial(show, "nothing")) is None
    assert await flows.store.look(partial(show, did[:8])) is None


async def test_annotations_are_added_and_only_overwritten_if_allowed(flows: Flowing) -> None:
    await flows.define(cutting())
    [did] = await cut_parcels(flows, 1)
    note = partial(flows.store.together)
    await note(partial(annotate, did, {"a": "1"}, overwrite=False))
    await note(partial(annotate, did, {"a": "1", "b": "2"}, overwrite=False))
    with pytest.raises(AnnotationKept, match="'a'"):
        await note(partial(annotate, did, {"c": "3", "a": "other"}, overwrite=False))
    found = await note(partial(annotate, did, {"a": "other"}, overwrite=True))
    assert found.annotations == {"a": "other", "b": "2"}
    with pytest.raises(UnknownParcel):
        await note(partial(annotate, "nothing", {"a": "1"}, overwrite=True))
    with pytest.raises(AnnotationsRefused, match="allowed are 100"):
        await note(partial(annotate, did, {f"n{n}": "" for n in range(99)}, overwrite=True))
    with pytest.raises(AnnotationsRefused, match=r"annotations\.a"):
        await note(partial(annotate, did, {"a": "x" * 1001}, overwrite=True))


# --- cancelling ---------------------------------------------------------------------------------------------------


async def test_cancelled_parcels_are_finished_wherever_they_were(flows: Flowing) -> None:
    await flows.define(cutting(retry=ONE_TRY))
    await cut_parcels(flows, 14)
    await flows.complete(await flows.leased(parcels=1), "ERROR", error="bad")
    await flows.complete(await flows.leased(parcels=1))
    lease = await flows.leased(parcels=2)
    cancelled = await flows.store.together(partial(cancel, ParcelFilter(flow="shop"), 100))
    assert cancelled.parcels == 13
    assert await flows.parcel_states() == {"CANCELLED": 13, "COMPLETE": 1}
    assert await flows.lease() is None
    with pytest.raises(LeaseLost):
        await flows.complete(lease)
    assert (await flows.store.together(partial(cancel, ParcelFilter(flow="shop"), 100))).parcels == 0
    assert (await flows.events(lease.parcels[0].did))[-1][1] == "CANCELLED"
    await flows.check()


async def test_cancel_takes_only_what_fits_and_no_more_than_the_limit(flows: Flowing) -> None:
    await flows.define(cutting("shop"), cutting("other"))
    await flows.push(50)
    await flows.cut("shop")
    await flows.cut("other")
    one = partial(cancel, ParcelFilter(flow="other"), 3)
    assert [(await flows.store.together(one)).parcels for _ in range(3)] == [3, 2, 0]
    assert {parcel.state for parcel in await flows.find(flow="shop")} == {"IN_FLIGHT"}
    assert (await flows.store.together(partial(cancel, ParcelFilter(state="COMPLETE"), 3))).parcels == 0


# --- replaying ----------------------------------------------------------------------------------------------------


async def replayed(flows: Flowing, did: str) -> Replayed:
    return await flows.store.together(partial(replay, did, 10))


async def test_replay_is_a_new_parcel_of_the_same_messages_at_the_end_of_the_line(flows: Flowing) -> None:
    await flows.define(cutting())
    first, last = await cut_parcels(flows, 2)
    await flows.complete(await flows.leased())
    await flows.define(cutting("shop", *TWO_STEPS))
    await flows.store.together(partial(annotate, first, {"a": "1"}, overwrite=True))
    made = await replayed(flows, first)
    [new] = await flows.find(state="IN_FLIGHT")
    assert (new.did, new.parent, new.first_seq, new.last_seq) == (made.did, first, 1, 10)
    assert new.place > (await flows.show(last)).parcel.place
    assert (new.version, new.annotations) == (2, {"a": "1"})
    assert (await flows.show(first)).children == [made.did]
    assert ("shop", 1) in await flows.holds()


async def test_replay_is_refused_when_messages_are_gone(flows: Flowing) -> None:
    await configure(flows.store, QueueOptions(retention_seconds=60))
    await flows.define(cutting())
    first, last = await cut_parcels(flows, 2)
    await flows.complete(await flows.leased(parcels=1))
    await flows.sources.holds_turn()
    flows.clock.advance(100)
    await flows.store.apply_retention()
    with pytest.raises(RangeIncomplete, match="between seq 1 and 10 are gone"):
        await replayed(flows, first)
    await replayed(flows, last)
    await flows.store.delete_queue("orders")
    with pytest.raises(UnknownQueue):
        await replayed(flows, last)
    await flows.push(30)
    with pytest.raises(QueueReplaced, match="'orders' is another one than expected"):
        await replayed(flows, last)
    with pytest.raises(UnknownParcel):
        await replayed(flows, "nothing")


async def test_parcel_of_a_forgotten_flow_is_not_replayed(flows: Flowing) -> None:
    await flows.define(cutting())
    [did] = await cut_parcels(flows, 1)
    await flows.complete(await flows.leased())
    await flows.store.together(partial(forget, "shop"))
    with pytest.raises(UnknownFlow):
        await replayed(flows, did)


# --- retention ----------------------------------------------------------------------------------------------------


async def test_finished_parcels_go_with_their_history_when_they_are_old_in_pieces(flows: Flowing) -> None:
    await flows.define(cutting(retry=ONE_TRY))
    dids = await cut_parcels(flows, 5)
    await flows.complete(await flows.leased(parcels=3))
    await flows.complete(await flows.leased(parcels=1), "ERROR", error="bad")
    flows.clock.advance(100)
    assert await flows.store.together(partial(remove_finished, 100, 2)) == 0
    flows.clock.advance(1)
    old = partial(remove_finished, 100, 2)
    assert [await flows.store.together(old) for _ in range(3)] == [2, 1, 0]
    assert {parcel.did for parcel in await flows.find()} == set(dids[3:])
    assert await flows.events(dids[0]) == []
    assert await flows.states() == {"ERROR": 1, "QUEUED": 1}
    await flows.check()
