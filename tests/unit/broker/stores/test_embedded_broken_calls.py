"""A call that breaks by a bug breaks alone: what others asked for in the same cycle happens, and happens once."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fixtures.arrow_steps import commit, stage
from fixtures.store_steps import answer, complete, configure, ids, item, push, take
from forebay.broker.messages import Popped
from forebay.broker.numbering import each_message
from forebay.broker.overview import TraceEvent
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.broker.stores.embedded.engine import BROKEN_MAX
from forebay.broker.stores.embedded.index import MessageIndex
from forebay.broker.stores.embedded.pending_append import PendingAppend
from forebay.broker.stores.embedded.pushing import Pusher
from forebay.broker.stores.embedded.queues import OpenQueue
from forebay.broker.stores.embedded.store_thread import Work
from forebay.errors import InvariantBroken, QueueFull, StoreUnavailable
from forebay.model.push_run import PushRun, run_of_one
from forebay.model.queue import QueueOptions
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio


class Watched:
    """A store, what it told of messages that came, and how much it did in each cycle."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.store = store
        self.woken: Counter[str] = Counter()
        self.cycles: list[int] = []

    async def open(self) -> None:
        await self.store.open(self._wake)
        # What is asked for together happens together, however long the disk takes to make queues.
        self.store._engine.queues._turn.seconds = 1000.0
        line = self.store._line
        assert line is not None
        inner = line._cycle

        def counted(work: Sequence[Work]) -> None:
            self.cycles.append(len(work))
            inner(work)

        line._cycle = counted

    def _wake(self, queue: str, count: int) -> None:
        self.woken[queue] += count

    async def together(self, *asked: Awaitable[Any]) -> list[Any]:
        """Everything in one cycle; errors as they are."""
        self.cycles.clear()
        self.woken.clear()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert self.cycles == [len(asked)], "not one cycle"
        return found

    def broken(self, error: Callable[[], Exception] = TypeError) -> Coroutine[Any, Any, None]:
        """Changes something, and breaks."""

        def work() -> None:
            self.store._engine.queues.made("half-done", "", "")
            self.store._engine.database.do("DELETE FROM partitions")
            raise error()

        return self.store._call(work)


async def opened(directory: Path) -> Watched:
    watched = Watched(EmbeddedStore(directory, clock=FakeClock()))
    await watched.open()
    return watched


@pytest_asyncio.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    watched = await opened(tmp_path)
    yield watched
    await watched.store.close()


@pytest.mark.parametrize("place", [0, 3, 8])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TypeError, TypeError),
        (lambda: InvariantBroken("impossible"), InvariantBroken),
        (lambda: sqlite3.IntegrityError("impossible"), sqlite3.IntegrityError),
        (lambda: sqlite3.OperationalError("impossible"), StoreUnavailable),
    ],
)
async def test_others_of_the_cycle_notice_nothing(
    watched: Watched, place: int, error: Callable[[], Exception], told: type[Exception]
) -> None:
    store = watched.store
    await push(store, "old", "older", queue="work")
    popped = await take(store, 1, queue="work")
    staged = await stage(store, b"staged", queue="staged")
    asked: list[Awaitable[Any]] = [
        store.push([item(text, queue="work") for text in "ab"]),
        store.push([item("c", partition, queue="work") for partition in ("new", "newer")]),
        push(store, "d", queue="brand new"),
        complete(store, popped.lease_id),
        take(store, queue="work", partition="newer"),
        store.transact([item("e", queue="moved")], []),
        commit(store, staged),
        configure(store, QueueOptions(max_size=1), queue="small"),
    ]
    asked.insert(place, watched.broken(error))
    found = await watched.together(*asked)
    assert type(found.pop(place)) is told
    first, second, third, completed, taken, moved, committed, _ = found
    assert [one.seq for one in first] == [3, 4]
    assert completed.messages == 1
    assert ids(taken) == ["c"]
    assert (moved.error, committed.messages) == ("", 1)
    assert watched.woken == {"work": 5, "brand new": 1, "moved": 1, "staged": 1}
    for pushed, transaction_id in zip([*first, *second, *third], "abccd", strict=True):
        message = await store.message(pushed.partition_id, transaction_id)
        assert message is not None
        assert message.seq == pushed.seq
    names = [status.queue.name for status in await store.queues()]
    assert names == ["brand new", "moved", "small", "staged", "work"]
    assert ids(await store.read("work", 1, 100)) == ["old", "older", "a", "b", "c", "c"]
    with pytest.raises(QueueFull):
        await push(store, "f", "g", queue="small")


async def test_pushes_are_answered_with_the_partitions_that_they_have_in_the_end(watched: Watched) -> None:
    store = watched.store
    await push(store, "a", queue="q", partition="old")
    run = PushRun.of("q", "last", [b"1", b"2"], ["x", "y"], is_minted=False)
    single = [run_of_one("q", f"new {n}", b"3", "z") for n in range(20)]
    singles, runs, error = await watched.together(store.push(single), store.push([run]), watched.broken())
    assert type(error) is TypeError
    answers = each_message([*singles, *runs])
    assert [one.seq for one in answers] == list(range(2, 24))
    names = [name for pushed in [*single, run] for name in pushed.partitions]
    told = {name: answered.partition_id for name, answered in zip(names, answers, strict=True)}
    found = {status.name: status.partition_id for status in await store.partitions("q", 100, 0)}
    assert found.pop("old")
    assert told == found


async def test_what_others_were_refused_stays_refused_once(watched: Watched) -> None:
    store = watched.store
    await configure(store, QueueOptions(max_size=1))
    await push(store, "a")
    full, duplicate, error = await watched.together(push(store, "b"), push(store, "a", queue="other"), watched.broken())
    assert isinstance(full, QueueFull)
    assert duplicate[0].status == "queued"
    assert type(error) is TypeError
    assert ids(await store.read("orders", 1, 10)) == ["a"]


async def test_error_of_a_first_attempt_is_forgotten_when_the_second_succeeds(watched: Watched) -> None:
    outcomes: Iterator[Exception | None] = iter([StoreUnavailable("the disk is full"), None])

    def recovers() -> str:
        if error := next(outcomes):
            raise error
        return "done"

    assert (await watched.together(watched.store._call(recovers), watched.broken()))[0] == "done"


@pytest.mark.parametrize("broken", range(1, BROKEN_MAX + 3))
async def test_cycle_in_which_too_much_breaks_is_given_up_as_a_whole(watched: Watched, broken: int) -> None:
    store = watched.store
    await push(store, "a")
    event = TraceEvent((await push(store, "b"))[0].partition_id, "b", "g", "info", (), b"{}", 1)
    asked = [watched.broken() for _ in range(broken)]
    found = await watched.together(*asked, store.add_trace(event), store.transact([item("c")], []))
    assert {type(one) for one in found[:broken]} == {TypeError}
    is_isolated = broken <= BROKEN_MAX
    assert [isinstance(one, TypeError) for one in found[broken:]] == [not is_isolated] * 2
    assert len(await store.traces(event.partition_id, "b")) == is_isolated
    assert ids(await take(store)) == ["a", "b", "c"][: 2 + is_isolated]


@pytest.mark.parametrize("queue", ["orders", "new"])
async def test_push_breaks_alone(watched: Watched, monkeypatch: pytest.MonkeyPatch, queue: str) -> None:
    store = watched.store
    await push(store, "a")
    really_accept = Pusher._accept

    def accept(pusher: Pusher, queue: OpenQueue, runs: Sequence[PushRun], arrivals: PendingAppend) -> Any:
        if any("guilty" in run.transaction_ids for run in runs):
            raise TypeError
        return really_accept(pusher, queue, runs, arrivals)

    monkeypatch.setattr(Pusher, "_accept", accept)
    minted = run_of_one(queue, "Default", b"m", "m", is_minted=True)
    first, guilty, second, third, other = await watched.together(
        push(store, "b", queue=queue),
        push(store, "guilty", queue=queue),
        store.push([minted]),
        push(store, "c", "b", queue=queue),
        push(store, "d", queue="other"),
    )
    assert type(guilty) is TypeError
    assert [one.status for one in (*first, *second, *third, *other)] == ["queued"] * 3 + ["duplicate", "queued"]
    found = ["a"] if queue == "orders" else []
    assert sorted(ids(await take(store, queue=queue))) == [*found, "b", "c", "m"]
    assert ids(await take(store, queue="other")) == ["d"]
    assert watched.woken == {queue: 3, "other": 1}


async def test_pushes_that_break_when_they_are_in_the_log_break_together_and_are_there_once(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = watched.store
    await push(store, "a")

    def breaks(*_: object) -> None:
        raise TypeError

    with monkeypatch.context() as patch:
        patch.setattr(MessageIndex, "note", breaks)
        found = await watched.together(push(store, "b"), push(store, "c"))
    assert [type(one) for one in found] == [TypeError, TypeError]
    assert ids(await take(store)) == ["a", "b", "c"]


async def test_pushes_that_all_break_break_nothing_else(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    store = watched.store
    await push(store, "a")

    def breaks(*_: object) -> None:
        raise TypeError

    with monkeypatch.context() as patch:
        patch.setattr(Pusher, "_accept", breaks)
        first, popped, second = await watched.together(push(store, "b"), take(store), push(store, "c", queue="new"))
    assert type(first) is type(second) is TypeError
    assert ids(popped) == ["a"]
    assert [status.queue.name for status in await store.queues()] == ["orders"]


# --- anything, with and without broken calls beside it ---


def some_work(store: EmbeddedStore, chance: random.Random, held: list[Popped], number: int) -> list[Awaitable[Any]]:
    asked: list[Awaitable[Any]] = []
    for n in range(chance.randint(2, 6)):
        queue, partition = chance.choice("abc"), chance.choice(["p", "q", f"new {number}"])
        kind = chance.randrange(6)
        text = f"{number}-{chance.choice([n, 0])}"
        if kind <= 1:
            asked.append(store.push([item(text, partition, queue=queue), item(f"{text}!", queue=queue)]))
        elif kind == 2:
            # Of one partition: which of several comes first may change, and nobody promises that.
            asked.append(take(store, chance.randint(1, 3), queue=queue, partition=chance.choice(["p", "Default"])))
        elif kind == 3 and held:
            popped = held.pop(0)
            asked.append(store.acknowledge([answer(popped, message) for message in popped.messages]))
        elif kind == 4:
            taken = held.pop(0) if held else Popped("", [], 0)
            acks = [answer(taken, message) for message in taken.messages]
            asked.append(store.transact([item(text, partition, queue=queue), item(text, queue="d")], acks))
        else:
            asked.append(store.delete_queue(queue) if chance.random() < 0.2 else store.apply_retention())
    return asked


def seen(found: Any) -> Any:
    """Without what differs from store to store: leases, and numbers behind a transaction that was done twice."""
    if isinstance(found, Popped):
        return ids(found)
    if isinstance(found, list):
        return [getattr(one, "status", "") or one.answered.is_accepted for one in found]
    return getattr(found, "error", found)


async def run(directory: Path, seed: int, broken_max: int) -> list[Any]:
    watched = await opened(directory)
    chance, breaks = random.Random(seed), random.Random(seed + 1)
    held: list[Popped] = []
    told: list[Any] = []
    for number in range(40):
        asked = some_work(watched.store, chance, held, number)
        for _ in range(breaks.randint(0, broken_max)):
            asked.insert(breaks.randint(0, len(asked)), watched.broken())
        found = await asyncio.gather(*asked, return_exceptions=True)
        others = [one for one in found if type(one) is not TypeError]
        assert not [one for one in others if isinstance(one, BaseException)]
        held += [one for one in others if isinstance(one, Popped) and one.messages]
        told.append([seen(one) for one in others])
    for status in await watched.store.queues():
        messages = await watched.store.read(status.queue.name, 1, 1000)
        told.append([(message.transaction_id, message.partition) for message in messages])
    told.append([(lag.queue, lag.lag_messages, lag.leased) for lag in await watched.store.groups()])
    await watched.store.close()
    return told


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_is_asked_for_happens_as_if_nothing_had_broken(tmp_path: Path, seed: int) -> None:
    assert await run(tmp_path / "broken", seed, 3) == await run(tmp_path / "whole", seed, 0)


async def test_stage_whose_file_cannot_be_removed_is_committed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = await opened(tmp_path)
    store = watched.store
    stages = [await stage(store, b"1"), await stage(store, b"2")]
    unlink = Path.unlink

    def fail_once(path: Path, *, missing_ok: bool = False) -> None:
        monkeypatch.undo()
        assert Path.unlink is unlink
        raise PermissionError(path)

    monkeypatch.setattr(Path, "unlink", fail_once)
    assert (await commit(store, *stages)).messages == 2
    assert len(await store.read("orders", 1, 10)) == 2
    assert len(list((tmp_path / "stages").iterdir())) == 1
    await store.close()
    again = await opened(tmp_path)
    assert list((tmp_path / "stages").iterdir()) == []
    await again.store.close()


async def test_store_lives_on_when_nobody_can_be_woken(tmp_path: Path) -> None:
    def wake(queue: str, count: int) -> None:
        raise RuntimeError("the event loop is closed")

    store = EmbeddedStore(tmp_path, clock=FakeClock())
    await store.open(wake)
    await push(store, "a")
    await push(store, "b")
    assert ids(await take(store)) == ["a", "b"]
    await store.close()
