"""Queue metrics on every store: they equal what is stored, and cost as much as there are classes, not parcels."""

from __future__ import annotations

from functools import partial

import pytest

from fixtures.flow_steps import Flowing, cutting
from forebay.dispatch.definition import Retry, Step
from forebay.dispatch.ledger.details import detailed, figures, plugins, running

pytestmark = pytest.mark.asyncio


async def test_details_count_warm_and_cold_with_the_oldest_of_each(flows: Flowing) -> None:
    steps = Step(action="parse", action_class="parse"), Step(action="send", action_class="send")
    await flows.define(cutting("shop", *steps))
    began_us = flows.clock.now_us()
    await flows.push(50)
    await flows.cut()
    flows.clock.advance(5)
    await flows.push(80)
    await flows.cut()
    await flows.complete(await flows.leased("parse", parcels=1))
    details = await flows.store.look(detailed)
    newest_first = await flows.find(limit=100)
    assert [tuple(row) for row in details.warm] == [
        ("parse", "shop", "TRANSFORM", "parse", 9, began_us, newest_first[-2].did),
        ("send", "shop", "DATA_SINK", "send", 1, flows.clock.now_us(), newest_first[-1].did),
    ]
    assert [tuple(row) for row in details.cold] == [
        ("parse", "shop", "TRANSFORM", "parse", 3, began_us + 5_000_000),
    ]
    assert details.at_us == flows.clock.now_us()


async def test_actions_of_one_class_are_told_apart(flows: Flowing) -> None:
    steps = Step(action="first", action_class="same"), Step(action="second", action_class="same")
    await flows.define(cutting("shop", *steps))
    await flows.push(30)
    await flows.cut()
    await flows.complete(await flows.leased(parcels=1))
    details = await flows.store.look(detailed)
    newest_first = await flows.find()
    assert [(row.action, row.count, row.oldest_did) for row in details.warm] == [
        ("first", 2, newest_first[1].did),
        ("second", 1, newest_first[2].did),
    ]


async def test_nothing_waits_is_no_rows(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(10)
    await flows.cut()
    await flows.complete(await flows.leased())
    details = await flows.store.look(detailed)
    assert (list(details.warm), list(details.cold)) == ([], [])


async def test_running_tasks_are_leased_parcels_of_workers_heard_lately(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(20)
    await flows.cut()
    began_us = flows.clock.now_us()
    silent = await flows.leased(parcels=1, worker="silent")
    beating = await flows.leased(parcels=1, worker="beating")
    flows.clock.advance(31)
    await flows.leasing.heartbeat(beating.lease_id)
    [task] = await flows.store.look(partial(running, 30))
    assert tuple(task) == (
        "parse", "shop", "parse", beating.parcels[0].did, began_us, 31_000_000, "beating", began_us + 31_000_000
    )  # fmt: skip
    assert {task.did for task in await flows.store.look(partial(running, 3600))} == {
        silent.parcels[0].did,
        beating.parcels[0].did,
    }


async def test_plugins_are_those_of_the_worker_that_was_heard_last(flows: Flowing) -> None:
    await flows.define(cutting("shop", Step(action="parse", action_class="geo.parse")))
    await flows.push(10)
    await flows.cut()
    await flows.lease("geo.*", worker="old", plugin="geo:1.0.0")
    flows.clock.advance(60)
    await flows.lease("*.parse", worker="new", plugin="geo:1.1.0")
    await flows.lease("other", worker="else", plugin="else:9")
    assert await flows.store.look(plugins) == {"geo.parse": "geo:1.1.0"}


async def test_figures_tell_of_every_class_and_of_what_went_wrong(flows: Flowing) -> None:
    await flows.define(
        cutting("shop", Step(action="parse", action_class="parse", retry=Retry(max_attempts=1))),
        cutting("other", Step(action="wait", action_class="unserved")),
    )
    await flows.push(120)
    await flows.cut("shop")
    flows.clock.advance(10)
    await flows.cut("other")
    await flows.complete(await flows.leased("parse", parcels=1), "ERROR", error="bad")
    flows.clock.advance(5)
    told = await flows.store.look(partial(figures, 60))
    parse, unserved = told.classes
    assert parse[:6] == ("parse", 9, 2, 0, 15.0, True)
    assert (parse.is_cold, parse.went_cold) == (True, 1)
    assert unserved[:6] == ("unserved", 10, 2, 0, 5.0, False)
    assert (told.queued, told.cold, told.leased, told.errors) == (19, 4, 0, 1)
    assert [(held.flow, held.seq) for held in told.holds] == [("other", 1), ("shop", 1)]
    flows.clock.advance(60)
    assert not (await flows.store.look(partial(figures, 60))).classes[0].is_served


async def test_expired_leases_and_requeues_are_counted(flows: Flowing) -> None:
    await flows.define(cutting())
    await flows.push(20)
    await flows.cut()
    await flows.leased()
    flows.clock.advance(3600)
    await flows.upkeep.expiry_turn()
    told = await flows.store.look(partial(figures, 60))
    assert (told.expiries, told.requeues) == (1, 2)
