"""Connections to PostgreSQL: a bounded few, made when needed, thrown away when broken, and never waited for long.

Not psycopg's own pool, for one reason: after a failed attempt it waits twice as long as before, so that a server would
come back minutes after its database did. Here every request that finds no idle connection tries to make one, and fails
at once when no server listens; the next request tries again.

What a failure means is decided in `attempts`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from forebay.broker.stores.postgres import arrays
from forebay.broker.stores.postgres.attempts import (
    AWAY,
    FAILURES,
    Attempts,
    CommitUnknown,
    first_line,
    is_connection_doubtful,
)
from forebay.errors import StoreUnavailable

T = TypeVar("T")
Row = tuple[object, ...]
Connection = AsyncConnection[tuple[object, ...]]
Cursor = AsyncCursor[tuple[object, ...]]
Ask = Callable[[bytes, dict[str, object] | None], Awaitable[list[Row]]]
"""Runs a query that answers: by itself (`Database.ask`), or on a connection (`rows`)."""

CONNECT_SECONDS_MAX = 2
ACQUIRE_SECONDS_MAX = 10.0
REQUEST_SECONDS_MAX = 30.0
"""How long one transaction may take, with its repetitions, before its database counts as hung."""
HANG_UP_SECONDS = 0.001
STATEMENT_SHARE = 0.4
"""Of the time of a push, for one statement: two of them are over before a client stops waiting for its response."""
CONNECTING: Mapping[str, Any] = {
    "connect_timeout": CONNECT_SECONDS_MAX,
    "application_name": "forebay",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_COMMON = {"search_path": "pg_catalog", "idle_in_transaction_session_timeout": "30s", "lock_timeout": "10s"}
DURABLE: Mapping[str, str] = {**_COMMON, "synchronous_commit": "on"}
"""A commit is answered when it is on the disk."""
BROWSING: Mapping[str, str] = {**_COMMON, "synchronous_commit": "off"}
"""A commit is answered at once. A crash of the database may undo the last ones, in order and each as a whole."""
PLANNED_ONCE: Mapping[str, str] = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
"""The planner has no choice but the indexes, so it plans once. What it knows of a table may be from when that was
nearly empty, and then it reads all deliveries to find one."""
DELIVERY: Mapping[str, str] = {**BROWSING, **PLANNED_ONCE}
"""For statements that are written for the indexes. What a crash of the database undoes is delivered again."""


ROOMS: Mapping[str, str] = {**DURABLE, **PLANNED_ONCE}
"""For other rooms' work, which is durable and written for the indexes too."""


class Pool:
    """At most `connections_max` connections of one kind, the most recently used first."""

    def __init__(self, url: str, connections_max: int, settings: Mapping[str, str]) -> None:
        self._url = url
        self._settings = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._room = asyncio.Semaphore(connections_max)
        self._idle: list[Connection] = []
        self._is_closed = False

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with asyncio.timeout(ACQUIRE_SECONDS_MAX):
            await self._room.acquire()
        try:
            connection = self._idle.pop() if self._idle else await self.connect()
            try:
                yield connection
            finally:
                await self._take_back(connection)
        finally:
            self._room.release()

    async def connect(self) -> Connection:
        """A connection of this kind that is not the pool's."""
        return await connect(self._url, self._settings)

    async def _take_back(self, connection: Connection) -> None:
        is_clean = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if self._is_closed or connection.closed or not is_clean:
            await connection.close()
        else:
            self._idle.append(connection)

    async def forget(self) -> None:
        """One connection broke, so the idle ones are most likely broken too."""
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        self._is_closed = True
        await self.forget()


async def connect(url: str, settings: str = "") -> Connection:
    connection = await AsyncConnection.connect(url, autocommit=True, options=settings, **CONNECTING)
    # Always bigint: a list's type would otherwise follow the size of its numbers, and each gets its own plan.
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    arrays.register(connection)
    connection.prepare_threshold = 2
    return connection


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Connection]:
    """A connection for one purpose. What it cannot be used for is `StoreUnavailable`, as when it cannot be made."""
    try:
        connection = await connect(url)
        try:
            yield connection
        finally:
            await connection.close()
    except AWAY as error:
        raise StoreUnavailable(f"PostgreSQL does not answer: {first_line(error)}") from error


async def rows(connection: Connection, text: bytes, values: dict[str, object] | None = None) -> list[Row]:
    """Run a query that answers, and return its rows."""
    cursor = await connection.execute(text, values, binary=True)
    return await cursor.fetchall()


async def send(connection: Connection, text: bytes, values: dict[str, object] | None = None) -> Cursor:
    """Run a statement whose answer may be looked at later, or never."""
    return await connection.execute(text, values, binary=True)


class Database:
    """Work in transactions, on connections for pushes, `DURABLE`, `DELIVERY`, `BROWSING` and `ROOMS`."""

    def __init__(
        self,
        url: str,
        *,
        request_seconds_max: float,
        durable_max: int = 4,
        delivery_max: int = 8,
        browsing_max: int = 4,
        rooms_max: int = 4,
        push_seconds_max: float | None = None,
    ) -> None:
        self._request_seconds_max = request_seconds_max
        self.push_seconds_max = push_seconds_max or request_seconds_max
        # The database ends a statement that takes too long, and then it is known what became of it.
        limit = {"statement_timeout": f"{int(self.push_seconds_max * STATEMENT_SHARE * 1000)}ms"}
        self._pushes = Pool(url, 1, {**DURABLE, **PLANNED_ONCE, **limit})
        self._durable = Pool(url, durable_max, DURABLE)
        self._delivery = Pool(url, delivery_max, DELIVERY)
        self._browsing = Pool(url, browsing_max, BROWSING)
        self._rooms = Pool(url, rooms_max, ROOMS)

    async def close(self) -> None:
        await self._pushes.close()
        await self._durable.close()
        await self._delivery.close()
        await self._browsing.close()
        await self._rooms.close()

    async def run(
        self, work: Callable[[Connection], Awaitable[T]], *, is_durable: bool = False, seconds_max: float | None = None
    ) -> T:
        """Do the work in one transaction. It may be called several times, each time after a rollback."""
        return await self._run(self._durable if is_durable else self._delivery, work, seconds_max)

    async def run_room(self, work: Callable[[Connection], Awaitable[T]], *, seconds_max: float | None = None) -> T:
        """The same for another room's work."""
        return await self._run(self._rooms, work, seconds_max)

    async def run_push(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """The same for a group of pushes: all others wait for it, so its time is shorter."""
        return await self._run(self._pushes, work, self.push_seconds_max)

    async def connection_for_pushes(self) -> Connection:
        """One that its caller keeps, and closes."""
        async with asyncio.timeout(self.push_seconds_max):
            return await self._pushes.connect()

    async def snapshot(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Work that only asks, all of it of one state of the database."""
        return await self._run(self._browsing, work, None, begin=b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    async def _run(
        self,
        pool: Pool,
        work: Callable[[Connection], Awaitable[T]],
        seconds_max: float | None,
        *,
        begin: bytes = b"BEGIN",
    ) -> T:
        attempts = Attempts()
        deadline = time.monotonic() + (seconds_max or self._request_seconds_max)
        while True:
            try:
                return await self._once(pool, work, deadline - time.monotonic(), begin)
            except FAILURES as error:
                await self._pause(pool, attempts, error)

    async def _once(
        self, pool: Pool, work: Callable[[Connection], Awaitable[T]], seconds_max: float, begin: bytes
    ) -> T:
        is_commit_sent = False
        async with _within(seconds_max, pool) as (connection, limit):
            try:
                await connection.execute(begin)
                outcome = await work(connection)
                is_commit_sent = True
                await connection.execute(b"COMMIT")
            except (*AWAY, asyncio.CancelledError) as error:
                if is_commit_sent and (limit.expired() or connection.broken):
                    raise CommitUnknown from error
                raise
            finally:
                await _leave(connection, is_hung=limit.expired())
            return outcome

    async def ask(self, text: bytes, values: dict[str, object] | None = None, *, is_durable: bool = False) -> list[Row]:
        """One statement by itself, which may be run twice."""
        return await self._ask(self._durable if is_durable else self._browsing, text, values, is_durable=is_durable)

    async def ask_for_delivery(self, text: bytes, values: dict[str, object]) -> list[Row]:
        """The same, for a statement that is written for the indexes."""
        return await self._ask(self._delivery, text, values, is_durable=False)

    async def _ask(self, pool: Pool, text: bytes, values: dict[str, object] | None, *, is_durable: bool) -> list[Row]:
        attempts = Attempts()
        is_sent = False
        while True:
            try:
                async with _within(self._request_seconds_max, pool) as (connection, _):
                    is_sent = True
                    cursor = await connection.execute(text, values, binary=True)
                    return await cursor.fetchall() if cursor.description else []
            except FAILURES as error:
                # What is not durable is delivery's: done or not, it makes no difference to a request that comes again.
                await self._pause(pool, attempts, error, is_outcome_unknown=is_durable and is_sent)

    async def _pause(
        self, pool: Pool, attempts: Attempts, error: Exception, *, is_outcome_unknown: bool = False
    ) -> None:
        if is_connection_doubtful(error):
            await pool.forget()
        await asyncio.sleep(attempts.pause_after(error, is_outcome_unknown=is_outcome_unknown))


@contextlib.asynccontextmanager
async def _within(seconds_max: float, pool: Pool) -> AsyncIterator[tuple[Connection, asyncio.Timeout]]:
    """A connection of the pool, and time for what is done on it."""
    async with asyncio.timeout(seconds_max) as limit, pool.connection() as connection:
        # When time is up, the connection ends first: psycopg would ask the database to cancel what is under way, and
        # wait ten more seconds for one that hangs.
        hang_up = asyncio.get_running_loop().call_at((limit.when() or 0.0) - HANG_UP_SECONDS, connection.pgconn.finish)
        try:
            yield connection, limit
        finally:
            hang_up.cancel()


async def _leave(connection: Connection, *, is_hung: bool) -> None:
    """After an error a transaction may be open. One that cannot be rolled back ends with its connection."""
    status = connection.info.transaction_status
    if status != psycopg.pq.TransactionStatus.IDLE and not is_hung:
        with contextlib.suppress(*AWAY):
            await connection.rollback()
