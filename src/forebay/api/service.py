"""What every handler needs: the store, the waiting room, the limits, and what this server counts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from forebay.api.access import Access
from forebay.api.exchange import BODY_BYTES_MAX
from forebay.broker.store import Store
from forebay.broker.waiting import WaitingRoom
from forebay.clock import Clock
from forebay.errors import ForebayError

PUSH_MAINTENANCE = "maintenance.push"
POP_MAINTENANCE = "maintenance.pop"

_log = logging.getLogger("forebay.api")


@dataclass(frozen=True, slots=True)
class Limits:
    body_bytes_max: int = BODY_BYTES_MAX
    poll_seconds_max: int = 3600


@dataclass(slots=True)
class Counts:
    """Since the process began. Plain numbers: they are changed on the event loop only."""

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    pushed: int = 0
    duplicates: int = 0
    popped: int = 0
    acknowledged: Counter[str] = field(default_factory=Counter)
    bytes_in: int = 0


@dataclass(slots=True)
class Service:
    store: Store
    waiting: WaitingRoom
    clock: Clock
    store_name: str = "memory"
    limits: Limits = Limits()
    access: Access = field(default_factory=Access)
    counts: Counts = field(default_factory=Counts)
    retention_seconds: float = 30.0
    stage_seconds: float = 86_400.0
    commit_seconds: float = 30 * 86_400.0
    flag_seconds: float = 1.0
    started_us: int = 0
    is_ready: bool = False
    is_push_paused: bool = False
    is_pop_paused: bool = False
    _background: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self) -> None:
        """Open the store and begin what runs beside the requests."""
        await self.store.open(self.waiting.on_available)
        self.started_us = self.clock.now_us()
        await self.look_at_flags()
        self._background = [
            asyncio.create_task(self._every(self.flag_seconds, self.look_at_flags)),
            asyncio.create_task(self._every(self.retention_seconds, self._retain)),
        ]
        self.is_ready = True

    async def stop(self) -> None:
        """Waiting consumers go home first; the caller closes the store when the last request is answered."""
        self.is_ready = False
        self.waiting.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def look_at_flags(self) -> None:
        """Flags are shared by all servers on the store; a push must not ask for them every time."""
        self.is_push_paused = await self.store.flag(PUSH_MAINTENANCE)
        self.is_pop_paused = await self.store.flag(POP_MAINTENANCE)

    async def _retain(self) -> None:
        await self.store.apply_retention()
        await self.store.expire_stages(self.stage_seconds, self.commit_seconds)

    async def _every(self, seconds: float, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await step()
            except ForebayError as error:
                _log.warning("%s: %s", getattr(step, "__name__", step), error)
