"""What the coroutines of the embedded store are made of: calls for the store's thread, and readers beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from forebay.broker.store import Waker
from forebay.broker.stores.embedded.data_directory import DATABASE_FILE, read_only
from forebay.broker.stores.embedded.engine import Engine
from forebay.broker.stores.embedded.limits import EmbeddedLimits
from forebay.broker.stores.embedded.reading import RangeReader, ReadableQueue
from forebay.broker.stores.embedded.special_lags import KnownPlaces
from forebay.broker.stores.embedded.store_thread import StoreThread
from forebay.broker.stores.embedded.turn import NotYet
from forebay.clock import Clock, SystemClock
from forebay.commitlog import LogOptions
from forebay.errors import StoreUnavailable
from forebay.filesystem import Filesystem, RealFilesystem
from forebay.model.histogram import Histogram

T = TypeVar("T")


class StoreCalls:
    """An embedded store that is opened and closed, and nothing more."""

    def __init__(
        self,
        directory: Path | str,
        options: LogOptions | None = None,
        *,
        clock: Clock | None = None,
        filesystem: Filesystem | None = None,
        limits: EmbeddedLimits | None = None,
    ) -> None:
        """`filesystem`: what the logs are written through; SQLite writes by itself."""
        self._directory = Path(directory)
        self._options = options or LogOptions()
        self._clock = clock or SystemClock()
        self._filesystem = filesystem or RealFilesystem()
        self._limits = limits or EmbeddedLimits()
        self._line: StoreThread | None = None
        self._known_places = KnownPlaces()
        self._commit_times = Histogram()
        self.recovered_messages = 0

    async def open(self, on_available: Waker) -> None:
        self._engine = await asyncio.to_thread(
            Engine, self._directory, self._options, self._clock, self._filesystem, self._limits, on_available
        )
        self.recovered_messages = self._engine.recovered_messages
        self._line = StoreThread(self._engine.cycle, self._engine.close, self._commit_times)

    async def close(self) -> None:
        if self._line is not None:
            await self._line.end()
            self._line = None

    async def is_healthy(self) -> bool:
        return self._line is not None and self._line.is_alive

    async def _call(self, call: Callable[[], T], *, synced: bool = False) -> T:
        while True:
            try:
                return await self._open_line().submit(call, synced=synced)  # type: ignore[no-any-return]
            except NotYet:
                continue  # in another cycle, so that others get their turn

    def _open_line(self) -> StoreThread:
        if self._line is None:
            raise StoreUnavailable(f"{self._directory}: the store is closed")
        return self._line

    async def _readable(self, queue: str) -> ReadableQueue:
        def look() -> ReadableQueue:
            found = self._engine.queues.existing(queue)
            return ReadableQueue(queue, found.queue_id, found.log, found.log.next_seq)

        return await self._call(look)

    def _reader(self, queue: ReadableQueue) -> RangeReader:
        return RangeReader(read_only(self._directory / DATABASE_FILE), queue)

    async def _done_with(self, reader: RangeReader) -> None:
        """Close it, and note what it could not read."""
        reader.close()
        if reader.damage and self._line is not None:
            await self._call(lambda: self._engine.note_damage(reader.queue.queue_id, reader.damage))
