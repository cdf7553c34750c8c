"""A send queue as a feed, and the way into it: limits, `full_behavior`, and the failover queue.

| `full_behavior` | a push that finds no room | dropped with reason |
|---|---|---|
| `drop_oldest` | drops the oldest batches that are not under way, until it fits | `oldest` |
| `drop_newest` | is refused | `newest` |
| `block` | waits for room up to `block_timeout`, then is refused | `block_timeout` |

A push that the disk refuses goes to the failover queue: memory of its own, bounded, which spills to disk when that
works again, and is moved back to the send queue every 5 s, 10 batches at a time. If that is full too, it is refused,
and counted as dropped with reason `disk_full` or `error`. What is in the failover's memory is lost by a kill -9.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from forebay.clock import Clock
from forebay.errors import BatchTooLarge, SendQueueFull, SendQueueWriteFailed
from forebay.export.batch import ExportBatch
from forebay.export.dead_letters import DeadLetters
from forebay.export.feed import Claim
from forebay.export.outcome import SendFailed
from forebay.sendqueue.queue import Recount, SendQueue
from forebay.telemetry.ledger import SEND_QUEUE, Account

FullBehavior = Literal["drop_oldest", "drop_newest", "block"]

FAILOVER_SECONDS = 5.0
"""How often batches go from the failover queue back to the send queue."""
FAILOVER_BATCHES = 10

_log = logging.getLogger("forebay.export")


@dataclass(frozen=True, slots=True)
class QueueFeedOptions:
    full_behavior: FullBehavior = "drop_oldest"
    block_seconds: float = 30.0
    sync_seconds: float = 1.0
    failover_seconds: float = FAILOVER_SECONDS


class QueueFeed:
    """A `Feed` of batches that were pushed. Its methods are called on one event loop."""

    def __init__(
        self,
        name: str,
        queue: SendQueue[ExportBatch],
        failover: SendQueue[ExportBatch],
        dead_letters: DeadLetters,
        clock: Clock,
        options: QueueFeedOptions,
    ) -> None:
        self.name = name
        self.queue = queue
        self.failover = failover
        self.dead_letters = dead_letters
        self.counts: Counter[str] = Counter()
        """pushed, failover_push, failover_drain, failover_drain_errors, dead, disk_full; confirmed, left_dead: batches
        that left the queue as a whole, because the destination has them, or some of them is a dead letter now."""
        self._found = 0
        """Batches that were in the queue when it was opened."""
        self._buried: set[int] = set()
        """Claims of which something was buried."""
        self.dropped: Counter[str] = Counter()
        """Batches, by reason."""
        self.configured_bytes = queue.limits.bytes_max
        """The limit as it was set; an adaptive one may be lower for a while."""
        self._clock = clock
        self._options = options
        self._is_stopping = False
        self._pushed = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        figures = self.queue.figures()
        self._found = figures.batches + figures.lost + self.failover.figures().batches
        self._tasks = [asyncio.create_task(self._keep_synced()), asyncio.create_task(self._drain_failover())]

    # in

    async def push(self, batch: ExportBatch) -> None:
        """Accept a batch. Raises SendQueueFull, BatchTooLarge or SendQueueWriteFailed if it is not."""
        try:
            await self._push(batch)
        except SendQueueWriteFailed as failed:
            self.counts["disk_full"] += failed.is_disk_full
            self._to_failover(batch, failed)
        self.counts["pushed"] += 1
        self.counts["pushed_items"] += batch.items
        self._pushed.set()

    async def _push(self, batch: ExportBatch) -> None:
        try:
            self.queue.push(batch)
        except SendQueueFull as full:
            await self._make_room(batch, full)

    async def _make_room(self, batch: ExportBatch, full: SendQueueFull) -> None:
        behavior = self._options.full_behavior
        if behavior == "drop_oldest":
            self._push_over_oldest(batch)
        elif behavior == "block":
            await self._push_when_room(batch)
        else:
            self.dropped["newest"] += 1
            raise full

    def _push_over_oldest(self, batch: ExportBatch) -> None:
        while True:
            dropped = self.queue.drop_oldest()
            if dropped is not None:
                self._tell_drop("oldest")
            try:
                self.queue.push(batch)
            except SendQueueFull:
                if dropped is None:  # all that is there is under way
                    self.dropped["oldest_drop_failed"] += 1
                    raise
            else:
                return

    def _tell_drop(self, reason: str) -> None:
        self.dropped[reason] += 1
        if self.dropped[reason] in (1, 10, 100) or self.dropped[reason] % 1000 == 0:
            message = "%s: the send queue is full; %d batches dropped so far (%s)"
            _log.warning(message, self.name, self.dropped[reason], reason, extra={"action": "batches_dropped"})

    async def _push_when_room(self, batch: ExportBatch) -> None:
        deadline = self._clock.monotonic() + self._options.block_seconds
        while True:
            self._room.clear()
            try:
                self.queue.push(batch)
            except SendQueueFull:
                left = deadline - self._clock.monotonic()
                if left <= 0 or self._is_stopping:
                    self.dropped["block_timeout"] += 1
                    raise
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._room.wait(), left)
            else:
                return

    def _to_failover(self, batch: ExportBatch, failed: SendQueueWriteFailed) -> None:
        try:
            self.failover.push(batch)
        except (SendQueueFull, SendQueueWriteFailed, BatchTooLarge):
            self.dropped["disk_full" if failed.is_disk_full else "error"] += 1
            raise failed from None
        self.counts["failover_push"] += 1
        if self.counts["failover_push"] == 1:
            _log.error(
                "%s: %s; batches go to the failover queue", self.name, failed, extra={"action": "failover_begins"}
            )

    # out

    async def claim(self) -> Claim | None:
        while not self._is_stopping:
            self._pushed.clear()
            entry = self.queue.claim()
            if entry is not None:
                return entry
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._pushed.wait(), self.queue.due_in())
        return None

    async def confirm(self, claim: Claim) -> None:
        self.queue.confirm(claim)
        is_dead = id(claim) in self._buried
        self._buried.discard(id(claim))
        self.counts["left_dead" if is_dead else "confirmed"] += 1
        self._room.set()

    async def release(self, claim: Claim, delay_seconds: float) -> None:
        self.queue.release(claim, delay_seconds)
        self._pushed.set()

    async def put_back(self, claim: Claim) -> None:
        await self.release(claim, 0.0)

    async def bury(self, claim: Claim, part: ExportBatch, failed: SendFailed) -> None:
        await asyncio.to_thread(self.dead_letters.add, part, failed, claim.attempts)
        self.counts["dead"] += 1
        self._buried.add(id(claim))

    def hasten(self) -> None:
        self.queue.hasten()
        self._pushed.set()

    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return self.queue.figures().batches == 0 and self.failover.figures().batches == 0

    def depth(self) -> int:
        figures = self.queue.figures()
        return figures.batches - figures.claimed

    def account(self) -> Account:
        """What became of the batches that were accepted, since it was opened."""
        counts, figures = self.counts, self.queue.figures()
        parts = {
            "waiting": figures.batches,
            "failover": self.failover.figures().batches,
            "confirmed": counts["confirmed"],
            "dead": counts["left_dead"],
            "dropped: oldest": self.dropped["oldest"],
            "lost": figures.lost,
        }
        return Account(SEND_QUEUE, self.name, "", self._found + counts["pushed"], parts)

    def recount(self) -> Recount:
        """Of the send queue and the failover queue together. Reads files: not for the event loop."""
        found = self.queue.recount(), self.failover.recount()
        kept, counted = sum(one.kept for one in found), sum(one.counted for one in found)
        return Recount(kept, counted, all(one.is_exact for one in found))

    def stop_claims(self) -> None:
        self._is_stopping = True
        self._pushed.set()
        self._room.set()

    async def close(self) -> None:
        """Stop, and keep what is left on disk. Raises SendQueueWriteFailed if the disk refuses."""
        self.stop_claims()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await asyncio.to_thread(self.failover.close)
        finally:  # what is in the one must not be lost because the disk refuses the other
            await asyncio.to_thread(self.queue.close)

    # beside

    async def _keep_synced(self) -> None:
        while True:
            await asyncio.sleep(self._options.sync_seconds)
            for queue in (self.queue, self.failover):
                try:
                    await asyncio.to_thread(queue.sync)
                except SendQueueWriteFailed as failed:
                    _log.error("%s: %s", self.name, failed, extra={"action": "sendqueue_sync_failed"})
                except Exception:  # noqa: BLE001 - a loop that ends would leave all that comes unsynced, in silence
                    _log.exception("%s: cannot be synced", self.name, extra={"action": "sendqueue_sync_failed"})

    async def _drain_failover(self) -> None:
        while True:
            await asyncio.sleep(self._options.failover_seconds)
            try:
                for _ in range(FAILOVER_BATCHES):
                    if not self._drain_one():
                        break
            except Exception:  # noqa: BLE001 - a loop that ends would leave the failover queue full for good
                _log.exception(
                    "%s: the failover queue cannot be drained", self.name, extra={"action": "failover_stays"}
                )

    def _drain_one(self) -> bool:
        entry = self.failover.claim()
        if entry is None:
            return False
        try:
            self.queue.push(entry.batch)
        except (SendQueueFull, SendQueueWriteFailed):
            self.failover.release(entry)
            self.counts["failover_drain_errors"] += 1
            return False
        self.failover.confirm(entry)
        self.counts["failover_drain"] += 1
        self._pushed.set()
        return True
