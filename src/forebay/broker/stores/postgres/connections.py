"""Connections to PostgreSQL: a bounded few, made when needed, thrown away when broken, and never waited for long.

Not psycopg's own pool, for one reason: after a failed attempt it waits twice as long as before, so that a server would
come back minutes after its database did. Here every request that finds no idle connection tries to make one, and fails
at once when nobody listens; whoever asks next tries again.

`Database.run` gives work a transaction and decides what a failure means:

- a deadlock or a serialization failure: the database rolled back; the same again, a few times;
- the connection broke before COMMIT was sent: nothing happened; the same again on another connection, once;
- the connection broke while COMMIT was on its way: nobody knows. The database is asked, by the transaction's id, and
  the answer is the truth. If it cannot be asked in time, `StoreUnavailable` says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, errors
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from forebay.broker.stores.postgres import arrays
from forebay.errors import StoreUnavailable

T = TypeVar("T")
Row = tuple[object, ...]
Connection = AsyncConnection[tuple[object, ...]]
Cursor = AsyncCursor[tuple[object, ...]]

CONNECT_SECONDS_MAX = 2
ACQUIRE_SECONDS_MAX = 10.0
REQUEST_SECONDS_MAX = 30.0
"""How long one transaction may take before its database counts as hung."""
ASK_SECONDS_MAX = 10.0
"""How long a commit of unknown outcome is asked after."""
ATTEMPTS_MAX = 6
_AGAIN = (errors.SerializationFailure, errors.DeadlockDetected, errors.ForeignKeyViolation, errors.UniqueViolation)
"""Rolled back because of somebody else: a queue or group that was deleted, or made twice, in the same moment."""
_BEGIN_WITH_ID = b"BEGIN; SELECT pg_current_xact_id()::text"
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction, OSError, TimeoutError)


class Pool:
    """At most `connections_max` connections of one kind, the most recently used first."""

    def __init__(self, url: str, connections_max: int, settings: dict[str, str]) -> None:
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
    connection = await AsyncConnection.connect(
        url,
        autocommit=True,
        connect_timeout=CONNECT_SECONDS_MAX,
        application_name="forebay",
        options=settings,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=10_000,
    )
    # Always bigint: a list's type would otherwise follow the size of its numbers, and each gets its own plan.
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    arrays.register(connection)
    connection.prepare_threshold = 2
    return connection


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Connection]:
    """A connection for one purpose."""
    try:
        connection = await connect(url)
    except _AWAY as error:
        raise StoreUnavailable(f"PostgreSQL does not answer: {_first_line(error)}") from error
    try:
        yield connection
    finally:
        await connection.close()


async def rows(connection: Connection, text: bytes, values: dict[str, object] | None = None) -> list[Row]:
    """Run a query that answers, and return its rows."""
    cursor = await connection.execute(text, values, binary=True)
    return await cursor.fetchall()


async def send(connection: Connection, text: bytes, values: dict[str, object] | None = None) -> Cursor:
    """Run a statement whose answer may be looked at later, or never."""
    return await connection.execute(text, values, binary=True)


class _CommitUnknown(Exception):
    def __init__(self, transaction: str, outcome: object) -> None:
        self.transaction = transaction
        self.outcome = outcome


class Database:
    """Work in transactions, on two kinds of connections.

    `durable` ones answer a commit after it is on the disk. The others answer before: a crash of the database may undo
    their last commits, in order and each as a whole, and delivery survives that by delivering again.
    """

    def __init__(self, url: str, *, request_seconds_max: float, durable_max: int = 4, delivery_max: int = 8) -> None:
        self._request_seconds_max = request_seconds_max
        common = {"search_path": "pg_catalog", "idle_in_transaction_session_timeout": "30s", "lock_timeout": "10s"}
        self._durable = Pool(url, durable_max, {**common, "synchronous_commit": "on"})
        self._delivery = Pool(url, delivery_max, {**common, "synchronous_commit": "off"})

    async def close(self) -> None:
        await self._durable.close()
        await self._delivery.close()

    async def run(
        self, work: Callable[[Connection], Awaitable[T]], *, is_durable: bool = False, is_once: bool = False
    ) -> T:
        """Do the work in one transaction. It may be called several times, each time after a rollback.

        `is_once`: never a second time after a commit that was not answered but happened. Durable work always is.
        """
        pool = self._durable if is_durable else self._delivery
        breaks = 0
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return await self._once(pool, work, is_durable or is_once)
            except _CommitUnknown as unknown:
                await pool.forget()
                # Asking pg_xact_status would not do: a crash may lose the transaction and give its number to another.
                raise StoreUnavailable(
                    "PostgreSQL went away in a commit, whose outcome is unknown",
                    remedy="Push again with the same transactionId",
                ) from unknown
            except _AGAIN as error:
                if attempt == ATTEMPTS_MAX:
                    raise StoreUnavailable(f"rolled back {attempt} times: {_first_line(error)}") from error
                await asyncio.sleep(random.uniform(0, 0.002 * 2**attempt))
            except _AWAY as error:
                await pool.forget()
                breaks += 1
                if breaks > 1:
                    raise StoreUnavailable(f"PostgreSQL does not answer: {_first_line(error)}") from error
        raise StoreUnavailable(f"the connection to PostgreSQL broke in {ATTEMPTS_MAX} commits")

    async def _once(self, pool: Pool, work: Callable[[Connection], Awaitable[T]], is_asked_after: bool) -> T:
        transaction: object = ""
        async with asyncio.timeout(self._request_seconds_max) as limit, pool.connection() as connection:
            try:
                if is_asked_after:
                    cursor = await connection.execute(_BEGIN_WITH_ID)
                    cursor.nextset()
                    [number] = await cursor.fetchone() or [""]
                else:
                    number = ""
                    await connection.execute(b"BEGIN")
                outcome = await work(connection)
                transaction = number
                await connection.execute(b"COMMIT")
            except (*_AWAY, asyncio.CancelledError) as error:
                if transaction and (limit.expired() or connection.broken):
                    raise _CommitUnknown(str(transaction), outcome) from error
                raise
            finally:
                await _leave(connection, is_hung=limit.expired())
            return outcome

    async def ask(self, text: bytes, values: dict[str, object] | None = None, *, is_durable: bool = False) -> list[Row]:
        """One statement by itself, which may be run twice."""
        pool = self._durable if is_durable else self._delivery

        async def once() -> list[Row]:
            async with asyncio.timeout(self._request_seconds_max), pool.connection() as connection:
                cursor = await connection.execute(text, values, binary=True)
                return await cursor.fetchall() if cursor.description else []

        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return await once()
            except _AGAIN as error:
                if attempt == ATTEMPTS_MAX:
                    raise StoreUnavailable(f"rolled back {attempt} times: {_first_line(error)}") from error
            except _AWAY as error:
                await pool.forget()
                if attempt > 1:
                    raise StoreUnavailable(f"PostgreSQL does not answer: {_first_line(error)}") from error
        raise AssertionError("unreachable")  # pragma: no cover


async def _leave(connection: Connection, *, is_hung: bool) -> None:
    """After an error a transaction may be open. One that cannot be rolled back ends with its connection."""
    status = connection.info.transaction_status
    if status != psycopg.pq.TransactionStatus.IDLE and not is_hung:
        with contextlib.suppress(*_AWAY):
            await connection.rollback()


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]
