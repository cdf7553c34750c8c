"""What happens to one claimed batch, from the first attempt to its end: sent, split, released, or buried.

| the destination's answer | this delivery |
|---|---|
| yes | the claim is confirmed |
| too large | the part is split in halves, which are sent instead; batches that large are split ahead from now on |
| away, overloaded, or asks for patience | the claim is released until its next attempt |
| will not take it | the same, `max_attempts` times; then the part is buried and the rest of the claim goes on |
| finds something wrong in it (400, 422) | the same; then it is split, and items that are refused alone are buried |
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field

from forebay.clock import Clock
from forebay.errors import ForebayError
from forebay.export.batch import ExportBatch
from forebay.export.destination import Destination, Prepared, Receipt
from forebay.export.feed import Claim, Feed
from forebay.export.outcome import AWAY, ErrorClass, SendFailed
from forebay.export.splitting import halves
from forebay.model.histogram import Histogram
from forebay.sendqueue.backoff import Backoff
from forebay.sendqueue.breaker import Breaker, State
from forebay.sendqueue.entry import Entry
from forebay.sendqueue.scaling import Latency

PREPARED_INLINE_BYTES = 16 << 10
"""Smaller batches are prepared on the event loop, as are all of a destination that has next to nothing to prepare: a
thread would take longer to hear of them."""
CEILING_BYTES_MIN = 512
CEILING_RATIO = 0.8

_log = logging.getLogger("forebay.export")


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    backoff: Backoff = field(default_factory=Backoff)
    breaker_threshold: int = 5
    breaker_reset_seconds: float = 30.0
    is_breaker_enabled: bool = True
    max_attempts: int = 3
    """For what a destination refuses for good. What it may take later is tried for as long as it takes."""
    max_elapsed_seconds: float = 0.0
    """Since the first attempt; 0 for no limit."""
    is_in_order: bool = False
    """Whether a batch that has to wait holds up those behind it."""


class Delivery:
    """Sends claims of one feed to one destination."""

    def __init__(
        self, destination: Destination, feed: Feed, clock: Clock, options: DeliveryOptions, limit: asyncio.Semaphore
    ) -> None:
        self.breaker = Breaker(
            clock,
            threshold=options.breaker_threshold,
            reset_seconds=options.breaker_reset_seconds,
            is_enabled=options.is_breaker_enabled,
        )
        self.latency = Latency()
        self.times = Histogram()
        """How long sends took."""
        self.counts: Counter[str] = Counter()
        """sent, sent_items, rejected_items, retried, retried_well, split, buried, in_flight."""
        self.failures: Counter[str] = Counter()
        """Attempts that failed, by class of error."""
        self.backoff_seconds = 0.0
        """The last wait that was decided; 0 after a success."""
        self.ceiling_bytes: int | None = None
        """Batches larger than this are split before they are sent: the destination has said so."""
        self.last_error = ""
        self._destination = destination
        self._feed = feed
        self._clock = clock
        self._options = options
        self._limit = limit
        self._paused_until = 0.0
        self._changed = asyncio.Event()

    # may it be tried

    @property
    def is_open(self) -> bool:
        """Whether the destination may be tried now."""
        return self.breaker.state is State.CLOSED and self._paused_until <= self._clock.monotonic()

    def seconds_until_open(self) -> float:
        """How long the destination is left alone yet; 0 when it may be tried."""
        return max(self._paused_until - self._clock.monotonic(), self.breaker.seconds_until_probe(), 0.0)

    async def wait_until_open(self) -> None:
        """Wait while the breaker is open or its probe is under way, and while the destination requested patience."""
        while True:
            self._changed.clear()
            seconds = self.seconds_until_open()
            if self.breaker.state is not State.HALF_OPEN and seconds <= 0:
                return
            await _wait(self._changed, max(seconds, 0.05))

    # one claim

    async def prepare_ahead(self, claim: Claim) -> None:
        """Convert and compress the first part now, so that sending is only sending. Faults come up when it is sent."""
        if not claim.parts:  # all of it was taken; what is left to do is to confirm it
            return
        try:
            claim.prepared = await self._prepared(claim.parts[0])
        except SendFailed:
            claim.prepared = None

    async def deliver(self, claim: Claim) -> None:
        """Send a claim; when this returns it is confirmed, buried or released."""
        if not self.breaker.allow():
            await self._feed.release(claim, 0.0)
            return
        if claim.first_attempt is None:
            claim.first_attempt = self._clock.monotonic()
        try:
            await self._send_parts(claim)
            await self._feed.confirm(claim)
        except SendFailed as failed:
            await self._put_back(claim, failed)
        except ForebayError as error:
            # The feed could not note the outcome (its store or disk is away): the batch is sent again.
            _log.warning("%s: %s", self._destination.name, error, extra={"action": "export_not_noted"})
            await self._put_back(claim, SendFailed(ErrorClass.NETWORK, str(error)))
        except BaseException:
            self.breaker.undecided()
            await self._feed.release(claim, 0.0)
            raise

    async def try_at_once(self, batch: ExportBatch) -> bool:
        """Send a batch that is in no queue, once, if the destination may be tried. False if it was not taken.

        It may be the breaker's probe: without a send queue there is no other batch that could close the breaker.
        """
        if self.seconds_until_open() > 0 or not self.breaker.allow():
            return False
        claim: Claim = Entry(0, batch, batch.size, batch.accepted_us)
        claim.attempts = 1
        try:
            receipt = await self._send(batch, claim)
        except SendFailed as failed:
            self._note_failure(failed)
            return False
        except BaseException:
            self.breaker.undecided()
            raise
        self._note_success(claim, batch, receipt)
        return True

    async def _send_parts(self, claim: Claim) -> None:
        while claim.parts:
            try:
                await self._advance(claim)
            except SendFailed as failed:
                if not self._options.is_in_order:
                    raise
                self.counts["retried"] += 1
                await asyncio.sleep(self._in_order_seconds(claim, failed))
                await self.wait_until_open()
                self.breaker.allow()

    async def _advance(self, claim: Claim) -> None:
        """Send the first part, or split it, or bury it. Raises SendFailed if the claim has to wait."""
        part = claim.parts[0]
        if self.ceiling_bytes is not None and part.size > self.ceiling_bytes and self._split(claim):
            return
        claim.attempts += 1
        try:
            receipt = await self._send(part, claim)
        except SendFailed as failed:
            self._note_failure(failed)
            if failed.error is ErrorClass.TOO_LARGE and self._split(claim):
                self.ceiling_bytes = max(int(part.size * CEILING_RATIO), CEILING_BYTES_MIN)
                claim.attempts -= 1
                return
            if not self._is_given_up(claim, failed):
                raise
            if failed.is_of_content and self._split(claim):
                # Some item of it is wrong: each half is tried once more, down to the one that is.
                claim.is_searched = True
                claim.attempts = self._options.max_attempts - 1
                return
            await self._bury(claim, failed)
        else:
            self._note_success(claim, part, receipt)
        claim.parts.pop(0)
        claim.attempts = self._options.max_attempts - 1 if claim.is_searched else 0

    def _split(self, claim: Claim) -> bool:
        """Put halves in the place of the first part. False if it is a single item."""
        parts = halves(claim.parts[0])
        if not parts:
            return False
        claim.parts[:1] = parts
        claim.prepared = None
        self.counts["split"] += 1
        return True

    async def _send(self, part: ExportBatch, claim: Claim) -> Receipt:
        prepared, claim.prepared = claim.prepared, None
        if not isinstance(prepared, Prepared):
            prepared = await self._prepared(part)
        async with self._limit:
            self.counts["in_flight"] += 1
            began = self._clock.monotonic()
            try:
                return await self._destination.send(prepared)
            except SendFailed:
                raise
            except Exception as error:
                raise _unforeseen(self._destination.name, error) from error
            finally:
                self.counts["in_flight"] -= 1
                seconds = self._clock.monotonic() - began
                self.latency.add(seconds)
                self.times.note(seconds)

    async def _prepared(self, part: ExportBatch) -> Prepared:
        try:
            if part.size <= PREPARED_INLINE_BYTES or self._destination.is_prepared_inline:
                return self._destination.prepare(part)
            return await asyncio.to_thread(self._destination.prepare, part)
        except SendFailed:
            raise
        except Exception as error:
            raise _unforeseen(self._destination.name, error) from error

    # outcomes

    def _note_success(self, claim: Claim, part: ExportBatch, receipt: Receipt) -> None:
        self.counts["sent"] += 1
        self.counts["sent_items"] += part.items
        self.counts["retried_well"] += claim.attempts > 1
        self.backoff_seconds = 0.0
        if receipt.rejected or receipt.message:
            self.counts["rejected_items"] += receipt.rejected
            message = "%s: took a batch and rejected %d of its %d items: %s"
            _log.warning(
                message,
                self._destination.name,
                receipt.rejected,
                part.items,
                receipt.message,
                extra={"action": "export_partial"},
            )
        self._destination_is_there()

    def _destination_is_there(self) -> None:
        if self.breaker.success():
            _log.info("%s: is back", self._destination.name, extra={"action": "destination_back"})
            self._feed.hasten()
        self._changed.set()

    def _note_failure(self, failed: SendFailed) -> None:
        self.failures[failed.error] += 1
        self.last_error = f"{failed.error}: {failed.message}"
        if failed.error not in AWAY:
            self._destination_is_there()
            return
        was_open = self.breaker.state is State.OPEN
        self.breaker.failure()
        self._changed.set()
        if self.breaker.state is State.OPEN and not was_open:
            message = "%s: is away (%s); it is left alone for %g s"
            seconds = self._options.breaker_reset_seconds
            _log.warning(message, self._destination.name, failed.message, seconds, extra={"action": "breaker_open"})

    def _is_given_up(self, claim: Claim, failed: SendFailed) -> bool:
        elapsed = self._clock.monotonic() - (claim.first_attempt or 0.0)
        is_too_old = 0 < self._options.max_elapsed_seconds <= elapsed
        return is_too_old or (not failed.is_retryable and claim.attempts >= self._options.max_attempts)

    async def _bury(self, claim: Claim, failed: SendFailed) -> None:
        """Raises SendFailed if the dead letter cannot be kept now: then the batch is not given up."""
        part = claim.parts[0]
        try:
            await self._feed.bury(claim, part, failed)
        except (OSError, ForebayError) as error:
            message = f"{failed.message} (and no dead letter can be written: {error})"
            self.last_error = f"{failed.error}: {message}"
            _log.error("%s: %s", self._destination.name, message, extra={"action": "export_not_buried"})
            raise SendFailed(failed.error, message) from error
        self.counts["buried"] += 1
        message = "%s: %d items are a dead letter after %d attempts: %s"
        name = self._destination.name
        _log.error(message, name, part.items, claim.attempts, failed.message, extra={"action": "export_dead_letter"})

    async def _put_back(self, claim: Claim, failed: SendFailed) -> None:
        self.counts["retried"] += 1
        wait = self._wait_seconds(claim, failed)
        self.breaker.undecided()
        await self._feed.release(claim, wait)

    def _in_order_seconds(self, claim: Claim, failed: SendFailed) -> float:
        """Where one batch holds up all others, the destination is tried as often as the breaker would try it."""
        wait = self._wait_seconds(claim, failed)
        if not self._options.is_breaker_enabled or failed.retry_after:
            return wait
        return min(wait, self._options.breaker_reset_seconds)

    def _wait_seconds(self, claim: Claim, failed: SendFailed) -> float:
        self.backoff_seconds = self._options.backoff.seconds(claim.attempts, failed.retry_after)
        if failed.error is ErrorClass.RATE_LIMIT and failed.retry_after:
            self._paused_until = max(self._paused_until, self._clock.monotonic() + failed.retry_after)
        return self.backoff_seconds


def _unforeseen(name: str, error: Exception) -> SendFailed:
    """A bug of ours or of a library must not stop a worker: the batch is tried again and then a dead letter."""
    _log.exception("%s: an error that was not foreseen", name, extra={"action": "export_unforeseen"})
    return SendFailed(ErrorClass.UNKNOWN, f"{type(error).__name__}: {error}")


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
