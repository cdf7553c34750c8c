"""Losses on every store: nothing that a flow was to get is missed in silence, and no queue is taken for another."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from functools import partial

import pytest

from fixtures.dispatch_steps import spans
from fixtures.flow_steps import Flowing, cutting
from fixtures.store_steps import item, push
from forebay.broker.bulk import RangeRequest
from forebay.broker.room_work import Ask, Work, statement
from forebay.dispatch.definition import ErrorFilter, FlowDefinition, Retry, Source, Step
from forebay.dispatch.dids import new_dids
from forebay.dispatch.ledger.resuming import resume
from forebay.dispatch.ledger.starting import NewParcel, start_parcels
from forebay.dispatch.values import CompleteRequest, LeasedParcel, Missing, Outcome, Range
from forebay.dispatch.views import ParcelFilter
from forebay.errors import QueueReplaced, RangeGone, RangeIncomplete

pytestmark = pytest.mark.asyncio
ONE_TRY = Retry(max_attempts=1)
TWO_STEPS = (
    Step(action="parse", action_class="parse", retry=ONE_TRY),
    Step(action="enrich", action_class="enrich", retry=ONE_TRY),
)
AGE = statement(
    "age",
    "UPDATE forebay.parcel_flows SET ranges = '[[\"orders\",' || (SELECT p.first_seq FROM forebay.parcels AS p "
    "WHERE p.did = parcel_flows.did) || ',' || (SELECT p.last_seq FROM forebay.parcels AS p "
    "WHERE p.did = parcel_flows.did) || ']]'",
)
FORGET_REMOVED = statement("forget_removed", "UPDATE forebay.dispatch_flows SET removed_seq = NULL")


async def remake(flows: Flowing, messages: int, queue: str = "orders") -> None:
    """Delete the queue, and make one of its name with so many messages."""
    await flows.store.delete_queue(queue)
    await flows.push(messages, queue)


async def do(flows: Flowing, asked: object) -> None:
    def work() -> Work[None]:
        yield Ask(asked)  # type: ignore[arg-type]

    await flows.store.together(work)


async def read(flows: Flowing, parcel: LeasedParcel) -> int:
    """Read a parcel as a worker does; how many messages it has."""
    count = 0
    for one in parcel.ranges:
        wanted = RangeRequest(
            one.queue, one.first_seq, one.last_seq, identity=one.identity or None, removed_up_to=one.removed_up_to
        )
        batches: AsyncIterator[object] = await flows.store.read_batches(wanted)
        async for batch in batches:
            count += batch.num_rows  # type: ignore[attr-defined]
    return count


# --- gone before it was cut ---------------------------------------------------------------------------------------


async def test_source_whose_queue_is_made_again_is_stopped_and_goes_on_when_it_is_resumed(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(35)
    await flows.cut()
    await remake(flows, 20)
    stopped = (await flows.cut()).stopped
    assert stopped == (
        "queue 'orders' was deleted and made again: what it held from seq 31 on, and was in no parcel, is gone. "
        "Resume the flow to go on at seq 1"
    )
    status = await flows.status()
    assert (status.state, status.reason) == ("STOPPED", stopped)
    assert (await flows.cut()).parcels == 0
    assert await flows.ranges() == [(1, 10), (11, 20), (21, 30)]
    await flows.set_state("shop", "RUNNING")
    await flows.cut()
    assert (await flows.ranges())[3:] == [(1, 10), (11, 20)]
    assert await flows.holds() == [("shop", 1)]


async def test_source_that_may_lose_goes_on_with_the_queue_that_was_made_again_and_says_so(
    flows: Flowing, caplog: pytest.LogCaptureFixture
) -> None:
    await flows.define(cutting(fail_on_data_loss=False))
    await flows.push(35)
    await flows.cut()
    await remake(flows, 20)
    with caplog.at_level(logging.WARNING):
        await flows.cut_all()
    assert (await flows.ranges())[3:] == [(1, 10), (11, 20)]
    assert (await flows.status()).state == "RUNNING"
    [told] = [one for one in caplog.records if getattr(one, "action", "") == "source_messages_gone"]
    assert "what it held from seq 31 on" in told.getMessage()
    assert "Cutting goes on at seq 1" in told.getMessage()


async def test_source_that_was_cleared_before_it_was_cut_is_stopped_with_the_numbers(
    flows: Flowing, caplog: pytest.LogCaptureFixture
) -> None:
    await flows.define(cutting())
    await flows.push(15)
    await flows.cut()
    await flows.store.clear_queue("orders")
    await flows.push(10)
    with caplog.at_level(logging.WARNING):
        await flows.cut_all()
    status = await flows.status()
    assert (status.state, status.next_seq, status.lost) == ("STOPPED", 16, 5)
    assert status.reason == (
        "messages 11-15 of queue 'orders' are gone: they were removed before they were cut. "
        "Resume the flow to go on at seq 16"
    )
    assert [one for one in caplog.records if getattr(one, "action", "") == "source_stopped"]
    await flows.set_state("shop", "RUNNING")
    await flows.cut_all()
    assert await flows.ranges() == [(1, 10), (16, 25)]
    assert (await flows.status()).state == "RUNNING"
    assert (await flows.status()).lost == 5


async def test_source_that_may_lose_goes_on_behind_what_was_cleared_and_counts_it(flows: Flowing) -> None:
    await flows.define(cutting(fail_on_data_loss=False))
    await flows.push(15)
    await flows.cut()
    await flows.store.clear_queue("orders")
    await flows.push(10)
    assert (await flows.cut()).lost == (
        "messages 11-15 of queue 'orders' are gone: they were removed before they were cut. Cutting goes on at seq 16"
    )
    assert await flows.ranges() == [(1, 10), (16, 25)]
    status = await flows.status()
    assert (status.state, status.lost) == ("RUNNING", 5)


async def test_partition_that_was_cleared_before_it_was_cut_is_a_loss_once(flows: Flowing) -> None:
    await flows.define(cutting(fail_on_data_loss=False))
    await flows.push(10)
    await flows.cut()
    await flows.store.push([item(f"p{n}", f"p{n % 2}") for n in range(6)])
    await flows.store.clear_queue("orders", "p1")
    servers = [flows.another_server() for _ in range(2)]
    await servers[0].queues_turn()
    status = await flows.status()
    assert (status.next_seq, status.lost) == (11, 6)
    await flows.push(10)
    await servers[1].queues_turn()
    assert await flows.ranges() == [(1, 10), (11, 20)]
    assert (await flows.status()).lost == 6
    await flows.complete(await flows.leased(parcels=1))
    [parcel] = (await flows.leased(parcels=1)).parcels
    assert await read(flows, parcel) == 10 - 3, "what is counted as lost is no second loss when it is read"


async def test_messages_that_were_deleted_one_by_one_are_no_loss(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(10)
    await flows.cut()
    pushed = await push(flows.store, *"abcdefghij")
    for name, one in zip("abcf", (*pushed[:3], pushed[5]), strict=True):
        assert await flows.store.delete_message(one.partition_id, name)
    await flows.push(5)
    await flows.cut_all()
    status = await flows.status()
    assert (status.state, status.lost) == ("RUNNING", 0)
    left = [await read(flows, parcel) for parcel in (await flows.leased()).parcels]
    assert sum(left) == 10 + (await flows.status()).next_seq - 11 - 4


async def test_what_was_gone_before_the_flow_began_is_no_loss(flows: Flowing) -> None:
    await flows.store.push([item(f"p{n}", f"p{n % 2}") for n in range(10)])
    await flows.store.clear_queue("orders", "p1")
    await flows.define(cutting())
    await flows.push(10)
    await flows.cut_all()
    assert (await flows.status()).state == "RUNNING"
    parcels = (await flows.leased()).parcels
    assert parcels[0].ranges[0].removed_up_to == 10
    assert [await read(flows, parcel) for parcel in parcels] == [5, 10]


async def test_source_that_names_a_seq_is_taken_at_its_word(flows: Flowing) -> None:
    await flows.push(10)
    await flows.store.clear_queue("orders")
    await flows.push(10)
    await flows.define(cutting(start_seq=6))
    assert "messages 6-10 of queue 'orders' are gone" in (await flows.cut()).stopped
    await flows.define(cutting("behind", start_seq=11))
    await flows.cut("behind")
    assert await flows.ranges("behind") == [(11, 20)]


async def test_flow_of_an_older_forebay_is_cut_on_without_a_loss(flows: Flowing) -> None:
    await flows.store.push([item(f"p{n}", f"p{n % 2}") for n in range(10)])
    await flows.store.clear_queue("orders", "p1")
    await flows.define(cutting())
    await do(flows, FORGET_REMOVED)
    await flows.push(10)
    await flows.cut_all()
    assert (await flows.status()).state == "RUNNING"
    assert [await read(flows, parcel) for parcel in (await flows.leased()).parcels] == [5, 10]


# --- gone while parcels waited ------------------------------------------------------------------------------------


async def test_parcel_that_waits_in_a_stopped_flow_never_reads_a_queue_that_was_made_again(
    flows: Flowing, caplog: pytest.LogCaptureFixture
) -> None:
    await flows.define(cutting())
    await flows.push(30)
    await flows.cut()
    await flows.set_state("shop", "STOPPED")
    old = (await flows.store.bounds("orders")).identity
    await remake(flows, 50)
    new = (await flows.store.bounds("orders")).identity
    with caplog.at_level(logging.WARNING):
        assert await flows.lease() is None
    assert await flows.parcel_states() == {"ERROR": 3}
    [last, *_] = await flows.find(state="ERROR")
    assert last.error == (
        "queue 'orders': messages 21-30 are gone: QueueReplaced: queue 'orders' is another one than expected "
        f"(identity {new}, not {old}): it was deleted and made again"
    )
    assert [event[1] for event in await flows.events(last.did)] == ["ERROR"]
    [told] = [one for one in caplog.records if getattr(one, "action", "") == "parcel_queue_replaced"]
    assert "and 2 more went into ERROR" in told.getMessage()
    assert (await flows.status()).lost == 0, "nothing went on without them"
    await flows.check()


async def test_parcel_of_a_queue_that_was_deleted_is_in_error_when_it_is_leased(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(10)
    await flows.cut()
    await flows.store.delete_queue("orders")
    assert await flows.lease() is None
    [failed] = await flows.find(state="ERROR")
    assert "messages 1-10 are gone: it was deleted (identity " in failed.error


async def test_parcel_of_a_flow_that_may_lose_is_filtered_and_its_history_says_what_is_gone(
    flows: Flowing, caplog: pytest.LogCaptureFixture
) -> None:
    await flows.define(cutting(fail_on_data_loss=False))
    await flows.push(20)
    await flows.cut()
    await remake(flows, 50)
    with caplog.at_level(logging.WARNING):
        assert await flows.lease() is None
    assert await flows.parcel_states() == {"FILTERED": 2}
    [last, _] = await flows.find()
    events = await flows.events(last.did)
    assert [event[1] for event in events] == ["LOST", "FILTERED"]
    assert "messages 11-20 are gone: QueueReplaced" in events[0][4]
    assert [one for one in caplog.records if getattr(one, "action", "") == "parcel_messages_gone"]
    assert (await flows.status()).lost == 20
    await flows.check()


async def test_parcel_is_leased_with_what_is_left_of_it(flows: Flowing) -> None:
    definition = cutting(fail_on_data_loss=False)
    await flows.define(definition)
    await flows.push(5, "left")
    await flows.push(5)
    identities = [(await flows.store.bounds(queue)).identity for queue in ("orders", "left")]
    ranges = [Range("orders", 1, 5, identities[0], 0), Range("left", 2, 5, identities[1], 0)]
    [did] = new_dids(1, flows.clock.now_us())
    await flows.store.together(partial(start_parcels, definition, 1, [NewParcel(did, ranges, 9)], 10))
    await remake(flows, 5)
    for _ in range(2):
        lease = await flows.leased()
        [parcel] = lease.parcels
        assert (spans(parcel.ranges), parcel.messages) == ([("left", 2, 5)], 4)
        await flows.leasing.release(lease.lease_id)
    assert [event[1] for event in await flows.events(did)] == ["LOST", "RELEASED", "RELEASED"]
    assert (await flows.status()).lost == 5


async def test_errors_of_a_queue_that_was_made_again_are_in_error_for_the_flow_that_catches_them(
    flows: Flowing,
) -> None:
    care = Step(action="care", action_class="care", retry=ONE_TRY)
    catching = FlowDefinition(name="care", source=Source(kind="errors", errors=ErrorFilter()), steps=(care,))
    await flows.define(cutting(retry=ONE_TRY), catching)
    await flows.push(10)
    await flows.cut()
    await flows.complete(await flows.leased("parse"), "ERROR", error="bad")
    await flows.sources.errors_turn()
    await remake(flows, 10)
    assert await flows.lease("care") is None
    [caught] = await flows.find(flow="care")
    assert (caught.state, "QueueReplaced" in caught.error) == ("ERROR", True)


async def test_parcel_between_two_steps_never_reads_an_internal_queue_that_was_made_again(flows: Flowing) -> None:
    await flows.define(cutting("shop", *TWO_STEPS))
    await flows.push(10)
    await flows.push(3, "between")
    await flows.cut()
    lease = await flows.leased("parse")
    identity = (await flows.store.bounds("between")).identity
    children_of = lease.parcels[0].did
    await flows.leasing.complete(CompleteRequest(lease.lease_id, [Outcome(children_of, "COMPLETE")]))
    rows = statement(
        "between", f'UPDATE forebay.parcel_flows SET ranges = \'[["between",1,3,"{identity}",0]]\' WHERE step = 1'
    )
    await do(flows, rows)
    await remake(flows, 3, "between")
    assert await flows.lease("enrich") is None
    assert await flows.parcel_states() == {"ERROR": 1}


async def test_resumed_parcel_goes_on_without_them_once_its_flow_may_lose(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(10)
    await flows.cut()
    await remake(flows, 10)
    assert await flows.lease() is None
    for definition, state in ((cutting(), "ERROR"), (cutting(fail_on_data_loss=False), "FILTERED")):
        await flows.define(definition)
        resumed = await flows.store.together(partial(resume, ParcelFilter(), 10, 10))
        await flows.leasing.offer(resumed.enqueued)
        assert await flows.lease() is None
        assert await flows.parcel_states() == {state: 1}


async def test_parcel_in_error_of_a_queue_that_was_made_again_holds_nothing_of_the_new_one(flows: Flowing) -> None:
    await flows.define(cutting(fail_on_data_loss=False))
    await flows.push(10)
    await flows.cut()
    await flows.complete(await flows.leased(), "ERROR", error="bad")
    await remake(flows, 20)
    await flows.cut()
    await flows.complete(await flows.leased())
    await flows.sources.holds_turn()
    assert await flows.holds() == [("shop", 21)]


async def test_parcels_that_an_older_forebay_has_cut_are_leased_as_they_are(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(20)
    await flows.cut()
    await do(flows, AGE)
    [first, second] = (await flows.leased()).parcels
    assert [list(each.ranges) for each in (first, second)] == [[Range("orders", 1, 10)], [Range("orders", 11, 20)]]
    assert await read(flows, first) == 10


async def test_parcels_that_do_not_know_their_queue_are_cancelled_when_it_is_made_again(flows: Flowing) -> None:
    await flows.define(cutting(fail_on_data_loss=False))
    await flows.push(30)
    await flows.cut()
    await do(flows, AGE)
    [done] = (await flows.leased(parcels=1)).parcels
    await remake(flows, 20)
    pieces = [await flows.cut(parcels_max=2) for _ in range(3)]
    assert [piece.cancelled for piece in pieces] == [2, 1, 0]
    assert await flows.parcel_states() == {"CANCELLED": 3, "IN_FLIGHT": 2}
    assert "made again" in (await flows.events(done.did))[-1][4]
    assert await flows.holds() == [("shop", 1)]
    await flows.check()


# --- gone when it is read -----------------------------------------------------------------------------------------


async def test_leased_ranges_are_refused_where_messages_of_them_are_gone(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(20)
    await flows.cut()
    [first, second] = (await flows.leased()).parcels
    assert await read(flows, first) == 10
    await flows.store.clear_queue("orders")
    await flows.push(10)
    with pytest.raises((RangeGone, RangeIncomplete), match="11-20 are gone"):
        await read(flows, second)
    await remake(flows, 20)
    with pytest.raises(QueueReplaced):
        await read(flows, second)


async def test_what_a_worker_went_on_without_is_in_the_history_counted_and_logged(
    flows: Flowing, caplog: pytest.LogCaptureFixture
) -> None:
    await flows.define(cutting(fail_on_data_loss=False))
    await flows.push(10)
    await flows.cut()
    lease = await flows.leased()
    [parcel] = lease.parcels
    missing = [Missing("orders", 3, 5, 2, "they cannot be read any more"), Missing("orders", 9, 9, 1, "removed")]
    request = CompleteRequest(lease.lease_id, [Outcome(parcel.did, "COMPLETE", missing=missing)])
    with caplog.at_level(logging.WARNING):
        await flows.leasing.complete(request)
        assert (await flows.leasing.complete(request)).is_repeated
    assert [(event[1], event[4]) for event in await flows.events(parcel.did)] == [
        ("LOST", "queue 'orders': 2 of messages 3-5 are gone: they cannot be read any more"),
        ("LOST", "queue 'orders': messages 9-9 are gone: removed"),
        ("COMPLETE", ""),
    ]
    assert (await flows.status()).lost == 3
    [told] = [one for one in caplog.records if getattr(one, "action", "") == "parcel_messages_gone"]
    assert f"flow shop: parcel {parcel.did} went on without messages that are gone" in told.getMessage()
