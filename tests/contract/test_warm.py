"""What every warm tier promises: in this process, and in a real Valkey."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

from forebay.dispatch.warm import WarmEntry, WarmTier


def entry(place: int, flow: str = "orders", action_class: str = "geo", step: int = 0) -> WarmEntry:
    return WarmEntry(action_class, flow, place, f"did-{place}", step)


def entries(places: Sequence[int], flow: str = "orders", action_class: str = "geo") -> list[WarmEntry]:
    return [entry(place, flow, action_class) for place in places]


async def paged(*pages: Sequence[WarmEntry]) -> AsyncIterator[Sequence[WarmEntry]]:
    for page in pages:
        yield page


async def test_the_lowest_place_is_taken_first(warm: WarmTier) -> None:
    await warm.add(entries([30, 10, 20]))
    await warm.add(entries([5]))
    assert await warm.take("geo", 2) == entries([5, 10])
    assert await warm.take("geo", 10) == entries([20, 30])
    assert await warm.take("geo", 10) == []


async def test_entries_come_back_as_they_were_given(warm: WarmTier) -> None:
    given = [WarmEntry("géo:x", "a:b", 7, "0190a:b-c", 3), WarmEntry("géo", "x:a:b", 8, "d", 0)]
    await warm.add(given)
    assert await warm.take("géo:x", 10) == given[:1]
    assert await warm.take("géo", 10) == given[1:]


async def test_places_beyond_the_doubles_keep_their_order(warm: WarmTier) -> None:
    places = [2**63 - 1, 2**53 + 1, 2**53, 2**53 + 2, 2**62 + 1, 2**62, 9, 10, 0]
    await warm.add(entries(places))
    assert await warm.take("geo", 100) == entries(sorted(places))


async def test_an_entry_added_twice_is_taken_once(warm: WarmTier) -> None:
    await warm.add(entries([1, 2]))
    await warm.add(entries([2, 1, 3]))
    assert await warm.sizes() == {"geo": 3}
    assert await warm.take("geo", 10) == entries([1, 2, 3])


async def test_two_steps_of_a_parcel_are_two_entries(warm: WarmTier) -> None:
    await warm.add([entry(1, step=1), entry(1, step=0)])
    assert await warm.take("geo", 10) == [entry(1, step=0), entry(1, step=1)]


async def test_flows_of_a_class_share_what_is_taken(warm: WarmTier) -> None:
    await warm.add(entries(range(1, 101), "large"))
    await warm.add(entries(range(101, 111), "small"))
    taken = await warm.take("geo", 8)
    assert Counter(one.flow for one in taken) == {"large": 4, "small": 4}
    for flow in ("large", "small"):
        places = [one.place for one in taken if one.flow == flow]
        assert places == sorted(places)


async def test_what_one_flow_leaves_of_its_share_goes_to_the_others(warm: WarmTier) -> None:
    await warm.add(entries(range(1, 101), "large"))
    await warm.add(entries([101], "small"))
    taken = await warm.take("geo", 50)
    assert Counter(one.flow for one in taken) == {"large": 49, "small": 1}


async def test_flows_take_turns_when_one_parcel_is_taken_at_a_time(warm: WarmTier) -> None:
    for flow in ("a", "b", "c"):
        await warm.add(entries(range(1, 10), flow))
    turns = [(await warm.take("geo", 1))[0].flow for _ in range(9)]
    assert Counter(turns) == {"a": 3, "b": 3, "c": 3}
    assert turns[:3] == turns[3:6] == turns[6:]


async def test_a_flow_that_comes_again_and_again_starves_no_other(warm: WarmTier) -> None:
    await warm.add(entries(range(1, 20), "waiting"))
    served = []
    for place in range(100, 110):
        await warm.add([entry(place, "trickle")])
        served += [(await warm.take("geo", 1))[0].flow]
    assert Counter(served)["waiting"] >= 4


async def test_more_flows_than_are_taken(warm: WarmTier) -> None:
    for number in range(20):
        await warm.add([entry(number, f"flow-{number:02}"), entry(number + 100, f"flow-{number:02}")])
    first = await warm.take("geo", 7)
    second = await warm.take("geo", 7)
    third = await warm.take("geo", 7)
    flows = [one.flow for one in (*first, *second, *third)]
    assert len(set(flows[:20])) == 20, "every flow had its turn before one has its second"


async def test_flows_are_passed_over_without_losing_their_place(warm: WarmTier) -> None:
    await warm.add(entries([1, 2], "paused"))
    await warm.add(entries([3], "running"))
    assert await warm.take("geo", 10, without={"paused", "unknown"}) == entries([3], "running")
    assert await warm.take("geo", 10, without=["paused"]) == []
    assert await warm.take("geo", 10) == entries([1, 2], "paused")


async def test_one_step_of_one_flow_is_taken_and_the_rest_keeps_its_place(warm: WarmTier) -> None:
    await warm.add([entry(place, step=place % 2) for place in range(1, 9)])
    assert await warm.take("geo", 3, same_step=True) == [entry(place, step=1) for place in (1, 3, 5)]
    assert await warm.sizes() == {"geo": 5}
    assert await warm.take("geo", 10) == [entry(place, step=place % 2) for place in (2, 4, 6, 7, 8)]


async def test_flows_take_turns_as_wholes_when_one_step_is_taken(warm: WarmTier) -> None:
    for flow in ("a", "b"):
        await warm.add(entries(range(1, 5), flow))
    await warm.add([entry(9, "c")])
    taken = [await warm.take("geo", 3, same_step=True) for _ in range(6)]
    assert taken[:3] == [entries([1, 2, 3], "a"), entries([1, 2, 3], "b"), [entry(9, "c")]]
    assert taken[3:] == [entries([4], "a"), entries([4], "b"), []]
    assert dict(await warm.sizes()).get("geo", 0) == 0


async def test_one_step_is_taken_behind_many_entries_of_another(warm: WarmTier) -> None:
    await warm.add([entry(1, step=1), *entries(range(2, 1501)), entry(1501, step=1)])
    assert await warm.take("geo", 2, same_step=True) == [entry(1, step=1), entry(1501, step=1)]
    assert await warm.take("geo", 2000, same_step=True) == entries(range(2, 1501))


async def test_one_step_passes_over_flows_and_what_was_put_back_comes_first(warm: WarmTier) -> None:
    await warm.add(entries([1, 2], "paused"))
    await warm.add(entries([3, 4], "running"))
    first = await warm.take("geo", 1, without=["paused", "unknown"], same_step=True)
    assert first == entries([3], "running")
    await warm.add(first)
    assert await warm.take("geo", 5, without=["paused"], same_step=True) == entries([3, 4], "running")
    assert await warm.take("geo", 5, without=["paused"], same_step=True) == []
    assert await warm.take("geo", 5, same_step=True) == entries([1, 2], "paused")


async def test_an_entry_of_one_step_is_given_once_however_many_take(warm: WarmTier) -> None:
    await warm.add([entry(place, step=place % 3) for place in range(300)])
    taken = await asyncio.gather(*[warm.take("geo", 7, same_step=True) for _ in range(100)])
    assert all(len({one.step for one in batch}) <= 1 for batch in taken)
    assert sorted(one.place for batch in taken for one in batch) == list(range(300))


async def test_classes_are_apart(warm: WarmTier) -> None:
    await warm.add([*entries([1], action_class="geo"), *entries([2], action_class="geo.x")])
    assert await warm.take("geo", 10) == entries([1])
    assert await warm.sizes() == {"geo.x": 1}
    assert await warm.take("unknown", 10) == []


async def test_what_is_removed_is_not_taken(warm: WarmTier) -> None:
    await warm.add(entries(range(1, 6)))
    await warm.remove([*entries([2, 4, 99]), *entries([1], "other"), *entries([1], action_class="other")])
    assert await warm.sizes() == {"geo": 3}
    assert await warm.take("geo", 10) == entries([1, 3, 5])


async def test_what_was_removed_may_be_added_again(warm: WarmTier) -> None:
    await warm.add(entries([1, 2]))
    await warm.remove(entries([1, 2]))
    assert dict(await warm.sizes()).get("geo", 0) == 0
    await warm.add(entries([2]))
    assert await warm.take("geo", 10) == entries([2])


async def test_removing_most_of_many_leaves_the_others_in_order(warm: WarmTier) -> None:
    await warm.add(entries(range(1000)))
    await warm.remove(entries([place for place in range(1000) if place % 100]))
    assert await warm.take("geo", 1000) == entries(range(0, 1000, 100))


async def test_sizes_are_of_each_class_over_its_flows(warm: WarmTier) -> None:
    assert await warm.sizes() == {}
    await warm.add([*entries([1, 2], "a"), *entries([3], "b"), *entries([4], action_class="enrich")])
    assert await warm.sizes() == {"geo": 3, "enrich": 1}
    await warm.take("geo", 2)
    assert await warm.sizes() == {"geo": 1, "enrich": 1}


async def test_many_entries_at_once(warm: WarmTier) -> None:
    given = [entry(place, f"flow-{place % 7}", f"class-{place % 3}") for place in range(21_000)]
    await warm.add(given)
    assert await warm.sizes() == {"class-0": 7000, "class-1": 7000, "class-2": 7000}
    taken = [one for number in range(3) for one in await warm.take(f"class-{number}", 10_000)]
    assert sorted(taken) == sorted(given)


async def test_nothing_is_added_or_removed_when_nothing_is_given(warm: WarmTier) -> None:
    await warm.add([])
    await warm.remove([])
    assert await warm.sizes() == {}


async def test_each_entry_goes_to_one_of_many_that_take_at_once(warm: WarmTier) -> None:
    await warm.add([entry(place, f"flow-{place % 3}") for place in range(600)])
    taken = await asyncio.gather(*(warm.take("geo", 7) for _ in range(120)))
    places = [one.place for batch in taken for one in batch]
    assert sorted(places) == list(range(600))


async def test_a_rebuilt_class_holds_what_the_pages_held(warm: WarmTier) -> None:
    await warm.add([*entries([1, 2, 3]), *entries([4], "gone"), *entries([5], action_class="other")])
    await warm.rebuild("geo", paged(entries([2, 3]), [], entries([9, 10], "new")))
    assert await warm.sizes() == {"geo": 4, "other": 1}
    taken = await warm.take("geo", 10)
    assert sorted(taken) == sorted([*entries([2, 3]), *entries([9, 10], "new")])


async def test_a_class_rebuilt_without_entries_is_empty(warm: WarmTier) -> None:
    await warm.add(entries([1]))
    await warm.rebuild("geo", paged())
    assert await warm.take("geo", 10) == []


async def test_what_is_added_during_a_rebuild_stays(warm: WarmTier) -> None:
    async def pages() -> AsyncIterator[Sequence[WarmEntry]]:
        yield entries([1])
        await warm.add(entries([7]))
        yield entries([2])

    await warm.rebuild("geo", pages())
    assert await warm.take("geo", 10) == entries([1, 2, 7])


async def test_a_rebuild_leaves_a_marker_that_stays(warm: WarmTier) -> None:
    assert await warm.marker() == ""
    await warm.add(entries([1]))
    assert await warm.marker() == ""
    await warm.rebuild("geo", paged())
    marker = await warm.marker()
    assert marker
    await warm.rebuild("other", paged())
    assert await warm.marker() == marker
