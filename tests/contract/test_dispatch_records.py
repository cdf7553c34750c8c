"""Records that start at a step, on every store: in one transaction, each once, as parcels like any other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial

import pytest
from msgspec.structs import replace

from fixtures.arrow_steps import payloads
from fixtures.dispatch_steps import spans
from fixtures.flow_steps import Flowing, cutting
from forebay.broker.arrow.staged_rows import json_rows
from forebay.broker.bulk import StageName, StagesOf
from forebay.broker.room_work import Work
from forebay.dispatch.definition import FlowDefinition, Join, RateLimit, Retry, Step
from forebay.dispatch.faults import RecordsRefused, UnknownFlow
from forebay.dispatch.ledger.ageing import remove_finished
from forebay.dispatch.ledger.parcels import annotate
from forebay.dispatch.ledger.records import RecordsDone, plan_records, start_records
from forebay.dispatch.record_starts import start_step_records
from forebay.dispatch.values import Range, RecordsStarted, StartRecords, StepRecord

pytestmark = pytest.mark.asyncio
QUEUE = ".flow.shop.geo"
ONE_TRY = Retry(max_attempts=1)
PARSE = Step(action="parse", action_class="parse", retry=ONE_TRY)
GEO = Step(action="geo", action_class="geo", retry=ONE_TRY)
LAST = Step(action="sum", action_class="sum", retry=ONE_TRY)


def a_flow(*steps: Step, name: str = "shop") -> FlowDefinition:
    return cutting(name, *(steps or (PARSE, GEO, LAST)))


async def worked_through(flows: Flowing, count: int, flow: str = "shop") -> list[str]:
    """So many parcels, of which all steps are complete; their dids."""
    await flows.push(10 * count)
    await flows.cut(flow)
    dids: list[str] = []
    while lease := await flows.lease():
        dids = dids or [parcel.did for parcel in lease.parcels]
        await flows.complete(lease)
    return dids


def records(did: str, *keys: str) -> list[StepRecord]:
    return [StepRecord(did, key, json.dumps({"of": key}).encode()) for key in keys]


async def start(flows: Flowing, given: Sequence[StepRecord], flow: str = "shop", step: str = "geo") -> RecordsStarted:
    done = await start_step_records(flows.store, StartRecords(flow, step, given), flows.limits.in_memory_queue_size)
    await flows.leasing.offer(done.enqueued)
    return done.started


async def test_records_are_one_parcel_for_each_that_they_were_in_and_go_on_from_their_step(flows: Flowing) -> None:
    await flows.define(a_flow())
    first, second = await worked_through(flows, 2)
    await flows.store.together(partial(annotate, first, {"region": "eu"}, overwrite=False))
    started = await start(flows, [*records(first, "1"), *records(second, "2"), *records(first, "3")])
    assert (len(started.dids), started.records, started.repeated) == (2, 3, 0)
    assert await payloads(flows.store, QUEUE) == [b'{"of": "1"}', b'{"of": "3"}', b'{"of": "2"}']
    lease = await flows.leased()
    identity = (await flows.store.bounds(QUEUE)).identity
    assert [(parcel.did, parcel.step, parcel.action, list(parcel.ranges)) for parcel in lease.parcels] == [
        (started.dids[0], 1, "geo", [Range(QUEUE, 1, 2, identity, 0)]),
        (started.dids[1], 1, "geo", [Range(QUEUE, 3, 3, identity, 0)]),
    ]
    shown = await flows.show(started.dids[0])
    assert (shown.parcel.parent, shown.parcel.annotations, shown.parcel.messages) == (first, {"region": "eu"}, 2)
    assert shown.parcel.place > (await flows.show(second)).parcel.place
    await flows.complete(lease)
    await flows.complete(await flows.leased("sum"))
    assert (await flows.show(started.dids[0])).parcel.state == "COMPLETE"
    await flows.check()


async def test_both_histories_tell_of_the_records(flows: Flowing) -> None:
    await flows.define(a_flow())
    [did] = await worked_through(flows, 1)
    started = await start(flows, records(did, "7", "8"))
    parent = await flows.show(did)
    assert (parent.events[-1].event, parent.events[-1].action, parent.events[-1].text) == (
        "RETRIED",
        "geo",
        started.dids[0],
    )
    assert parent.children == [started.dids[0]]
    [event] = (await flows.show(started.dids[0])).events
    assert (event.event, event.text) == ("RECORDS", f'2 of parcel {did}\n["7","8"]')


async def test_messages_of_the_records_are_spared_until_they_are_worked_on(flows: Flowing) -> None:
    await flows.define(a_flow())
    [did] = await worked_through(flows, 1)
    await flows.sources.holds_turn()
    assert await flows.holds() == [("shop", 11)]
    await start(flows, records(did, "1", "2"))
    assert await flows.holds() == [("shop", 1), ("shop", 11)]
    await flows.complete(await flows.leased("geo"))
    await flows.complete(await flows.leased("sum"))
    await start(flows, records(did, "3"))
    await flows.sources.holds_turn()
    assert sorted(await flows.holds()) == [("shop", 3), ("shop", 11)]


async def test_records_that_are_sent_again_start_nothing_in_whatever_company(flows: Flowing) -> None:
    await flows.define(a_flow())
    first, second = await worked_through(flows, 2)
    await start(flows, [*records(first, "1", "2"), *records(second, "1")])
    again = await start(flows, [*records(first, "1", "2"), *records(second, "1")])
    assert again == RecordsStarted((), 0, 3)
    mixed = await start(flows, [*records(second, "9"), *records(first, "2", "3")])
    assert (len(mixed.dids), mixed.records, mixed.repeated) == (2, 2, 1)
    assert await payloads(flows.store, QUEUE) == [f'{{"of": "{key}"}}'.encode() for key in "12193"]
    assert (await flows.store.stage_figures()).stages == 0
    assert sum(parcel.messages for parcel in (await flows.leased("geo")).parcels) == 5


async def test_senders_at_the_same_moment_start_each_record_once(flows: Flowing) -> None:
    await flows.define(a_flow())
    [did] = await worked_through(flows, 1)
    batches = [records(did, *map(str, range(begin, begin + 10))) for begin in (0, 5, 0, 10)]
    started = await asyncio.gather(*(start(flows, batch) for batch in batches))
    assert sum(one.records for one in started) == 20
    assert sorted(await payloads(flows.store, QUEUE)) == sorted(f'{{"of": "{n}"}}'.encode() for n in range(20))
    assert (await flows.store.stage_figures()).stages == 0
    await flows.check()


async def test_what_was_staged_for_records_that_another_sender_started_is_dropped(flows: Flowing) -> None:
    await flows.define(a_flow())
    [did] = await worked_through(flows, 1)
    request = StartRecords("shop", "geo", records(did, "1", "2"))
    plan = await flows.store.look(partial(plan_records, request))
    rows = json_rows("00000000-0000-8000-8000-000000000000", [record.payload for record in plan.records])
    await flows.store.stage(QUEUE, "00000000-0000-8000-8000-000000000000", StageName("dispatch", "e", ""), [rows])
    await start(flows, records(did, "2"))
    stages = ["00000000-0000-8000-8000-000000000000"]
    late = partial(start_records, request, plan, StagesOf("dispatch", "e"), stages, 10)
    assert await flows.store.together(late) is None
    assert await payloads(flows.store, QUEUE) == [b'{"of": "2"}']
    assert (await flows.store.stage_figures()).stages == 0


async def test_rows_parcel_and_history_are_there_together_or_not_at_all(flows: Flowing) -> None:
    await flows.define(a_flow())
    [did] = await worked_through(flows, 1)
    request = StartRecords("shop", "geo", records(did, "1"))
    plan = await flows.store.look(partial(plan_records, request))
    rows = json_rows("00000000-0000-8000-8000-000000000000", [record.payload for record in plan.records])
    await flows.store.stage(QUEUE, "00000000-0000-8000-8000-000000000000", StageName("dispatch", "e", ""), [rows])
    stages = ["00000000-0000-8000-8000-000000000000"]

    def broken() -> Work[RecordsDone | None]:
        yield from start_records(request, plan, StagesOf("dispatch", "e"), stages, 10)
        raise RecordsRefused("step", "the server is killed here")

    before = await flows.events(did)
    with pytest.raises(RecordsRefused):
        await flows.store.together(broken)
    assert (await flows.events(did), await flows.lease("geo")) == (before, None)
    assert (await start(flows, records(did, "1"))).records == 1
    assert await payloads(flows.store, QUEUE) == [b'{"of": "1"}']
    await flows.check()


async def test_records_of_a_paused_flow_wait_and_of_a_stopped_one_go_on(flows: Flowing) -> None:
    await flows.define(a_flow())
    [did] = await worked_through(flows, 1)
    await flows.set_state("shop", "PAUSED")
    await start(flows, records(did, "1"))
    assert await flows.lease("geo") is None
    await flows.set_state("shop", "STOPPED")
    flows.leasing.look_again()
    assert len((await flows.leased("geo")).parcels) == 1
    assert (await start(flows, records(did, "2"))).records == 1
    assert len((await flows.leased("geo")).parcels) == 1


async def test_records_use_up_the_rate_limit_of_their_flow(flows: Flowing) -> None:
    await flows.define(a_flow())
    [did] = await worked_through(flows, 1)
    await flows.define(replace(a_flow(), rate_limit=RateLimit(amount=10, seconds=10)))
    await start(flows, records(did, *map(str, range(10))))
    assert (await flows.leased("geo")).parcels[0].messages == 10
    await start(flows, records(did, "10"))
    assert await flows.lease("geo") is None
    flows.clock.advance(10)
    assert (await flows.leased("geo")).parcels[0].messages == 1


async def test_records_wait_cold_where_their_class_is_full(flows: Flowing) -> None:
    await flows.define(a_flow())
    dids = await worked_through(flows, 12)
    await start(flows, [record for did in dids for record in records(did, "1")])
    assert (await flows.states())["QUEUED"] == 10
    assert (await flows.states())["COLD_QUEUED"] == 2
    await flows.check()


async def test_records_wait_for_the_join_of_their_step_with_the_annotations_of_their_parcels(flows: Flowing) -> None:
    join = Join(max_age_seconds=60, max=2, key="region")
    await flows.define(a_flow())
    dids = await worked_through(flows, 3)
    for did, region in zip(dids, ("eu", "us", "eu"), strict=True):
        await flows.store.together(partial(annotate, did, {"region": region}, overwrite=False))
    await flows.define(a_flow(PARSE, replace(GEO, join=join), LAST))
    started = await start(flows, [*records(dids[0], "1"), *records(dids[1], "2")])
    assert await flows.lease("geo") is None
    last = await start(flows, records(dids[2], "3"))
    [joined] = (await flows.leased("geo")).parcels
    assert spans(joined.ranges) == [(QUEUE, 1, 1), (QUEUE, 3, 3)]
    assert list(joined.joined) == [started.dids[0], last.dids[0]]
    assert [event.event for event in (await flows.show(last.dids[0])).events] == ["RECORDS", "JOINED"]
    assert (await start(flows, records(dids[2], "3"))).repeated == 1


async def test_definition_is_the_newest_where_the_same_actions_lead_to_the_step(flows: Flowing) -> None:
    await flows.define(a_flow())
    [did] = await worked_through(flows, 1)
    await flows.define(a_flow(PARSE, GEO, replace(LAST, action="sums")))
    started = await start(flows, records(did, "1"))
    assert (await flows.show(started.dids[0])).parcel.version == 2
    before = Step(action="before", action_class="before")
    await flows.define(a_flow(before, GEO, LAST))
    started = await start(flows, records(did, "2"))
    shown = await flows.show(started.dids[0])
    assert (shown.parcel.version, shown.parcel.step) == (1, 1)
    await worked_through(flows, 0)
    [newest] = await worked_through(flows, 1)
    assert (await flows.show((await start(flows, records(newest, "3"))).dids[0])).parcel.version == 3


async def test_records_of_parcels_that_are_not_kept_any_more_start_in_the_newest_definition(flows: Flowing) -> None:
    await flows.define(a_flow())
    [did] = await worked_through(flows, 1)
    await flows.define(a_flow(replace(PARSE, action="read"), GEO, LAST))
    flows.clock.advance(1000)
    await flows.store.together(partial(remove_finished, 100, 10))
    started = await start(flows, records(did, "1"))
    shown = await flows.show(started.dids[0])
    assert (shown.parcel.version, shown.parcel.parent) == (2, did)
    assert await flows.events(did) == []
    assert (await start(flows, records(did, "1"))).repeated == 1


@pytest.mark.parametrize(
    ("flow", "step", "field", "told"),
    [
        ("shop", "nothing", "step", "has no step 'nothing'; it has parse, geo, sum"),
        ("shop", "parse", "step", "is the first step"),
        ("other", "geo", r"records\[1\].did", "is not of flow 'other'"),
    ],
)
async def test_what_cannot_start_is_refused_with_its_field_and_nothing_is_done(
    flows: Flowing, flow: str, step: str, field: str, told: str
) -> None:
    await flows.define(a_flow(), a_flow(name="other"))
    [did] = await worked_through(flows, 1)
    before = await flows.events(did)
    with pytest.raises(RecordsRefused, match=told) as refused:
        await start(flows, [*records("not-kept", "0"), *records(did, "1")], flow, step)
    assert refused.value.field == field.replace("\\", "")
    assert (await flows.events(did), await flows.lease()) == (before, None)
    assert (await flows.store.stage_figures()).stages == 0


async def test_records_of_a_flow_that_is_not_there_are_refused(flows: Flowing) -> None:
    with pytest.raises(UnknownFlow):
        await start(flows, records("d", "1"), "nothing")
