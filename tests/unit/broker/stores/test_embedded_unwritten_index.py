"""Index rows that wait in memory: the same rows in the end, whoever looks when, and the same after a crash."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from fixtures.embedded_stores import opened
from forebay.broker.messages import PopRequest
from forebay.broker.numbering import each_message
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.broker.stores.embedded.given_ids import GivenIds
from forebay.broker.stores.embedded.index import MessageIndex
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.unwritten_index import UnwrittenIndex
from forebay.errors import QueueFull, StoreUnavailable
from forebay.model.ids import minted_ids
from forebay.model.push_run import PushRun, run_of_one
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio
TABLES = {
    "blocks": "partition_id, first_seq, last_seq, count, before, record_seq, position",
    "partitions": "id, queue_id, name, last_seq, newest_us, pushed, size",
    "transaction_ids": "partition_id, transaction_id, seq",
    "queues": "id, name, indexed_seq",
}


@pytest.fixture
def clock() -> FakeClock:
    """Two stores are given the same pushes, at the same time."""
    return FakeClock(now_us=1_000_000)


def rows(directory: Path, *tables: str) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(directory / "store.sqlite")) as connection, connection:
        return {table: sorted(connection.execute(f"SELECT {TABLES[table]} FROM {table}")) for table in tables or TABLES}


def some_push(chance: random.Random, number: int) -> Sequence[PushRun]:
    """Ids are given now and then, some of them more than once."""
    queue, count = chance.choice("ab"), chance.choice((1, 1, 2, 5, 9))
    is_minted = chance.random() < 0.5
    ids = minted_ids(count) if is_minted else [f"id-{chance.randrange(number + 5)}" for _ in range(count)]
    payloads = [b"%d" % chance.randrange(10**6) for _ in range(count)]
    if chance.random() < 0.4:
        return [PushRun.of(queue, chance.choice("pqr"), payloads, ids, is_minted=is_minted)]
    return [
        run_of_one(queue, chance.choice("pqr"), payload, transaction_id, is_minted)
        for payload, transaction_id in zip(payloads, ids, strict=True)
    ]


async def push_all(store: EmbeddedStore, seed: int, look_chance: float) -> list[list[tuple[str, int]]]:
    chance, looks = random.Random(seed), random.Random(seed)
    told = []
    for number in range(60):
        pushed = each_message(await store.push(some_push(chance, number)))
        told.append([(found.status, found.seq) for found in pushed])
        if looks.random() < look_chance:
            await store.queues()
    return told


@pytest.mark.parametrize("seed", range(10))
async def test_rows_are_the_same_whoever_looks_when(tmp_path: Path, clock: FakeClock, seed: int) -> None:
    found = {}
    for name, look_chance, messages_max in (("always", 1.0, 1), ("now and then", 0.2, 10**6), ("many", 0.0, 30)):
        limits = EmbeddedLimits(unwritten_messages_max=messages_max)
        store = await opened(tmp_path / name, clock, limits=limits)
        told = await push_all(store, seed, look_chance)
        await store.close()
        indexed = rows(tmp_path / name)
        # Minted ids and so records of another size: only where they begin differs.
        indexed["blocks"] = [row[:-1] for row in indexed["blocks"]]
        found[name] = told, indexed
    assert found["always"] == found["now and then"] == found["many"]


@pytest.mark.parametrize("seed", range(5))
async def test_what_waited_when_the_process_died_is_read_from_the_logs(
    tmp_path: Path, clock: FakeClock, seed: int
) -> None:
    store = await opened(tmp_path / "alive", clock)
    told = await push_all(store, seed, 0.1)
    shutil.copytree(tmp_path / "alive", tmp_path / "dead")
    await store.close()
    assert rows(tmp_path / "dead", "queues") != rows(tmp_path / "alive", "queues"), "nothing waited"
    dead = await opened(tmp_path / "dead", clock)
    await dead.close()
    assert rows(tmp_path / "dead", "blocks", "partitions", "queues") == rows(
        tmp_path / "alive", "blocks", "partitions", "queues"
    )
    given = set(rows(tmp_path / "alive", "transaction_ids")["transaction_ids"])
    assert given <= set(rows(tmp_path / "dead", "transaction_ids")["transaction_ids"])
    assert any(status == "duplicate" for answers in told for status, _ in answers)


async def test_pushes_alone_write_nothing_to_the_database(tmp_path: Path, clock: FakeClock) -> None:
    store = await opened(tmp_path, clock)
    await store.push([run_of_one("a", "p", b"1", "first")])
    await store.queues()
    before = rows(tmp_path)
    for number in range(20):
        await store.push([run_of_one("a", "p", b"1", f"id-{number}")])
    assert rows(tmp_path) == before
    popped = await store.pop(PopRequest("a", batch=100))
    assert len(popped.messages) == 21
    await store.close()


@pytest.mark.parametrize(("owner", "step"), [(MessageIndex, "settle"), (GivenIds, "note")])
async def test_cycle_that_fails_leaves_nothing_to_be_indexed_twice(
    tmp_path: Path,
    clock: FakeClock,
    owner: type[MessageIndex | GivenIds],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = await opened(tmp_path, clock)
    for number in range(3):
        await store.push([run_of_one("a", "p", b"1", f"id-{number}")])

    true_step = getattr(owner, step)

    def fail(index: MessageIndex | GivenIds, *rows: object) -> None:
        true_step(index, *rows)
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as broken:
        broken.setattr(owner, step, fail)
        with pytest.raises(StoreUnavailable):
            await (store.queues() if step == "settle" else store.push([run_of_one("a", "p", b"1", "id-3")]))
    await store.push([run_of_one("a", "p", b"1", "id-4")])
    told = await store.push([run_of_one("a", "p", b"1", f"id-{number}") for number in range(5)])
    statuses = [found.status for found in told]
    assert statuses == ["duplicate"] * 3 + ["queued" if step == "settle" else "duplicate", "duplicate"]
    popped = await store.pop(PopRequest("a", batch=100))
    assert [message.seq for message in popped.messages] == [1, 2, 3, 4, 5]
    await store.close()


async def test_full_queue_counts_what_waits_in_memory(tmp_path: Path, clock: FakeClock) -> None:
    store = await opened(tmp_path, clock)
    await store.configure("a", QueueOptions(max_size=3), "", "")
    for number in range(3):
        await store.push([run_of_one("a", "p", b"1", f"id-{number}")])
    with pytest.raises(QueueFull):
        await store.push([run_of_one("a", "other", b"1", "id-3")])
    assert [status.name for status in await store.partitions("a", 10, 0)] == ["p"], "a refused push leaves no trace"
    await store.close()


@pytest.mark.parametrize(
    ("limits", "shares"),
    [
        (EmbeddedLimits(unwritten_shares_max=2), {1: [1, 1, 1, 1], 2: [2, 2, 1, 1]}),
        (EmbeddedLimits(unwritten_messages_max=2), {1: [1, 2, 2, 2]}),
        (EmbeddedLimits(unwritten_bytes_max=2), {1: [1, 1, 1, 2]}),
    ],
)
async def test_tail_is_long_by_any_measure(limits: EmbeddedLimits, shares: dict[int, list[int]]) -> None:
    roomy, tail = UnwrittenIndex(EmbeddedLimits()), UnwrittenIndex(limits)
    for each in (roomy, tail):
        assert not each.is_long
        each.add(1, 1, 0, shares, 5)
    assert (roomy.is_long, tail.is_long) == (False, True)
