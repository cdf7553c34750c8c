"""Connections to PostgreSQL: a bounded few, made when needed, thrown away when broken, and never waited for long.

Not psycopg's own pool, for one reason: after a failed attempt it waits twice as long as before, so that a server would
come back minutes after its database did. Here every request that finds no idle connection tries to make one, and fails
at once when nobody listens; whoever asks next tries again.

What a failure means is decided in `attempts`.
"""

from __future__ import annotations

import asyncio
import contextlib
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

CONNECT_SECONDS_MAX = 2
ACQUIRE_SECONDS_MAX = 10.0
REQUEST_SECONDS_MAX = 30.0
"""How long one transaction may take before its database counts as hung."""
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
"""The planner has no choice but the indexes, so it is asked once. What it knows of a table may be from when that was
nearly empty, and then it reads all deliveries to find one."""
DELIVERY: Mapping[str, str] = {**BROWSING, **PLANNED_ONCE}
"""For statements that are written for the indexes. What a crash of the database undoes is delivered again."""


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
            connection = self._idle.pop() if self._idle else await connect(self._url, self._settings)
            try:
                yield connection
            finally:
                await self._take_back(connection)
        finally:
            self._room.release()

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
    """Work in transactions, on connections of three kinds: `DURABLE`, `DELIVERY` and `BROWSING`."""

    def __init__(
        self,
        url: str,
        *,
        request_seconds_max: float,
        durable_max: int = 4,
        delivery_max: int = 8,
        browsing_max: int = 4,
    ) -> None:
        self._request_seconds_max = request_seconds_max
        self._durable = Pool(url, durable_max, DURABLE)
        self._delivery = Pool(url, delivery_max, DELIVERY)
        self._browsing = Pool(url, browsing_max, BROWSING)

    async def close(self) -> None:
        await self._durable.close()
        await self._delivery.close()
        await self._browsing.close()

    async def run(
        self, work: Callable[[Connection], Awaitable[T]], *, is_durable: bool = False, seconds_max: float | None = None
    ) -> T:
        """Do the work in one transaction. It may be called several times, each time after a rollback."""
        pool = self._durable if is_durable else self._delivery
        attempts = Attempts()
        while True:
            try:
                return await self._once(pool, work, seconds_max or self._request_seconds_max)
            except FAILURES as error:
                await self._pause(pool, attempts, error)

    async def _once(self, pool: Pool, work: Callable[[Connection], Awaitable[T]], seconds_max: float) -> T:
        is_commit_sent = False
        async with asyncio.timeout(seconds_max) as limit, pool.connection() as connection:
            try:
                await connection.execute(b"BEGIN")
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
                async with asyncio.timeout(self._request_seconds_max), pool.connection() as connection:
                    is_sent = True
                    cursor = await connection.execute(text, values, binary=True)
                    return await cursor.fetchall() if cursor.description else []
            except FAILURES as error:
                # What is not durable is delivery's: done or not, it makes no difference to whoever asks again.
                await self._pause(pool, attempts, error, is_outcome_unknown=is_durable and is_sent)

    async def _pause(
        self, pool: Pool, attempts: Attempts, error: Exception, *, is_outcome_unknown: bool = False
    ) -> None:
        if is_connection_doubtful(error):
            await pool.forget()
        await asyncio.sleep(attempts.pause_after(error, is_outcome_unknown=is_outcome_unknown))


async def _leave(connection: Connection, *, is_hung: bool) -> None:
    """After an error a transaction may be open. One that cannot be rolled back ends with its connection."""
    status = connection.info.transaction_status
    if status != psycopg.pq.TransactionStatus.IDLE and not is_hung:
        with contextlib.suppress(*AWAY):
            await connection.rollback()
