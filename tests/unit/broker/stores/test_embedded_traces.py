"""Old traces of the embedded store: they go in pieces, and who looks for them in vain does not look at all of them."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fixtures.embedded_stores import opened
from fixtures.store_steps import push
from forebay.broker.overview import TraceEvent
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


async def note(store: EmbeddedStore, clock: FakeClock, count: int) -> list[TraceEvent]:
    [pushed] = await push(store, "a")
    event = TraceEvent(pushed.partition_id, "a", "g", "info", ("x", "y"), b"{}", clock.now_us())
    await asyncio.gather(*[store.add_trace(event) for _ in range(count)])
    return [event] * count


@pytest.mark.parametrize("limits", [EmbeddedLimits(removed_traces_max=4)])
async def test_others_get_their_turn_between_the_pieces(store: EmbeddedStore, clock: FakeClock) -> None:
    await note(store, clock, 400)
    clock.advance(10)
    removing = asyncio.ensure_future(store.expire_traces(5))
    for n in range(3):
        await push(store, f"other {n}", queue="others")
    assert not removing.done()
    assert await removing == 400
    assert await store.trace_names(10, 0) == ([], 0)


@pytest.mark.parametrize("limits", [EmbeddedLimits(removed_traces_max=4)])
async def test_traces_behind_a_gap_are_removed_too(store: EmbeddedStore, clock: FakeClock) -> None:
    await note(store, clock, 50)
    await store.delete_queue("orders")
    await note(store, clock, 10)
    clock.advance(10)
    assert await store.expire_traces(5) == 10


async def test_who_finds_nothing_old_has_looked_at_one_trace(store: EmbeddedStore, clock: FakeClock) -> None:
    connection = store._engine.database._connection
    steps = []
    for count in (10, 2000):
        await note(store, clock, count)
        taken: list[None] = []
        connection.set_progress_handler(lambda taken=taken: taken.append(None), 1)  # type: ignore[misc]
        assert await store.expire_traces(5) == 0
        connection.set_progress_handler(None, 1)
        steps.append(len(taken))
    assert steps[0] == steps[1] > 0


async def test_names_are_removed_without_looking_at_those_of_others(store: EmbeddedStore, clock: FakeClock) -> None:
    statement = "EXPLAIN QUERY PLAN DELETE FROM trace_names WHERE trace_id < 5"
    [plan] = store._engine.database._connection.execute(statement).fetchall()
    assert plan[3].startswith("SEARCH")


async def test_database_of_before_opens_and_loses_its_old_traces(tmp_path: Path, clock: FakeClock) -> None:
    store = await opened(tmp_path / "data", clock)
    kept = await note(store, clock, 3)
    await store.close()
    with closing(sqlite3.connect(tmp_path / "data" / "store.sqlite")) as database, database:
        database.execute("DROP INDEX trace_names_by_trace")
    store = await opened(tmp_path / "data", clock)
    assert await store.traces(kept[0].partition_id, "a") == kept
    clock.advance(10)
    assert await store.expire_traces(5) == 3
    assert await store.trace_names(10, 0) == ([], 0)
    await store.close()
