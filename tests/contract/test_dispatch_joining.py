"""Joins on every store: full or old enough, never of different keys, and nothing is lost where too few came."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from fixtures.dispatch_steps import spans
from fixtures.flow_steps import Flowing, cutting
from forebay.dispatch.definition import Join, Step
from forebay.dispatch.ledger.ending import cancel
from forebay.dispatch.ledger.joining import joined_from, merged
from forebay.dispatch.ledger.resuming import resume
from forebay.dispatch.values import Range
from forebay.dispatch.views import ParcelFilter

pytestmark = pytest.mark.asyncio


def joining(join: Join) -> tuple[Step, ...]:
    return Step(action="parse", action_class="parse"), Step(action="sum", action_class="sum", join=join)


async def parsed(flows: Flowing, count: int, **annotations: str) -> list[str]:
    """So many parcels are parsed and come to the join; their dids in the order of places."""
    await flows.push(10 * count)
    await flows.cut()
    lease = await flows.leased("parse")
    await flows.complete(lease, annotations=annotations)
    return [parcel.did for parcel in lease.parcels]


async def test_join_is_released_at_once_when_it_is_full(flows: Flowing) -> None:
    await flows.define(cutting("shop", *joining(Join(max_age_seconds=60, max=3))))
    first = await parsed(flows, 2)
    assert await flows.lease("sum") is None
    assert (await flows.status()).joining == 2
    last = await parsed(flows, 1)
    [parcel] = (await flows.leased("sum")).parcels
    assert spans(parcel.ranges) == [("orders", 1, 30)]
    assert (parcel.messages, parcel.attempt) == (30, 1)
    members = await flows.store.look(partial(joined_from, [parcel.did]))
    assert members == {parcel.did: first + last}
    shown = await flows.show(parcel.did)
    assert list(shown.joined) == first + last
    member = await flows.show(first[0])
    assert (member.parcel.state, list(member.children)) == ("COMPLETE", [parcel.did])
    assert member.events[-1].event == "JOINED"
    assert shown.parcel.place == member.parcel.place
    await flows.check()


async def test_more_than_full_is_released_as_often_as_it_is_full(flows: Flowing) -> None:
    await flows.define(cutting("shop", *joining(Join(max_age_seconds=60, max=2))))
    await parsed(flows, 7)
    joined = (await flows.leased("sum")).parcels
    assert [parcel.messages for parcel in joined] == [20, 20, 20]
    assert (await flows.status()).joining == 1


async def test_join_is_released_when_the_oldest_has_waited_long_enough(flows: Flowing) -> None:
    await flows.define(cutting("shop", *joining(Join(max_age_seconds=60, min=2, max=100))))
    await parsed(flows, 1)
    flows.clock.advance(50)
    await parsed(flows, 1)
    flows.clock.advance(9)
    await flows.sources.joins_turn()
    assert await flows.lease("sum") is None
    flows.clock.advance(1)
    await flows.sources.joins_turn()
    [parcel] = (await flows.leased("sum")).parcels
    assert parcel.messages == 20


async def test_too_few_at_the_maximum_age_are_errors_and_wait_again_when_resumed(flows: Flowing) -> None:
    await flows.define(cutting("shop", *joining(Join(max_age_seconds=60, min=3))))
    dids = await parsed(flows, 2)
    flows.clock.advance(60)
    await flows.sources.joins_turn()
    assert await flows.parcel_states() == {"ERROR": 2}
    assert (await flows.show(dids[0])).parcel.error == "join: 2 of at least 3 parcels came within 60 s"
    resumed = await flows.store.together(partial(resume, ParcelFilter(flow="shop"), 100, 10))
    assert resumed.parcels == 2
    assert (await flows.status()).joining == 2
    await parsed(flows, 1)
    flows.clock.advance(60)
    await flows.sources.joins_turn()
    [parcel] = (await flows.leased("sum")).parcels
    assert parcel.messages == 30


async def test_keys_are_not_mixed(flows: Flowing) -> None:
    await flows.define(cutting("shop", *joining(Join(max_age_seconds=60, max=2, key="shop"))))
    await parsed(flows, 1, shop="a")
    await parsed(flows, 1, shop="b")
    await parsed(flows, 1)
    assert await flows.lease("sum") is None
    await parsed(flows, 1, shop="b")
    [parcel] = (await flows.leased("sum")).parcels
    assert spans(parcel.ranges) == [("orders", 11, 20), ("orders", 31, 40)]
    assert (await flows.show(parcel.did)).parcel.annotations == {"shop": "b"}


async def test_join_at_the_first_step_takes_what_is_cut(flows: Flowing) -> None:
    step = Step(action="sum", action_class="sum", join=Join(max_age_seconds=60, max=4))
    await flows.define(cutting("shop", step))
    await flows.push(40)
    await flows.cut()
    [parcel] = (await flows.leased("sum")).parcels
    assert parcel.messages == 40
    assert await flows.parcel_states() == {"COMPLETE": 4, "IN_FLIGHT": 1}


async def test_join_is_released_once_by_several_servers(flows: Flowing) -> None:
    await flows.define(cutting("shop", *joining(Join(max_age_seconds=60))))
    await parsed(flows, 5)
    flows.clock.advance(60)
    servers = [flows.another_server() for _ in range(4)]
    await asyncio.gather(*[server.joins_turn() for server in servers])
    [parcel] = (await flows.leased("sum")).parcels
    assert parcel.messages == 50
    assert await flows.parcel_states() == {"COMPLETE": 5, "IN_FLIGHT": 1}


async def test_age_counts_from_now_when_the_clock_is_set_back(flows: Flowing) -> None:
    await flows.define(cutting("shop", *joining(Join(max_age_seconds=60))))
    await parsed(flows, 1)
    flows.clock.step(-86_400)
    await flows.sources.joins_turn()
    flows.clock.advance(60)
    await flows.sources.joins_turn()
    assert len((await flows.leased("sum")).parcels) == 1


async def test_messages_of_a_joined_parcel_are_held(flows: Flowing) -> None:
    await flows.define(cutting("shop", *joining(Join(max_age_seconds=60, max=2))))
    await parsed(flows, 2)
    await flows.sources.holds_turn()
    assert await flows.holds() == [("shop", 1)]
    await flows.complete(await flows.leased("sum"))
    await flows.sources.holds_turn()
    assert await flows.holds() == [("shop", 21)]


async def test_cancelled_member_is_not_joined(flows: Flowing) -> None:
    await flows.define(cutting("shop", *joining(Join(max_age_seconds=60))))
    dids = await parsed(flows, 2)
    await flows.store.together(partial(cancel, ParcelFilter(did=dids[0]), 1))
    flows.clock.advance(60)
    await flows.sources.joins_turn()
    [parcel] = (await flows.leased("sum")).parcels
    assert spans(parcel.ranges) == [("orders", 11, 20)]


async def test_ranges_that_follow_on_each_other_become_one() -> None:
    given = [Range("a", 1, 2), Range("a", 3, 4), Range("b", 5, 6), Range("a", 7, 8), Range("a", 10, 11)]
    assert merged(given) == [Range("a", 1, 4), Range("b", 5, 6), Range("a", 7, 8), Range("a", 10, 11)]


async def test_ranges_of_two_queues_of_a_name_stay_apart() -> None:
    given = [Range("a", 1, 2, "1-7", 0), Range("a", 3, 4, "1-7", 0), Range("a", 5, 6, "2-7", 0)]
    assert merged(given) == [Range("a", 1, 4, "1-7", 0), Range("a", 5, 6, "2-7", 0)]
    given = [Range("a", 1, 2, "1-7", 2), Range("a", 3, 4, "1-7", 0)]
    assert merged(given) == given, "of the second nothing may be absent"
