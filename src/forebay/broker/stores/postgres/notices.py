"""Telling other servers that messages have arrived, and hearing it from them.

NOTIFY in a push's own transaction would make all commits of the database wait for each other. So it is sent
afterwards, on a connection of its own, for all queues of the last moment at once, and only for queues that another
server waits for. Which servers wait is written in `waits`: a server whose pop found nothing notes the queue there, at
most every few seconds, and looks once more after the first note, so that nothing is missed between looking and noting.

A partition that an answer gives back is announced as well, if it has more. Its server does not know whether a consumer
waits for it elsewhere, and acks are too many to ask each time: such queues are collected for `FREED_SECONDS`, and the
query that announces them leaves out those for which no server waits.

A notice is a hint. One that is lost, because a connection broke, costs a waiting consumer the time until it looks by
itself (`broker.waiting` does, twice a second).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import psycopg

from forebay.broker.store import Waker
from forebay.broker.stores.postgres.connections import Connection, Database, connect
from forebay.broker.stores.postgres.queries import query

CHANNEL = "forebay_available"
NOTED_SECONDS = 30
"""How long a note says that a server waits."""
RENEW_SECONDS = 10.0
NOTED_QUEUES_MAX = 10_000
RECONNECT_SECONDS = 0.25
FREED_SECONDS = 0.05
"""For how long queues of which a partition was given back are collected before they are announced."""
_WENT_AWAY = (psycopg.Error, OSError, TimeoutError)


class Notices:
    def __init__(self, url: str, database: Database, server_id: str, wake: Waker) -> None:
        self._url = url
        self._database = database
        self._server_id = server_id
        self._wake = wake
        self._noted: dict[str, float] = {}
        self._outgoing: Counter[str] = Counter()
        self._freed: set[str] = set()
        self._has_outgoing = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.is_listening = asyncio.Event()

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._always(self._listen)), asyncio.create_task(self._always(self._send))]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self._database.ask(query("waits_forget"), {"server_id": self._server_id})

    async def note(self, queue: str) -> bool:
        """This server waits for the queue ('' for any). True when that was not written yet: look again."""
        now = time.monotonic()
        noted = self._noted.get(queue)
        if noted is not None and now - noted < RENEW_SECONDS:
            return False
        if len(self._noted) >= NOTED_QUEUES_MAX:
            self._noted.clear()
        values: dict[str, object] = {"queue": queue, "server_id": self._server_id, "seconds": NOTED_SECONDS}
        await self._database.ask(query("waits_note"), values)
        self._noted[queue] = now
        return noted is None or now - noted >= NOTED_SECONDS

    def tell_freed(self, queue: str) -> None:
        """A partition was given back: consumers that wait for this queue elsewhere are to look, a little later."""
        if not self._freed:
            asyncio.get_running_loop().call_later(FREED_SECONDS, self._has_outgoing.set)
        self._freed.add(queue)

    def tell(self, queue: str, count: int) -> None:
        """Another server waits for this queue: let it know soon."""
        self._outgoing[queue] += count
        self._has_outgoing.set()

    async def _always(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        """Keep a connection for the work, and make a new one whenever it breaks."""
        while True:
            with contextlib.suppress(*_WENT_AWAY):
                connection = await connect(self._url)
                try:
                    await work(connection)
                finally:
                    await connection.close()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self, connection: Connection) -> None:
        await connection.execute(f"LISTEN {CHANNEL}".encode())
        self.is_listening.set()
        try:
            async for notice in connection.notifies():
                sender, _, rest = notice.payload.partition(" ")
                count, _, queue = rest.partition(" ")
                if sender != self._server_id and count.isdecimal():
                    self._wake(queue, int(count))
        finally:
            self.is_listening.clear()

    async def _send(self, connection: Connection) -> None:
        while True:
            await self._has_outgoing.wait()
            self._has_outgoing.clear()
            outgoing, self._outgoing = self._outgoing, Counter()
            freed, self._freed = self._freed, set()
            if freed:
                wanted: dict[str, object] = {"queues": list(freed), "server_id": self._server_id, "channel": CHANNEL}
                await connection.execute(query("notices_tell_freed"), wanted)
            if not outgoing:
                continue
            payloads = [f"{self._server_id} {count} {queue}" for queue, count in outgoing.items()]
            await connection.execute(
                query("notices_send"),
                {"channel": CHANNEL, "payloads": payloads},
            )
