"""Cutting sources on every store: every message is in exactly one parcel, places increase, and retention waits."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise

import pytest

from fixtures.dispatch_steps import HURRIED, roll_back_everywhere
from fixtures.flow_steps import CUT, Flowing, cutting
from fixtures.store_steps import configure
from forebay.dispatch.definition import ErrorFilter, FlowDefinition, RateLimit, Retry, Source, Step
from forebay.dispatch.ledger.ageing import sweep_begin, sweep_end, sweep_piece
from forebay.dispatch.ledger.cutting import CutOptions, cut
from forebay.dispatch.ledger.ending import cancel
from forebay.dispatch.ledger.parcels import replay
from forebay.dispatch.tables import SQL
from forebay.dispatch.views import ParcelFilter
from forebay.model.queue import QueueOptions

pytestmark = pytest.mark.asyncio
ONE_TRY = Retry(max_attempts=1)


def covered(ranges: list[tuple[int, int]]) -> list[int]:
    return [seq for first, last in ranges for seq in range(first, last + 1)]


# --- queues -------------------------------------------------------------------------------------------------------


async def test_full_parcels_are_cut_at_once_and_the_rest_waits(flows: Flowing) -> None:
    await flows.define(cutting(parcel_wait_seconds=0.2))
    await flows.push(25)
    await flows.cut()
    assert await flows.ranges() == [(1, 10), (11, 20)]
    flows.clock.advance(0.1)
    assert (await flows.cut()).parcels == 0
    flows.clock.advance(0.1)
    assert (await flows.cut()).messages == 5
    assert await flows.ranges() == [(1, 10), (11, 20), (21, 25)]
    assert (await flows.cut()).parcels == 0


async def test_wait_begins_anew_when_the_clock_is_set_back(flows: Flowing) -> None:
    await flows.define(cutting(parcel_wait_seconds=5))
    await flows.push(3)
    await flows.cut()
    flows.clock.step(-3600)
    await flows.cut()
    flows.clock.advance(4)
    assert (await flows.cut()).parcels == 0
    flows.clock.advance(1)
    assert (await flows.cut()).messages == 3


async def test_messages_are_in_one_parcel_each_when_servers_cut_at_once(flows: Flowing) -> None:
    await flows.define(cutting(parcel_messages=3, parcel_wait_seconds=0))
    others = [flows.another_server() for _ in range(3)]
    for _ in range(10):
        await asyncio.gather(flows.push(7), *[server.queues_turn() for server in others])
    await flows.cut_all()
    ranges = await flows.ranges()
    assert covered(ranges) == list(range(1, 71))
    places = [place for _, _, _, place in await flows.ask(CUT)]
    assert all(earlier < later for earlier, later in pairwise(places))
    await flows.check()


async def test_cut_that_is_rolled_back_anywhere_leaves_nothing(flows: Flowing) -> None:
    await flows.define(cutting(rate_limit=RateLimit(amount=1000)))
    await flows.push(20)

    async def is_untouched() -> None:
        assert await flows.ranges() == []
        assert (await flows.status()).next_seq == 1

    assert await roll_back_everywhere(flows.store, partial(cut, "shop", CutOptions(10)), is_untouched) > 8
    await flows.cut()
    assert await flows.ranges() == [(1, 10), (11, 20)]


async def test_pieces_together_are_all_of_it(flows: Flowing) -> None:
    await flows.define(cutting(parcel_messages=2))
    await flows.push(21)
    first = await flows.cut(parcels_max=3)
    assert (first.parcels, first.is_more) == (3, True)
    while (await flows.cut(parcels_max=3)).is_more:
        pass
    assert covered(await flows.ranges()) == list(range(1, 21))


async def test_queue_that_is_made_later_is_cut_from_its_first_message(flows: Flowing) -> None:
    await flows.define(cutting(start="latest"))
    assert (await flows.cut()).parcels == 0
    await flows.push(10)
    await flows.cut()
    assert await flows.ranges() == [(1, 10)]


async def test_queue_that_is_made_later_and_cleared_is_cut_from_the_first_message_that_is_there(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(15)
    await flows.store.clear_queue("orders")
    await flows.push(10)
    await flows.cut()
    assert await flows.ranges() == [(16, 25)]


async def test_stopped_source_is_not_cut_and_a_paused_one_is(flows: Flowing) -> None:
    await flows.define(cutting("stopped"), cutting("paused"))
    await flows.set_state("stopped", "STOPPED")
    await flows.set_state("paused", "PAUSED")
    await flows.push(10)
    await flows.cut_all()
    assert (await flows.ranges("stopped"), await flows.ranges("paused")) == ([], [(1, 10)])
    assert await flows.lease() is None


async def test_rate_limit_of_messages_is_shared_and_kept(flows: Flowing) -> None:
    await flows.define(cutting(rate_limit=RateLimit(amount=20, seconds=10)))
    await flows.push(100)
    second = Flowing(flows.store, flows.clock)
    for server in (flows, second, flows, second):
        await server.cut()
    assert covered(await flows.ranges()) == list(range(1, 21))
    flows.clock.advance(5)
    await flows.cut()
    await second.cut()
    assert covered(await flows.ranges()) == list(range(1, 31))


async def test_parcel_is_no_larger_than_the_rate_limit(flows: Flowing) -> None:
    await flows.define(cutting(parcel_messages=1000, parcel_wait_seconds=0, rate_limit=RateLimit(amount=5)))
    await flows.push(100)
    await flows.cut()
    assert await flows.ranges() == [(1, 5)]


async def test_rate_limit_of_bytes_goes_by_the_mean_size(flows: Flowing) -> None:
    await flows.define(cutting(rate_limit=RateLimit(unit="bytes", amount=1000, seconds=1)))
    await flows.push(100)
    await flows.cut(message_bytes=50)
    assert covered(await flows.ranges()) == list(range(1, 21))
    assert [parcel.size for parcel in await flows.find()] == [500, 500]


async def test_size_of_a_parcel_is_estimated_from_its_queue(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(10)
    await flows.sources.queues_turn()
    bounds = await flows.store.bounds("orders")
    [parcel] = await flows.find()
    assert parcel.size == bounds.size_bytes // 10 * 10


async def test_source_is_stopped_at_its_maximum_of_errors(flows: Flowing) -> None:
    await flows.define(cutting(retry=ONE_TRY, max_errors=2))
    await flows.push(20)
    await flows.cut_all()
    await flows.complete(await flows.leased(), "ERROR", error="bad")
    await flows.push(10)
    await flows.cut_all()
    status = await flows.status()
    assert (status.state, status.next_seq) == ("STOPPED", 21)
    assert status.reason == "2 parcels are in ERROR, and maxErrors is 2"


# --- retention ----------------------------------------------------------------------------------------------------


async def test_retention_spares_what_is_unfinished_and_uncut(flows: Flowing) -> None:
    await configure(flows.store, QueueOptions(retention_seconds=60))
    await flows.define(cutting())
    await flows.push(25)
    await flows.cut()
    flows.clock.advance(3600)
    await flows.store.apply_retention()
    assert (await flows.store.bounds("orders")).first_seq == 1
    await flows.complete(await flows.leased(parcels=1))
    await flows.sources.holds_turn()
    assert await flows.holds() == [("shop", 11)]
    await flows.complete(await flows.leased(parcels=1))
    await flows.sources.holds_turn()
    assert await flows.holds() == [("shop", 21)]
    await flows.store.apply_retention()
    assert (await flows.store.bounds("orders")).first_seq == 21


async def test_hold_stays_while_any_parcel_reads_behind_it(flows: Flowing) -> None:
    await flows.define(cutting(retry=ONE_TRY))
    await flows.push(30)
    await flows.cut()
    lease = await flows.leased(parcels=1)
    await flows.complete(lease, "ERROR", error="bad")
    await flows.complete(await flows.leased())
    await flows.sources.holds_turn()
    assert await flows.holds() == [("shop", 1)]
    replayed = await flows.find(state="COMPLETE")
    await flows.store.together(partial(replay, replayed[-1].did, 10))
    await flows.store.together(partial(cancel, ParcelFilter(state="ERROR"), 10))
    await flows.sources.holds_turn()
    assert await flows.holds() == [("shop", 11)]


async def test_replay_during_a_sweep_keeps_its_messages(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(20)
    await flows.cut()
    await flows.complete(await flows.leased())
    sweep = await flows.store.look(partial(sweep_begin, "shop", frozenset()))
    assert sweep is not None
    assert await flows.store.look(partial(sweep_piece, sweep)) is None
    [_, oldest] = await flows.find()
    await flows.store.together(partial(replay, oldest.did, 10))
    await flows.store.together(partial(sweep_end, sweep))
    assert await flows.holds() == [("shop", 1)]


async def test_group_of_the_flow_follows_the_oldest_unfinished_message(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(30)
    await flows.cut()
    await flows.complete(await flows.leased(parcels=2))
    await flows.sources.holds_turn()
    [lag] = await flows.store.groups("orders")
    assert (lag.group, lag.lag_messages) == ("shop", 10)


async def test_group_that_the_source_names_follows_in_place_of_the_flows_own(flows: Flowing) -> None:
    await flows.define(cutting(group="analysts"))
    await flows.push(30)
    await flows.cut()
    await flows.complete(await flows.leased(parcels=1))
    await flows.sources.holds_turn()
    assert [(lag.group, lag.lag_messages) for lag in await flows.store.groups("orders")] == [("analysts", 20)]
    await flows.define(cutting(group="others"))
    await flows.sources.holds_turn()
    lags = {lag.group: lag.lag_messages for lag in await flows.store.groups("orders")}
    assert lags == {"analysts": 20, "others": 20}


async def test_hold_on_a_queue_that_is_read_no_more_moves_on(flows: Flowing) -> None:
    await flows.push(10, "old")
    await flows.define(cutting(queue="old"))
    await flows.define(cutting())
    await flows.push(5, "old")
    await flows.sources.holds_turn()
    assert await flows.holds() == [("shop", 16)]


# --- timers -------------------------------------------------------------------------------------------------------


def timed(cron: str = "*/10 * * * * *", retry: Retry = HURRIED, max_errors: int = 0) -> FlowDefinition:
    source = Source(kind="timer", cron=cron, max_errors=max_errors)
    return FlowDefinition(name="clock", source=source, steps=cutting(retry=retry).steps)


async def ticks(flows: Flowing) -> int:
    await flows.sources.timers_turn()
    return len(await flows.find(flow="clock", limit=1000))


async def test_timer_makes_a_parcel_without_messages_at_each_tick(flows: Flowing) -> None:
    await flows.define(timed())
    assert await ticks(flows) == 0
    flows.clock.advance(9)
    assert await ticks(flows) == 0
    flows.clock.advance(1)
    assert await ticks(flows) == 1
    assert await ticks(flows) == 1
    [parcel] = (await flows.leased()).parcels
    assert (parcel.messages, list(parcel.ranges)) == (0, [])


async def test_missed_ticks_fire_once(flows: Flowing) -> None:
    await flows.define(timed())
    await ticks(flows)
    flows.clock.advance(3600)
    assert [await ticks(flows), await ticks(flows)] == [1, 1]
    flows.clock.advance(10)
    assert await ticks(flows) == 2


async def test_timer_goes_on_after_the_clock_was_set_back(flows: Flowing) -> None:
    await flows.define(timed())
    await ticks(flows)
    flows.clock.step(-86_400)
    await ticks(flows)
    flows.clock.advance(10)
    assert await ticks(flows) == 1


async def test_tick_fires_once_on_several_servers(flows: Flowing) -> None:
    await flows.define(timed())
    await ticks(flows)
    flows.clock.advance(10)
    servers = [flows.another_server() for _ in range(4)]
    await asyncio.gather(*[server.timers_turn() for server in servers])
    assert len(await flows.find(flow="clock")) == 1


async def test_timer_is_stopped_at_its_maximum_of_errors_and_goes_on_when_it_is_resumed(
    flows: Flowing, caplog: pytest.LogCaptureFixture
) -> None:
    await flows.define(timed(retry=ONE_TRY, max_errors=2))
    await ticks(flows)
    for made in (1, 2):
        flows.clock.advance(10)
        assert await ticks(flows) == made
        await flows.complete(await flows.leased(), "ERROR", error="bad")
    for _ in range(3):
        flows.clock.advance(10)
        assert await ticks(flows) == 2
    status = await flows.status("clock")
    assert (status.state, status.reason) == ("STOPPED", "2 parcels are in ERROR, and maxErrors is 2")
    assert caplog.text.count("flow clock: stopped") == 1
    await flows.store.together(partial(cancel, ParcelFilter(state="ERROR"), 10))
    await flows.set_state("clock", "RUNNING")
    assert await ticks(flows) == 3, "ticks that were missed fire once"


# --- on-error sources ---------------------------------------------------------------------------------------------


def catching(name: str = "care", max_errors: int = 0, **wanted: object) -> FlowDefinition:
    errors = ErrorFilter(**wanted)  # type: ignore[arg-type]
    step = Step(action="care", action_class="care", retry=ONE_TRY)
    source = Source(kind="errors", errors=errors, max_errors=max_errors)
    return FlowDefinition(name=name, source=source, steps=(step,))


async def test_error_becomes_one_parcel_of_the_same_messages(flows: Flowing) -> None:
    await flows.define(cutting(retry=ONE_TRY), catching(text="disk"))
    await flows.push(20)
    await flows.cut()
    lease = await flows.leased()
    await flows.complete(lease, "ERROR", error="the disk is full")
    await flows.sources.errors_turn()
    await flows.sources.errors_turn()
    made = await flows.find(flow="care")
    assert {parcel.parent for parcel in made} == {parcel.did for parcel in lease.parcels}
    assert {(parcel.first_seq, parcel.last_seq) for parcel in made} == {(1, 10), (11, 20)}
    assert made[0].annotations["error.text"] == "the disk is full"
    assert ("care", 1) in await flows.holds()
    await flows.check()


async def test_error_that_is_retried_by_itself_is_not_one_yet(flows: Flowing) -> None:
    await flows.define(cutting(), catching())
    await flows.push(10)
    await flows.cut()
    for _ in range(2):
        await flows.complete(await flows.leased("parse"), "ERROR", error="bad")
        await flows.sources.errors_turn()
        assert await flows.find(flow="care") == []
        flows.clock.advance(100)
        await flows.upkeep.expiry_turn()
    await flows.complete(await flows.leased("parse"), "ERROR", error="bad")
    await flows.sources.errors_turn()
    assert len(await flows.find(flow="care")) == 1


async def test_on_error_sources_do_not_feed_each_other(flows: Flowing) -> None:
    await flows.define(cutting(retry=ONE_TRY), catching("a"), catching("b"), catching("named", flows=("a",)))
    await flows.push(10)
    await flows.cut()
    await flows.complete(await flows.leased("parse"), "ERROR", error="bad")
    await flows.sources.errors_turn()
    assert [len(await flows.find(flow=flow)) for flow in ("a", "b", "named")] == [1, 1, 0]
    await flows.complete(await flows.leased("care"), "ERROR", error="worse")
    await flows.sources.errors_turn()
    assert [len(await flows.find(flow=flow)) for flow in ("a", "b", "named")] == [1, 1, 1]


async def test_on_error_source_is_stopped_at_its_maximum_of_errors_and_others_go_on(
    flows: Flowing, caplog: pytest.LogCaptureFixture
) -> None:
    await flows.define(cutting(retry=ONE_TRY), catching("care", max_errors=1), catching("other"))

    async def an_error() -> list[int]:
        """One more parcel fails: how many both sources have made of errors so far."""
        await flows.push(10)
        await flows.cut()
        await flows.complete(await flows.leased("parse"), "ERROR", error="bad")
        await flows.sources.errors_turn()
        return [len(await flows.find(flow=flow)) for flow in ("care", "other")]

    assert await an_error() == [1, 1]
    await flows.complete(await flows.leased("care"), "ERROR", error="worse")
    assert await an_error() == [1, 2]
    assert await an_error() == [1, 3]
    assert (await flows.status("other")).state == "RUNNING"
    status = await flows.status("care")
    assert (status.state, status.reason) == ("STOPPED", "1 parcels are in ERROR, and maxErrors is 1")
    assert caplog.text.count("flow care: stopped") == 1


async def test_errors_nobody_wants_are_forgotten(flows: Flowing) -> None:
    await flows.define(cutting(retry=ONE_TRY), catching(actions=("other",)))
    await flows.push(10)
    await flows.cut()
    await flows.complete(await flows.leased("parse"), "ERROR", error="bad")
    await flows.sources.errors_turn()

    assert await flows.ask(SQL["errors_waiting"]) == []
    assert await flows.find(flow="care") == []
