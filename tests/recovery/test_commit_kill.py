"""`kill -9` at every step of a transaction over queues and acks, a commit of stages, a seek, a deletion, the first pop
of a group, and of cutting, leasing and completing parcels, on both stores."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from fixtures.fix_stores import emptied_store_database, empty, store_database
from fixtures.running_stores import wait_until
from fixtures.store_steps import ids, push, take
from forebay.broker.overview import DeadLetterFilter
from forebay.broker.room_work import Ask, Work, statement
from forebay.broker.store import Store
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.broker.stores.postgres import PostgresStore
from forebay.errors import UnknownQueue
from forebay.testing.fake_clock import FakeClock
from recovery.commit_process import OPERATIONS

__all__ = ["emptied_store_database", "store_database"]

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("commit_process.py")
STEPS_MAX = 60
NOTHING: dict[str, list[str]] = {
    "late": [],
    "left": ["a", "b"],
    "right": ["x"],
    "target": [],
    "dead": [],
    "parcels": [],
}
CUT = ["0 QUEUED", "0 COLD_QUEUED"]
LEASED = ["0 LEASED", "0 COLD_QUEUED"]
BEFORE = {"claiming": NOTHING | {"parcels": CUT}, "completing": NOTHING | {"parcels": LEASED}}
"""Where it is not as if nothing had been done."""
CHANGED = {
    "transaction": {"late": [], "left": ["b"], "right": ["t2"], "target": ["t1"], "dead": ["x"]},
    "stages": {"late": [], "left": ["a", "b"], "right": ["x", "t2"], "target": ["t1"], "dead": []},
    "seek": {"late": [], "left": [], "right": ["x"], "target": [], "dead": []},
    "group": {"late": ["late"], "left": ["a", "b"], "right": ["x"], "target": [], "dead": []},
    "deletion": {"late": [], "left": ["a", "b"], "right": [], "target": [], "dead": []},
}

CHANGED |= {
    "cutting": {"parcels": CUT},
    "claiming": {"parcels": LEASED},
    "completing": {"target": ["t1"], "parcels": ["0 COMPLETE", "1 QUEUED", "0 COLD_QUEUED"]},
}
WHOLE = {operation: NOTHING | changed for operation, changed in CHANGED.items()}
STEPS = statement("steps", "SELECT step, state FROM forebay.parcel_flows ORDER BY place, step")

ONE_STATEMENT = {"deletion": 1, "group": 2}
"""What PostgreSQL does in one statement of its own, and which of the operation's statements that is."""


class Doomed:
    """Starts processes that kill themselves."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def killed_at(self, step: str, where: str, operation: str) -> list[str]:
        """Returns what it told before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{where} {operation} {step}\n")
        self._process.stdin.flush()
        lines = list(iter(lambda: self._process.stdout.readline().rstrip(), "exit -9"))  # type: ignore[union-attr]
        assert not [line for line in lines if line.startswith("exit") or not line], lines
        return lines


@pytest.fixture
def doomed() -> Iterator[Doomed]:
    environment = {"PYTHONPATH": str(PROGRAM.parents[1])}
    command = [sys.executable, str(PROGRAM)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield Doomed(process)


@asynccontextmanager
async def opened(where: str) -> AsyncIterator[Store]:
    """On a clock by which every lease has ended."""
    clock = FakeClock()
    clock.advance(3600)
    store: Store = PostgresStore(where, clock=clock) if "://" in where else EmbeddedStore(where, clock=clock)
    await store.open(lambda queue, count: None)
    try:
        yield store
    finally:
        await store.close()


async def found(store: Store) -> dict[str, list[str]]:
    """What the default group still gets, and the dead letters. Staged rows have ids of their own: payloads tell."""
    left = {"late": [lag.group for lag in await store.groups("left") if lag.group == "late"]}
    for queue in ("left", "right", "target"):
        try:
            popped = await take(store, queue=queue, partitions=9)
        except UnknownQueue:
            left[queue] = []
        else:
            left[queue] = [message.payload.decode() for message in popped.messages]
    letters, _ = await store.dead_letters(DeadLetterFilter(), 100, 0)
    return {
        **left,
        "dead": [letter.message.transaction_id for letter in letters],
        "parcels": [f"{step} {state}" for step, state in await store.look(_steps)],
    }


def _steps() -> Work[list[tuple[int, str]]]:
    found: list[tuple[int, str]] = yield Ask(STEPS)
    return found


async def check(where: str, expected: dict[str, list[str]], step: str) -> None:
    async with opened(where) as store:
        assert await found(store) == expected, step
        for queue in ("left", "target"):
            await push(store, "after", queue=queue)
            assert ids(await store.read(queue, 1, 100))[-1] == "after"


async def each_step(
    doomed: Doomed,
    operation: str,
    place: Callable[[str], str],
    is_done: Callable[[list[str]], bool],
    settle: Callable[[], None],
) -> None:
    """`is_done`: whether the operation has happened when these points were reached."""
    for number in range(1, STEPS_MAX):
        where = place(str(number))
        told = await asyncio.to_thread(doomed.killed_at, str(number), where, operation)
        settle()
        is_whole = is_done(told)
        expected = WHOLE[operation] if is_whole else BEFORE.get(operation, NOTHING)
        await check(where, expected, f"step {number}: {told[-1]}")
        if told[-1] == "done":
            assert is_whole
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_kill_on_the_embedded_store_leaves_the_whole_or_nothing(
    doomed: Doomed, operation: str, tmp_path: Path
) -> None:
    await each_step(
        doomed, operation, lambda step: str(tmp_path / step), lambda told: "after commit" in told, lambda: None
    )


def settle_on(url: str) -> Callable[[], None]:
    def settle() -> None:
        """Until the database has noticed that the process is gone."""
        sessions = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'forebay' AND datname = %s"
        with psycopg.connect(url, autocommit=True) as connection:
            wait_until(lambda: not connection.execute(sessions, [url.rpartition("/")[2]]).fetchall())

    return settle


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name not in ONE_STATEMENT])
async def test_kill_on_postgres_leaves_the_whole_or_nothing(
    doomed: Doomed, operation: str, emptied_store_database: str
) -> None:
    url = emptied_store_database
    settle = settle_on(url)
    # The statement after COMMIT, or the answer, is the first point at which it has happened for sure.
    await each_step(doomed, operation, lambda step: empty(url), lambda told: "before COMMIT" in told[:-1], settle)
    where = empty(url)
    told = await asyncio.to_thread(doomed.killed_at, "sent", where, operation)
    settle()
    assert told[-1] == "before COMMIT"
    await check(where, WHOLE[operation], "COMMIT was sent, and its answer not read")


@pytest.mark.parametrize("operation", ONE_STATEMENT)
async def test_kill_on_postgres_leaves_what_one_statement_does_or_nothing(
    doomed: Doomed, operation: str, emptied_store_database: str
) -> None:
    """A deletion takes the queue's name away; what it held is removed after that, by this server or by the next."""
    url, number = emptied_store_database, ONE_STATEMENT[operation]
    await each_step(doomed, operation, lambda step: empty(url), lambda told: len(told) > number, settle_on(url))
