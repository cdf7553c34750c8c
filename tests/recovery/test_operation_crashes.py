"""Every point at which a kill or a power cut may meet an operation of the embedded store, SQLite's writes included.

The operation runs once, under strace; the directory is then made as each call would have left it, and a store is
opened on it. Between two answers the store is as after the one or as after the other, and it goes on from there.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fixtures.disk_record import State, record
from fixtures.store_steps import ids, push, take
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.room_work import Ask, Work, statement
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.testing.fake_clock import FakeClock
from recovery.operation_process import OPERATIONS, prepare

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("operation_process.py")
ANSWERS = {"transaction": 2, "new_group": 2, "new_group_of_a_new_queue": 2, "seek": 2, "delete_queue": 2}
ANSWERS |= {"stage_commit": 3, "parcels": 5}
OF_PARCELS = [
    statement(
        "parcels",
        "SELECT p.place, p.state, p.first_seq, p.last_seq, s.step, s.state, s.attempts, s.lease_id "
        "FROM forebay.parcels AS p JOIN forebay.parcel_flows AS s ON s.did = p.did ORDER BY 1, 5",
    ),
    statement("counts", "SELECT action_class, flow, queued, cold, leased FROM forebay.action_queues ORDER BY 1, 2"),
    statement("flows", "SELECT flow, version, next_seq FROM forebay.dispatch_flows ORDER BY 1"),
    statement("holds", "SELECT queue_id, flow, seq FROM forebay.parcel_holds ORDER BY 1, 2"),
    statement("leases", "SELECT lease_id, worker FROM forebay.parcel_leases ORDER BY 1"),
    statement("events", "SELECT count(*) FROM forebay.parcel_events"),
]


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[EmbeddedStore]:
    """On a clock by which every lease has ended."""
    store = EmbeddedStore(directory, clock=FakeClock(now_us=10**17))
    await store.open(lambda queue, count: None)
    try:
        yield store
    finally:
        await store.close()


async def everything(store: EmbeddedStore) -> dict[str, object]:
    """All that can be seen of the store, except for leases, and without the order of partitions."""
    queues = await store.queues()
    letters, _ = await store.dead_letters(DeadLetterFilter(), 100, 0)
    groups = await store.groups()
    return {
        "queues": {one.queue.name: (one.queue.options, one.messages, one.lost) for one in queues},
        "messages": {one.queue.name: await seen(store, one.queue.name) for one in queues},
        "letters": {(letter.group, letter.message.transaction_id, letter.reason) for letter in letters},
        "groups": {(one.group, one.queue, one.subscription_mode) for one in groups if one.group != "__QUEUE_MODE__"},
        "stages": (await store.stage_figures()).stages,
        "parcels": await store.look(of_parcels),
        "left": {
            (group, one.queue.name): sorted(ids(await take(store, queue=one.queue.name, group=group, partitions=9)))
            for one in queues
            for group in sorted({"__QUEUE_MODE__", *(known.group for known in groups if known.queue == one.queue.name)})
        },
    }


def of_parcels() -> Work[dict[str, object]]:
    found: dict[str, object] = {}
    for asked in OF_PARCELS:
        found[asked.name] = yield Ask(asked)
    return found


async def seen(store: EmbeddedStore, queue: str) -> list[tuple[str, bytes, str]]:
    return [
        (one.partition, one.payload, "" if one.payload.startswith(b"s") else one.transaction_id)
        for one in await store.read(queue, 1, 100)
    ]


async def observed(state: State, folder: Path) -> dict[str, object]:
    """What is there; and whatever it is, the store takes and gives messages again, and after a restart as well."""
    directory = state.restore(folder)
    async with opened(directory) as store:
        found = await everything(store)
        assert await store.lost_messages() == []
        await push(store, "after", queue="other")
        await push(store, "after", queue="after")
        assert ids(await take(store, queue="after")) == ["after"]
    if state.what.startswith("killed"):
        async with opened(directory) as store:
            assert ids(await store.read("other", 1, 100))[-1] == "after"
    await asyncio.to_thread(shutil.rmtree, directory)
    return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("prepared") / "data"

    async def make() -> None:
        store = EmbeddedStore(directory)
        await store.open(lambda queue, count: None)
        await prepare(store)
        await store.close()

    asyncio.run(make())
    return directory


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_operation_happened_as_a_whole_or_not_at_all(operation: str, prepared: Path, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    shutil.copytree(prepared, directory)
    answers = ANSWERS.get(operation, 1)
    environment = ["env", f"PYTHONPATH={PROGRAM.parents[1]}"]
    states = record([*environment, sys.executable, str(PROGRAM), str(directory), operation], directory, answers + 1)
    killed_when_told = [
        next(state for state in states if state.told == told and state.what.startswith("killed"))
        for told in range(1, answers + 2)
    ]
    expected = [await observed(state, tmp_path / "state") for state in killed_when_told]
    assert expected[0] != expected[-1], "the operation does something"
    for state in states:
        if not state.told:
            continue
        found = await observed(state, tmp_path / "state")
        assert found in expected[state.told - 1 : state.told + 1], f"{state.told} answers, {state.what}"
