"""The ledger over HTTP: of what a key may see, from figures that are kept."""

from __future__ import annotations

import pytest

from fixtures.keyed_app import KeyedApp
from fixtures.scripted_dispatcher import STATUS
from fixtures.store_steps import finish, push, take
from forebay.broker.delivery import DEAD
from forebay.telemetry.ledger import FLOW

pytestmark = pytest.mark.asyncio


async def filled(api: KeyedApp) -> None:
    await push(api.store, *"abcde", queue="in")
    await push(api.store, "x", queue="other")
    popped = await take(api.store, 2, queue="in", group="g")
    await finish(api.store, popped._replace(messages=popped.messages[:1]), DEAD, group="g")


async def test_every_stage_has_its_accounts_and_their_sums() -> None:
    api = KeyedApp()
    await filled(api)
    told = (await api.send("GET", "/api/v1/ledger")).json
    assert (told["balanced"], told["differences"]) == (True, [])
    accounts = {(one["stage"], one["name"], one["group"]): one for one in told["accounts"]}
    queue, group = accounts["queue", "in", None], accounts["group", "in", "g"]
    assert queue["parts"] == {"buffered": 0, "stored": 5, "removed": 0, "lost": 0}
    assert group["parts"] == {"buffered": 0, "finished": 0, "waiting": 3, "leased": 1, "dead": 1}
    assert queue["accepted"] == group["accepted"] == sum(group["parts"].values()) == 5
    assert accounts[FLOW, "orders", None]["unit"] == "parcels"
    totals = {one["stage"]: one for one in told["totals"]}
    assert (totals["queue"]["accounts"], totals["queue"]["accepted"]) == (2, 6)
    short = (await api.send("GET", "/api/v1/ledger?accounts=false")).json
    assert (short["accounts"], short["totals"]) == ([], told["totals"])


async def test_a_key_for_some_queues_sees_those_and_their_flows_alone() -> None:
    api = KeyedApp()
    await filled(api)
    await api.make("root", "admin")
    assert STATUS.definition.source.queue == "in"
    for pattern, expected in (("in", {"in", "orders"}), ("oth*", {"other"})):
        key = await api.make(pattern, "read", queues=(pattern,))
        told = (await api.send("GET", "/api/v1/ledger", key=key)).json
        assert {one["name"] for one in told["accounts"]} == expected


async def test_the_ledger_stands_on_the_metrics() -> None:
    api = KeyedApp()
    await filled(api)
    lines = (await api.send("GET", "/metrics")).body.decode().splitlines()
    assert 'forebay_ledger_accepted{stage="queue"} 6' in lines
    assert 'forebay_ledger_parts{stage="group",part="leased"} 1' in lines
    assert "forebay_ledger_accounts_unbalanced 0" in lines
