"""What every handler needs: the store, the waiting room, the limits, and what this server counts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from forebay.api import ledger
from forebay.api.access import Access
from forebay.api.body_stream import BODY_BYTES_MAX, BODY_SECONDS_MAX
from forebay.api.browsers import Browsers
from forebay.api.disk_watch import DiskWatch
from forebay.api.dispatch_watch import DispatchWatch
from forebay.api.dispatching import Dispatching
from forebay.api.frequent_actions import FrequentActions
from forebay.api.gate import Gate
from forebay.api.history import Figures, History
from forebay.api.journey.gathering import take_look
from forebay.api.journey.recorder import Recorder
from forebay.api.keyring import FOLLOW_SECONDS, Keyring
from forebay.api.keys_file import KeysFile
from forebay.api.known_keys import KnownKeys
from forebay.api.latencies import Latencies
from forebay.api.ledger import LastLedger, Ledger, count_ledger
from forebay.api.memory import Memory
from forebay.api.problems import unavailable
from forebay.api.queue_figures import QueueWatch
from forebay.api.queue_samples import QueueSamples
from forebay.api.response_sizes import AnswerSizes
from forebay.api.retention import Ages, Retention
from forebay.api.routing import Needs
from forebay.broker import delivery
from forebay.broker.messages import Pushed
from forebay.broker.store import POP_MAINTENANCE, PUSH_MAINTENANCE, Store
from forebay.broker.waiting import WaitingRoom
from forebay.clock import Clock
from forebay.dispatch.cached import Cached
from forebay.dispatch.health import SAMPLE_SECONDS
from forebay.errors import ForebayError, StoreUnavailable
from forebay.export.way_out import NOTHING_LEAVES, WayOut
from forebay.ingest import Intake
from forebay.ingest.backlog import PartitionKey
from forebay.model.push_run import PushRun
from forebay.telemetry.span_export import SpanExport
from forebay.telemetry.tracing import NO_TRACER, Tracer

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
    intake: Intake
    """The way in: what pushes, opens the store and knows whether it is there."""
    store_name: str = "memory"
    way_out: WayOut = field(default_factory=lambda: NOTHING_LEAVES)
    dispatcher: Dispatching = field(kw_only=True)
    tracer: Tracer = NO_TRACER
    span_export: SpanExport = field(default_factory=lambda: SpanExport(NO_TRACER, "", {}))
    metrics_namespace: str = "forebay"
    queue_series_max: int = 60_000
    limits: Limits = Limits()
    memory: Memory = field(default_factory=Memory)
    answer_sizes: AnswerSizes = field(default_factory=AnswerSizes)
    browsers: Browsers = field(default_factory=Browsers)
    """As they are judged now."""
    browsers_with_keys: Browsers | None = None
    """As they are judged while keys are in force; None: in the same way."""
    keys: KeysFile | None = None
    known_keys: KnownKeys | None = None
    is_key_required: bool = False
    """Keys are needed even if there are none: others than this machine can connect."""
    is_tls: bool = False
    session_seconds: float = 12 * 3600.0
    access: Access = field(init=False)
    keyring: Keyring = field(init=False)
    gate: Gate = field(init=False)
    frequent_actions: FrequentActions = field(init=False)
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
    dispatch_watch: DispatchWatch = field(init=False)
    journey: Recorder = field(init=False)
    note_push: Callable[[float], None] = field(init=False)
    """Of `latencies`, which every push would have to look up."""
    untraced_headers: object = None
    """Headers of the last push without a trace."""
    ledger_cache: Cached[Ledger] = field(init=False)
    recounting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of buffer files and send queues: once at a time."""
    last_ledger: LastLedger | None = None
    latencies: Latencies = field(default_factory=Latencies)
    queue_watch: QueueWatch = field(init=False)
    queue_samples: QueueSamples = field(init=False)
    _background: list[asyncio.Task[None]] = field(default_factory=list)
    _browsers_without_keys: Browsers = field(init=False)

    def __post_init__(self) -> None:
        self.note_push = self.latencies.push.note
        self.retention = Retention(self.store, self.clock, self.ages)
        self.dispatch_watch = DispatchWatch(self.dispatcher)
        self.journey = Recorder(partial(take_look, self), self.clock)
        self.ledger_cache = Cached(lambda: count_ledger(self), ledger.KEPT_SECONDS, self.clock)
        self.queue_samples = QueueSamples(self.queue_series_max)
        self.queue_watch = QueueWatch(self.store, self.clock, self.queue_samples.prepare)
        self._browsers_without_keys = self.browsers
        self.keyring = Keyring(self.store, self.clock, self.keys, self.known_keys, is_required=self.is_key_required)
        self.access = self.keyring.access
        self.gate = Gate(
            self.store,
            self.access,
            self.clock,
            self.session_seconds,
            lambda: self.check_serves(Needs.STORE),
        )
        self.frequent_actions = FrequentActions(self.clock)
        self.keyring.on_change = self._keys_changed
        self._keys_changed()

    def _keys_changed(self) -> None:
        with_keys = self.browsers_with_keys or self._browsers_without_keys
        self.browsers = with_keys if self.access.is_in_force else self._browsers_without_keys
        self.gate.forget_sessions()

    async def _follow_keys(self) -> None:
        if self.is_store_open:
            await self.keyring.follow()

    def announce_stop(self) -> None:
        """Not ready any more, so that balancers send requests elsewhere; what comes all the same is served."""
        self.is_stopping = True

    async def start(self) -> None:
        """Open the store, recover what was buffered, and begin what runs beside the requests."""
        self.started_us = self.clock.now_us()
        await self.intake.start(self.waiting.on_available)
        # Until the store's keys were read, what needs the store is not served: it is not known which callers may have
        # it.
        self.keyring.is_behind = True
        with contextlib.suppress(StoreUnavailable):
            await self._follow_keys()
            await self.look_at_flags()
            await self.look_at_losses()
        self._background = [
            asyncio.create_task(self._every(FOLLOW_SECONDS, self._follow_keys)),
            asyncio.create_task(self._every(self.flag_seconds, self.look_at_flags)),
            asyncio.create_task(self._every(self.flag_seconds, self.look_at_losses)),
            asyncio.create_task(self._every(self.retention_seconds, self._retain)),
            asyncio.create_task(self._every(HISTORY_SECONDS, self._note)),
            asyncio.create_task(self._dispatch()),
            asyncio.create_task(self._every(SAMPLE_SECONDS, self.dispatch_watch.look)),
            asyncio.create_task(self._watch_disks()),
            asyncio.create_task(self.journey.run()),
        ]
        await self.way_out.start()
        self.span_export.start()
        self.is_started = True

    async def stop(self) -> None:
        """Waiting consumers go home first; the caller closes the rest when the last request is answered."""
        self.is_stopping = True
        await self.way_out.stop_receivers()
        self.waiting.close()
        self.dispatcher.end_waits()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.queue_watch.stop()

    async def close(self) -> None:
        """After the last request."""
        await self.way_out.stop()
        await self.dispatcher.stop()
        await self.intake.stop()
        await self.store.close()
        await self.span_export.stop()

    # is the store there

    @property
    def is_db_healthy(self) -> bool:
        return self.intake.is_store_open and self.intake.is_db_healthy

    @property
    def is_store_open(self) -> bool:
        return self.intake.is_store_open

    @property
    def is_serving(self) -> bool:
        return self.is_started and self.intake.is_store_open and not self.keyring.is_behind

    def reasons_not_to_serve(self) -> list[str]:
        """Why this server cannot do all of its work now; empty when it can."""
        if self.is_stopping:
            return ["the server is stopping"]
        if not self.is_started:
            return [f"recovering: {self.intake.recovery}"]
        return [] if self.is_db_healthy else ["the store does not answer; pushes are buffered"]

    def check_serves(self, needs: Needs) -> None:
        """Raise the 503 for a request that comes too early."""
        if needs >= Needs.RECOVERY and not self.is_started:
            raise unavailable(self.reasons_not_to_serve()[0], "recovering")
        if needs >= Needs.STORE and (not self.is_store_open or self.keyring.is_behind):
            raise unavailable("the store was not reached since the server started", "store_unavailable")

    # the way in

    def push(self, runs: Sequence[PushRun]) -> Awaitable[Sequence[Pushed]]:
        return self.intake.push(runs)

    async def wait_until_free(self, places: Iterable[PartitionKey]) -> None:
        await self.intake.wait_until_free(places)

    async def wait_until_all_free(self) -> None:
        await self.intake.wait_until_all_free()

    # beside the requests

    async def _dispatch(self) -> None:
        """Begin when the store is there: it has the tables from then on."""
        while not self.intake.is_store_open:
            await asyncio.sleep(0.1)
        await self.dispatcher.start()

    async def look_at_flags(self) -> None:
        """Flags are shared by all servers on the store; a push must not ask for them every time."""
        if not self.intake.is_store_open:
            return
        self.is_pop_paused = await self.store.flag(POP_MAINTENANCE)
        self.pause_pushes(await self.store.flag(PUSH_MAINTENANCE))

    async def look_at_losses(self) -> None:
        """Looked at beside the requests, so that `/readyz` and `/metrics` need not wait for the store."""
        if not self.intake.is_store_open:
            return
        found: Counter[str] = Counter()
        for lost in await self.store.lost_messages():
            found[lost.queue] += lost.messages
        self.lost = found

    def pause_pushes(self, is_paused: bool) -> None:
        self.is_push_paused = is_paused
        self.intake.pause(is_paused)

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
            if not self.is_db_healthy:  # logged already, and there is nothing to do without it
                continue
            try:
                await step()
            except ForebayError as error:
                name = getattr(step, "__name__", "background").strip("_")
                _log.warning("%s: %s", name, error, extra={"action": f"{name}_failed"})
