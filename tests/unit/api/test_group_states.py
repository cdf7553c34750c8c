"""What `GET /consumer-groups` calls Stable, Lagging and Dead, on a clock that the test turns."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fixtures.intakes import intake_of
from fixtures.scripted_dispatcher import ScriptedDispatcher
from fixtures.store_steps import push, taken_ids
from forebay.api.app import App
from forebay.api.exchange import Request, Response
from forebay.api.routes.groups import DEAD_SECONDS, LAGGING_SECONDS
from forebay.api.service import Service
from forebay.broker.waiting import WaitingRoom
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore

pytestmark = pytest.mark.asyncio


class Groups:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self._app = App(
            Service(
                self.store,
                WaitingRoom(asyncio.get_running_loop()),
                self.clock,
                intake_of(self.store, self.clock),
                is_started=True,
                folders=(),
                dispatcher=ScriptedDispatcher(),
            )
        )

    async def get(self, path: str) -> Any:
        path, _, query = path.partition("?")
        request = Request("GET", f"/api/v1/consumer-groups{path}".encode(), query.encode())
        request.stream.end()
        answer = await self._app.answer(request)
        assert isinstance(answer, Response)
        assert answer.status == 200
        return json.loads(answer.body)

    async def state(self) -> str:
        [found] = await self.get("")
        assert found["state"] == (await self.get("/readers"))["state"]
        return str(found["state"])


@pytest.fixture
async def groups() -> Groups:
    made = Groups()
    await made.store.open(lambda queue, count: None)
    await push(made.store, "a", "b")
    assert await taken_ids(made.store, 1, group="readers") == ["a"]
    return made


async def test_group_that_is_behind_is_lagging_after_a_minute_and_dead_when_it_asks_no_more(groups: Groups) -> None:
    assert await groups.state() == "Stable"
    groups.clock.advance(LAGGING_SECONDS - 1)
    assert await groups.state() == "Stable"
    groups.clock.advance(1)
    assert await groups.state() == "Lagging"
    groups.clock.advance(DEAD_SECONDS - LAGGING_SECONDS)
    assert await groups.state() == "Lagging"
    groups.clock.advance(1)
    assert await groups.state() == "Dead"
    assert await taken_ids(groups.store, 1, group="readers") == ["b"]
    assert await groups.state() == "Stable"


async def test_group_that_has_everything_is_stable_however_long_it_is_quiet(groups: Groups) -> None:
    assert await taken_ids(groups.store, 1, group="readers") == ["b"]
    groups.clock.advance(10 * DEAD_SECONDS)
    assert await groups.state() == "Stable"


async def test_group_with_several_queues_is_in_the_worst_of_its_states(groups: Groups) -> None:
    groups.clock.advance(LAGGING_SECONDS)
    await push(groups.store, "x", queue="other")
    assert await taken_ids(groups.store, 1, queue="other", group="readers") == ["x"]
    assert {one["queueName"]: one["state"] for one in await groups.get("")} == {"orders": "Lagging", "other": "Stable"}
    assert (await groups.get("/readers"))["state"] == "Lagging"
    assert [one["queueName"] for one in await groups.get(f"/lagging?minLagSeconds={LAGGING_SECONDS}")] == ["orders"]
    assert await groups.get(f"/lagging?minLagSeconds={LAGGING_SECONDS + 1}") == []
