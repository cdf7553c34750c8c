"""What every handler needs: the store, the waiting room, the limits, and what this server counts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from forebay.api.access import Access, KeysFile, KeysRefused
from forebay.api.answer_sizes import AnswerSizes
from forebay.api.body_stream import BODY_BYTES_MAX, BODY_SECONDS_MAX
from forebay.api.browsers import Browsers
from forebay.api.disk_watch import DiskWatch
from forebay.api.history import Figures, History
from forebay.api.memory import Memory
from forebay.api.problems import unavailable
from forebay.api.retention import Ages, Retention
from forebay.api.routing import Needs
from forebay.broker import delivery
from forebay.broker.messages import Pushed, PushItem
from forebay.broker.store import POP_MAINTENANCE, PUSH_MAINTENANCE, Store
from forebay.broker.waiting import WaitingRoom
from forebay.clock import Clock
from forebay.errors import ForebayError, StoreUnavailable
from forebay.export.way_out import NOTHING_LEAVES, WayOut
from forebay.ingest import Intake
from forebay.ingest.backlog import Place

HISTORY_SECONDS = 10.0
DISK_SECONDS = 30.0

_log = logging.getLogger("forebay.api")


@dataclass(frozen=True, slots=True)
class Limits:
    body_bytes_max: int = BODY_BYTES_MAX
    body_seconds_max: float = BODY_SECONDS_MAX
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
    intake: Intake | None = None
    """Without one, pushes go straight to the store."""
    way_out: WayOut = field(default_factory=lambda: NOTHING_LEAVES)
    metrics_namespace: str = "forebay"
    limits: Limits = Limits()
    memory: Memory = field(default_factory=Memory)
    answer_sizes: AnswerSizes = field(default_factory=AnswerSizes)
    browsers: Browsers = field(default_factory=Browsers)
    keys: KeysFile | None = None
    access: Access = field(default_factory=Access)
    """What is in `keys`, if that is given."""
    counts: Counts = field(default_factory=Counts)
    folders: tuple[str, ...] = ()
    """Where this server keeps things: no answer says so."""
    retention_seconds: float = 30.0
    ages: Ages = field(default_factory=Ages)
    flag_seconds: float = 1.0
    history: History = field(default_factory=History)
    disks: DiskWatch = field(default_factory=DiskWatch)
    started_us: int = 0
    is_started: bool = False
    is_stopping: bool = False
    is_push_paused: bool = False
    is_pop_paused: bool = False
    lost: Counter[str] = field(default_factory=Counter)
    """Messages that were accepted and cannot be read any more, by queue, as of the last look."""
    retention: Retention = field(init=False)
    _background: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.retention = Retention(self.store, self.clock, self.ages)
        if self.keys is not None:
            self.access = self.keys.read()

    def follow_keys(self, *, in_any_case: bool = False) -> None:
        """Take the keys from their file if it has changed. Where it cannot be used, those in force stay so."""
        if self.keys is None:
            return
        try:
            found = self.keys.read() if in_any_case else self.keys.read_if_changed()
        except KeysRefused as refused:
            _log.error("the keys in force stay so: %s", refused, extra={"action": "keys_refused"})
            return
        if found is not None:
            self.access = found
            _log.info("%d keys from %s", len(found.keys), self.keys.path, extra={"action": "keys_read"})

    def announce_stop(self) -> None:
        """Not ready any more, so that balancers send requests elsewhere; what comes all the same is served."""
        self.is_stopping = True

    async def start(self) -> None:
        """Open the store, recover what was buffered, and begin what runs beside the requests."""
        self.started_us = self.clock.now_us()
        if self.intake is None:
            await self.store.open(self.waiting.on_available)
        else:
            await self.intake.start(self.waiting.on_available)
        with contextlib.suppress(StoreUnavailable):
            await self.look_at_flags()
            await self.look_at_losses()
        self._background = [
            asyncio.create_task(self._every(self.flag_seconds, self.look_at_flags)),
            asyncio.create_task(self._every(self.flag_seconds, self.look_at_losses)),
            asyncio.create_task(self._every(self.retention_seconds, self._retain)),
            asyncio.create_task(self._every(HISTORY_SECONDS, self._note)),
            asyncio.create_task(self._watch_disks()),
        ]
        await self.way_out.start()
        self.is_started = True

    async def stop(self) -> None:
        """Waiting consumers go home first; the caller closes the rest when the last request is answered."""
        self.is_stopping = True
        await self.way_out.stop_receivers()
        self.waiting.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def close(self) -> None:
        """After the last request."""
        await self.way_out.stop()
        if self.intake is not None:
            await self.intake.stop()
        await self.store.close()

    # is the store there

    @property
    def is_db_healthy(self) -> bool:
        return self.intake is None or (self.intake.keeper.is_store_open and self.intake.is_db_healthy)

    @property
    def is_serving(self) -> bool:
        return self.is_started and (self.intake is None or self.intake.keeper.is_store_open)

    def reasons_not_to_serve(self) -> list[str]:
        """Why this server cannot do all of its work now; empty when it can."""
        if self.is_stopping:
            return ["the server is stopping"]
        if not self.is_started:
            return [f"recovering: {self.intake.keeper.recovery}" if self.intake else "the store is being opened"]
        return [] if self.is_db_healthy else ["the store does not answer; pushes are buffered"]

    def check_serves(self, needs: Needs) -> None:
        """Raise the 503 for a request that comes too early."""
        if needs >= Needs.RECOVERY and not self.is_started:
            raise unavailable(self.reasons_not_to_serve()[0], "recovering")
        if needs >= Needs.STORE and self.intake is not None and not self.intake.keeper.is_store_open:
            raise unavailable("the store was not reached since the server started", "store_unavailable")

    # the way in

    def push(self, items: Sequence[PushItem]) -> Awaitable[Sequence[Pushed]]:
        return self.store.push(items) if self.intake is None else self.intake.push(items)

    async def wait_until_free(self, places: Iterable[Place]) -> None:
        if self.intake is not None:
            await self.intake.wait_until_free(places)

    async def wait_until_all_free(self) -> None:
        if self.intake is not None:
            await self.intake.wait_until_all_free()

    # beside the requests

    async def look_at_flags(self) -> None:
        """Flags are shared by all servers on the store; a push must not ask for them every time."""
        if self.intake is not None and not self.intake.keeper.is_store_open:
            return
        self.is_pop_paused = await self.store.flag(POP_MAINTENANCE)
        self.pause_pushes(await self.store.flag(PUSH_MAINTENANCE))

    async def look_at_losses(self) -> None:
        """Looked at beside the requests, so that `/readyz` and `/metrics` need not wait for the store."""
        if self.intake is not None and not self.intake.keeper.is_store_open:
            return
        found: Counter[str] = Counter()
        for lost in await self.store.lost_messages():
            found[lost.queue] += lost.messages
        self.lost = found

    def pause_pushes(self, is_paused: bool) -> None:
        self.is_push_paused = is_paused
        if self.intake is not None:
            self.intake.keeper.is_paused = is_paused

    async def _retain(self) -> None:
        await self.retention.run()

    async def _watch_disks(self) -> None:
        """Also while the store is away: that is when buffer files grow."""
        while True:
            await asyncio.to_thread(self.disks.look)
            await asyncio.sleep(DISK_SECONDS)

    async def _note(self) -> None:
        self.note_figures()

    def note_figures(self) -> None:
        """Let the history know what this server has done so far."""
        counts, acks = self.counts, self.counts.acknowledged
        figures = Figures(
            pushed=counts.pushed,
            popped=counts.popped,
            completed=acks[delivery.COMPLETED],
            failed=acks[delivery.FAILED] + acks[delivery.RETRY],
            dead=acks[delivery.DEAD],
            removed=self.retention.removed["messages"],
        )
        self.history.note(self.clock.now_us(), figures)

    async def _every(self, seconds: float, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            if not self.is_db_healthy:  # told already, and there is nothing to do without it
                continue
            try:
                await step()
            except ForebayError as error:
                name = getattr(step, "__name__", "background").strip("_")
                _log.warning("%s: %s", name, error, extra={"action": f"{name}_failed"})
