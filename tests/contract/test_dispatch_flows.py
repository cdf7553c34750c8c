"""Flows on every store: definitions by version, states, and what forgetting needs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest

from fixtures.flow_steps import Flowing, cutting
from forebay.dispatch.definition import ErrorFilter, FlowDefinition, Join, RateLimit, Retry, Source, Step
from forebay.dispatch.faults import FlowRefused, FlowUnfinished, UnknownFlow
from forebay.dispatch.ledger.ending import cancel
from forebay.dispatch.ledger.flows import define, definitions, find, forget, set_state, statuses
from forebay.dispatch.views import ParcelFilter

pytestmark = pytest.mark.asyncio


async def test_same_definition_again_keeps_its_version(flows: Flowing) -> None:
    first = await flows.store.together(partial(define, cutting()))
    again = await flows.store.together(partial(define, cutting()))
    assert (first.version, again.version) == (1, 1)
    assert again.definition == cutting()
    assert again.state == "RUNNING"


async def test_changed_definition_is_for_parcels_cut_from_then_on(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(10)
    await flows.cut()
    changed = cutting("shop", Step(action="parse", action_class="other"))
    await flows.define(changed)
    await flows.push(10)
    await flows.cut()
    newest, oldest = await flows.find()
    assert [(parcel.version, parcel.action_class) for parcel in (oldest, newest)] == [(1, "parse"), (2, "other")]
    assert await flows.ranges() == [(1, 10), (11, 20)]
    kept = await flows.store.look(partial(definitions, [("shop", 1), ("shop", 2), ("shop", 9)]))
    assert kept == {("shop", 1): cutting(), ("shop", 2): changed}


async def test_version_is_not_used_again_after_forgetting(flows: Flowing) -> None:
    await flows.define(cutting())
    assert await flows.store.together(partial(forget, "shop"))
    assert await flows.store.look(partial(find, "shop")) is None
    assert (await flows.store.together(partial(define, cutting(parcel_messages=20)))).version == 2


async def test_flow_is_not_forgotten_while_parcels_are_unfinished(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(20)
    await flows.cut()
    with pytest.raises(FlowUnfinished, match="2 unfinished parcels"):
        await flows.store.together(partial(forget, "shop"))
    await flows.store.together(partial(cancel, ParcelFilter(flow="shop"), 100))
    assert await flows.store.together(partial(forget, "shop"))
    assert not await flows.store.together(partial(forget, "shop"))
    assert await flows.holds() == []


async def test_state_and_its_reason_are_kept(flows: Flowing) -> None:
    await flows.define(cutting("a"), cutting("b"))
    await flows.store.together(partial(set_state, "b", "STOPPED", "the scale is broken"))
    found = await flows.store.look(statuses)
    assert [(flow.name, flow.state, flow.reason) for flow in found] == [
        ("a", "RUNNING", ""),
        ("b", "STOPPED", "the scale is broken"),
    ]
    with pytest.raises(UnknownFlow):
        await flows.store.together(partial(set_state, "c", "PAUSED"))


async def test_status_counts_what_waits_runs_and_failed(flows: Flowing) -> None:
    await flows.define(cutting(retry=Retry(max_attempts=1)))
    await flows.push(140)
    await flows.cut()
    await flows.complete(await flows.leased(parcels=2), "ERROR", error="bad")
    await flows.leased(parcels=1)
    status = await flows.status()
    assert (status.queued, status.cold, status.leased, status.errors) == (7, 4, 1, 2)
    assert (status.next_seq, status.waits_us) == (141, None)


async def test_latest_begins_where_the_queue_ended_when_the_flow_was_defined(flows: Flowing) -> None:
    await flows.push(25)
    await flows.define(cutting("late", start="latest"), cutting("early"))
    await flows.push(10)
    await flows.cut("late")
    await flows.cut("early")
    assert await flows.ranges("late") == [(26, 35)]
    assert await flows.ranges("early") == [(1, 10), (11, 20), (21, 30)]


async def test_flow_begins_at_the_seq_that_its_source_names(flows: Flowing) -> None:
    await flows.push(25)
    await flows.define(cutting("here", start_seq=6), cutting("ahead", start_seq=31))
    await flows.push(20)
    await flows.cut_all()
    assert await flows.ranges("here") == [(6, 15), (16, 25), (26, 35), (36, 45)]
    assert await flows.ranges("ahead") == [(31, 40)]


async def test_start_seq_counts_for_a_queue_that_is_made_later_and_not_for_one_made_again(flows: Flowing) -> None:
    await flows.define(cutting(start_seq=6, fail_on_data_loss=False))
    await flows.push(15)
    await flows.cut()
    assert await flows.ranges() == [(6, 15)]
    await flows.store.delete_queue("orders")
    await flows.push(10)
    await flows.cut_all()
    assert await flows.ranges() == [(6, 15), (1, 10)]


async def test_changed_spec_is_a_new_version_and_its_keys_have_no_order(flows: Flowing) -> None:
    one, two = "SELECT 1", "SELECT 2"
    specs: list[dict[str, Any]] = [{"sql": one, "n": 1}, {"n": 1, "sql": one}, {"sql": two, "n": 1}]
    made = [
        await flows.store.together(partial(define, msgspec.structs.replace(cutting(), spec=spec))) for spec in specs
    ]
    assert [status.version for status in made] == [1, 1, 2]
    assert made[-1].definition.spec == specs[-1]
    kept = await flows.store.look(partial(definitions, [("shop", 1)]))
    assert kept["shop", 1].spec == specs[0]


async def test_spec_that_is_too_large_is_refused_with_its_size(flows: Flowing) -> None:
    large = msgspec.structs.replace(cutting(), spec={"sql": "x" * 256 * 1024})
    with pytest.raises(FlowRefused, match="spec: has 262154 bytes of JSON, allowed are 262144"):
        await flows.define(large)


async def test_two_servers_define_one_flow_at_once(flows: Flowing) -> None:
    made = await asyncio.gather(*[flows.store.together(partial(define, cutting())) for _ in range(5)])
    assert {status.version for status in made} == {1}


async def test_all_faults_are_told_at_once_with_their_fields(flows: Flowing) -> None:
    step = Step(
        action="a b",
        action_class="",
        actions=("c",),
        retry=Retry(max_attempts=0, delay_seconds=-1, multiplier=0.5, jitter=2),
        join=Join(max_age_seconds=0, min=5, max=2),
        lease_seconds=float("nan"),
    )
    wrong = FlowDefinition(
        name="../shop",
        source=Source(parcel_messages=0, cron="* * * * *", errors=ErrorFilter(), max_errors=-1),
        steps=(step,),
        rate_limit=RateLimit(amount=0, seconds=0),
    )
    with pytest.raises(FlowRefused) as refused:
        await flows.store.together(partial(define, wrong))
    assert {fault.field for fault in refused.value.faults} == {
        "name",
        "source.queue",
        "source.cron",
        "source.errors",
        "source.parcelMessages",
        "source.maxErrors",
        "rateLimit.amount",
        "rateLimit.seconds",
        "steps[0].action",
        "steps[0].actionClass",
        "steps[0].actions",
        "steps[0].retry.maxAttempts",
        "steps[0].retry.delaySeconds",
        "steps[0].retry.multiplier",
        "steps[0].retry.jitter",
        "steps[0].join.maxAgeSeconds",
        "steps[0].join.min",
        "steps[0].leaseSeconds",
    }
    assert await flows.store.look(statuses) == []


@pytest.mark.parametrize(
    ("source", "field"),
    [
        (Source(kind="timer", cron="61 * * * *"), "source.cron"),
        (Source(kind="timer", cron="* * * * *", queue="orders"), "source.queue"),
        (Source(kind="timer", cron="* * * * *", group="g"), "source.group"),
        (Source(kind="timer", cron="* * * * *", start_seq=2), "source.startSeq"),
        (Source(queue="orders", start="latest", start_seq=2), "source.startSeq"),
        (Source(queue="orders", start_seq=0), "source.startSeq"),
        (Source(queue="orders", group="g" * 300), "source.group"),
        (Source(kind="errors", rate_limit=RateLimit(amount=1)), "source.rateLimit"),
        (Source(kind="errors", errors=ErrorFilter(flows=("shop",))), "source.errors.flows"),
    ],
)
async def test_what_a_source_does_not_read_is_refused(flows: Flowing, source: Source, field: str) -> None:
    wrong = FlowDefinition(name="shop", source=source, steps=cutting().steps)
    with pytest.raises(FlowRefused) as refused:
        await flows.store.together(partial(define, wrong))
    assert [fault.field for fault in refused.value.faults] == [field]


async def test_flow_without_steps_is_refused(flows: Flowing) -> None:
    with pytest.raises(FlowRefused, match="at least one"):
        await flows.define(FlowDefinition(name="shop", source=Source(queue="orders"), steps=()))
